"""Prompt texts from files: Jinja templates, each of which a user's file can replace."""

import logging
from collections.abc import Collection, Mapping, Sequence
from functools import cache
from pathlib import Path
from types import CodeType
from typing import Any

from jinja2 import StrictUndefined, Template, TemplateError, meta
from jinja2.sandbox import SandboxedEnvironment

from evorun.errors import ConfigError

SUFFIX = ".md"
_MAX_CHARS = 2**20
"""Maximum characters of a template (ours): far beyond any model's context."""

_ENVIRONMENT = SandboxedEnvironment(undefined=StrictUndefined)
"""Sandboxed, since files may come with somebody else's experiment. A placeholder without a value is an error, never an
empty text."""

_CANDIDATES = (("candidate_a", "code_a"), ("candidate_b", "code_b"))
"""Placeholders of a judge's prompt; either of each pair shows the candidate."""

_NO_PROBLEM = {*(name for pair in _CANDIDATES for name in pair), "trace_a", "trace_b"}
_NO_PROBLEM |= {"rules", "requirement", "options", "seconds"}
"""Placeholders of a judge's prompt that do not show the problem."""

_log = logging.getLogger(__name__)


class PromptFiles:
    """The compiled prompt templates of one task, or of a method.

    Values are inserted as text: template syntax inside a problem or a response stays as it is. Safe to share between
    coroutines.
    """

    def __init__(
        self,
        folders: Sequence[Path],
        own: str | None = None,
        *,
        key: str = "task.prompts",
        wording: Mapping[str, str] = {},
    ) -> None:
        """Read and compile every template.

        folders: folders with evorun's or the task's `<name>.md`; the first file of a name counts. own: the user's
        folder, or None; each file in it replaces that of the same name. key: the setting that names the user's folder.
        wording: values of placeholders that are the same in every prompt; no file has to use them.

        Logs a warning if a user's file omits a placeholder of the file that it replaces. Raises ConfigError naming an
        unusable folder or file, including a judge's that does not show the problem and both candidates. A file with an
        unknown placeholder, or one that fails to render, raises it at its first rendering.
        """
        # Later entries override earlier ones, so the folders are read from last to first.
        files = {path.stem: path for folder in reversed(folders) for path in folder.glob(f"*{SUFFIX}")}
        self._prompts = {name: _Prompt(path, wording) for name, path in files.items()}
        self.own: frozenset[str] = frozenset()
        """Names of the prompts that the user's files replace."""
        if own is None:
            return
        folder = Path(own).expanduser()
        if not folder.is_dir():
            raise ConfigError(f"{key}: expected a folder, got '{folder}'")
        own_files = {name: folder / f"{name}{SUFFIX}" for name in files if (folder / f"{name}{SUFFIX}").is_file()}
        if not own_files:
            names = ", ".join(sorted(f"{name}{SUFFIX}" for name in files))
            raise ConfigError(f"{key}: expected at least one of {names} in '{folder}', found none")
        self.own = frozenset(own_files)
        for name, path in own_files.items():
            replaced, self._prompts[name] = self._prompts[name], _Prompt(path, wording)
            used = self._prompts[name].placeholders
            if name == "judge":
                _check_judge_prompt(path, used, replaced.placeholders)
            _warn_of_omissions(path, tuple(sorted(replaced.placeholders - used)))

    @property
    def names(self) -> list[str]:
        """The names of all prompts, in alphabetical order."""
        return sorted(self._prompts)

    def render(self, name: str, **values: Any) -> str:
        """Return the text of prompt `name` with `values` filled in."""
        return self._prompts[name].render(values)


class _Prompt:
    """A template and the names of its placeholders."""

    def __init__(self, path: Path, wording: Mapping[str, str]) -> None:
        self._path = path
        self._checked = False
        try:
            with path.open(encoding="utf-8") as file:
                source = file.read(_MAX_CHARS + 1).strip()
        except (OSError, UnicodeDecodeError) as error:
            raise ConfigError(f"{path}: cannot read the prompt template: {error}") from error
        if len(source) > _MAX_CHARS:
            raise ConfigError(f"{path}: expected a prompt template, got one of more than {_MAX_CHARS:,} characters")
        try:
            code, names = _compile(source)
            self.placeholders = names - wording.keys()
            # Without Jinja's globals, which are copied at every rendering and not needed: this halves the time.
            self._template = Template.from_code(_ENVIRONMENT, code, dict(wording))
        except Exception as error:
            raise self._unusable(error) from error

    def render(self, values: Mapping[str, Any]) -> str:
        if not self._checked:
            # Checked for all placeholders, not by rendering, which would miss those in branches not taken.
            unknown = sorted(self.placeholders - values.keys())
            if unknown:
                allowed = ", ".join(sorted(values)) or "none"
                raise ConfigError(f"{self._path}: unknown variable '{unknown[0]}'; this template may use: {allowed}")
            self._checked = True
        try:
            return self._template.render(values)
        # A template may call filters and operators on its values, so a bad one can raise anything.
        except Exception as error:
            raise self._unusable(error) from error

    def _unusable(self, error: Exception) -> ConfigError:
        line = f":{error.lineno}" if isinstance(error, TemplateError) and hasattr(error, "lineno") else ""
        reason = (str(error) or type(error).__name__).splitlines()[0]
        return ConfigError(f"{self._path}{line}: the prompt template does not render: {reason}")


@cache  # tasks share most templates, and a run may load a task more than once
def _compile(source: str) -> tuple[CodeType, frozenset[str]]:
    """Return a template's code and the names that it uses. Raises TemplateError for an invalid template."""
    return _ENVIRONMENT.compile(source), frozenset(meta.find_undeclared_variables(_ENVIRONMENT.parse(source)))


def _check_judge_prompt(path: Path, used: Collection[str], replaced: Collection[str]) -> None:
    """Raise ConfigError if a judge's prompt does not show what it asks about. replaced: the default's placeholders."""
    lacking = [next(name for name in pair if name in replaced) for pair in _CANDIDATES if not set(pair) & set(used)]
    if not set(used) - _NO_PROBLEM:
        lacking.insert(0, "question")
    if lacking:
        shown = " and ".join(f"{{{{ {name} }}}}" for name in lacking)
        raise ConfigError(f"{path}: expected a judge's prompt that shows {shown}; else it judges blind")


@cache  # a run may load its task more than once
def _warn_of_omissions(path: Path, names: tuple[str, ...]) -> None:
    if names:
        shown = ", ".join(f"{{{{ {name} }}}}" for name in names)
        _log.warning("%s: leaves out %s, which the prompt file that it replaces shows", path, shown)
