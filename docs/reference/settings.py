"""The pages of settings: each key with its type, default, range, source and the line that gives the default."""

import dataclasses
import json
import re
from collections.abc import Iterator, Mapping
from fnmatch import fnmatchcase
from functools import cache
from pathlib import Path
from types import NoneType
from typing import Annotated, Any, Literal, NamedTuple, get_args, get_origin, get_type_hints

import yaml

from evorun.cli.compose import PARTS
from evorun.fields import describe_bound, stated_bounds
from evorun.models.config import ModelConfig
from evorun.runner import registry
from evorun.runner.settings import ProgramSettings, RunSettings
from evorun.runner.student import StudentConfig
from evorun.runs.budget import BudgetConfig
from evorun.sandbox.config import SandboxConfig
from evorun.tracking.choices import TRACKERS, tracker_class
from evorun.training.config import TrainingConfig
from reference.markdown import code, lines, prose, table
from reference.sources import CONF, Key, Place, read_fields, read_yaml

COLUMNS = ("key, type, range", "default", "meaning; source and line of the default")
GROUPS = ("model", "engine", "training", "budget", "student")
"""The groups on the page of what all runs share, beside config.yaml."""
OVERRIDES = ("method_on_task", "method_in_release", "release_on_task")
"""The groups that change a method's values for a pair."""
SECTIONS = ("method.", "training.", "engine.", "budget.")
"""Beginnings of keys in files that name the group themselves; the other keys are the method's."""

NAMED = re.compile(
    r"\bours\b|[Ss]ections? \d|\bEqs?\. |[Ff]igures? \d|[Tt]ables? \d|[Aa]ppendix|\b[A-K]\.\d|Algorithm \d|arXiv|"
    r"authors|[Pp]aper|released code|the package|TRL|treequest|OpenEvolve|Shinka|AdaEvolve|AlphaEvolve|TTT-Discover|"
    r"\bexperiments\b|benchmark's|the server's own|Thinking Machines|beyond MPO|as for LAFT"
)
"""What a comment has that names the source of its value."""


HEAD = """
A row has a key, its default, and the default's source and line in `conf/`. The source is a section of the method's or
the task's own paper, another source by name, or `ours` where the paper leaves the value open. "The task's" is
`task.sampling.KEY`, if the task sets it. A key without a range takes any value of its type.
"""

OF_MODELS = """
Files of models and the values that they give, each with its line of the file. What a file leaves out has the default
above.
"""
OF_BUDGETS = """
Files of budgets and the values that they give, each with its line of the file. The defaults above are those of
`budget=unlimited`.
"""


OTHER_PAGES = """
[Methods](settings_methods.md), [tasks](settings_tasks.md) and [pairs of them](settings_of_pairs.md) have their own
pages. Another role's model (`judge`, `reward`, `meta`, `gold`, `reflection`, `teacher`) has the keys of `model`. Its
engine (`judge_engine`, ...) has those of `engine`.
"""


PAIRS_HEAD = """
# Settings of pairs

Values that a method takes on one task, in one release of a paper's code, or in that release on one task. They override
the method's own defaults; `method.KEY=VALUE` overrides both.
"""


class Setting(NamedTuple):
    """A row of a table of settings."""

    key: str
    type: str
    default: str
    range: str
    meaning: str
    """The docstring of its field, else the words of keys.yaml."""
    source: str
    """The comment beside its default; where it names no source, with that of keys.yaml."""
    place: Place


def settings_pages() -> Iterator[tuple[str, str]]:
    """Yield the name and the Markdown of each page of settings."""
    yield "settings", _shared_page()
    for group in ("method", "task"):
        title = f"# Settings of {group}s\n{HEAD}"
        names = sorted(registry.METHODS if group == "method" else registry.TASKS)
        yield f"settings_{group}s", "\n".join([title, *(_section(group, name) for name in names)])
    yield "settings_of_pairs", _pairs_page()


def list_settings(group: str, name: str, schema: type) -> Iterator[Setting]:
    """Yield the settings of a choice: the fields of its schema, with the values of its YAML files."""
    found = _list_fields(schema, _resolve(group, name), "", f"{group}.")
    own = f"conf/{group}/{name}.yaml"
    yield from sorted(found, key=lambda one: (one.place.file != own, one.place))  # as the files have them


def schema_of(group: str, name: str) -> type:
    """Return the dataclass that checks the keys of a choice."""
    if group == "method":
        return registry.method_class(name).Config
    if group == "task":
        return registry.task_config_class(name)
    if group == "engine":  # an engine's file may be a variant of another engine: openai is a server
        return registry.engine_config_class(yaml.safe_load(_resolve(group, name)["name"].value or name))
    return {"model": ModelConfig, "training": TrainingConfig, "budget": BudgetConfig, "student": StudentConfig}[group]


@cache
def _resolve(group: str, name: str) -> Mapping[str, Key]:
    """Return the keys of a choice's file, over those of the files of its group and the parts that it names."""
    file = CONF / group / f"{name}.yaml"
    found: dict[str, Key] = {}
    for default in yaml.safe_load(file.read_text()).get("defaults", ()):
        if isinstance(default, str) and default != "_self_":
            found |= _resolve(group, default.removesuffix("@_here_"))
        elif isinstance(default, dict) and PARTS in default:
            for part in default[PARTS]:
                found |= read_yaml(CONF / "method_parts" / f"{part}.yaml")
    return {**found, **{key: value for key, value in read_yaml(file).items() if key != "defaults"}}


def _list_fields(schema: Any, given: Mapping[str, Key], above: str, prefix: str) -> Iterator[Setting]:
    hints, declared = get_type_hints(schema, include_extras=True), read_fields(schema)
    for field in dataclasses.fields(schema):
        if not above and field.name in ("name", "description"):  # of the choice itself
            continue
        key, hint = f"{above}{field.name}", hints[field.name]
        yaml_key = given.get(key)
        doc, place = declared[field.name].doc, yaml_key.place if yaml_key else declared[field.name].place
        comment = yaml_key.comment if yaml_key else ""
        meaning = doc or _read_meaning(f"{prefix}{key}")
        if dataclasses.is_dataclass(hint):
            if meaning or comment:
                source = _name_source(f"{prefix}{key}", comment, place)
                yield Setting(f"{prefix}{key}", "settings", "", "", meaning, source, place)
            yield from _list_fields(hint, given, f"{key}.", prefix)
            continue
        default = _default_of(field) if yaml_key is None else _written(key, yaml_key, given)
        source = _name_source(f"{prefix}{key}", comment, place)
        bounds = _range_of(schema, field.name)
        yield Setting(f"{prefix}{key}", type_name(hint), default, bounds, meaning, source, place)


@cache
def read_words() -> Mapping[str, Any]:
    """Return the meanings and the rules of sources in keys.yaml."""
    found: Mapping[str, Any] = yaml.safe_load(Path(__file__).with_name("keys.yaml").read_text())
    return found


def _read_meaning(key: str) -> str:
    meanings: Mapping[str, str] = read_words()["meanings"]
    return meanings.get(key) or meanings.get(key.rpartition(".")[2], "")


def find_rule(key: str, place: Place) -> Mapping[str, str] | None:
    """Return the first rule of keys.yaml for a key of a file, or None."""
    for rule in read_words()["sources"]:
        if fnmatchcase(place.file, rule["file"]) and any(fnmatchcase(key, pattern) for pattern in rule["keys"]):
            return rule  # type: ignore[no-any-return]  # of YAML
    return None


def _name_source(key: str, comment: str, place: Place) -> str:
    """Return a comment; where it names no source, with that of the rule for its key.

    Raises ValueError where there is no such rule.
    """
    if NAMED.search(comment):
        return comment
    rule = find_rule(key, place)
    if rule is None:
        raise ValueError(
            f"{key}: expected a source in the comment of {place}, found none; name a paper's section, a library or "
            "`ours` there, or write a rule in docs/reference/keys.yaml"
        )
    return "; ".join(filter(None, (comment, rule["source"])))


def _written(key: str, found: Key, given: Mapping[str, Key]) -> str:
    """Return a YAML value as written; that of a mapping over several lines as one line of JSON."""
    if found.value is not None:
        return found.value
    below = {name.removeprefix(f"{key}."): one for name, one in given.items() if name.startswith(f"{key}.")}
    return "{" + ", ".join(f"{name}: {one.value}" for name, one in below.items() if one.value is not None) + "}"


def _default_of(field: Any) -> str:
    """Return a field's default as YAML would have it; nothing where a value must be given."""
    if field.default_factory is not dataclasses.MISSING:
        return json.dumps(field.default_factory())
    if field.default is dataclasses.MISSING:
        return ""
    return field.default if isinstance(field.default, str) and field.default else json.dumps(field.default)


def _range_of(schema: type, name: str) -> str:
    bounds = [describe_bound(bound) for stated, bound in stated_bounds(schema) if stated == name]
    return ", ".join(bound.removeprefix("a number ") for bound in bounds)


def type_name(hint: Any) -> str:
    """Return a type as it is written, without the bounds: `int`, `int | null`, `list[str]`."""
    if get_origin(hint) is Annotated:
        return type_name(get_args(hint)[0])
    if hint in (None, NoneType):
        return "null"
    if get_origin(hint) is Literal:
        return " or ".join(map(json.dumps, get_args(hint)))
    if get_origin(hint) in (list, tuple, dict):
        inner = ["..." if member is ... else type_name(member) for member in get_args(hint)]
        return f"{get_origin(hint).__name__}[{', '.join(inner)}]"
    if get_args(hint):
        return " | ".join(type_name(member) for member in get_args(hint))
    return hint.__name__ if isinstance(hint, type) else str(hint).removeprefix("typing.")


def read_default(text: str) -> str:
    """Return a default in Markdown, with OmegaConf's interpolations in words."""
    if found := re.fullmatch(r"\$\{from_task:\w+,(.*)\}", text):
        return f"the task's, else {read_default(found[1])}"
    if found := re.fullmatch(r"\$\{without_budget:(.*)\}", text):
        return f"{read_default(found[1])}; under a budget `null`"
    if found := re.fullmatch(r"\$\{of_trainer:(\w+),(.*)\}", text):
        return f"that of `trainer`, else {read_default(found[2])}"
    if found := re.fullmatch(r"\$\{max:(\d+),\$\{\.(\w+)\}\}", text):
        return f"`{found[2]}`, at least `{found[1]}`"
    if found := re.fullmatch(r"\$\{\.(\w+)\}", text):
        return f"that of `{found[1]}`"
    return code(text)


def _rows(settings: Iterator[Setting], columns: tuple[str, str, str] = COLUMNS) -> str:
    rows = (
        (
            lines(code(one.key), ", ".join(filter(None, (prose(one.type), one.range)))),
            read_default(one.default),
            lines(prose(one.meaning), one.source and f"*{prose(one.source)}*", code(str(one.place))),
        )
        for one in settings
    )
    return table(columns, rows)


def _section(group: str, name: str) -> str:
    return f"## {group}={name}\n\n{_rows(list_settings(group, name, schema_of(group, name)))}"


def _shared_page() -> str:
    top = read_yaml(CONF / "config.yaml")
    run = {"sandbox": SandboxConfig, "run": RunSettings, "evorun": ProgramSettings}
    seed = top["seed"]
    source = _name_source("seed", seed.comment, seed.place)
    rows = [Setting("seed", "int", seed.value or "", ">= 0", "Of all draws of a run.", source, seed.place)]
    for section, schema in run.items():
        given = {key.removeprefix(f"{section}."): one for key, one in top.items() if key.startswith(f"{section}.")}
        rows += _list_fields(schema, given, "", f"{section}.")
    parts = [
        "# Settings of all runs",
        HEAD,
        OTHER_PAGES,
        "## config.yaml\n",
        _rows(iter(rows)),
    ]
    for group in GROUPS:
        names = [file.stem for file in sorted((CONF / group).glob("*.yaml")) if file.stem not in ("auto", "none")]
        if group in ("model", "budget"):  # presets of one schema
            given = read_yaml(CONF / "budget" / "unlimited.yaml") if group == "budget" else {}
            parts += [f"## {group}\n", _rows(_list_fields(schema_of(group, ""), given, "", f"{group}."))]
            parts += [OF_BUDGETS if group == "budget" else OF_MODELS, _presets(group, names)]
        else:
            parts += [_section(group, name) for name in names]
    for name in TRACKERS:
        given = read_yaml(CONF / "tracker" / f"{name}.yaml")
        rows = _list_fields(tracker_class(name).Config, given, "", f"tracker.{name}.")
        parts += [f"## tracker={name}\n", _rows(rows)]
    return "\n".join(parts)


def _presets(group: str, names: list[str]) -> str:
    """Return the table of a group's choices, each with the values that its file gives."""
    rows = []
    for name in names:
        given = {key: one for key, one in read_yaml(CONF / group / f"{name}.yaml").items() if key != "name"}
        values = (
            f"`{key}: {one.value}` ({one.place.line})"
            for key, one in given.items()
            if one.value not in (None, "null", "{}")
        )
        rows.append((code(f"{group}={name}"), ", ".join(values), code(f"conf/{group}/{name}.yaml")))
    return table(("choice", "values (lines)", "file"), rows)


def _pairs_page() -> str:
    parts = [
        PAIRS_HEAD,
    ]
    for group in OVERRIDES:
        for file in sorted((CONF / group).glob("*.yaml")):
            parts += [f"## {file.stem}\n", _changes(group, file)]
    return "\n".join(parts)


def _changes(group: str, file: Path) -> str:
    """Return the table of the values that a file of a pair gives to fields of a method and of how it trains."""
    [method] = [name for name in registry.METHODS if re.match(rf"{name}_(on|in)_", file.stem)]
    own = {**_settings_by_key("method", method), **_settings_by_key("training", "lora")}
    rows = []
    for name, given in _resolve(group, file.stem).items():
        if given.value is not None:
            key = name if name.startswith(SECTIONS) else f"method.{name}"
            source = _name_source(key, given.comment, given.place)
            rows.append(own[key]._replace(default=given.value, source=source, place=given.place))
    return _rows(iter(rows), ("key, type, range", "value", "meaning; source and line of the value"))


@cache
def _settings_by_key(group: str, name: str) -> Mapping[str, Setting]:
    return {one.key: one for one in list_settings(group, name, schema_of(group, name))}
