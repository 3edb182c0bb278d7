"""A user's own runs, told apart from other people's by a signature with a key that stays with the user.

Resuming a folder executes its configuration on its journal and checkpoints. Only a user's own run, unchanged since its
last process, is resumed without asking.
"""

import contextlib
import hmac
import logging
import os
import secrets
import tempfile
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import msgspec

from evorun.runs.manifest import Signed

log = logging.getLogger("evorun")

_KEY_BYTES = 32


def sign(config: Mapping[str, Any], state: Mapping[str, str] | None = None) -> str | None:
    """Return the signature of a run's configuration and state; None, with a warning, where no key can be kept.

    state: as in `Manifest`.
    """
    try:
        key = _key()
    except (OSError, RuntimeError) as error:  # RuntimeError: the user has no home folder
        log.warning("resuming this run will ask whether to trust it, since no key to sign it can be kept: %s", error)
        return None
    return hmac.digest(key, msgspec.json.encode([config, state], order="deterministic"), "sha256").hex()


def is_own(manifest: Signed) -> bool:
    """Return whether this user signed the configuration and the state that the manifest has now."""
    return is_signature(manifest.signature, manifest.config, manifest.state)


def is_signature(signature: str | None, config: Mapping[str, Any], state: Mapping[str, str] | None = None) -> bool:
    """Return whether a signature is this user's, of this configuration and state."""
    if signature is None:
        return False
    expected = sign(config, state)
    return expected is not None and hmac.compare_digest(expected.encode(), signature.encode())


def _key() -> bytes:
    """Return this user's secret key, made on first use. Raises OSError or RuntimeError."""
    folder = Path(os.environ.get("XDG_STATE_HOME") or Path.home() / ".local" / "state") / "evorun"
    file = folder / "key"
    if not file.exists():
        folder.mkdir(mode=0o700, parents=True, exist_ok=True)
        # private from the start and complete when it gets its name, since jobs may start at the same time
        with tempfile.NamedTemporaryFile(dir=folder) as temporary:
            temporary.write(secrets.token_bytes(_KEY_BYTES))
            temporary.flush()
            os.fsync(temporary.fileno())
            with contextlib.suppress(FileExistsError):
                os.link(temporary.name, file)
    key = file.read_bytes()
    if len(key) != _KEY_BYTES:  # anybody could guess an empty one
        raise OSError(f"{file} has {len(key)} bytes, expected {_KEY_BYTES}: remove it")
    return key
