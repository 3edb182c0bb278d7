"""evorun's cache of folders that are slow to make and can be remade. Each is moved into place when it is complete."""

import contextlib
import errno
import os
import shutil
import tempfile
from collections.abc import Iterator
from pathlib import Path


def cache_folder(kind: str) -> Path:
    """Return the folder for a kind of cached content, in `$EVORUN_CACHE` or in `~/.cache/evorun`."""
    return Path(os.environ.get("EVORUN_CACHE") or Path.home() / ".cache" / "evorun").expanduser() / kind


@contextlib.contextmanager
def fill_atomically(folder: Path) -> Iterator[Path]:
    """Yield an empty folder that becomes `folder` after the block has filled it.

    An existing folder is therefore complete. If another process has created it meanwhile, that one stays. Raises
    OSError when the cache cannot be written.
    """
    folder.parent.mkdir(parents=True, exist_ok=True)
    unfinished = Path(tempfile.mkdtemp(prefix=f".{folder.name}-", dir=folder.parent))
    try:
        yield unfinished
        apply_umask(unfinished)
        try:
            unfinished.rename(folder)
        except OSError as error:
            if error.errno not in (errno.ENOTEMPTY, errno.EEXIST):
                raise
    finally:
        shutil.rmtree(unfinished, ignore_errors=True)


def apply_umask(folder: Path) -> None:
    """Give a folder and its contents the modes of other new files, since users share caches and adapters."""
    # mkdtemp and safetensors create files for one user only, whatever the umask.
    umask = os.umask(0o077)  # the umask cannot be read without setting it
    os.umask(umask)
    for path in (folder, *folder.rglob("*")):
        path.chmod((0o777 if path.is_dir() else 0o666) & ~umask)
