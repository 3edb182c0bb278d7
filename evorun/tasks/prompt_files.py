"""Prompt texts from files: Jinja templates beside what asks them, single files replaced by a user's own."""

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
_LONGEST = 2**20
"""Characters of a template. `ours`: far beyond any model's context."""

_ENVIRONMENT = SandboxedEnvironment(undefined=StrictUndefined)
"""Sandboxed, since files may come with somebody else's experiment. A placeholder without a value is an error, never an
empty text."""

_CANDIDATES = (("candidate_a", "code_a"), ("candidate_b", "code_b"))
"""Placeholders of a judge's prompt; one of each pair shows the candidate."""

_NO_PROBLEM = {*(name for pair in _CANDIDATES for name in pair), "trace_a", "trace_b"}
_NO_PROBLEM |= {"rules", "requirement", "options", "seconds"}
"""Placeholders of a judge's prompt that leave open what the problem is."""

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
        synonyms: Mapping[str, str] = {},
        words: Mapping[str, str] = {},
    ) -> None:
        """Read and compile every template.

        folders: those with evorun's or the task's `<name>.md`; of several with the same name the first one counts.
        own: the user's folder, or None; each file in it replaces the one of its name. key: the setting that names it.
        synonyms: older names of placeholders, and the present ones: a user's file may use either. words: texts of
        placeholders that are the same in every prompt; all files may use them, and none has to.

        Logs a warning where a user's file leaves out a placeholder of the file that it replaces. Raises ConfigError
        naming the folder or the file that cannot be used (a judge's, if it does not show the problem and both
        candidates); a file with an unknown placeholder, or that cannot be rendered, raises it at its first rendering.
        """
        # Later entries win, so the folders are read from the last one to the first.
        files = {path.stem: path for folder in reversed(folders) for path in folder.glob(f"*{SUFFIX}")}
        self._prompts = {name: _Prompt(path, words) for name, path in files.items()}
        if own is None:
            return
        folder = Path(own).expanduser()
        if not folder.is_dir():
            raise ConfigError(f"{key}: expected a folder, got '{folder}'")
        found = {name: folder / f"{name}{SUFFIX}" for name in files if (folder / f"{name}{SUFFIX}").is_file()}
        if not found:
            names = ", ".join(sorted(f"{name}{SUFFIX}" for name in files))
            raise ConfigError(f"{key}: expected at least one of {names} in '{folder}', found none")
        for name, path in found.items():
            replaced, self._prompts[name] = self._prompts[name], _Prompt(path, words)
            used = self._prompts[name].placeholders
            used |= {synonyms[one] for one in used if one in synonyms}
            if name == "judge":
                _refuse_blind(path, used, replaced.placeholders)
            _warn_of_omissions(path, tuple(sorted(replaced.placeholders - used)))

    @property
    def names(self) -> list[str]:
        """The names of all prompts, in alphabetical order."""
        return sorted(self._prompts)

    def render(self, name: str, **values: Any) -> str:
        """Return the text of prompt `name` with `values` filled in."""
        return self._prompts[name].render(values)


class _Prompt:
    """One template, and the names of the placeholders that it uses."""

    def __init__(self, path: Path, words: Mapping[str, str]) -> None:
        self._path = path
        self._checked = False
        try:
            with path.open(encoding="utf-8") as file:
                source = file.read(_LONGEST + 1).strip()
        except (OSError, UnicodeDecodeError) as error:
            raise ConfigError(f"{path}: cannot read the prompt template: {error}") from error
        if len(source) > _LONGEST:
            raise ConfigError(f"{path}: expected a prompt template, got one of more than {_LONGEST:,} characters")
        try:
            code, names = _compile(source)
            self.placeholders = names - words.keys()
            # Jinja's own globals are copied at every rendering, and prompts need none: half the time saved.
            self._template = Template.from_code(_ENVIRONMENT, code, dict(words))
        except Exception as error:
            raise self._unusable(error) from error

    def render(self, values: Mapping[str, Any]) -> str:
        if not self._checked:
            # Checked against all placeholders of the file, not by rendering: those in a branch that is not taken count
            # too.
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


@cache  # a task shares most of its templates with all others, and a run may load it more than once
def _compile(source: str) -> tuple[CodeType, frozenset[str]]:
    """Return a template's code and the names that it uses. Raises TemplateError for a text that is none."""
    return _ENVIRONMENT.compile(source), frozenset(meta.find_undeclared_variables(_ENVIRONMENT.parse(source)))


def _refuse_blind(path: Path, used: Collection[str], replaced: Collection[str]) -> None:
    """Raise ConfigError for a judge's prompt that does not show what it asks about; as the `replaced` one names it."""
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
