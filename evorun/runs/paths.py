"""The display of paths."""

import os
from pathlib import Path


def display(path: Path) -> str:
    """Return the path as a user would type it: relative to the current folder when it lies below, and without `..`."""
    # outside it, a chain of `..` is harder to read than the given path
    relative = os.path.relpath(path)
    if not relative.startswith(".."):
        return relative
    # after a link to a folder, `..` is another one than the name before it says
    plain = os.path.normpath(path)
    return plain if path.is_absolute() and os.path.realpath(plain) == os.path.realpath(path) else str(path)
