"""API keys: read from environment variables, and kept out of the environment of child processes."""

import os
import re
from collections.abc import Collection

from evorun.errors import ConfigError, EngineError

VARIABLE_NAME = re.compile(r"[A-Z_][A-Z0-9_]*")

_SECRET_NAME = re.compile(
    r"(?:^|_)(?:API_?KEYS?|KEYS?|TOKENS?|SECRETS?|PASSWORDS?|PASSWD|PASSPHRASE|CREDENTIALS?|AUTH)(?:_|$)", re.IGNORECASE
)
# Variables that configurations name. Never emptied: a sweep's next run may still start a process of the last one's.
_named: set[str] = set()


def checked_variable(key: str, name: str | None) -> None:
    """Check the NAME of a variable that holds an API key, and keep that variable from child processes.

    key: the config key to name in the ConfigError, which never shows the value: it may be the API key itself.
    """
    if name is None:
        return
    if not VARIABLE_NAME.fullmatch(name):
        raise no_name(key)
    _named.add(name)


def no_name(key: str) -> ConfigError:
    """Return the error for what is no variable's name."""
    return ConfigError(
        f"{key}: expected the NAME of an environment variable (A-Z, 0-9 and _), got something else, not shown in case "
        "it is a key; put the key in a variable and name that here"
    )


def read_key(variable: str | None) -> str | None:
    """Return the API key that the environment variable holds, or None when no variable is named.

    Raises EngineError when the variable is not set or cannot be a key.
    """
    if variable is None:
        return None
    key = os.environ.get(variable, "").strip()
    if not key:
        raise EngineError(
            f"engine.api_key_env: expected the API key in the environment variable {variable}, which is not set; "
            f"export {variable}=..., or set engine.api_key_env=null for a server without keys"
        )
    if not (key.isascii() and key.isprintable()):
        raise EngineError(f"engine.api_key_env: the value of {variable} holds characters that no HTTP header can carry")
    return key


def child_environment(keep: Collection[str] = ()) -> dict[str, str]:
    """Return this process's environment for a child, without API keys and other secrets.

    Left out are the variables that a configuration names as holding a key, and those whose names say so (`HF_TOKEN`,
    `AWS_SECRET_ACCESS_KEY`). keep: names of variables that the child needs all the same.
    """
    return {
        name: value
        for name, value in os.environ.items()
        if name in keep or not (name in _named or _SECRET_NAME.search(name))
    }
