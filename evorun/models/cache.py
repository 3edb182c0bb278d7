"""evorun's cache: folders that take long to make and can be made again, each put in its place when it is complete."""

import contextlib
import errno
import os
import shutil
import tempfile
from collections.abc import Iterator
from pathlib import Path


def cache_folder(kind: str) -> Path:
    """Return the folder for one kind of thing: in `$EVORUN_CACHE`, or in `~/.cache/evorun`."""
    return Path(os.environ.get("EVORUN_CACHE") or Path.home() / ".cache" / "evorun").expanduser() / kind


@contextlib.contextmanager
def made_whole(folder: Path) -> Iterator[Path]:
    """Give an empty folder that takes the place of `folder` once the block has filled it.

    So a folder that is there is complete. Where another process has put its own there meanwhile, that one stays. Raises
    OSError when the cache cannot be written.
    """
    folder.parent.mkdir(parents=True, exist_ok=True)
    unfinished = Path(tempfile.mkdtemp(prefix=f".{folder.name}-", dir=folder.parent))
    try:
        yield unfinished
        open_as_umask_allows(unfinished)
        try:
            unfinished.rename(folder)
        except OSError as error:
            if error.errno not in (errno.ENOTEMPTY, errno.EEXIST):
                raise
    finally:
        shutil.rmtree(unfinished, ignore_errors=True)


def open_as_umask_allows(folder: Path) -> None:
    """Give a folder and all in it the modes that other new files get: caches and adapters are shared."""
    # mkdtemp and safetensors make theirs for one user alone, whatever the umask says
    umask = os.umask(0o077)  # it cannot be read without being set
    os.umask(umask)
    for path in (folder, *folder.rglob("*")):
        path.chmod((0o777 if path.is_dir() else 0o666) & ~umask)
