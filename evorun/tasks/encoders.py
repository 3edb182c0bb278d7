"""Text encoders (sentence-transformers), loaded when needed, and their vectors, cached on disk."""

import logging
from collections.abc import Callable
from hashlib import sha256
from typing import Any

import numpy as np

from evorun.errors import ToolError, first_line
from evorun.models.cache import cache_folder, fill_atomically
from evorun.models.requirements import find_missing_packages

_log = logging.getLogger(__name__)


def require_encoders(setting: str) -> None:
    """Raise ToolError if the package is missing. setting: the setting that needs it, such as `task.retriever=dense`."""
    if find_missing_packages(["sentence_transformers"]):
        raise ToolError(f"{setting} needs sentence-transformers: pip install 'evorun[dense]'")


def load_encoder(model: str, setting: str) -> Any:
    """Load an encoder, given by a hub id or a folder.

    Raises ToolError naming the setting if it cannot be loaded.
    """
    from sentence_transformers import SentenceTransformer

    try:
        return SentenceTransformer(model)
    except Exception as error:  # it raises whatever its loaders do
        raise ToolError(f"{setting}: cannot load '{model}': {first_line(error)}") from error


def cache_vectors(inputs: str, compute: Callable[[], Any]) -> Any:
    """Return vectors from evorun's cache, mapped into memory; compute and cache them if they are missing.

    inputs: a text with everything that they depend on.
    """
    folder = cache_folder("search") / f"dense-{sha256(inputs.encode()).hexdigest()[:32]}"
    try:
        if not folder.is_dir():
            with fill_atomically(folder) as unfinished:
                np.save(unfinished / "vectors.npy", compute())
        return np.load(folder / "vectors.npy", mmap_mode="r")
    except (OSError, ValueError) as error:
        _log.warning("vectors of texts: cannot be read from or kept in %s (%s); set EVORUN_CACHE", folder, error)
        return compute()
