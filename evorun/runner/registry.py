"""Names on the command line and the classes behind them: evorun's own, and those of installed plug-ins.

A third party adds a method or a task through a Python entry point (`evorun.methods`: a `Method` subclass;
`evorun.tasks`: a `TaskConfig` subclass); its configuration's defaults then stand in for a YAML file.
"""

import difflib
from collections.abc import Iterable
from functools import cache
from importlib import import_module, metadata
from typing import Literal

from evorun.errors import ConfigError
from evorun.methods.base import Method
from evorun.models.config import EngineConfig
from evorun.tasks.base import TaskConfig

# Targets are text, imported when they are asked for: `evorun --help` imports no method, task or engine.
METHODS = {
    "best_of_n": "evorun.methods.best_of_n:BestOfN",
    "cispo": "evorun.methods.policy_gradient:Cispo",
    "duel_evolve": "evorun.methods.duel_evolve:DuelEvolve",
    "feedback_descent": "evorun.methods.feedback_descent:FeedbackDescent",
    "few_shot": "evorun.methods.few_shot:FewShot",
    "gepa": "evorun.methods.gepa:Gepa",
    "laft": "evorun.methods.laft:Laft",
    "grpo": "evorun.methods.policy_gradient:Grpo",
    "lyria": "evorun.methods.lyria:Lyria",
    "rloo": "evorun.methods.policy_gradient:Rloo",
    "self_consistency": "evorun.methods.self_consistency:SelfConsistency",
    "sft": "evorun.methods.sft:Sft",
    "zero_shot": "evorun.methods.zero_shot:ZeroShot",
}
TASKS = {
    "aime": "evorun.tasks.math_contest:MathContestConfig",
    "arithmetic": "evorun.tasks.arithmetic:ArithmeticConfig",
    "beyond_aime": "evorun.tasks.math_contest:MathContestConfig",
    "dapo_aime25": "evorun.tasks.math_contest:MathContestConfig",
    "graph_coloring": "evorun.tasks.graph_coloring:GraphColoringConfig",
    "hmmt": "evorun.tasks.math_contest:MathContestConfig",
    "livecodebench": "evorun.tasks.livecodebench:LiveCodeBenchConfig",
    "math500": "evorun.tasks.math_contest:MathContestConfig",
    "mathbench": "evorun.tasks.mathbench:MathBenchConfig",
    "sudoku": "evorun.tasks.sudoku:SudokuConfig",
    "tsp": "evorun.tasks.tsp:TspConfig",
}
ENGINES = {
    "transformers": "evorun.models.transformers.engine:TransformersConfig",
    "vllm": "evorun.models.vllm.engine:VllmConfig",
    "server": "evorun.models.server.engine:ServerConfig",
    "simulated": "evorun.models.simulated:SimulatedConfig",
    "replay": "evorun.runs.replay:ReplayConfig",
}

Kind = Literal["method", "task"]


@cache
def plugins(kind: Kind) -> dict[str, metadata.EntryPoint]:
    """Return the entry points that installed packages offer for a kind, by name."""
    return {point.name: point for point in metadata.entry_points(group=f"evorun.{kind}s")}


def method_class(name: str) -> type[Method]:
    """Return the method of that name. Raises ConfigError, with the names to choose from, when there is none."""
    found: type[Method] = _find("method", name, METHODS)
    return found


def task_config_class(name: str) -> type[TaskConfig]:
    """Return the task's configuration class. Raises ConfigError when there is none."""
    found: type[TaskConfig] = _find("task", name, TASKS)
    return found


def engine_config_class(name: str) -> type[EngineConfig]:
    """Return the engine's configuration class. Raises ConfigError when there is none."""
    if name not in ENGINES:
        raise unknown("engine", name, ENGINES)
    found: type[EngineConfig] = _load(ENGINES[name])
    return found


def names(kind: Kind) -> list[str]:
    """Return all names of a kind, in alphabetical order."""
    builtin = METHODS if kind == "method" else TASKS
    return sorted({*builtin, *plugins(kind)})


def training_splits() -> dict[str, str]:
    """Return what the tasks that have a training split call it, by the tasks' names; imports all of them."""
    splits = {name: task_config_class(name).training_split for name in names("task")}
    return {name: split for name, split in splits.items() if split is not None}


def unknown(kind: str, name: str, choices: Iterable[str]) -> ConfigError:
    """Return the error for a name that is not among the choices."""
    choices = sorted(choices)
    close = difflib.get_close_matches(name, choices, n=1)
    hint = f"did you mean {kind}={close[0]}? " if close else ""
    return ConfigError(f"{kind}={name}: unknown {kind}; {hint}choose one of {', '.join(choices)}")


def _find(kind: Kind, name: str, builtin: dict[str, str]) -> type:
    # Built-in names first: an installed package cannot replace a method or a task unnoticed.
    if name in builtin:
        return _load(builtin[name])
    if name in plugins(kind):
        loaded: type = plugins(kind)[name].load()
        return loaded
    raise unknown(kind, name, names(kind))


def _load(target: str) -> type:
    module, _, attribute = target.partition(":")
    found: type = getattr(import_module(module), attribute)
    return found
