"""`evorun list`: methods, tasks, models, engines and experiments, one per line, and which methods fit which tasks."""

import difflib
import inspect
import os
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import fields
from itertools import groupby
from operator import itemgetter
from pathlib import Path
from typing import Any, NamedTuple

from omegaconf import MISSING
from rich.table import Table

from evorun.cli.compose import default_config, yaml_values
from evorun.cli.groups import choices, config_folder
from evorun.cli.output import JSON, print_json
from evorun.cli.plugin_keys import describe_keys
from evorun.errors import ConfigError
from evorun.methods.base import Method
from evorun.runner import registry
from evorun.runner.settings import find_obstacle, missing_capabilities
from evorun.runs.paths import display
from evorun.runs.terminal import Terminal
from evorun.tasks.base import TaskConfig
from evorun.tasks.capabilities import describe

SECTIONS = ("methods", "tasks", "models", "engines")
"""Printed by default."""
EXPERIMENTS = "experiments"
PAIRS = "pairs"

ENGINE_NOTES = {
    "auto": "vllm where it is installed and there is a GPU, otherwise transformers",
    "transformers": "in this process, on CPU or GPU, with dynamic batching; extra: transformers",
    "vllm": "in this process, on local GPUs (or vLLM's CPU build); extra: vllm",
    "server": "any OpenAI-compatible endpoint",
    "openai": "OpenAI's API; its key in the environment variable OPENAI_API_KEY",
    "tinker": "Tinker's API, which trains too (training=tinker); its key in TINKER_API_KEY; extra: tinker",
    "simulated": "no weights: the task's simulator, with a given skill",
    "replay": "answers from a finished run's journal",
}


TITLES = {
    "methods": "methods",
    "tasks": "tasks",
    "models": "models (also for judge=, reward=, meta=, gold=)",
    "engines": "engines (also for judge_engine= and those of other roles)",
    EXPERIMENTS: "experiments",
}


_NO_KEYS = ("name", "description")
"""Fields of settings that say what they are the settings of."""

_REFUSED = "does not run as it is"
_OTHERS = "all others"
_HELD_OUT = ("labels", "demonstrations")
"""Regimes of what comes from held-out problems, of which only a run knows how many there are."""


def print_listing(arguments: Sequence[str], console: Terminal) -> None:
    """Print the requested sections, or the usual ones, or all that is known of single names; with --json as a document.

    Raises ConfigError for an unknown section or name.
    """
    sections = [argument for argument in arguments if argument != JSON]
    sections = [_without_key(argument) for argument in sections]
    if names := [name for name in sections if name not in TITLES]:
        if len(names) < len(sections):
            raise ConfigError(f"evorun list: expected sections or names, got both: {' '.join(sections)}")
        _list_names(names, console, as_json=JSON in arguments)
        return
    with_pairs = not sections or bool(set(sections) & {"methods", "tasks"})
    if JSON in arguments:
        chosen = {section: list(_entries(section)) for section in sections or TITLES}
        print_json({**chosen, **({PAIRS: list(_fits())} if with_pairs else {})})
        return
    for section in sections or SECTIONS:
        entries = list(_entries(section))
        table = _table(TITLES[section], f"{section[:-1]}=", *list(entries[0])[1:])
        for column, cell in zip(table.columns, entries[0].values(), strict=True):
            column.justify = "right" if isinstance(cell, int) else "left"
        for entry in entries:
            cells = (f"{cell:,}" if isinstance(cell, int) else cell for cell in entry.values())
            table.add_row(*cells)
        console.print_table(table)
    if with_pairs:
        table = _pairs()
        console.print_table(table)
        if any(_OTHERS in column.cells for column in table.columns):
            console.print(
                f"{_OTHERS}: `evorun list TASK` names the methods of a task, `evorun list METHOD` the tasks",
                soft_wrap=True,
            )
        if any(_REFUSED in column.cells for column in table.columns):
            console.print(
                f"{_REFUSED}: the settings do not suit the task; `evorun list {JSON}` says why (`obstacle`), and so "
                "does `evorun method=METHOD task=TASK`",
                soft_wrap=True,
                markup=False,
            )


def _without_key(argument: str) -> str:
    """Return NAME of `task=NAME`, `method=NAME` and the like, as other verbs take them."""
    key, _, name = argument.partition("=")
    return name if name and f"{key}s" in TITLES else argument


def _list_names(names: Sequence[str], console: Terminal, *, as_json: bool) -> None:
    """Print what is known of methods, tasks, models, engines or experiments by their names. Raises ConfigError."""
    known = {section: {entry["name"]: entry for entry in _entries(section)} for section in TITLES}
    for name in names:
        if not any(name in entries for entries in known.values()):
            close = difflib.get_close_matches(name, [each for entries in known.values() for each in entries], n=1)
            hint = f"did you mean {close[0]}? " if close else ""
            raise ConfigError(
                f"evorun list: {hint}expected {', '.join(TITLES)}, one of their names, or {JSON}, got '{name}'"
            )
    found = [(section, entries[name]) for name in names for section, entries in known.items() if name in entries]
    pairs = {
        (section, entry["name"]): list(_fits(**{section[:-1]: entry["name"]}))
        for section, entry in found
        if section in ("methods", "tasks")
    }
    if as_json:
        chosen = {section: [entry for of, entry in found if of == section] for section, _ in found}
        print_json({**chosen, PAIRS: [fit for fits in pairs.values() for fit in fits]})
        return
    for section, entry in found:
        kind, name = section[:-1], entry["name"]
        table = _table(f"{kind}={name}", "", "")
        table.show_header = False
        for key, cell in entry.items():
            if key != "name":
                table.add_row(key, f"{cell:,}" if isinstance(cell, int) else cell)
        for number, line in enumerate(_list_keys(kind, name)):
            table.add_row("" if number else "keys", line)
        table.add_row("file", _find_file(kind, name))
        other = "task" if kind == "method" else "method"
        fits = _group_fits(pairs.get((section, name), ()), other, with_reasons=True)
        for number, (words, others) in enumerate(fits.items()):
            table.add_row("" if number else f"with {other}s", f"{words}: {', '.join(others)}")
        console.print_table(table)
        if held_out := " and ".join(regime for regime in _HELD_OUT if regime in fits):
            console.print(f"{held_out}: of held-out problems; a run says where the task has too few", soft_wrap=True)


def _find_file(kind: str, name: str) -> str:
    """Return the file that states the keys of a choice and their values: YAML, or the module of a plug-in."""
    file = config_folder() / kind / f"{name}.yaml"
    if not file.exists():
        owners = registry.methods() if kind == "method" else registry.task_configs() if kind == "task" else {}
        module = inspect.getsourcefile(owners[name]) if name in owners else None
        if module is None:
            return "none"
        file = Path(module)
    return display(Path(os.path.normpath(file)))


def _list_keys(kind: str, name: str) -> list[str]:
    """Return lines on the keys of a method or a task that a command line may set, as `KEY` of `method.KEY`.

    Of evorun's own it is one line: their YAML says the rest.
    """
    owners: Mapping[str, Any] = registry.methods() if kind == "method" else {}
    settings = owners[name].Config if name in owners else registry.task_configs().get(name) if kind == "task" else None
    if settings is None:
        return []
    keys = [field.name for field in fields(settings) if field.name not in _NO_KEYS]
    if not (config_folder() / kind / f"{name}.yaml").exists():
        return list(describe_keys(settings, keys))
    return [", ".join(keys)] if keys else []


def _entries(section: str) -> Iterator[dict[str, Any]]:
    """Yield what there is to say of each choice: its name first, its description last."""
    if section == "methods":
        for name, method in registry.methods().items():
            yield {"name": name, "description": method.description}
    elif section == "tasks":
        for name, config in registry.task_configs().items():
            plugin = name in registry.plugins("task")  # has no YAML
            about = config.description if plugin else yaml_values("task", name)["description"]
            yield {"name": name, "description": about}
    elif section == "models":
        for name in choices("model"):
            values = yaml_values("model", name)
            hub_id = "" if values.get("id") == MISSING else str(values.get("id"))
            about = str(values.get("description", ""))
            yield {"name": name, "id": hub_id, "context": values.get("context_length", 8192), "description": about}
    elif section == EXPERIMENTS:
        for name in choices("experiment"):
            yield {"name": name, "description": _first_sentence(config_folder() / "experiment" / f"{name}.yaml")}
    else:
        for name in choices("engine"):
            yield {"name": name, "description": ENGINE_NOTES.get(name, "")}


def _first_sentence(file: Path) -> str:
    """Return the first sentence of a YAML file's opening comment."""
    comment = []
    for line in file.read_text(encoding="utf-8").splitlines():
        if not line.startswith("#") or line.startswith("#  "):
            break
        if not line.startswith("# @package"):
            comment.append(line.removeprefix("#").strip())
    return " ".join(comment).partition(". ")[0].rstrip(".:")


def _table(title: str, *columns: str) -> Table:
    table = Table(title=title, title_justify="left", box=None, pad_edge=False)
    for number, column in enumerate(columns):
        table.add_column(column, no_wrap=number == 0, style="bold" if number == 0 else None)
    return table


def _fits(method: str | None = None, task: str | None = None) -> Iterator[dict[str, Any]]:
    """Yield each pair of a method and a task: the information regime that it has, or why it does not run.

    method, task: the only one to pair.
    """
    for name, method_class in registry.methods().items():
        if method not in (None, name):
            continue
        usual = method_class(default_config("method", name))
        for task_name, task_config in registry.task_configs().items():
            if task not in (None, task_name):
                continue
            fit = find_fit(usual, task_config, name, task_name)
            lacking = describe(fit.lacking) if fit.lacking else None
            yield {
                "method": name,
                "task": task_name,
                "regime": fit.regime or None,
                "needs": lacking,
                "obstacle": fit.obstacle or None,
            }


def _pairs() -> Table:
    """Return the tasks that fit each method, by the pair's information regime, or by what the tasks lack.

    Where most tasks are alike, they are not named: the lines would be longer than a screen is wide.
    """
    table = _table("which methods fit which tasks", "method=", "sees beside the problem, or needs", "task=")
    for name, fits in groupby(_fits(), itemgetter("method")):
        groups = _group_fits(fits, "task")
        tasks = sum(map(len, groups.values()))
        for number, (words, names) in enumerate(sorted(groups.items(), key=lambda group: len(group[1]))):
            most = "all" if len(groups) == 1 else _OTHERS
            table.add_row("" if number else name, words, most if 2 * len(names) > tasks else ", ".join(names))
    return table


def _group_fits(fits: Iterable[Mapping[str, Any]], other: str, *, with_reasons: bool = False) -> dict[str, list[str]]:
    """Return the names of tasks (or methods: `other`), by the information regime with them, or by what is lacking.

    with_reasons: those that are refused are by the reason.
    """
    names: dict[str, list[str]] = {}
    for fit in fits:
        needs = f"needs {fit['needs']}" if fit["needs"] else None
        refused = _REFUSED if fit["obstacle"] else None
        if refused and with_reasons:  # in words that hold for several tasks
            refused += f" ({fit['obstacle'].replace('task=' + fit['task'], 'the task')})"
        names.setdefault(needs or refused or fit["regime"], []).append(fit[other])
    return names


class Fit(NamedTuple):
    """The fit of a method and a task, with the settings that the method has there."""

    regime: str
    """The pair's information regime; empty where the task lacks a capability."""
    lacking: Sequence[type]
    """Capabilities that the method needs and the task does not offer."""
    obstacle: str
    """Why the settings do not suit the task; empty where they do."""


def find_fit(usual: Method, task: type[TaskConfig], method_name: str, task_name: str) -> Fit:
    """Return whether a method, given with its usual settings, runs on a task.

    The names are those of the files in `conf/`; one in `conf/method_on_task/` may have values for the pair.
    """
    method = type(usual)
    lacking = missing_capabilities(method, task)
    if lacking:
        return Fit("", lacking, "")
    # Regime and obstacle may depend on values that depend on the task: lyria's oracle for puzzles.
    values = yaml_values("method_on_task", f"{method_name}_on_{task_name}")
    configured = method(default_config("method", method.name, **values)) if values else usual
    return Fit(configured.information_regime(task.task_class), (), find_obstacle(configured, task, task_name) or "")
