"""The exceptions that a user may see, and the reading of durations, which raises them.

Each error is one line that says what was expected, what was given, and what to do. A check names the key.
"""

import errno
import re
import sys


def first_line(error: BaseException) -> str:
    """Return the type and the first line of a library's exception, to be part of an error of one line."""
    lines = str(error).strip().splitlines()
    return f"{type(error).__name__}: {lines[0].strip()}" if lines else type(error).__name__


class EvorunError(Exception):
    """Base of every error that evorun reports as one line, without a traceback."""


class ConfigError(EvorunError):
    """A configuration key, type, range or combination is wrong, or another than that of the run in the folder."""


class DataError(EvorunError):
    """A data file is missing or a record in it is malformed; names the file and the line."""


class PluginError(EvorunError):
    """A third party's method or task cannot be imported, fails, or does other than it declares; names it."""


class EngineError(EvorunError):
    """An engine cannot serve requests at all (server unreachable, weights missing, package absent).

    A single request that an engine cannot serve is data, not an error: see `FinishReason`.
    """


class EngineDied(EngineError):
    """The process of an engine that had answered has ended; the same settings may start another one."""


class WeightsLost(EngineError):
    """An engine no longer has the weights that a trainer sent it from memory; send them again."""


class RunDirectoryError(EvorunError):
    """A run directory cannot be used: it is in use, of another version of evorun, or cannot be written."""


class JournalError(EvorunError):
    """The journal does not hold what a replay asks for, or holds another request under the same key."""


class ContradictionError(JournalError):
    """A run asks or records otherwise than it did before: its code, prompts or data have changed since."""


class HistoryError(JournalError):
    """A fork or an extension would ask otherwise than the run whose recorded calls it shares."""


class SandboxError(EvorunError):
    """Programs cannot be run as the settings ask: the isolation is unavailable, or it broke down."""


class ToolError(EvorunError):
    """A task's tool cannot be used: its server does not answer, or a package that it needs is absent.

    What a model asks a tool for in vain is data, not an error: the tool answers that it cannot.
    """


class TrainingError(EvorunError):
    """Weights cannot be trained: the trainer process did not start, broke down, or cannot do what the settings ask."""


def find_kind(error: BaseException) -> str:
    """Return the name of the class of this module that an error is of, the nearest one."""
    kinds = (kind.__name__ for kind in type(error).__mro__ if kind.__module__ == __name__)
    return next(kinds, EvorunError.__name__)


def make_error(kind: str, message: str) -> EvorunError:
    """Return an error of the class of this name, as another process reports it."""
    found: EvorunError = globals()[kind](message)
    return found


_MORE_FILES = "raise the limit (ulimit -n 65536), or lower run.concurrency or the engine's concurrency"
_MACHINE = {
    errno.EMFILE: _MORE_FILES,
    errno.ENFILE: _MORE_FILES,
    errno.ENOSPC: "make room on the disk",
    errno.EDQUOT: "make room within the disk quota",
    errno.ENOMEM: "free memory",
}


def as_machine_error(error: Exception) -> EvorunError | None:
    """Return what a full disk, too few file descriptors and the like are to the user; None for another error."""
    if isinstance(error, OSError) and error.errno in _MACHINE:
        return EvorunError(f"{error.strerror}: {_MACHINE[error.errno]}")
    return None


def as_installation_error(error: BaseException) -> EvorunError | None:
    """Return what a package that is missing or broken is to the user; None for another error, or a module of evorun."""
    # Some packages explain at length why their own import fails; the cause names the module.
    while isinstance(error.__cause__, ImportError):
        error = error.__cause__
    package = (error.name or "").partition(".")[0] if isinstance(error, ImportError) else ""
    if package in ("", "evorun"):
        return None
    advice = "install evorun again, with its packages (README, Install)"
    if package in sys.stdlib_module_names:
        advice = "it belongs to Python, so use a Python that is complete"
    return EvorunError(f"cannot import {package}: {first_line(error)}; {advice}")


_DURATION = re.compile(r"(\d+(?:\.\d*)?) *([smh]?)", re.ASCII)
_SECONDS = {"": 1, "s": 1, "m": 60, "h": 3600}


def read_duration(key: str, value: str) -> float:
    """Return a time in seconds, given as a number of seconds or with its unit. Refuse anything else."""
    match = _DURATION.fullmatch(value)
    if match is None:
        raise ConfigError(f"{key}: expected seconds, or a number with s, m or h (30m), got '{value}'")
    return float(match[1]) * _SECONDS[match[2]]
