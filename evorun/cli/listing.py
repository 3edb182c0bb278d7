"""`evorun list`: every method, task, model and engine in a line, and which methods fit which tasks."""

from collections.abc import Sequence
from typing import Any

from omegaconf import MISSING
from rich.console import Console
from rich.table import Table

from evorun.cli.compose import choices, default_config, yaml_values
from evorun.errors import ConfigError
from evorun.runner import registry
from evorun.runner.settings import missing_capabilities

SECTIONS = ("methods", "tasks", "models", "engines")

ENGINE_NOTES = {
    "auto": "vllm where it is installed and there is a GPU, else transformers",
    "transformers": "in this process, CPU or GPU, dynamic batching; extra: transformers",
    "vllm": "in this process on local GPUs (or vLLM's CPU build); extra: vllm",
    "server": "any OpenAI-compatible endpoint",
    "simulated": "no weights: a task's simulator with a given skill",
    "replay": "answers from a finished run's journal",
}


def print_listing(arguments: Sequence[str], console: Console) -> None:
    """Print the sections asked for, or all of them. Raises ConfigError for another word."""
    for argument in arguments:
        if argument not in SECTIONS:
            raise ConfigError(f"evorun list: expected {', '.join(SECTIONS)} or nothing, got '{argument}'")
    for section in arguments or SECTIONS:
        if section == "methods":
            console.print(_methods())
        elif section == "tasks":
            console.print(_tasks())
        elif section == "models":
            console.print(_models())
        else:
            console.print(_engines())
    if not arguments or set(arguments) & {"methods", "tasks"}:
        console.print(_pairs())


def _table(title: str, *columns: str) -> Table:
    table = Table(title=title, title_justify="left", box=None, pad_edge=False)
    for number, column in enumerate(columns):
        table.add_column(column, no_wrap=number == 0, style="bold" if number == 0 else None)
    return table


def _methods() -> Table:
    table = _table("methods", "method=", "what it is")
    for name in registry.names("method"):
        table.add_row(name, registry.method_class(name).description)
    return table


def _tasks() -> Table:
    table = _table("tasks", "task=", "what it is")
    for name in registry.names("task"):
        table.add_row(name, _described("task", name))
    return table


def _models() -> Table:
    table = _table("models (also for judge=)", "model=", "id", "context", "what it is")
    for name in choices("model"):
        values = yaml_values("model", name)
        hub_id = "" if values.get("id") == MISSING else str(values.get("id"))
        table.add_row(name, hub_id, f"{values.get('context_length', 8192):,}", _described("model", name))
    return table


def _engines() -> Table:
    table = _table("engines (also for judge_engine=)", "engine=", "what it is")
    for name in choices("engine"):
        table.add_row(name, ENGINE_NOTES.get(name, ""))
    return table


def _pairs() -> Table:
    """Return what each method gets to know on which tasks, or what they would have to offer."""
    table = _table("what goes together", "method=", "knows beside the problem", "task=")
    for name in registry.names("method"):
        tasks: dict[str, list[str]] = {}
        for task in registry.names("task"):
            lacking = missing_capabilities(registry.method_class(name), registry.task_config_class(task))
            tasks.setdefault(_fit(name, task, lacking), []).append(task)
        for number, (fit, names) in enumerate(tasks.items()):
            table.add_row("" if number else name, fit, ", ".join(names))
    return table


def _fit(method: str, task: str, lacking: Sequence[type]) -> str:
    """Return what the method gets to know on the task, or what the task would have to offer."""
    if lacking:
        return f"needs {', '.join(protocol.__name__.lower() for protocol in lacking)}"
    found: Any = registry.method_class(method)
    config = default_config("method", method, **yaml_values("method_on_task", f"{method}_on_{task}"))
    return str(found(config).regime_on(registry.task_config_class(task).task_class))


def _described(group: str, name: str) -> str:
    if group == "task" and name in registry.plugins("task"):
        return registry.task_config_class(name).description
    return str(yaml_values(group, name).get("description", ""))
