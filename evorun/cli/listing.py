"""`evorun list`: methods, tasks, models and engines, one per line, and which methods fit which tasks."""

from collections.abc import Sequence
from typing import NamedTuple

from omegaconf import MISSING
from rich.table import Table

from evorun.cli.compose import choices, default_config, yaml_values
from evorun.errors import ConfigError
from evorun.methods.base import Method
from evorun.runner import registry
from evorun.runner.settings import find_obstacle, missing_capabilities
from evorun.runs.terminal import Terminal
from evorun.tasks.base import TaskConfig
from evorun.tasks.capabilities import describe

SECTIONS = ("methods", "tasks", "models", "engines")

ENGINE_NOTES = {
    "auto": "vllm where it is installed and there is a GPU, otherwise transformers",
    "transformers": "in this process, on CPU or GPU, with dynamic batching; extra: transformers",
    "vllm": "in this process, on local GPUs (or vLLM's CPU build); extra: vllm",
    "server": "any OpenAI-compatible endpoint",
    "simulated": "no weights: the task's simulator, with a given skill",
    "replay": "answers from a finished run's journal",
}


def print_listing(arguments: Sequence[str], console: Terminal) -> None:
    """Print the requested sections, or all of them. Raises ConfigError for an unknown section."""
    for argument in arguments:
        if argument not in SECTIONS:
            raise ConfigError(f"evorun list: expected {', '.join(SECTIONS)} or nothing, got '{argument}'")
    for section in arguments or SECTIONS:
        if section == "methods":
            table = _table("methods", "method=", "description")
            for name, method in registry.methods().items():
                table.add_row(name, method.description)
        elif section == "tasks":
            table = _table("tasks", "task=", "description")
            for name, config in registry.task_configs().items():
                plugin = name in registry.plugins("task")  # has no YAML
                table.add_row(name, config.description if plugin else yaml_values("task", name)["description"])
        elif section == "models":
            table = _table("models (also for judge=, reward=, meta=, gold=)", "model=", "id", "context", "description")
            for name in choices("model"):
                values = yaml_values("model", name)
                hub_id = "" if values.get("id") == MISSING else str(values.get("id"))
                about = str(values.get("description", ""))
                table.add_row(name, hub_id, f"{values.get('context_length', 8192):,}", about)
        else:
            table = _table("engines (also for judge_engine= and those of other roles)", "engine=", "description")
            for name in choices("engine"):
                table.add_row(name, ENGINE_NOTES.get(name, ""))
        console.print_table(table)
    if not arguments or set(arguments) & {"methods", "tasks"}:
        console.print_table(_pairs())


def _table(title: str, *columns: str) -> Table:
    table = Table(title=title, title_justify="left", box=None, pad_edge=False)
    for number, column in enumerate(columns):
        table.add_column(column, no_wrap=number == 0, style="bold" if number == 0 else None)
    return table


def _pairs() -> Table:
    """Return the tasks that fit each method, by the pair's information regime, or by what the tasks lack."""
    table = _table("which methods fit which tasks", "method=", "sees beside the problem", "task=")
    for name, method in registry.methods().items():
        tasks: dict[str, list[str]] = {}
        usual = method(default_config("method", name))
        for task, task_config in registry.task_configs().items():
            fit = find_fit(usual, task_config, f"{name}_on_{task}")
            if fit.lacking:
                words = f"needs {describe(fit.lacking)}"
            else:
                words = "other settings needed" if fit.obstacle else fit.regime
            tasks.setdefault(words, []).append(task)
        for number, (words, names) in enumerate(tasks.items()):
            table.add_row("" if number else name, words, ", ".join(names))
    return table


class Fit(NamedTuple):
    """Whether a method runs on a task, with the settings that it has there."""

    regime: str
    """The pair's information regime; empty where the task lacks a capability."""
    lacking: Sequence[type]
    """Capabilities that the method needs and the task does not offer."""
    obstacle: str
    """Why the settings do not suit the task; empty where they do."""


def find_fit(usual: Method, task: type[TaskConfig], pair: str) -> Fit:
    """Return whether a method, given with its usual settings, runs on a task.

    pair: the file of `conf/method_on_task/`, if there is one, with the values that the method has on the task.
    """
    method = type(usual)
    lacking = missing_capabilities(method, task)
    if lacking:
        return Fit("", lacking, "")
    # Regime and obstacle may depend on values that depend on the task: lyria's oracle for puzzles.
    values = yaml_values("method_on_task", pair)
    configured = method(default_config("method", method.name, **values)) if values else usual
    return Fit(configured.information_regime(task.task_class), (), find_obstacle(configured, task) or "")
