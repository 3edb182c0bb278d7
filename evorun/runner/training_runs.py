"""The policy and the training problems of a run that trains."""

import dataclasses
from functools import singledispatch
from pathlib import Path

from evorun.errors import ConfigError, DataError
from evorun.methods.learning.sft import Sft
from evorun.models.architecture import read_architecture
from evorun.models.base import LanguageModel
from evorun.models.config import EngineConfig, GpuUse, ModelConfig
from evorun.models.devices import visible_gpus
from evorun.models.transformers.engine import TransformersConfig
from evorun.models.vllm.engine import DEFAULT_SHARE
from evorun.runner.settings import RunConfig
from evorun.runner.weight_transfers import choose_transfer
from evorun.runs.directory import RunDirectory
from evorun.runs.replay import RecordedRun
from evorun.runs.spending import EXPERT
from evorun.simulation.engine import SimulatedConfig
from evorun.simulation.simulator import SplitSimulator, TaskSimulator
from evorun.tasks.base import LoadedTask
from evorun.tasks.capabilities import SupportsRubrics
from evorun.training.config import TrainingConfig
from evorun.training.policy import Policy
from evorun.training.reach import describe_short_reach
from evorun.training.simulated import SimulatedPolicy
from evorun.training.simulated_tuning import SimulatedTuning, can_grade
from evorun.training.wire import FineTuning


def training_problems(config: RunConfig, loaded: LoadedTask) -> LoadedTask | None:
    """Return the task's training split, for methods that learn from problems; it shares no problem with the run.

    Raises DataError or ConfigError when there is none.
    """
    if not config.method.learns_from_problems:
        return None
    training = config.task.load_training()
    if not training.problems:
        raise DataError(f"task={config.task.name}: expected problems to train on, found none in its training split")
    # A training problem in the test set would inflate the accuracy unnoticed.
    both = {problem.id for problem in training.problems} & {problem.id for problem in loaded.problems}
    if both:
        raise DataError(
            f"task={config.task.name}: expected other problems to train on than to test on, got '{min(both)}' as both"
        )
    settings = config.method.rubric_settings
    if settings is not None and isinstance(training.task, SupportsRubrics):
        for key in training.task.rubric_keys():  # check now, before there is a run directory
            training.task.starting_rubric(settings.rubric or "", key)
    shown = config.method.setting_that_shows_answers
    if shown is not None and training.answers.keys().isdisjoint(problem.id for problem in training.problems):
        raise ConfigError(
            f"{shown}: expected right answers to the training problems of task={config.task.name}, which has none; set "
            f"{shown}=false"
        )
    return training


@singledispatch
def trainer_engine(engine: EngineConfig) -> TransformersConfig:
    """Return the settings of a trainer's own decoding beside an engine."""
    return TransformersConfig()


@trainer_engine.register
def _(engine: TransformersConfig) -> TransformersConfig:
    return engine


def open_policy(config: RunConfig, training: TrainingConfig, directory: RunDirectory) -> Policy:
    """Return the policy that the run trains; its trainer starts on first use."""
    recorded = config.engine.recorded
    origin = None if directory.manifest is None else directory.manifest.origin
    return Policy(
        model=config.model,
        engine=trainer_engine(config.engine),
        training=dataclasses.replace(
            training,
            devices=trainer_devices(config, training),
            base_url=training.base_url or config.engine.trainer_url,
        ),
        objective=config.method.make_objective(directory.path),
        seed=config.seed,
        run=directory.path,
        journal=directory.journal,
        past=None if recorded is None else RecordedRun(recorded),
        note_reduction=directory.note_smaller_passes,
        first_checkpoint=0 if origin is None else origin.first_checkpoint,
    )


def open_simulated(
    engine: SimulatedConfig,
    config: RunConfig,
    training: TrainingConfig,
    directory: RunDirectory,
    base: LanguageModel,
    loaded: LoadedTask,
) -> SimulatedPolicy:
    """Return the simulated policy that the run trains, by rewards or on conversations. base: the untrained model."""
    name, run, journal = config.model.id, directory.path, directory.journal
    if config.method.learns_from_rewards:
        return SimulatedPolicy(name, base, engine, run, journal, training.max_lag)
    objective = config.method.make_objective(run)
    assert isinstance(objective, FineTuning)  # noqa: S101 - what learns neither from rewards nor problems is fine-tuned
    grader = tuning_grader(config, loaded)
    return SimulatedTuning(
        name,
        base,
        engine,
        run,
        journal,
        objective=objective,
        seed=config.seed,
        task=config.task.name,
        grader=grader,
    )


def simulating(loaded: LoadedTask, training: LoadedTask | None) -> LoadedTask:
    """Return the task with a simulator that also knows the training problems."""
    if training is None:
        return loaded
    ids = frozenset(problem.id for problem in training.problems)
    return dataclasses.replace(loaded, simulator=SplitSimulator(loaded.simulator, training.simulator, ids))


def tuning_grader(config: RunConfig, loaded: LoadedTask) -> TaskSimulator:
    """Return a simulator of the run's problems and, where the task has any, of its training problems."""
    try:
        training = config.task.load_training()
    except (ConfigError, DataError):  # none, or the run is on that split itself
        return loaded.simulator
    return simulating(loaded, training).simulator


@singledispatch
def require_gradable(engine: EngineConfig, config: RunConfig, loaded: LoadedTask) -> None:
    """Raise DataError, naming the line, for a conversation from which the run's simulated model cannot learn."""


@require_gradable.register
def _(engine: SimulatedConfig, config: RunConfig, loaded: LoadedTask) -> None:
    if not isinstance(config.method, Sft) or engine.data_skill is not None:
        return
    grader, data = tuning_grader(config, loaded), config.method.split
    for conversation in (*data.train, *data.held_out):
        if not can_grade(conversation, config.task.name, grader):
            raise DataError(
                f"{config.method.source}, line {conversation.line}: engine=simulated learns from answers to problems "
                f"of task={config.task.name}, which it can grade (`evorun traces` exports such), got another "
                "conversation; set engine.data_skill to the skill that it shows, or use another engine"
            )


def serving(config: RunConfig) -> EngineConfig:
    """Return the run's engine, ready for the adapters that the run trains, if it trains any.

    Raises ConfigError where the user's own settings leave too little room for them.
    """
    training = config.training
    if training is None:
        return config.engine
    if (transfer := transfer_of(config)) != "folder":
        return config.engine.for_transfer(transfer)
    if training.weights == "full":
        return config.engine
    engine = config.engine.for_adapters(largest_rank(config.model, training), 1 + training.former_versions)
    return engine.beside_trainer(training.base_url)


def transfer_of(config: RunConfig) -> str:
    """Return how weights reach the policy's engine: ipc, nccl or folder. Raises ConfigError, see `choose_transfer`."""
    training, engine = config.training, config.engine
    if training is None or engine.simulated or engine.replays:
        return "folder"
    return choose_transfer(training, config.model, engine, trainer_devices(config, training))


def largest_rank(model: ModelConfig, training: TrainingConfig) -> int:
    """Return the largest rank in an adapter: twice `training.rank` where experts join two projections.

    It is `training.rank` for a model whose config.json is not known yet.
    """
    shape = read_architecture(model)
    joins = shape is not None and shape.experts > 0 and shape.matrices == 3
    return training.rank * (2 if joins and training.names_experts else 1)


def trainer_devices(config: RunConfig, training: TrainingConfig) -> list[int] | None:
    """Return the trainer's GPUs: as set, else those that vLLM leaves free; None (any GPU) if these are too few."""
    uses = _gpu_uses(config)
    if training.devices is not None or training.accelerate_config is not None or not uses:
        return training.devices
    taken = {device for use in uses for device in use.devices}
    free = [device for device in range(len(visible_gpus())) if device not in taken]
    return free[: training.processes] if len(free) >= training.processes else None


def shared_gpus(config: RunConfig) -> list[str]:
    """Return warnings about GPUs whose memory the trainer and vLLM would both fill."""
    if config.training is None or config.engine.simulated or config.engine.replays or not visible_gpus():
        return []
    own = set(trainer_devices(config, config.training) or range(config.training.processes))
    lines = []
    for use in _gpu_uses(config):
        shared = sorted(own & set(use.devices))
        if shared and not use.sleeps and use.share >= DEFAULT_SHARE:
            lines.append(
                f"the trainer and engine=vllm share GPU {', '.join(map(str, shared))}, and vLLM takes nearly all its "
                "memory: set engine.sleep=true and lower engine.gpu_memory_utilization, or name GPUs in engine.devices "
                "and training.devices"
            )
    return lines


def grades_own_reward(config: RunConfig) -> list[str]:
    """Return a warning if the gold judge is the reward model and grades by the reward's rubric."""
    alike, settings = config.others.get("gold") == config.others.get("reward"), config.method.rubric_settings
    by_expert = settings is not None and settings.rubric == EXPERT
    if not (config.task.task_class.graded_by_opinion and alike and by_expert):
        return []
    return [
        f"the gold judge is the reward model and grades by the reward's rubric ({EXPERT}), so gold scores cannot "
        "diverge from rewards; set gold=MODEL, or another rubric"
    ]


def trains_too_little(config: RunConfig) -> list[str]:
    """Return a warning if learning rate, scale and number of steps leave the adapter where it starts."""
    simulated = config.engine.simulated or config.engine.replays
    # The objective of a fine-tuning reads data, which decides its number of steps.
    if config.training is None or simulated or not config.method.learns_from_rewards:
        return []
    line = describe_short_reach(config.training, config.method.make_objective(Path()))
    return [] if line is None else [line]


def samples_from_other_weights(config: RunConfig) -> list[str]:
    """Return a note if completions come from the base weights that the trainer has quantised."""
    elsewhere = config.engine.simulated or config.engine.replays or config.engine.is_trainer
    if config.training is None or config.training.quantise is None or elsewhere:
        return []
    if not config.method.learns_from_rewards:  # a fine-tuning asks for no completions
        return []
    return [
        f"training.quantise={config.training.quantise} rounds the trainer's base weights, and not those of "
        f"engine={config.engine.name}: importance ratios correct for it, and sampler_kl in training.jsonl says how far "
        "the two are apart"
    ]


def _gpu_uses(config: RunConfig) -> list[GpuUse]:
    engines = [config.engine, *(served.engine for served in config.others.values())]
    return [use for engine in engines if (use := engine.gpu_use) is not None]
