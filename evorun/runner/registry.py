"""Names on the command line and the classes behind them: evorun's own, and those of installed plug-ins.

A third party adds one through a Python entry point: a `Method` (`evorun.methods`), a `TaskConfig` (`evorun.tasks`), an
`EngineConfig` (`evorun.engines`) or a `JudgeConfig` (`evorun.judges`), whose defaults then replace a YAML file; a
`RewardConfig` (`evorun.rewards`) or a grader of rows (`evorun.graders`). A plug-in that cannot be imported stops only
the run that chooses it, and errors in its code are reported as the plug-in's.
"""

import contextlib
import difflib
import hashlib
import importlib.util
import inspect
import itertools
import logging
import traceback
from collections.abc import Collection, Iterable, Iterator, Mapping, Sequence
from functools import cache
from importlib import import_module, metadata
from pathlib import Path
from typing import TYPE_CHECKING, Any

from evorun.errors import ConfigError, EvorunError, PluginError, first_line
from evorun.plugins import INSTALL, Kind, advise_package, find_package, find_plugins, key_of, load_plugin

if TYPE_CHECKING:
    from evorun.methods.base import Method
    from evorun.methods.learning.reward_plugins import RewardConfig
    from evorun.models.config import EngineConfig
    from evorun.runs.manifest import PluginInRun
    from evorun.tasks.base import TaskConfig
    from evorun.tasks.judges import JudgeConfig

# Targets are strings, imported on demand: `evorun --help` and a shell's completion import no method, task or engine.
METHODS = {
    "ace": "evorun.methods.ace.ace:Ace",
    "best_of_n": "evorun.methods.duels.best_of_n:BestOfN",
    "cispo": "evorun.methods.learning.policy_gradient:Cispo",
    "deepconf": "evorun.methods.search.deepconf:DeepConf",
    "duel_evolve": "evorun.methods.duels.duel_evolve:DuelEvolve",
    "espl": "evorun.methods.espl.espl:Espl",
    "espl_evolution": "evorun.methods.espl.espl:EsplEvolution",
    "espl_self_reflection": "evorun.methods.espl.espl:EsplSelfReflection",
    "feedback_descent": "evorun.methods.duels.feedback_descent:FeedbackDescent",
    "few_shot": "evorun.methods.search.chain_of_thought:FewShot",
    "gepa": "evorun.methods.gepa.gepa:Gepa",
    "fixed_prompts": "evorun.methods.search.fixed_prompts:FixedPrompts",
    "grpo": "evorun.methods.learning.policy_gradient:Grpo",
    "islands": "evorun.methods.islands.islands:Islands",
    "laft": "evorun.methods.lyria.lyria:Laft",
    "lyria": "evorun.methods.lyria.lyria:Lyria",
    "mpo": "evorun.methods.mpo.mpo:Mpo",
    "ppo": "evorun.methods.learning.ppo:Ppo",
    "rsa": "evorun.methods.search.rsa:Rsa",
    "pdr": "evorun.methods.search.pdr:Pdr",
    "squeeze_evolve": "evorun.methods.search.squeeze_evolve:SqueezeEvolve",
    "ab_mcts": "evorun.methods.tree.ab_mcts:AbMcts",
    "rler": "evorun.methods.rler.rler:Rler",
    "rloo": "evorun.methods.learning.policy_gradient:Rloo",
    "self_consistency": "evorun.methods.search.chain_of_thought:SelfConsistency",
    "sft": "evorun.methods.learning.sft:Sft",
    "ttt_discover": "evorun.methods.ttt_discover.ttt_discover:TttDiscover",
    "v1_infer": "evorun.methods.duels.v1_infer:V1Infer",
    "zero_shot": "evorun.methods.search.chain_of_thought:ZeroShot",
}
TASKS = {
    "aime": "evorun.tasks.math_contest.problems:MathContestConfig",
    "arithmetic": "evorun.tasks.arithmetic.arithmetic:ArithmeticConfig",
    "autocorrelation": "evorun.tasks.constructions.autocorrelation.autocorrelation:AutocorrelationConfig",
    "beyond_aime": "evorun.tasks.math_contest.problems:MathContestConfig",
    "billsum": "evorun.tasks.billsum.billsum:BillSumConfig",
    "circle_packing": "evorun.tasks.constructions.circle_packing.circle_packing:CirclePackingConfig",
    "dapo_aime25": "evorun.tasks.math_contest.problems:MathContestConfig",
    "environment": "evorun.tasks.environment.config:EnvironmentConfig",
    "essay": "evorun.tasks.essay.essay:EssayConfig",
    "ethics": "evorun.tasks.ethics.ethics:EthicsConfig",
    "graph_coloring": "evorun.tasks.graph_coloring.instances:GraphColoringConfig",
    "hmmt": "evorun.tasks.math_contest.problems:MathContestConfig",
    "inspect": "evorun.tasks.inspect.config:InspectConfig",
    "livecodebench": "evorun.tasks.livecodebench.problems:LiveCodeBenchConfig",
    "math": "evorun.tasks.math.math:MathConfig",
    "math500": "evorun.tasks.math_contest.problems:MathContestConfig",
    "mathbench": "evorun.tasks.mathbench.mathbench:MathBenchConfig",
    "matrix_product": "evorun.tasks.constructions.matrix_product.matrix_product:MatrixProductConfig",
    "reasoning_gym": "evorun.tasks.reasoning_gym.reasoning_gym:ReasoningGymConfig",
    "rows": "evorun.tasks.rows.rows:RowsConfig",
    "search_qa": "evorun.tasks.search_qa.questions:SearchQaConfig",
    "sudoku": "evorun.tasks.sudoku.instances:SudokuConfig",
    "tsp": "evorun.tasks.tsp.instances:TspConfig",
    "verifiers": "evorun.tasks.verifiers.config:VerifiersConfig",
}
ENGINES = {
    "transformers": "evorun.models.transformers.engine:TransformersConfig",
    "vllm": "evorun.models.vllm.engine:VllmConfig",
    "server": "evorun.models.server.engine:ServerConfig",
    "tinker": "evorun.models.tinker.engine:TinkerConfig",
    "simulated": "evorun.simulation.engine:SimulatedConfig",
    "replay": "evorun.runs.replay:ReplayConfig",
}

KINDS: tuple[Kind, ...] = ("method", "task", "engine", "judge", "reward", "grader")
GROUPS: tuple[Kind, ...] = KINDS[:4]
"""Kinds that are chosen in a config group of their own."""
_BUILTIN: Mapping[Kind, Mapping[str, str]] = {
    "method": METHODS,
    "task": TASKS,
    "engine": ENGINES,
    "judge": {},
    "reward": {},
}
_BASES: Mapping[Kind, str] = {
    "method": "evorun.methods.base:Method",
    "task": "evorun.tasks.base:TaskConfig",
    "engine": "evorun.models.config:EngineConfig",
    "judge": "evorun.tasks.judges:JudgeConfig",
    "reward": "evorun.methods.learning.reward_plugins:RewardConfig",
}
_ATTRIBUTES: Mapping[Kind, tuple[str, ...]] = {
    "method": ("Config", "description", "regime", "needs"),
    "task": ("task_class",),
    "engine": ("open",),
    "judge": ("make",),
    "reward": ("make", "roles"),
}
"""Attributes that a plug-in needs beside those of its base."""

log = logging.getLogger("evorun")


@cache
def plugins(kind: Kind) -> dict[str, metadata.EntryPoint]:
    """Return the entry points that installed packages offer for a kind, by name; the first to take a name keeps it."""
    if kind == "grader":
        from evorun.tasks.rows.graders import GRADERS  # here, since it imports tasks

        return find_plugins(kind, GRADERS)
    return find_plugins(kind, _BUILTIN[kind])


def parent_method(method: "type[Method]") -> str | None:
    """Return the name of evorun's own method whose YAML gives a plug-in's hyperparameters without a default.

    It is the nearest base whose `Config` the plug-in's `Config` extends; None: there is none.
    """
    from evorun.methods.base import Method

    if method.__module__.startswith("evorun."):
        return None
    for base in method.__mro__[1:]:
        home = f"{base.__module__}:{base.__qualname__}"
        if issubclass(base, Method) and home in METHODS.values() and issubclass(method.Config, base.Config):
            return base.name
    return None


def builtin_method(name: str) -> str | None:
    """Return the name of evorun's own method that a method is, or whose values a plug-in's has; None: there is none."""
    return name if name in METHODS else parent_method(method_class(name))


def usable_plugins(kind: Kind, chosen: Collection[str] = ()) -> dict[str, Any]:
    """Import the plug-ins of a kind and return them by name; warn of each unusable one and leave it out.

    chosen: names without a warning, since their use raises the error.
    """
    found = {}
    for name, point in plugins(kind).items():
        try:
            found[name] = _load_plugin(kind, point)
        except PluginError as error:
            if name not in chosen:
                _warn_once(str(error))
    return found


_warn_once = cache(log.warning)


def method_class(name: str) -> "type[Method]":
    """Return the method of that name. Raises ConfigError, which lists the choices, when there is none."""
    found: type[Method] = _find("method", name)
    return found


def task_config_class(name: str) -> "type[TaskConfig]":
    """Return the task's configuration class. Raises ConfigError when there is none."""
    found: type[TaskConfig] = _find("task", name)
    return found


def engine_config_class(name: str) -> "type[EngineConfig]":
    """Return the engine's configuration class. Raises ConfigError when there is none."""
    found: type[EngineConfig] = _find("engine", name)
    return found


def judge_config_class(name: str) -> "type[JudgeConfig]":
    """Return the configuration class of a plug-in's judge. Raises ConfigError when there is none."""
    found: type[JudgeConfig] = _find("judge", name)
    return found


def reward_config_class(name: str) -> "type[RewardConfig]":
    """Return the configuration class of a plug-in's reward. Raises ConfigError when there is none."""
    found: type[RewardConfig] = _find("reward", name)
    return found


def names(kind: Kind) -> list[str]:
    """Return all names of a kind, in alphabetical order."""
    return sorted({*_BUILTIN[kind], *plugins(kind)})


def methods() -> "dict[str, type[Method]]":
    """Return all methods by name, in alphabetical order, without unusable plug-ins."""
    return {name: method_class(name) for name in sorted({*METHODS, *usable_plugins("method")})}


def task_configs() -> "dict[str, type[TaskConfig]]":
    """Return the configuration classes of all tasks by name, as `methods` does."""
    return {name: task_config_class(name) for name in sorted({*TASKS, *usable_plugins("task")})}


def training_splits() -> dict[str, str]:
    """Return the name of each task's training split, by task, for tasks that have one; imports all tasks."""
    return {name: task.training_split for name, task in task_configs().items() if task.training_split is not None}


_MAX_NAMED = 25
"""Choices that an error names one by one (ours)."""


def unknown(kind: str, name: str, choices: Iterable[str], own: Sequence[str] = ()) -> ConfigError:
    """Return the error for a name that is not among the choices; of many, it names those near it.

    own: further choices, of the user's own folder, which are named first.
    """
    choices, key = sorted(choices), key_of(kind)
    if kind in KINDS and ":" in name:  # MODULE:CLASS, as in an entry point
        return ConfigError(f"{key}={name}: expected the name of an installed one; {advise_package(kind)}")
    many = kind in ("method", "task", "model", "experiment") and len(choices) > _MAX_NAMED
    close = difflib.get_close_matches(name, own, n=1)
    close = close or (difflib.get_close_matches(name, choices, n=3, cutoff=0.85) if many else [])
    close = close or difflib.get_close_matches(name, choices, n=1)
    if close and many:
        near = " or ".join(f"{key}={choice}" for choice in close)
        yours = f"--config-dir has {', '.join(own)}, and " if own else ""
        return ConfigError(f"{key}={name}: unknown {kind}; did you mean {near}? {yours}evorun list {kind}s names all")
    if kind == "budget" and (number := name.removeprefix("calls_")).isdecimal():
        hint = f"did you mean budget.calls_per_problem={number}? "
    elif kind == "budget" and name in ("null", "none"):
        hint = "did you mean budget=unlimited? "
    else:
        hint = f"did you mean {key}={close[0]}? " if close else ""
    choices = [*own, *choices]
    offered = f"choose one of {', '.join(choices)}" if choices else f"no {kind} is installed (evorun.{kind}s)"
    install = f"; {INSTALL}" if not close and kind in (*KINDS, "tracker") else ""
    return ConfigError(f"{key}={name}: unknown {kind}; {hint}{offered}{install}")


def _find(kind: Kind, name: str) -> type:
    # Built-in names first: an installed package cannot replace one of evorun's unnoticed.
    if name in _BUILTIN[kind]:
        return _load(_BUILTIN[kind][name])
    if name in plugins(kind):
        return _load_plugin(kind, plugins(kind)[name])
    raise unknown(kind, name, names(kind))


def _load_plugin(kind: Kind, point: metadata.EntryPoint) -> type:
    """Import a plug-in. Raises PluginError when that fails, or when it does not meet the contract of its kind."""
    from omegaconf import OmegaConf

    from evorun.methods.base import REGIMES

    def check(found: Any) -> None:
        for attribute in _ATTRIBUTES[kind]:
            getattr(found, attribute)
        if kind == "method" and (regime := getattr(found, "regime", None)) not in REGIMES:
            raise ValueError(f"regime: expected one of {', '.join(REGIMES)}, got {regime!r:.60}")
        if kind == "method":
            _require_judges(found)
        OmegaConf.structured(getattr(found, "Config", found))

    return load_plugin(kind, point, _load(_BASES[kind]), check)


def _require_judges(method: "type[Method]") -> None:
    """Raise TypeError for a method written when these functions took the calls of a budget alone."""
    for function in (method.warnings, method.budget_obstacle):
        given = inspect.signature(function)
        try:
            given.bind(None, 1, 1)
        except TypeError as error:
            raise TypeError(f"{function.__name__}: expected (self, calls, judges=1), got {given}") from error


def describe_plugins(**names: str) -> "dict[str, PluginInRun]":
    """Return the origin of those of a run's parts (`method=NAME`, `engine=NAME`) that plug-ins provide, by kind."""
    points = {kind: plugins(kind).get(names[kind]) for kind in KINDS if kind in names}
    return {kind: _describe_plugin(point) for kind, point in points.items() if point is not None}


def find_plugin(kind: str, module: str) -> "PluginInRun | None":
    """Return the origin, as it is now, of a plug-in of a kind that a module provides; None where none is installed."""
    points = [point for known in KINDS if known == kind for point in plugins(known).values()]
    return next((_describe_plugin(point) for point in points if point.module == module), None)


def name_grading_parts(task: "TaskConfig") -> dict[str, str]:
    """Return the names of the parts whose code grades responses, by kind: the task, and of rows the grader."""
    rows: Any = task
    return {"task": rows.name, **({"grader": rows.grader} if rows.name == "rows" else {})}


def _describe_plugin(point: metadata.EntryPoint) -> "PluginInRun":
    from evorun.runs.manifest import PluginInRun

    package, version = ("", "") if point.dist is None else (point.dist.name, point.dist.version)
    return PluginInRun(package, version, point.module, _digest_source(point.module))


def _digest_source(module: str) -> str:
    # The outermost package with an __init__.py: the class may use modules beside its own. A namespace package is
    # passed over, since other distributions share it.
    parents = itertools.accumulate(module.split("."), "{}.{}".format)
    specs = (importlib.util.find_spec(name) for name in parents)
    file = Path(next(spec.origin for spec in specs if spec is not None and spec.origin is not None))
    if file.name != "__init__.py":
        return _sha256(file.read_bytes())[:12]
    files = {source.relative_to(file.parent).as_posix(): source.read_bytes() for source in file.parent.rglob("*.py")}
    return _sha256("".join(f"{_sha256(files[name])}  {name}\n" for name in sorted(files)).encode())[:12]


def _sha256(content: bytes) -> str:
    return hashlib.sha256(content).hexdigest()


def fault_of_plugin(error: BaseException) -> PluginError | None:
    """Return the error for an exception that passed through a plug-in's code; None for one that did not."""
    # Parse the text: a malformed entry point cannot even name its module.
    points = [p for kind in KINDS for p in plugins(kind).values() if not p.value.startswith(("evorun.", "evorun:"))]
    for frame, line in reversed(list(traceback.walk_tb(error.__traceback__))):
        package = str(frame.f_globals.get("__name__", "")).partition(".")[0]
        in_package = [point for point in points if point.value.partition(":")[0].partition(".")[0] == package]
        if in_package:
            # A package may provide several plug-ins: name the one whose class was running, if it can be told.
            running = frame.f_code.co_qualname.partition(".")[0]
            named = [point for point in in_package if point.value.partition(":")[2] == running] or in_package
            kinds = {point: point.group.removeprefix("evorun.").removesuffix("s") for point in named}
            choices = (f"{key_of(kind)}={point.name}" for point, kind in kinds.items())
            return PluginError(
                f"the plug-in {', '.join(choices)} of {find_package(named[0])} failed: {first_line(error)} "
                f"({Path(frame.f_code.co_filename).name}, line {line})"
            )
    return None


@contextlib.contextmanager
def blaming_plugins() -> Iterator[None]:
    """Turn an exception that passes through a plug-in's code into a PluginError."""
    try:
        yield
    except EvorunError:
        raise
    except Exception as error:
        fault = fault_of_plugin(error)
        if fault is None:
            raise
        raise fault from error


def _load(target: str) -> type:
    module, _, attribute = target.partition(":")
    found: type = getattr(import_module(module), attribute)
    return found
