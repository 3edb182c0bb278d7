"""Refusal of secrets before anything is written: the folders of runs and sweeps record the command line."""

import re
from collections.abc import Sequence

from omegaconf import DictConfig, OmegaConf

from evorun.errors import ConfigError
from evorun.models.keys import VARIABLE_NAME, variable_name_error
from evorun.runs.configs import iterate_leaves

_ENVIRONMENT = re.compile(r"\$\{\s*oc\.env\s*:")
_ADDRESSES = ("base_urls", "proxy")


def refuse_typed_secrets(arguments: Sequence[str]) -> None:
    """Raise ConfigError for an override that may contain a secret, without showing it.

    A secret is an API key in place of its variable's name, a URL with a password, or a variable's content.
    """
    for argument in arguments:
        key, equals, value = argument.lstrip("+").partition("=")
        if not equals or (key.startswith("hydra.") and not key.startswith("hydra.sweeper.")):
            continue  # a variable may well name a folder
        if _ENVIRONMENT.search(value):
            raise _from_environment(key, value)
        if key.endswith("api_key_env"):
            names = [name.strip(" '\"") for name in value.split(",")]
            if not all(name in ("", "null") or VARIABLE_NAME.fullmatch(name) for name in names):
                raise variable_name_error(key)
        if re.search(r"://.*@", value) or (key.endswith(_ADDRESSES) and "@" in value):
            raise ConfigError(
                f"{key}: expected URLs without user and password, got one with them (not shown); name the variable of "
                "an API key in engine.api_key_env, and pass a proxy's password by engine.proxy=environment"
            )


def refuse_secrets(composed: DictConfig) -> None:
    """Raise ConfigError for a value from an environment variable: the manifest would record what may be a secret."""
    for key, value in iterate_leaves(OmegaConf.to_container(composed, resolve=False)):
        if isinstance(value, str) and _ENVIRONMENT.search(value):
            raise _from_environment(key, value)


def _from_environment(key: str, value: str) -> ConfigError:
    return ConfigError(
        f"{key}: expected a value, got {value}, which would write the variable's content to manifest.json; write the "
        "value out (for an API key, name its variable in engine.api_key_env)"
    )
