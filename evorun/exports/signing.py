"""Signatures of exported files with an SSH key: its owner makes them, and anybody checks them, with `ssh-keygen`.

A run's own signature is no help to others: it is made with a secret key, which whoever checks it would need, too.
"""

import shutil
import subprocess
from pathlib import Path

from evorun.errors import ConfigError, RunDirectoryError
from evorun.models.keys import child_environment
from evorun.runs.paths import display

NAMESPACE = "evorun"
"""Purpose of such a signature: one that the key has made for another purpose is refused."""
_AGENT = ("SSH_AUTH_SOCK", "SSH_ASKPASS", "SSH_ASKPASS_REQUIRE", "DISPLAY", "WAYLAND_DISPLAY")
"""Variables by which `ssh-keygen` finds the user's agent, or asks for a passphrase."""


def signature_of(file: Path) -> Path:
    """Return the place of a file's signature."""
    return file.with_name(f"{file.name}.sig")


def require_key(key: Path) -> None:
    """Raise ConfigError unless there are a key and `ssh-keygen`."""
    if not key.is_file():
        raise ConfigError(f"sign: expected the file of an SSH key (~/.ssh/id_ed25519, say), found none at {key}")
    if shutil.which("ssh-keygen") is None:
        raise ConfigError("sign: expected ssh-keygen (OpenSSH 8.2 or newer), which is not installed")


def sign_file(file: Path, key: Path) -> Path:
    """Sign a file with an SSH key, private or of the user's agent, and return the signature's place.

    Replaces an earlier signature. Raises RunDirectoryError when the file cannot be signed.
    """
    signature = signature_of(file)
    signature.unlink(missing_ok=True)
    command = ["ssh-keygen", "-Y", "sign", "-n", NAMESPACE, "-f", str(key), "--", str(file)]
    done = subprocess.run(command, capture_output=True, text=True, check=False, env=child_environment(_AGENT))
    if done.returncode or not signature.exists():
        said = [line.strip() for line in done.stderr.splitlines() if line.strip()]
        raise RunDirectoryError(
            f"cannot sign {display(file)}: ssh-keygen said: {said[-1] if said else f'exit code {done.returncode}'}"
        )
    return signature
