"""The files of benchmarks: found in the user's data folder or on the Hugging Face hub, and read line by line."""

import os
from collections.abc import Sequence
from pathlib import Path

from evorun.errors import DataError


def default_folder(name: str) -> Path | None:
    """Return $EVORUN_DATA/name when it is there."""
    base = os.environ.get("EVORUN_DATA")
    folder = Path(base).expanduser() / name if base else None
    return folder if folder and folder.is_dir() else None


def numbered_lines(path: Path) -> list[tuple[str, int, bytes]]:
    """Return `FILE:LINE`, number (from 1) and bytes of each line that is not blank. Raises DataError."""
    try:
        content = path.read_bytes()
    except OSError as error:
        raise DataError(f"{path}: cannot read: {error.strerror or error}") from error
    # Split at line feeds only: JSON may hold U+2028 and its like, at which `splitlines` splits too.
    lines = content.removeprefix(b"\xef\xbb\xbf").split(b"\n")
    return [(f"{path}:{number}", number, line) for number, line in enumerate(lines, 1) if line.strip()]


def download(hub_id: str, patterns: Sequence[str], asked_by: str) -> Path:
    """Fetch the files of a hub data set that fit the patterns, and return the folder where they lie.

    asked_by: the setting that names the data set, for errors. Raises DataError when the hub package is absent, the data
    set unknown or the network down.
    """
    try:
        from huggingface_hub import snapshot_download
        from huggingface_hub.errors import HfHubHTTPError
    except ImportError as error:
        raise DataError(f"{asked_by}: downloading needs the hub packages: pip install 'evorun[hub]'") from error
    try:
        return Path(snapshot_download(hub_id, repo_type="dataset", allow_patterns=list(patterns)))
    except (HfHubHTTPError, OSError, ValueError) as error:
        reason = str(error).strip().splitlines()[0]
        raise DataError(f"{asked_by}: cannot fetch the data set '{hub_id}': {reason}") from error
