"""Options of the verbs, KEY=VALUE: each once, and flags that are true or false."""

from collections.abc import Iterable, Sequence
from pathlib import Path

from evorun.cli.usage import USAGES
from evorun.errors import ConfigError


def split_runs(
    verb: str, arguments: Sequence[str], known: Iterable[str], required: Iterable[str]
) -> tuple[list[Path], dict[str, str]]:
    """Return the run directories that a verb is given, and its options by key.

    known: keys of the options, `required` ones included. Raises ConfigError for an unknown or repeated key, and where
    a run or a required option is missing.
    """
    known = list(known)
    runs, options = list[Path](), dict[str, str]()
    for argument in arguments:
        key, equals, _ = argument.partition("=")
        if equals and key in known:
            add_option(options, argument)
        elif equals and not Path(argument).exists():  # a folder's name may contain '=', such as `seed=0`
            raise ConfigError(f"{key}: unknown option; expected a run directory or one of {', '.join(known)}")
        else:
            runs.append(Path(argument))
    if not (runs and all(options.get(key) for key in required)):
        raise ConfigError(f"expected: {USAGES[verb].synopsis}; got: {' '.join(arguments) or 'nothing'}")
    return runs, options


def add_option(options: dict[str, str], argument: str) -> None:
    """Add KEY=VALUE to the options. Raises ConfigError for a repeated key."""
    key, _, value = argument.partition("=")
    if key in options:
        raise ConfigError(f"{key}: expected once, got it twice: {key}={options[key]} and {argument}")
    options[key] = value


def take_flag(options: dict[str, str], key: str) -> bool:
    """Take a flag out of the options, false by default. Raises ConfigError for another value."""
    value = options.pop(key, "false")
    if value.lower() not in ("true", "false"):
        raise ConfigError(f"{key}: expected true or false, got {value or 'nothing'}")
    return value.lower() == "true"
