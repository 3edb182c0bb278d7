"""`evorun new`: a package with a task, a method or a reward of one's own, to begin with."""

import importlib.util
import keyword
from collections.abc import Iterator, Mapping, Sequence
from importlib import resources
from importlib.resources.abc import Traversable
from pathlib import Path

from jinja2 import Environment, StrictUndefined

from evorun.cli.usage import USAGES
from evorun.errors import ConfigError
from evorun.plugins import Kind
from evorun.runner import registry
from evorun.runs.terminal import Terminal

OPTIONS: Mapping[str, tuple[Kind, str]] = {
    "kind=score": ("task", "task_score"),
    "kind=duels": ("method", "method_duels"),
    "kind=dataset": ("method", "method_dataset"),
}
"""Of each option the kind of package, and the folder of templates that replace some of that kind's."""

_OFFERS: Mapping[str, str] = {
    "kind=score": "a score and no right and wrong",
    "kind=duels": "duels before a judge",
    "kind=dataset": "a search for a system prompt that serves all problems",
}
"""Contents of a package with each option, in words."""

_IN_FILE_NAMES = "NAME"
"""Stands for the package's name in the names of template files."""

_IGNORED = "outputs/\n__pycache__/\n*.egg-info/\n"
"""The package's `.gitignore`: runs land in `outputs`."""

_WRITTEN: tuple[Kind, ...] = ("task", "method", "reward")


def new_package(arguments: Sequence[str], console: Terminal) -> None:
    """Write the package into the folder NAME. Raises ConfigError for a bad name or a folder that is in use."""
    kind = next((kind for kind in _WRITTEN if [kind] == list(arguments[:1])), None)
    option = arguments[2] if len(arguments) == 3 else None
    if kind is None or len(arguments) not in (2, 3):
        raise ConfigError(f"expected: {USAGES['new'].synopsis}; got: {' '.join(arguments) or 'nothing'}")
    offered = [option for option, (of, _) in OPTIONS.items() if of == kind]
    if option is not None and option not in offered:
        wanted = f"{' or '.join(offered)}, or nothing," if offered else "nothing"
        raise ConfigError(f"{option}: expected {wanted} after the name of a {kind}")
    name = arguments[1]
    _check_name(kind, name)
    folder = Path(name)
    if folder.exists() and not (folder.is_dir() and not any(folder.iterdir())):
        raise ConfigError(
            f"{name}: expected no such file and no such folder, or an empty one; choose another name, or remove it"
        )
    environment = Environment(undefined=StrictUndefined, keep_trailing_newline=True, autoescape=False)  # noqa: S701
    class_name = "".join(part.capitalize() for part in name.split("_"))
    words = {"name": name, "class_name": class_name, "partial": option == "kind=score"}
    try:
        root = resources.files("evorun.cli") / "templates"
        templates = dict(_templates(root / kind)) | (dict(_templates(root / OPTIONS[option][1])) if option else {})
        for path, template in {**templates, ".gitignore": _IGNORED}.items():
            file = folder / path.replace(_IN_FILE_NAMES, name)
            file.parent.mkdir(parents=True, exist_ok=True)
            text = environment.from_string(template).render(words)
            file.write_text(text, encoding="utf-8")
            console.print(f"written: {file}", soft_wrap=True)
    except OSError as error:
        raise ConfigError(f"{name}: cannot write the package: {error}; choose another working folder") from error
    if option is None:
        for other in offered:
            command = f"evorun new {kind} {name} {other}"
            console.print(f"to have {_OFFERS[other]} instead, remove it: {command}", soft_wrap=True)
    console.print(f"next: cd {name} && python -m pip install --editable . && python -m pytest", soft_wrap=True)


def _check_name(kind: Kind, name: str) -> None:
    is_plain = name.isascii() and name.isidentifier() and name.islower() and not name.startswith("_")
    if not is_plain or keyword.iskeyword(name):
        raise ConfigError(
            f"{name}: expected a name in lower-case letters, digits and underscores that is no word of Python, as in "
            f"my_{kind}"
        )
    if name in registry.names(kind):
        raise ConfigError(f"{name}: there is a {kind} of this name already (evorun list {kind}s); choose another")
    found = importlib.util.find_spec(name)
    if found is not None and found.origin is not None:  # a mere folder has none
        raise ConfigError(f"{name}: there is a Python module of this name already; choose another, such as my_{name}")


def _templates(folder: Traversable, prefix: str = "") -> Iterator[tuple[str, str]]:
    """Yield the path and the text of each template in a folder, without its ending `.j2`."""
    for entry in sorted(folder.iterdir(), key=lambda entry: entry.name):
        if entry.is_dir():
            yield from _templates(entry, f"{prefix}{entry.name}/")
        elif entry.name.endswith(".j2"):
            yield f"{prefix}{entry.name.removesuffix('.j2')}", entry.read_text(encoding="utf-8")
