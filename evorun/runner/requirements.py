"""Checks that this machine has what a run needs, before a stage costs hours or money."""

import dataclasses
from collections.abc import Mapping
from typing import Any

from evorun.errors import ConfigError, EvorunError
from evorun.models.adapters import OUTPUT_LAYER_SERVED
from evorun.models.chat import load_tokenizer, require_tool_turn
from evorun.models.config import ServedModel
from evorun.models.devices import device_environment
from evorun.models.vllm.startup import is_cpu_build
from evorun.runner.served import require_engine
from evorun.runner.settings import RunConfig, check
from evorun.runner.student import in_stage, teacher_composition, tuning_composition
from evorun.runner.training_runs import serving, trainer_engine
from evorun.tasks.capabilities import HasTools
from evorun.tracking.choices import require_trackers
from evorun.training.config import TrainingConfig
from evorun.training.requirements import require_packages, require_trainable, require_tunable
from evorun.training.settings import require_several, require_share


def require_parts(config: RunConfig) -> None:
    """Check for the packages, weights and keys of a run's engines, its trainer and the stages before it.

    Quick: loads no weights. Raises EngineError, TrainingError or ConfigError in one line, which names the stage.
    """
    require_trackers(config.trackers)
    model = config.model
    if config.student is not None:
        model = dataclasses.replace(model, adapter="made by the stages")
    for role, served in {"policy": ServedModel(model, serving(config)), **config.others}.items():
        require_engine(served, config.raw, role)
    if config.engine.replays:
        return
    renders = config.engine.renders_prompts(config.model, trains=config.training is not None)
    if issubclass(config.task.task_class, HasTools) and renders:
        require_tool_turn(load_tokenizer(config.model), config.model)
    # The engine's own check has found Tinker's package and key.
    if config.training is not None and not (config.engine.simulated or config.engine.on_tinker):
        require_packages(config.training)
        require_several(config.training)
        device_environment("training.devices", config.training.devices)
        require_trainer(config)
    for stage, of_stage in student_stages(config).items():
        try:
            require_parts(of_stage)
        except EvorunError as error:
            raise in_stage(stage, error) from error


def require_trainer(config: RunConfig) -> None:
    """Check the model that a run trains, if other engines would load first, for minutes.

    A trainer that loads first does this check itself. Raises EngineError or ConfigError.
    """
    if config.training is None or config.engine.on_tinker:
        return
    if config.others or not config.engine.is_trainer:
        _, layers = require_trainable(config.model, config.training, trainer_engine(config.engine).device)
        if config.engine.served_by_vllm:
            require_served_targets(layers, config.training, cpu=config.engine.loads_weights and is_cpu_build())


def require_served_targets(layers: Any, training: TrainingConfig, *, cpu: bool = False) -> None:
    """Raise ConfigError for an adapter on layers where vLLM would refuse it after the first update, or ignore it.

    layers: the model, without weights. cpu: the engine is vLLM's CPU build.
    """
    from evorun.models.vllm.sparse import describe_unserved
    from evorun.training.experts import ALL_LINEAR, find_targets
    from evorun.training.weights import adapts_output

    served = type(layers).__name__ in OUTPUT_LAYER_SERVED
    if training.weights == "lora" and not served and adapts_output(layers, training.target_modules):
        raise ConfigError(
            f"training.target_modules: includes the output layer, where vLLM takes no adapter for "
            f"{type(layers).__name__}; expected engine=transformers, or training.target_modules=[{ALL_LINEAR}]"
        )
    targets = find_targets(layers, training.target_modules) if training.weights == "lora" else None
    if targets is None:
        return
    unserved = describe_unserved(layers, targets.layers, cpu=cpu)
    if unserved is None and len(targets.experts) == 1:
        unserved = f"{targets.experts[0]} alone, while vLLM takes adapters on both parameters of the experts or on none"
    if unserved is not None:
        every = find_targets(layers, [ALL_LINEAR])
        names = () if every is None else sorted(every.layers)
        left = [name for name in names if describe_unserved(layers, {name}, cpu=cpu) is None]
        others = f", or only {', '.join(left)}" if left else ""
        raise ConfigError(f"training.target_modules: includes {unserved}; expected engine=transformers{others}")


def require_student(config: RunConfig) -> None:
    """Check what the fine-tuning of a run's student needs: the model, its chat template, the adapter's layers.

    Takes seconds, to read the model's configuration and tokenizer. Raises an EvorunError that names the stage.
    """
    if config.engine.simulated:  # it has no weights
        return
    tuning = student_stages(config)["student"]
    assert tuning.training is not None  # noqa: S101 - `check` refuses a fine-tuning that trains nothing
    try:
        require_share(tuning.method.config.batch, tuning.training.processes)
        require_tunable(tuning.model, tuning.training, trainer_engine(tuning.engine).device)
    except EvorunError as error:
        raise in_stage("student", error) from error


def student_stages(config: RunConfig) -> Mapping[str, RunConfig]:
    """Return the configurations of the runs before a student's, by stage."""
    if config.student is None:
        return {}
    return {
        "teacher": check(teacher_composition(config.raw)),
        "student": check(tuning_composition(config.raw, data="traces.jsonl")),
    }
