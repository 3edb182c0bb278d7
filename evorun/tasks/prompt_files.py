"""Prompt texts from files: Jinja templates beside the task that owns them, single files replaced by a user's own."""

from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

from jinja2 import StrictUndefined, Template, TemplateError, meta
from jinja2.sandbox import SandboxedEnvironment

from evorun.errors import ConfigError

SUFFIX = ".md"


class PromptFiles:
    """The compiled prompt templates of one task.

    Values are inserted as text: template syntax inside a problem or a response stays as it is. Safe to share between
    coroutines.
    """

    def __init__(
        self,
        builtin: Path | Sequence[Path],
        override: str | None,
        examples: Mapping[str, Mapping[str, Any]],
        optional: frozenset[str],
    ) -> None:
        """Read, compile and try out every template.

        builtin: folder with `<name>.md` for every name in `examples`; of several folders the first that has the file.
        override: the user's folder (`task.prompts`), or None; each file in it replaces the built-in one of its name.
        examples: for each template, a value for every variable that it is given; it must use all of them.
        optional: variables that a template may leave out.

        Raises ConfigError naming the file when the folder or a file cannot be used, a variable is unknown or missing,
        or the template does not render.
        """
        environment = SandboxedEnvironment(undefined=StrictUndefined)
        environment.globals.clear()  # Jinja copies them at every rendering, and prompts need none: half the time saved
        folders = [builtin] if isinstance(builtin, Path) else builtin
        files = {name: _first(folders, f"{name}{SUFFIX}") for name in examples}
        if override is not None:
            files |= _overrides(Path(override).expanduser(), files)
        self._templates = {name: _compile(environment, path, examples[name], optional) for name, path in files.items()}

    def render(self, name: str, **values: Any) -> str:
        """Return the text of template `name` with `values` filled in."""
        return self._templates[name].render(values)


def _first(folders: Sequence[Path], name: str) -> Path:
    return next((folder / name for folder in folders if (folder / name).is_file()), folders[-1] / name)


def _overrides(folder: Path, files: Mapping[str, Path]) -> dict[str, Path]:
    if not folder.is_dir():
        raise ConfigError(f"task.prompts: expected a folder, got '{folder}'")
    found = {name: folder / path.name for name, path in files.items() if (folder / path.name).is_file()}
    if not found:
        names = ", ".join(sorted(path.name for path in files.values()))
        raise ConfigError(f"task.prompts: expected at least one of {names} in '{folder}', found none")
    return found


def _compile(
    environment: SandboxedEnvironment, path: Path, example: Mapping[str, Any], optional: frozenset[str]
) -> Template:
    try:
        source = path.read_text(encoding="utf-8").strip()
    except (OSError, UnicodeDecodeError) as error:
        raise ConfigError(f"{path}: cannot read the prompt template: {error}") from error
    try:
        used = meta.find_undeclared_variables(environment.parse(source))
        _check_variables(path, used, set(example), optional)
        template = environment.from_string(source)
        template.render(example)
    except ConfigError:
        raise
    # A template may call filters and operators on its values, so a bad one can raise anything.
    except Exception as error:
        line = f":{error.lineno}" if isinstance(error, TemplateError) and hasattr(error, "lineno") else ""
        reason = (str(error) or type(error).__name__).splitlines()[0]
        raise ConfigError(f"{path}{line}: the prompt template does not render: {reason}") from error
    return template


def _check_variables(path: Path, used: set[str], given: set[str], optional: frozenset[str]) -> None:
    unknown = sorted(used - given)
    if unknown:
        allowed = ", ".join(sorted(given)) or "none"
        raise ConfigError(f"{path}: unknown variable '{unknown[0]}'; this template may use: {allowed}")
    missing = sorted(given - optional - used)
    if missing:
        raise ConfigError(f"{path}: expected the placeholder {{{{ {missing[0]} }}}}, which is missing")
