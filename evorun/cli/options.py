"""Options of the verbs, KEY=VALUE: each once, and flags that are true or false; and the price that all may cost."""

from collections.abc import Iterable, Sequence
from pathlib import Path

from evorun.cli.usage import USAGES
from evorun.errors import ConfigError

MAX_PRICE = "--max-price"
GPUS = "--gpus"


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


def split_max_price(arguments: Sequence[str]) -> tuple[list[str], float | None]:
    """Return the arguments without --max-price, and its value in dollars. Raises ConfigError for none."""
    words, given = _take_out(arguments, MAX_PRICE)
    if not given:
        return words, None
    try:
        limit = float(given[-1].partition("=")[2])
    except ValueError:
        limit = -1.0
    if not 0 <= limit < float("inf") or len(given) > 1:
        raise ConfigError(f"{MAX_PRICE}: expected dollars, as {MAX_PRICE}=20, got {' '.join(given)}")
    return words, limit


def split_gpus(arguments: Sequence[str]) -> tuple[list[str], str | None]:
    """Return the arguments without --gpus, and its value. Raises ConfigError for more than one."""
    words, given = _take_out(arguments, GPUS)
    if len(given) > 1:
        raise ConfigError(f"{GPUS}: expected once, got {' '.join(given)}")
    return words, given[0].partition("=")[2] if given else None


def _take_out(arguments: Sequence[str], option: str) -> tuple[list[str], list[str]]:
    """Return the arguments without an option, and the option as often as it is given, each with its value."""
    words = list(arguments)
    if option in words[:-1]:  # its value is the next word
        place = words.index(option)
        words[place : place + 2] = ["=".join(words[place : place + 2])]
    given = [word for word in words if word == option or word.startswith(f"{option}=")]
    return [word for word in words if word not in given], given
