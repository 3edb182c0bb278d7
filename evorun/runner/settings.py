"""Checks of a composed configuration: from YAML to the typed objects of which a run is built."""

import dataclasses
from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Annotated, Any, cast

import msgspec

from evorun.errors import ConfigError
from evorun.fields import Checked, OneOf, PositiveInt
from evorun.methods.base import Method, PerProblem, Regime
from evorun.models.config import OTHER_ROLES, EngineConfig, ModelConfig, ServedModel
from evorun.rollouts.calls import GENERATOR
from evorun.runner import registry
from evorun.runner.served import read_engine, read_other_roles, served_by, with_confidences
from evorun.runner.student import StudentConfig, in_stage, teacher_composition, tuning_composition
from evorun.runner.task_settings import read_sandbox, read_task
from evorun.runner.typed import read_name, refuse_long_numbers, typed
from evorun.runner.weight_transfers import require_transfer
from evorun.runs.budget import BudgetConfig
from evorun.runs.configs import refuse_interpolations
from evorun.runs.prices import Prices, load_prices
from evorun.runs.reported import Reported
from evorun.runs.roles import GENERATE, PANEL, count_judges
from evorun.runs.spending import GOLD
from evorun.runs.stated_studies import RecordedStudy
from evorun.sandbox.config import SandboxConfig
from evorun.tasks.base import Task, TaskConfig
from evorun.tasks.capabilities import describe
from evorun.traces.fragments import PENALISED_SCORE
from evorun.tracking.base import TrackerSettings
from evorun.tracking.choices import tracker_class
from evorun.training.config import TrainingConfig
from evorun.training.requirements import require_fitting
from evorun.training.tinker.requirements import require_objective, require_supported

TOP_LEVEL = (
    *("method", "task", "model", "engine"),
    *(key for role in OTHER_ROLES for key in (role, f"{role}_engine")),
    *("budget", "sandbox", "tracker", "training"),
    *("student", "teacher", "teacher_engine"),
    *("seed", "run", "evorun", "prices", "reported", "study"),
)
"""The keys of a run's configuration."""


@dataclass
class RunSettings(Checked):
    """Execution of a run."""

    section = "run"

    concurrency: PositiveInt = 256
    """Problems in flight at once."""
    stages: str = "outputs/stages"
    """Folder of the stages that make students; runs share them."""

    def __post_init__(self) -> None:
        super().__post_init__()
        if not self.stages:
            raise ConfigError("run.stages: expected a folder, got an empty string")


@dataclass
class ProgramSettings(Checked):
    """Behaviour of the program itself."""

    section = "evorun"

    debug: bool = False
    """Show tracebacks."""
    progress: Annotated[str, OneOf(("auto", "plain", "off"))] = "auto"
    """auto | plain | off"""


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
    """Models of other roles (`OTHER_ROLES`); the policy's model plays a role that is missing here. The members of a
    panel are `judge.0`, `judge.1`, ..."""
    sandbox: SandboxConfig = field(default_factory=SandboxConfig)
    training: TrainingConfig | None = None
    """For methods that train; None for the others."""
    run: RunSettings = field(default_factory=RunSettings)
    evorun: ProgramSettings = field(default_factory=ProgramSettings)
    trackers: dict[str, TrackerSettings] = field(default_factory=dict)
    """By name."""
    prices: Prices = field(default_factory=Prices)
    """Of models by token, and of GPUs by hour."""
    student: StudentConfig | None = None
    """Fine-tuning of the model before the run, if any."""
    raw: dict[str, Any] = field(default_factory=dict)
    """The composed configuration as plain data, for the manifest."""

    @property
    def panel(self) -> dict[str, ServedModel]:
        """The judges of a panel by role; empty without a panel."""
        return {role: served for role, served in self.others.items() if role.startswith(PANEL)}

    @property
    def judges(self) -> int:
        """The number of judges that each duel asks: those of the panel, or one."""
        return count_judges(self.others)

    @property
    def generators(self) -> dict[str, ServedModel]:
        """Several generators by call role (`generate.0`, ...); empty where one model generates."""
        return {
            GENERATE + role.removeprefix(GENERATOR): served
            for role, served in self.others.items()
            if role.startswith(f"{GENERATOR}.")
        }

    @property
    def regime(self) -> Regime:
        """The information regime: that of the method on the task, unless an oracle judges for it."""
        judges = any(role.model == "judge" for role in self.method.active_roles.values())
        if judges and "judge" in self.others and self.others["judge"].engine.knows_truth:
            return "oracle"
        return self.method.information_regime(self.task.task_class)


def check(config: Mapping[str, Any]) -> RunConfig:
    """Turn a composed configuration into typed objects, and check that method and task fit.

    Raises ConfigError naming the key, what was given and what is allowed. Loads no data and no model.
    """
    refuse_interpolations(config)
    seed = config.get("seed", 0)
    # bool is a subclass of int.
    if not isinstance(seed, int) or isinstance(seed, bool) or seed < 0:
        raise ConfigError(f"seed: expected an integer >= 0, got {seed!r:.60}")
    refuse_long_numbers(seed, "seed")
    method_class = registry.method_class(read_name(config, "method"))
    task = read_task(config)
    # Before all else: for an impossible pair, no other message helps.
    refuse_impossible_pair(method_class, task)
    for key in config:
        if key not in TOP_LEVEL:
            raise ConfigError(f"{key}: unknown key; the top level has {', '.join(TOP_LEVEL)}")
    _check_reported(config.get("reported"))
    _check_study(config.get("study"))
    asked = ServedModel(typed(ModelConfig, config["model"], "model"), read_engine(config, "engine").for_seed(seed))
    model, engine = served_by(asked)
    student = _student(config, method_class, task.task_class)
    if student is not None:
        # Tables tell a student from its base model by this name.
        model = dataclasses.replace(model, name=f"{model.name}-{student.name}")
    budget = typed(BudgetConfig, config["budget"], "budget")
    settings: Any = typed(method_class.Config, config["method"], "method")
    if budget.generations is not None and "generations" in {key.name for key in dataclasses.fields(settings)}:
        own = settings.generations  # null: until a budget ends
        fewer = budget.generations if own is None else min(own, budget.generations)
        settings = dataclasses.replace(settings, generations=fewer)
    method = cast(Any, method_class)(settings)
    if method.reward_source is not None:
        reward = registry.reward_config_class(method.reward_source)
        method.reward_plugin = typed(reward, settings.reward_settings, reward.section)
    obstacle = find_obstacle(method, type(task), task.name)
    if obstacle is not None:
        raise ConfigError(f"method={method.name}: {obstacle}")
    if any(played.model == GOLD for played in method.active_roles.values()):
        raise ConfigError(f"method={method.name}: calls the model of role {GOLD}, which only grades; use another role")
    if budget.redistribute:
        _require_redistributable(budget, method)
    asked = with_confidences(asked, method)
    engine = served_by(asked).engine
    for key, limit in method.optional_limits.items():
        if limit is None and not budget.limited:
            raise ConfigError(
                f"method.{key}: expected a number if no budget is set, got null; set method.{key}=N or "
                "budget.calls_per_problem=N"
            )
    others = read_other_roles(config, method, task, ServedModel(model, asked.engine))
    calls = budget.calls_per_problem
    if calls is not None and (idle := method.budget_obstacle(calls, count_judges(others))) is not None:
        raise ConfigError(idle)
    several = sum(role.startswith(f"{GENERATOR}.") for role in others)
    if (unfit := method.generators_obstacle(several or 1, task.task_class)) is not None:
        raise ConfigError(unfit)
    if method.rubric_settings is not None and method.rubric_settings.reward_digits:
        _require_digits(others["reward"].engine if "reward" in others else engine)
    return RunConfig(
        seed=seed,
        method=method,
        task=task,
        model=model,
        engine=engine,
        budget=budget,
        others=others,
        sandbox=read_sandbox(config, task),
        training=_training(config, method, model, engine, budget),
        run=typed(RunSettings, config.get("run", {}), "run"),
        evorun=typed(ProgramSettings, config.get("evorun", {}), "evorun"),
        trackers=_trackers(config.get("tracker")),
        prices=_prices(config.get("prices")),
        student=student,
        raw=dict(config),
    )


def _require_redistributable(budget: BudgetConfig, method: Method) -> None:
    """Raise ConfigError where the calls that a problem has left could go to no other."""
    if not isinstance(method, PerProblem) or method.trains:
        reason = "trains weights" if method.trains else "works on all problems together"
        raise ConfigError(f"budget.redistribute: expected false with method={method.name}, which {reason}")
    if budget.calls is None and budget.calls_per_problem is None:
        raise ConfigError(
            "budget.redistribute: expected a limit on calls; set budget.calls or budget.calls_per_problem"
        )


def _prices(given: Any) -> Prices:
    """Return the prices, under those of the user's own file. Raises ConfigError."""
    if not isinstance(given, str | None) or given == "":
        raise ConfigError(f"prices: expected a file (prices=FILE), got {given!r:.60}")
    return load_prices(None if given is None else Path(given))


def _trackers(given: Any) -> dict[str, TrackerSettings]:
    """Return the settings of each tracker. Raises ConfigError."""
    if not isinstance(given, Mapping | None):
        raise ConfigError(f"tracker: expected trackers by name (tracker=[wandb,tensorboard]), got {given!r:.60}")
    return {
        name: typed(tracker_class(name).Config, values or {}, f"tracker.{name}")
        for name, values in (given or {}).items()
    }


def _require_digits(engine: EngineConfig) -> None:
    """Raise ConfigError for a reward model's engine that cannot constrain a reply to a bare number."""
    if engine.lacks_digits is not None:
        raise ConfigError(
            "method.reward_digits: expected a reward_engine that constrains replies to digits, got "
            f"{engine.lacks_digits}; set method.reward_digits=false, or another reward_engine"
        )


def _student(config: Mapping[str, Any], method: type[Method], task: type[Task]) -> StudentConfig | None:
    """Return the student's settings and check its two runs; return None when the model is not fine-tuned."""
    if config.get("student") is None:
        for key in ("teacher", "teacher_engine"):
            if key in config:
                raise ConfigError(f"{key}: expected a student that it teaches (student=laft), got none")
        if method.requires_student:
            raise ConfigError(f"method={method.name} is for a model that is fine-tuned first; set student=laft")
        return None
    student = typed(StudentConfig, {"name": read_name(config, "student"), **config["student"]}, "student")
    if method.trains:
        raise ConfigError(
            f"student={student.name}: method={method.name} trains weights itself; leave one of the two out"
        )
    _check_teaching(student, task)
    # Check both stages now, for the teacher's run may take hours.
    composed = {"teacher": teacher_composition(config), "student": tuning_composition(config, data="traces.jsonl")}
    for stage, composition in composed.items():
        try:
            check(composition)
        except ConfigError as error:
            raise in_stage(stage, error) from error
    return student


def _check_teaching(student: StudentConfig, task: type[Task]) -> None:
    """Raise ConfigError when the teacher's method and the task cannot give traces of the wanted kind."""
    kind, method = student.traces.kind, student.teaching.get("name")
    if method not in kind.methods:
        raise ConfigError(
            f"student.teaching: student.kind={student.kind} learns from answers of {' or '.join(kind.methods)}, got "
            f"method {method}"
        )
    if kind.ranked and PENALISED_SCORE not in {score.name for score in task.scores}:
        raise ConfigError(
            f"student.kind={student.kind} takes the best answers by {PENALISED_SCORE}, which task={task.name} does not "
            "have; expected student=dpft_full"
        )


def require_useful_lag(method: Method, training: TrainingConfig) -> None:
    """Raise ConfigError for a lag above 1 with which no rollouts would see what is learned or refined."""
    most = method.max_useful_lag
    if most is not None and training.max_lag > most:
        raise ConfigError(
            f"training.max_lag: expected at most {most} with the {method.last_step} steps of method={method.name}, so "
            f"that some rollouts see all that changes, got {training.max_lag}"
        )


def _training(
    config: Mapping[str, Any], method: Method, model: ModelConfig, engine: EngineConfig, budget: BudgetConfig
) -> TrainingConfig | None:
    """Return the settings of training; None where no weights are trained."""
    if not method.trains:
        # With a student, `training` describes its fine-tuning.
        if "training" in config and config.get("student") is None:
            raise ConfigError(f"training: has no effect, method={method.name} trains no weights; leave it out")
        return None
    training = typed(TrainingConfig, config.get("training", {}), "training")
    if training.max_lag and method.plays_ahead is None:
        raise ConfigError(f"training.max_lag: expected 0 with method={method.name}, which plays no rollouts ahead")
    require_useful_lag(method, training)
    # Token counts are known only after rollouts: whether the budget allows a reflection beside them would be chance.
    if training.max_lag and (budget.tokens or budget.tokens_per_problem or budget.limits_price):
        raise ConfigError("training.max_lag: expected 0 where the budget limits tokens or price; limit calls instead")
    if engine.simulated:
        if model.adapter is not None:
            raise ConfigError("model.adapter: expected null where a simulated model is trained; set engine.learned")
        return training
    if training.backend == "tinker":
        _check_tinker(training, method, model, engine)
        return training
    if engine.on_tinker:
        raise ConfigError(
            "engine=tinker: takes no adapters that are trained elsewhere; expected training=tinker, or another engine"
        )
    # The trainer reads gpt-oss's experts of 4 bits as bfloat16.
    if model.adapter is not None or model.quantization not in (None, "mxfp4") or model.api:
        raise ConfigError(
            f"model={model.name}: expected a model whose own weights can be trained with method={method.name}, got one "
            "that is quantised, under an adapter (evorun export RUN_DIR format=model merges it) or behind an API"
        )
    if method.learns_from_rewards:
        require_fitting(method.make_objective(Path()), training)  # the objective of a fine-tuning reads data
    if training.weights == "full" and not (engine.is_trainer or engine.replays or engine.takes_weights):
        raise ConfigError(
            f"engine={engine.name}: takes adapters from the trainer, not whole models; expected engine=transformers "
            "or engine=vllm with training.weights=full"
        )
    if not engine.replays:
        require_transfer(training, model, engine)
    return training


def _check_tinker(training: TrainingConfig, method: Method, model: ModelConfig, engine: EngineConfig) -> None:
    """Raise ConfigError for settings that a trainer on Tinker's API cannot follow."""
    if not (engine.on_tinker or engine.replays):
        raise ConfigError(
            f"engine={engine.name}: expected engine=tinker with training.backend=tinker, whose server keeps the weights"
        )
    require_supported(training, model)
    if method.learns_from_rewards:  # the objective of a fine-tuning reads data
        require_objective(method.make_objective(Path()))


def _check_reported(reported: object) -> None:
    """Check the figures that a paper reports, which experiments carry for their tables."""
    if reported is None:
        return
    try:
        entries = msgspec.convert(reported, Reported)
    except msgspec.ValidationError as error:
        raise ConfigError(
            "reported: expected source, note, rows, means and names, each row with method and, where they are known, "
            "task, model, overrides, accuracy (a fraction), metrics, sd, by_stratum (accuracies), steps and among, "
            "each name with name (at most 40 characters), method and, where it needs them, task, model and overrides: "
            f"{error}"
        ) from error
    for key, remedy in (("rows", "join them"), ("names", "keep one")):
        first: dict[Any, int] = {}
        for index, entry in enumerate(getattr(entries, key)):
            earlier = first.setdefault(entry.runs, index)
            if earlier != index:
                raise ConfigError(
                    f"reported.{key}: expected one entry per method, task, model and overrides, got {key} {earlier} "
                    f"and {index} for method {entry.method}, task {entry.task or 'any'}, model {entry.model or 'any'}; "
                    f"{remedy}"
                )


def _check_study(study: object) -> None:
    """Check the study that a run belongs to, as it was recorded before the first run."""
    try:
        msgspec.convert(study, RecordedStudy | None)
    except msgspec.ValidationError as error:
        raise ConfigError(f"study: expected a study file, as evorun study records it: {error}") from error


def refuse_impossible_pair(method: type[Method], task: TaskConfig) -> None:
    """Raise ConfigError when the task lacks a capability that the method needs."""
    lacking = missing_capabilities(method, type(task))
    if lacking:
        fitting = [name for name, other in registry.task_configs().items() if not missing_capabilities(method, other)]
        raise ConfigError(
            f"method={method.name} needs {describe(lacking)}, which task={task.name} does not offer; tasks that do: "
            f"{', '.join(fitting) or 'none'}"
        )


def find_obstacle(method: Method, task: type[TaskConfig], name: str) -> str | None:
    """Return why a method with its settings does not run on a task that has what it needs; None: it does.

    name: the task's, which may be one of several with the same class.
    """
    incompatibility = method.incompatibility(task.task_class)
    if incompatibility is not None:
        return incompatibility.replace(f"task={task.task_class.name} ", f"task={name} ")
    if task.task_class.graded_by_opinion and method.information_regime(task.task_class) in ("labels", "oracle"):
        return (
            f"learns from grades, but grades of task={name} are a judge's opinions, kept for results; "
            "expected a reward by a rubric (method.rubric=initial, or method=mpo), a plug-in's that sees no answers "
            "(method.reward_source=NAME), or another task"
        )
    return None


def missing_capabilities(method: type[Method], task: type[TaskConfig]) -> list[type]:
    """Return the protocols that the method needs and the task does not offer."""
    return [protocol for protocol in method.needs if not issubclass(task.task_class, protocol)]
