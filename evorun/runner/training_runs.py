"""The policy and the training problems of a run that trains."""

import dataclasses
from pathlib import Path

from evorun.errors import DataError
from evorun.models.config import EngineConfig
from evorun.models.transformers.engine import TransformersConfig
from evorun.models.vllm.engine import VllmConfig
from evorun.runner.settings import RunConfig
from evorun.runs.directory import RunDirectory
from evorun.runs.replay import RecordedRun, ReplayConfig
from evorun.tasks.base import LoadedTask
from evorun.training.policy import Policy
from evorun.training.simulated import BothSplits


def training_problems(config: RunConfig, loaded: LoadedTask) -> LoadedTask | None:
    """Return the task's training split where the method learns from problems; none of it is a problem of the run.

    Raises DataError or ConfigError when there is none.
    """
    if not config.method.learns_from_problems:
        return None
    training = config.task.training()
    if not training.problems:
        raise DataError(f"task={config.task.name}: expected problems to train on, found none in its training split")
    # A training problem in the test set would inflate the accuracy unnoticed.
    both = {problem.id for problem in training.problems} & {problem.id for problem in loaded.problems}
    if both:
        raise DataError(
            f"task={config.task.name}: expected other problems to train on than to test on, got '{min(both)}' as both"
        )
    return training


def open_policy(config: RunConfig, directory: RunDirectory) -> Policy:
    """Return the policy that the run trains; its trainer starts when it is first needed."""
    assert config.training is not None  # noqa: S101 - asked for only where weights are trained
    engine = config.engine
    return Policy(
        model=config.model,
        engine=engine if isinstance(engine, TransformersConfig) else TransformersConfig(),
        training=config.training,
        objective=config.method.objective(directory.path),
        seed=config.seed,
        run=directory.path,
        journal=directory.journal,
        past=RecordedRun(Path(engine.run)) if isinstance(engine, ReplayConfig) and engine.run is not None else None,
    )


def simulating(loaded: LoadedTask, training: LoadedTask | None) -> LoadedTask:
    """Return the task with a simulator that knows the problems to train on, too."""
    if training is None:
        return loaded
    ids = frozenset(problem.id for problem in training.problems)
    return dataclasses.replace(loaded, simulator=BothSplits(loaded.simulator, training.simulator, ids))


def serving(config: RunConfig) -> EngineConfig:
    """Return the run's engine, ready for the adapters that the run trains."""
    # vLLM reserves room for adapters when it starts, for ranks up to the one given.
    if config.training is not None and isinstance(config.engine, VllmConfig):
        return dataclasses.replace(config.engine, lora_rank=config.training.rank)
    return config.engine
