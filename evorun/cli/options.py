"""Options of the verbs, KEY=VALUE: each once, and flags that are true or false."""

from evorun.errors import ConfigError


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
