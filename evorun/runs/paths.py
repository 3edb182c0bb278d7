"""The display of paths."""

import os
from pathlib import Path


def display(path: Path) -> str:
    """Return the path as a user would type it: relative to the current folder when it lies below."""
    # outside it, a chain of `..` is harder to read than the given path
    relative = os.path.relpath(path)
    return str(path) if relative.startswith("..") else relative
