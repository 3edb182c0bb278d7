"""The exceptions that a user may see: each carries one line that says what was expected, what came, and what to do."""


def first_line(error: Exception) -> str:
    """Return the type of a library's exception and the first line of its message, for an error of one line."""
    lines = str(error).strip().splitlines()
    return f"{type(error).__name__}: {lines[0].strip()}" if lines else type(error).__name__


class EvorunError(Exception):
    """Base of every error that evorun reports as one line, without a traceback."""


class ConfigError(EvorunError):
    """A configuration key, type, range or combination is wrong."""


class DataError(EvorunError):
    """A data file is missing or a record in it is malformed; names the file and the line."""


class EngineError(EvorunError):
    """An engine cannot serve requests at all (server unreachable, weights missing, package absent).

    A single request that an engine cannot serve is data, not an error: see `FinishReason`.
    """


class RunDirectoryError(EvorunError):
    """A run directory cannot be used: it is in use, belongs to another config, or cannot be written."""


class JournalError(EvorunError):
    """The journal does not hold what a replay asks for, or holds another request under the same key."""


class SandboxError(EvorunError):
    """Programs cannot be run as the settings ask: the isolation is not to be had, or it broke down."""


class TrainingError(EvorunError):
    """Weights cannot be trained: the trainer process did not start, broke down, or cannot do what the settings ask."""
