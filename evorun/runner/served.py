"""The models of a run and the engines that serve them, for the policy and for other roles."""

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from functools import singledispatch
from typing import Any, TypeVar

from evorun.errors import ConfigError, EvorunError
from evorun.methods.base import Method
from evorun.models.auto import automatic_engine
from evorun.models.base import LanguageModel
from evorun.models.config import OTHER_ROLES, EngineConfig, ModelConfig, ServedModel, name_engine_key
from evorun.models.devices import visible_gpus
from evorun.models.lazy import LazyModel
from evorun.models.sharing import SharedModel, find_shared
from evorun.runner import registry
from evorun.runner.judges import PluginJudge
from evorun.runner.oracle import ORACLE, ORACLE_MODEL, OracleConfig, OracleJudge
from evorun.runner.typed import read_name, typed
from evorun.runs.directory import MANIFEST, load_manifest
from evorun.runs.manifest import ModelInRun
from evorun.simulation.engine import SimulatedConfig
from evorun.simulation.skill import STUDY_SPREAD
from evorun.tasks.base import GradingTools, LoadedTask, TaskConfig
from evorun.tasks.capabilities import (
    SupportsAggregation,
    SupportsEvolution,
    SupportsModelOperators,
    SupportsRefinement,
)
from evorun.tasks.judges import JudgeConfig
from evorun.tasks.simulator import TextSimulator
from evorun.tasks.text_task import TextTask

T = TypeVar("T")

_SHOW_RESPONSES = (SupportsAggregation, SupportsEvolution, SupportsModelOperators, SupportsRefinement)
"""Methods that need one of these show earlier responses in their prompts."""

AUTOMATIC = "auto"
"""`engine=auto`: evorun chooses the engine."""

SAME_AS_POLICY = "policy"
"""`judge=policy`: the policy's model judges; `judge_engine=policy`: on the policy's engine. This holds for any role."""

PANEL = "panel"
"""`judge=panel`, or `judge=[a,b,c]` for short: several judges decide by majority, or a method chooses a generator."""

PANEL_ROLES = ("judge", "generator")
"""Roles that several models may play."""


@dataclass
class PanelConfig:
    """Schema of `panel.yaml` in the groups of `PANEL_ROLES`, such as `conf/judge` and `conf/judge_engine`."""

    name: str
    members: list[Any]
    """The values of each member's model, or engine, in order."""


def read_engine(config: Mapping[str, Any], key: str) -> EngineConfig:
    """Return the engine of a group. Raises ConfigError."""
    chosen, values = read_name(config, key), config[key]
    by_tinker = key == "engine" and (config.get("training") or {}).get("backend") == "tinker"
    name = ("tinker" if by_tinker else automatic_engine()) if chosen == AUTOMATIC else chosen
    try:
        return typed(registry.engine_config_class(name), {**values, "name": name}, key)
    except ConfigError as error:
        name_engine_key(error, key)
        if chosen != AUTOMATIC:
            raise error from None
        raise ConfigError(
            f"{error}; {key}=auto means {key}={name} on this machine, set {key}=NAME to use another engine's keys"
        ) from error


def find_engine_key(config: Mapping[str, Any], role: str) -> str:
    """Return the configuration key of the engine that serves a role: its own, or the policy's.

    role: `policy`, another one, or a member of a panel (`judge.0`).
    """
    key = f"{role.partition('.')[0]}_engine"
    return key if key in config and not _is_policy(config[key], key) else "engine"


def require_engine(served: ServedModel, config: Mapping[str, Any], role: str) -> None:
    """Check what the engine of a role needs to open. Raises EngineError with its key; see `find_engine_key`."""
    try:
        served.engine.require(served.model)
    except EvorunError as error:
        name_engine_key(error, find_engine_key(config, role))
        raise


def served_by(asked: ServedModel) -> ServedModel:
    """Return the model with the engine that serves it; a random model has no weights, so it is simulated."""
    if not asked.model.random or asked.engine.simulated or asked.engine.replays:
        return asked
    return ServedModel(asked.model, SimulatedConfig(name="simulated"))


def with_confidences(served: ServedModel, method: Method) -> ServedModel:
    """Return a generator on an engine that gives the confidences that a method asks for. Raises ConfigError."""
    if not method.asks_confidence:
        return served
    return ServedModel(served.model, served.engine.for_confidence(ends_early=method.ends_early))


def in_manifest(served: ServedModel) -> ModelInRun:
    """Return the manifest's entry for a model."""
    shared = find_shared(served)
    model = ModelInRun(
        served.model.name,
        served.engine.journal_name(served.model),
        served.engine.name,
        shared_by=0 if shared is None else shared.jobs,
    )
    recorded = served.engine.recorded
    if recorded is not None and (recorded / MANIFEST).exists():  # a tournament's folder has none
        models = load_manifest(recorded).models.values()
        model.replayed_engine = next(
            (known.replayed_engine or known.engine for known in models if known.id == model.id), ""
        )
    return model


def read_gold(config: Mapping[str, Any]) -> ServedModel:
    """Return the gold judge with its engine. Raises ConfigError."""
    own = ServedModel(typed(ModelConfig, config["model"], "model"), read_engine(config, "engine"))
    return _served(config, "gold", own)[0]


def read_other_roles(
    config: Mapping[str, Any], method: Method, task: TaskConfig, own: ServedModel
) -> dict[str, ServedModel]:
    """Return the models of all roles that do not share the policy's model and engine.

    own: the policy's model and the engine as configured. The members of a panel are `judge.0`, `judge.1`, ...
    Raises ConfigError for a role that the method does not use; every method accepts a judge and a gold judge.
    """
    others: dict[str, ServedModel] = {}
    roles = method.active_roles
    for role in OTHER_ROLES:
        if all(key not in config or _is_policy(config[key], key) for key in (role, f"{role}_engine")):
            continue
        # Sweeps over methods set a judge for all, and sweeps over tasks a gold judge: an unused one is no error.
        if role not in ("judge", "gold") and role not in {played.model for played in roles.values()}:
            raise ConfigError(f"{role}: has no effect, method={method.name} asks no {role} model; leave it out")
        choice = read_name(config, role) if role in config else SAME_AS_POLICY
        other_calls = {call for call, played in roles.items() if played.model == role} - {role}
        if role == "judge" and other_calls and (choice == PANEL or is_judge_by_code(role, choice)):
            raise ConfigError(
                f"{role}={choice}: gives verdicts on pairs only, and method={method.name} also asks its {role} model "
                f"for {' and '.join(sorted(other_calls))}; expected one model"
            )
        by_code = is_judge_by_code(role, choice)
        served = [read_judge_by_code(config, role, task)] if by_code else _served(config, role, own)
        if role == "generator":
            served = [with_confidences(member, method) for member in served]
        if role == "generator" and served_by(own) not in served:
            raise ConfigError(
                f"generator: expected the policy among the generators, since tables name a run by it, got "
                f"{' and '.join(member.model.name for member in served)}; write generator=[NAME,policy]"
            )
        others |= {role: served[0]} if len(served) == 1 else {f"{role}.{i}": member for i, member in enumerate(served)}
    return others


_SEATED_TWICE = {
    "generator": "{model} is listed {seats} times with one engine: it is one model",
    "judge": "the panel seats {model} {seats} times, so its votes are not independent",
}
"""Warnings of a member listed several times, by the role that several models play."""


def role_warnings(others: Mapping[str, ServedModel], method: Method, task: TaskConfig) -> list[str]:
    """Return a warning for each judge or gold judge that a run never asks, and for a model twice in a panel."""
    lines = []
    for several, warning in _SEATED_TWICE.items():
        members = [served for role, served in others.items() if role.startswith(f"{several}.")]
        for number, served in enumerate(members):
            if (seats := members.count(served)) > 1 and served not in members[:number]:
                lines.append(f"{several}: {warning.format(model=served.model.name, seats=seats)}")
    given = {role.partition(".")[0] for role in others}
    if "judge" in given and "judge" not in {played.model for played in method.active_roles.values()}:
        lines.append(f"judge: has no effect, method={method.name} asks no judge")
    if "gold" in given and not task.task_class.graded_by_opinion:
        lines.append(f"gold: has no effect, task={task.name} is not graded by opinion")
    return lines


def crowded_gpus(own: ServedModel, others: Mapping[str, ServedModel]) -> list[str]:
    """Return a warning if vLLM engines would together take more than the memory of a GPU of this machine.

    own: the policy's model and its engine. Roles with equal models and engines share one.
    """
    engines: dict[str, ServedModel] = {}
    for role, served in {"": own, **others}.items():
        if served not in engines.values():
            engines[f"{role}_engine" if role else "engine"] = served
    uses = {key: served.engine.gpu_use for key, served in engines.items()}
    for device in range(len(visible_gpus())):
        shares = {key: use.share for key, use in uses.items() if use is not None and device in use.devices}
        if sum(shares.values()) > 1:
            last = list(shares)[-1]
            return [
                f"{' and '.join(shares)}: vLLM engines that would take {sum(shares.values()):.0%} of the memory of GPU "
                f"{device}; give each its own GPUs, such as {last}=vllm {last}.devices=[{device + 1}], or a part "
                f"of one, such as {last}.gpu_memory_utilization=0.45"
            ]
    return []


def _served(config: Mapping[str, Any], role: str, own: ServedModel) -> list[ServedModel]:
    """Return the model of a role, or the models of a panel in order, each with its engine."""
    models = _members(config, role, lambda group, key: typed(ModelConfig, group[key], key), own.model)
    engines = _members(config, f"{role}_engine", read_engine, own.engine)
    if len(engines) not in (1, len(models)):
        raise ConfigError(
            f"{role}_engine: expected one engine, or one for each member of {role}, which has {len(models)}, got "
            f"{len(engines)}"
        )
    engines = [engine.for_seed(config.get("seed", 0)) for engine in engines] * (len(models) // len(engines))
    return [served_by(ServedModel(model, engine)) for model, engine in zip(models, engines, strict=True)]


def _members(config: Mapping[str, Any], key: str, read: Callable[[Mapping[str, Any], str], T], own: T) -> list[T]:
    """Return the values that a group describes: a single one, or one per member of a panel."""
    if key not in config:
        return [own]
    members, names = [config[key]], [key]
    if read_name(config, key) == PANEL:
        members = config[key].get("members")
        # Each member by itself, so that an error names its own keys.
        typed(PanelConfig, {**config[key], "members": [] if isinstance(members, list) else members}, key)
        names = [f"{key}.members.{number}" for number in range(len(members))]
        if len(members) < 2:
            raise ConfigError(f"{key}: expected two or more members, {key}=[NAME,NAME,NAME], got {len(members)}")
    return [
        own if _is_policy(member, name) else read({name: member}, name)
        for member, name in zip(members, names, strict=True)
    ]


def _is_policy(values: Any, key: str) -> bool:
    if read_name({key: values}, key) != SAME_AS_POLICY:
        return False
    typed(EngineConfig, values, key)  # refuse any key but the name
    return True


def is_judge_by_code(role: str, choice: str) -> bool:
    """Tell whether code plays a role: the ground truth, or a plug-in's judge."""
    return choice == ORACLE or (role == "judge" and choice in registry.plugins("judge"))


def read_judge_by_code(config: Mapping[str, Any], role: str, task: TaskConfig) -> ServedModel:
    """Return the ground truth or a plug-in's judge, as chosen.

    Raises ConfigError for a wrong setting, if an engine is set, and for a task without right answers or whose prompts
    do not say which answers they show.
    """
    name = read_name(config, role)
    if name == ORACLE:
        typed(EngineConfig, config[role], role)  # refuse any key but the name
        if task.task_class.graded_by_opinion:
            raise ConfigError(
                f"{role}={ORACLE}: expected a task with right answers, task={task.name} is graded by opinion"
            )
    engine = f"{role}_engine"
    if engine in config and not _is_policy(config[engine], engine):
        raise ConfigError(f"{engine}: has no effect with {role}={name}, which no engine serves; leave it out")
    if not issubclass(task.task_class, TextTask):
        raise ConfigError(f"{role}={name}: expected a task whose prompts say which answers they show (a TextTask)")
    if name == ORACLE:
        return ServedModel(ORACLE_MODEL, OracleConfig())
    return ServedModel(ModelConfig(name=name, id=name), typed(registry.judge_config_class(name), config[role], role))


def open_lazily(
    served: ServedModel, engine: EngineConfig, loaded: LoadedTask, tools: GradingTools, key: str = "engine"
) -> LazyModel:
    """Return a model whose engine starts when it is first needed. key: that of the engine; see `find_engine_key`."""
    return LazyModel(served.engine.journal_name(served.model), lambda: _open(engine, served.model, loaded, tools), key)


@singledispatch
async def _open(engine: EngineConfig, model: ModelConfig, loaded: LoadedTask, tools: GradingTools) -> LanguageModel:
    shared = find_shared(ServedModel(model, engine))
    return await (engine.open(model) if shared is None else SharedModel(ServedModel(model, engine), shared).open())


@_open.register
async def _(engine: SimulatedConfig, model: ModelConfig, loaded: LoadedTask, tools: GradingTools) -> LanguageModel:
    return engine.open_for(model, loaded.simulator)


@_open.register
async def _(engine: OracleConfig, model: ModelConfig, loaded: LoadedTask, tools: GradingTools) -> LanguageModel:
    return OracleJudge(loaded, tools)


@_open.register
async def _(engine: JudgeConfig, model: ModelConfig, loaded: LoadedTask, tools: GradingTools) -> LanguageModel:
    return PluginJudge(engine.make(), loaded, model.name)


@singledispatch
def find_unfit_skill(engine: EngineConfig, model: ModelConfig, method: Method, loaded: LoadedTask) -> str | None:
    """Return a warning if a simulated model's skill does not suit the task, its `improvement` or a vote; else None."""
    return None


@find_unfit_skill.register
def _(engine: SimulatedConfig, model: ModelConfig, method: Method, loaded: LoadedTask) -> str | None:
    simulator = loaded.simulator
    if model.random or not isinstance(simulator, TextSimulator):
        return None
    if (lack := simulator.with_skill(engine).find_lack_of_skill(loaded.problems)) is not None:
        return lack
    if method.votes and (failing := simulator.with_skill(engine).find_failing_vote(loaded.problems)) is not None:
        return failing
    evolves = simulator.adds_improvement and any(protocol in method.needs for protocol in _SHOW_RESPONSES)
    together = round(engine.skill + engine.improvement, 9)
    if not evolves or loaded.task.graded_by_opinion or together < 1 or not engine.improvement or engine.skill == 1:
        return None
    if engine.spread >= STUDY_SPREAD:
        return None
    return (
        f"engine.skill={engine.skill:g} and engine.improvement={engine.improvement:g} add up to {together:g}, so that "
        "answers in view of right ones alone have no errors. For a comparison, set engine.improvement below "
        f"{1 - engine.skill:.2g}, or engine.spread={STUDY_SPREAD:g}, at which hard problems have few right ones"
    )
