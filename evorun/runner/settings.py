"""A composed configuration, checked: from YAML to the typed objects that a run is built from."""

import dataclasses
import difflib
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from typing import Any, TypeVar, cast

import msgspec
from omegaconf import OmegaConf
from omegaconf.errors import ConfigKeyError, OmegaConfBaseException

from evorun.errors import ConfigError, at_least, one_of
from evorun.methods.base import Method
from evorun.models.auto import automatic_engine
from evorun.models.config import OTHER_ROLES, EngineConfig, ModelConfig, ServedModel
from evorun.models.simulated import SimulatedConfig
from evorun.models.transformers.engine import TransformersConfig
from evorun.runner import registry
from evorun.runner.student import StudentConfig, in_stage, teacher_composition, tuning_composition
from evorun.runs.budget import BudgetConfig
from evorun.runs.configs import refuse_interpolations
from evorun.runs.replay import ReplayConfig
from evorun.runs.schema import Reported
from evorun.sandbox.config import SandboxConfig
from evorun.tasks.base import TaskConfig
from evorun.training.config import TrainingConfig

T = TypeVar("T")

AUTOMATIC = "auto"
"""`engine=auto`: evorun chooses the engine."""

TOP_LEVEL = (
    *("method", "task", "model", "engine"),
    *(key for role in OTHER_ROLES for key in (role, f"{role}_engine")),
    *("budget", "sandbox", "training"),
    *("student", "teacher", "teacher_engine"),
    *("seed", "run", "evorun", "reported"),
)
"""The keys of a run's configuration."""

SAME_AS_POLICY = "policy"
"""`judge=policy`: the policy model judges; `judge_engine=policy`: on the policy's kind of engine. So for any role."""


@dataclass
class RunSettings:
    """Execution of a run."""

    concurrency: int = 256
    """Problems in flight at once."""
    stages: str = "outputs/stages"
    """Folder of the stages that students are made in; runs share them."""

    def __post_init__(self) -> None:
        at_least("run.concurrency", self.concurrency, 1)
        if not self.stages:
            raise ConfigError("run.stages: expected a folder, got an empty string")


@dataclass
class ProgramSettings:
    """Behaviour of the program itself."""

    debug: bool = False
    """Show tracebacks."""
    progress: str = "auto"
    """auto | plain | off"""

    def __post_init__(self) -> None:
        one_of("evorun.progress", self.progress, ("auto", "plain", "off"))


@dataclass
class RunConfig:
    """All parts of a run."""

    seed: int
    method: Method
    task: TaskConfig
    model: ModelConfig
    engine: EngineConfig
    budget: BudgetConfig
    others: dict[str, ServedModel] = field(default_factory=dict)
    """Models of other roles (`OTHER_ROLES`); a role that is not here is played by the model itself."""
    sandbox: SandboxConfig = field(default_factory=SandboxConfig)
    training: TrainingConfig | None = None
    """For methods that train; None for the others."""
    run: RunSettings = field(default_factory=RunSettings)
    evorun: ProgramSettings = field(default_factory=ProgramSettings)
    student: StudentConfig | None = None
    """Fine-tuning of the model before the run; None: there is none."""
    raw: dict[str, Any] = field(default_factory=dict)
    """The composed configuration as plain data, for the manifest."""


def check(config: Mapping[str, Any]) -> RunConfig:
    """Turn a composed configuration into typed objects, and check that method and task fit.

    Raises ConfigError naming the key, what was given and what is allowed. Loads no data and no model.
    """
    refuse_interpolations(config)
    seed = config.get("seed", 0)
    # bool is a subclass of int.
    if not isinstance(seed, int) or isinstance(seed, bool) or seed < 0:
        raise ConfigError(f"seed: expected an integer >= 0, got {seed!r:.60}")
    _refuse_long_numbers(seed, "seed")
    method_class = registry.method_class(_name_of(config, "method"))
    task = typed(registry.task_config_class(_name_of(config, "task")), config["task"], "task")
    # First of all: for an impossible pair no other message helps.
    refuse_impossible_pair(method_class, task)
    for key in config:
        if key not in TOP_LEVEL:
            raise ConfigError(f"{key}: unknown key; the top level has {', '.join(TOP_LEVEL)}")
    _check_reported(config.get("reported"))
    asked = ServedModel(typed(ModelConfig, config["model"], "model"), _engine(config, "engine"))
    model, engine = _served(asked)
    student = _student(config, method_class)
    if student is not None:
        # Tables tell a student from its base model by this name.
        model = dataclasses.replace(model, name=f"{model.name}-{student.name}")
    budget = typed(BudgetConfig, config["budget"], "budget")
    settings: Any = typed(method_class.Config, config["method"], "method")
    if budget.generations is not None and hasattr(settings, "generations"):
        settings = dataclasses.replace(settings, generations=min(settings.generations, budget.generations))
    method = cast(Any, method_class)(settings)
    incompatibility = method.incompatibility(task.task_class)
    if incompatibility is not None:
        raise ConfigError(f"method={method.name}: {incompatibility}")
    budget = typed(BudgetConfig, config["budget"], "budget")
    for key in method.ended_by_budget:
        if getattr(method.config, key) is None and not budget.limited:
            raise ConfigError(f"method.{key}: expected a number where there is no budget, got null; set one of them")
    return RunConfig(
        seed=seed,
        method=method,
        task=task,
        model=model,
        engine=engine,
        budget=budget,
        others=_others(config, method_class, ServedModel(model, asked.engine)),
        sandbox=typed(SandboxConfig, config.get("sandbox", {}), "sandbox"),
        training=_training(config, method, model, engine),
        run=typed(RunSettings, config.get("run", {}), "run"),
        evorun=typed(ProgramSettings, config.get("evorun", {}), "evorun"),
        student=student,
        raw=dict(config),
    )


def _student(config: Mapping[str, Any], method: type[Method]) -> StudentConfig | None:
    """Return the student's settings, with both runs that it takes checked; None when the model is not fine-tuned."""
    if config.get("student") is None:
        for key in ("teacher", "teacher_engine"):
            if key in config:
                raise ConfigError(f"{key}: expected a student that it teaches (student=laft), got none")
        if method.requires_student:
            raise ConfigError(f"method={method.name} is for a model that is fine-tuned first; set student=laft")
        return None
    student = typed(StudentConfig, {"name": _name_of(config, "student"), **config["student"]}, "student")
    if method.trains:
        raise ConfigError(
            f"student={student.name}: method={method.name} trains weights itself; leave one of the two out"
        )
    # Both stages now, not when their turn comes: the teacher's run may take hours.
    composed = {"teacher": teacher_composition(config), "student": tuning_composition(config, data="traces.jsonl")}
    for stage, composition in composed.items():
        try:
            check(composition)
        except ConfigError as error:
            raise in_stage(stage, error) from error
    return student


def _training(
    config: Mapping[str, Any], method: Method, model: ModelConfig, engine: EngineConfig
) -> TrainingConfig | None:
    """Return the settings of training; None where no weights are trained."""
    if not method.trains:
        # With a student, `training` is for its fine-tuning.
        if "training" in config and config.get("student") is None:
            raise ConfigError(f"training: has no effect, method={method.name} trains no weights; leave it out")
        return None
    if isinstance(engine, SimulatedConfig):
        raise ConfigError(
            f"engine=simulated: has no weights, which method={method.name} trains; expected engine=transformers, vllm "
            "or server"
        )
    if model.adapter is not None or model.quantization is not None or model.api:
        raise ConfigError(
            f"model={model.name}: expected a model whose own weights can be trained with method={method.name}, got one "
            "that is quantised, under an adapter or behind an API"
        )
    training = typed(TrainingConfig, config.get("training", {}), "training")
    if training.weights == "full" and method.learns_from_problems:
        raise ConfigError(
            f"training.weights: expected lora with method={method.name}, got full: completions and the reference "
            "policy come from the base model with the adapter on and off; only method=sft trains all weights"
        )
    if training.weights == "full" and not isinstance(engine, TransformersConfig | ReplayConfig):
        raise ConfigError(
            f"engine={engine.name}: takes adapters from the trainer, not whole models; expected engine=transformers "
            "with training.weights=full"
        )
    return training


def _others(config: Mapping[str, Any], method: type[Method], own: ServedModel) -> dict[str, ServedModel]:
    """Return the models of other roles than the policy's, where they are not the policy's model on its engine.

    own: the policy's model, and the engine that was asked for.
    Raises ConfigError for one that the method has no use for; a judge is accepted by every method.
    """
    others = {}
    for role in OTHER_ROLES:
        model = _given(config, role, lambda key: typed(ModelConfig, config[key], key))
        engine = _given(config, f"{role}_engine", lambda key: _engine(config, key))
        if model is None and engine is None:
            continue
        # Sweeps over methods set a judge for all of them, so a judge without use is no error.
        if role != "judge" and role not in {played.model for played in method.roles.values()}:
            raise ConfigError(f"{role}: has no effect, method={method.name} asks no {role} model; leave it out")
        others[role] = _served(ServedModel(model or own.model, engine or own.engine))
    return others


def _served(asked: ServedModel) -> ServedModel:
    """Return the model on the engine that serves it: a random one has no weights, so no other engine can."""
    if not asked.model.random or isinstance(asked.engine, SimulatedConfig | ReplayConfig):
        return asked
    return ServedModel(asked.model, SimulatedConfig(name="simulated"))


def _given(config: Mapping[str, Any], key: str, read: Callable[[str], T]) -> T | None:
    """Return the value that `read` gives for a role's key; None where it is the policy's."""
    if key not in config:
        return None
    if _name_of(config, key) != SAME_AS_POLICY:
        return read(key)
    typed(EngineConfig, config[key], key)  # nothing beside its name
    return None


def _check_reported(reported: object) -> None:
    """Check the figures that a paper reports, which experiments carry for their tables."""
    if reported is None:
        return
    try:
        rows = msgspec.convert(reported, Reported).rows
    except msgspec.ValidationError as error:
        raise ConfigError(
            "reported: expected source, note and rows, each row with method and, where they are known, task, model, "
            f"accuracy (a fraction), metrics and by_stratum (accuracies): {error}"
        ) from error
    rows_of: dict[tuple[str, str | None, str | None], int] = {}
    for index, row in enumerate(rows):
        earlier = rows_of.setdefault((row.method, row.task, row.model), index)
        if earlier != index:
            raise ConfigError(
                f"reported.rows: expected one row for a method, task and model, got rows {earlier} and {index} for "
                f"method {row.method}, task {row.task or 'any'}, model {row.model or 'any'}; join them"
            )


def typed(schema: type[T], values: Mapping[str, Any], key: str) -> T:
    """Return an instance of the dataclass with these values. Raises ConfigError for a wrong key or type."""
    if not isinstance(values, Mapping):
        raise ConfigError(f"{key}: expected a group of settings ({key}.KEY=VALUE), got {values!r}")
    _refuse_long_numbers(values, key)
    fields = {one.name: one.type for one in dataclasses.fields(cast(Any, schema))}
    # Groups inside the group first, by themselves, so that an error names their own keys.
    for name, group in fields.items():
        if dataclasses.is_dataclass(group) and name in values:
            typed(cast(type, group), values[name], f"{key}.{name}")
    try:
        merged = OmegaConf.merge(OmegaConf.structured(schema), OmegaConf.create(dict(values)))
        for name in sorted(OmegaConf.missing_keys(merged)):
            raise ConfigError(f"{key}.{name}: expected a value, none was given; set {key}.{name}=VALUE")
        return cast(T, OmegaConf.to_object(merged))
    except ConfigKeyError as error:
        given = str(error.full_key)
        if (key, given) == ("task", "instance_seed"):
            raise ConfigError(
                "task.instance_seed: this key is called task.draw_seed now, as for every task; set task.draw_seed=N"
            ) from error
        close = difflib.get_close_matches(given, list(fields), n=1)
        hint = f"did you mean {key}.{close[0]}? " if close else ""
        raise ConfigError(f"{key}.{given}: unknown key; {hint}{key} has {', '.join(fields)}") from error
    except OmegaConfBaseException as error:
        given = str(error.full_key)
        leaf = given.partition(".")[0].partition("[")[0]
        expected = fields.get(leaf, "another type")
        name = expected.__name__ if isinstance(expected, type) else expected
        raise ConfigError(f"{key}.{given}: expected {name}, got {values.get(leaf)!r}") from error


def _refuse_long_numbers(value: object, key: str) -> None:
    """Raise ConfigError for an integer of more than 64 bits: no record holds one, and not every check takes it."""
    if isinstance(value, Mapping):
        for name, one in value.items():
            _refuse_long_numbers(one, f"{key}.{name}")
    elif isinstance(value, list | tuple):
        for one in value:
            _refuse_long_numbers(one, key)
    elif isinstance(value, int) and not -(2**63) <= value < 2**63:
        raise ConfigError(f"{key}: expected a number of at most 18 digits, got one of {value.bit_length()} bits")


def refuse_impossible_pair(method: type[Method], task: TaskConfig) -> None:
    """Raise ConfigError when the task lacks a capability that the method needs."""
    lacking = missing_capabilities(method, type(task))
    if lacking:
        fitting = [name for name, one in registry.task_configs().items() if not missing_capabilities(method, one)]
        raise ConfigError(
            f"method={method.name} needs a task that {' and '.join(p.__name__.lower() for p in lacking)}, which "
            f"task={task.name} does not; tasks that do: {', '.join(fitting) or 'none'}"
        )


def missing_capabilities(method: type[Method], task: type[TaskConfig]) -> list[type]:
    """Return the protocols that the method needs and the task does not offer."""
    return [protocol for protocol in method.needs if not issubclass(task.task_class, protocol)]


def _name_of(config: Mapping[str, Any], key: str) -> str:
    node = config.get(key)
    if not isinstance(node, Mapping) or not isinstance(node.get("name"), str):
        raise ConfigError(f"{key}: expected a name ({key}=NAME), got {node!r}")
    return str(node["name"])


def _engine(config: Mapping[str, Any], key: str) -> EngineConfig:
    name, values = _name_of(config, key), config[key]
    if name == AUTOMATIC:
        typed(EngineConfig, values, key)
        name = automatic_engine()
        values = {"name": name}
    return typed(registry.engine_config_class(name), values, key)
