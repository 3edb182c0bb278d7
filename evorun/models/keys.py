"""Reads API keys from environment variables, and keeps them out of the environment of child processes."""

import os
import re
from collections.abc import Collection

from evorun.errors import ConfigError, EngineError

VARIABLE_NAME = re.compile(r"[A-Z_][A-Z0-9_]*")

PASSED_ON = "EVORUN_PASS_ENV"
"""The variable that names further variables for child processes, separated by commas."""

# A list of what children need, since no list of what they must not see (DATABASE_URL, PGPASSWORD, ...) is complete.
_NEEDED = re.compile(
    r"PATH|HOME|USER|LOGNAME|SHELL|TERM|LANG|LANGUAGE|LC_\w+|TZ|TMPDIR|TEMP|TMP|XDG_\w+|EVORUN_\w+"
    r"|PYTHON\w*|VIRTUAL_ENV|CONDA_\w+|LD_\w+|LIBRARY_PATH|CPATH|CC|CXX"
    r"|(?:OMP|MKL|OPENBLAS|KMP|GOMP|NUMEXPR|MALLOC|COVERAGE)_\w+"
    r"|(?:CUDA|NVIDIA|NCCL|GLOO|UCX|ROCR|HIP|HSA)_\w+|(?:PYTORCH|TORCH|TORCHINDUCTOR|TRITON|ACCELERATE|BNB)_\w+"
    r"|(?:HF|HUGGINGFACE|TRANSFORMERS|TOKENIZERS|DATASETS|SAFETENSORS)_\w+"
    r"|(?:SLURM|MASTER|LOCAL)_\w+|RANK|WORLD_SIZE|SSL_CERT_(?:FILE|DIR)|REQUESTS_CA_BUNDLE|CURL_CA_BUNDLE"
)
_SECRET_NAME = re.compile(
    r"(?:^|_)(?:API_?KEYS?|KEYS?|TOKENS?|SECRETS?|PASSWORDS?|PASSWD|PASSPHRASE|CREDENTIALS?|AUTH|JWT|PAT)(?:_|$)",
    re.IGNORECASE,
)
_MIN_SECRET = 8
"""Shortest text that is taken for a key (ours): shorter ones occur in any text."""
# Variables that configurations name. Never emptied: during a sweep's next run, the last one may still start a process.
_named: set[str] = set()


def check_variable_name(key: str, name: str | None) -> None:
    """Check the NAME of a variable that holds an API key, and hide that variable from child processes.

    key: the config key to name in the ConfigError. The error never shows the value, which may be the API key itself.
    """
    if name is None:
        return
    if not VARIABLE_NAME.fullmatch(name):
        raise variable_name_error(key)
    _named.add(name)


def variable_name_error(key: str) -> ConfigError:
    """Return the error for a text that is not the name of a variable."""
    return ConfigError(
        f"{key}: expected the NAME of an environment variable (A-Z, 0-9 and _), got something else (not shown: it may "
        "be a key); put the key in a variable and give its name here"
    )


def read_key(variable: str | None) -> str | None:
    """Return the API key in the environment variable, or None if `variable` is None.

    Raises EngineError if the variable is not set or its value cannot be a key.
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


def secret_values() -> list[str]:
    """Return the environment's values that are keys, tokens or passwords by their variables' names."""
    return [
        value
        for name, value in os.environ.items()
        if (name in _named or _SECRET_NAME.search(name)) and len(value) >= _MIN_SECRET
    ]


def child_environment(keep: Collection[str] = ()) -> dict[str, str]:
    """Return the environment for a child process: without API keys, passwords or URLs that contain them.

    keep: names of further variables that the child needs, in addition to those that the user names in EVORUN_PASS_ENV.
    """
    passed_on = {*keep, *(name.strip() for name in os.environ.get(PASSED_ON, "").split(","))}
    return {
        name: value
        for name, value in os.environ.items()
        if name in passed_on or (_NEEDED.fullmatch(name) and not (name in _named or _SECRET_NAME.search(name)))
    }
