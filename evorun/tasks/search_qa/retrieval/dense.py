"""Dense retrieval: passages and queries as vectors of an encoder (sentence-transformers), compared by inner product."""

import asyncio
import logging
import threading
from collections.abc import Sequence
from functools import cache
from hashlib import sha256
from typing import Any

import numpy as np

from evorun.errors import ToolError, first_line
from evorun.models.cache import cache_folder, made_whole
from evorun.models.requirements import absent
from evorun.tasks.search_qa.retrieval.base import Corpus, Passage

_log = logging.getLogger(__name__)


class Dense:
    """Ranks passages by the inner product of normalised vectors; an encoder's own prompts are applied."""

    def __init__(self, corpus: Corpus, model: str) -> None:
        """model: a hub id or a folder, as sentence-transformers takes it."""
        self._corpus = corpus
        self._model = model
        # One thread at a time has the encoder: it may be on a GPU, and batches what it is given.
        self._using = threading.Lock()
        self._loaded: tuple[list[Passage], Any, Any] | None = None

    async def find(self, queries: Sequence[str], count: int) -> list[list[Passage]]:
        return await asyncio.to_thread(self._find, queries, count)

    def _find(self, queries: Sequence[str], count: int) -> list[list[Passage]]:
        with self._using:
            passages, encoder, vectors = self._loaded = self._loaded or self._load()
            asked = encoder.encode_query(list(queries), normalize_embeddings=True, show_progress_bar=False)
        scores = np.asarray(asked, dtype=np.float32) @ vectors.T
        # Stable: of equal scores the earliest passage.
        return [[passages[n] for n in np.argsort(-row, kind="stable")[:count]] for row in scores]

    def _load(self) -> tuple[list[Passage], Any, Any]:
        encoder = _encoder(self._model)
        passages = self._corpus.passages()
        name = sha256(f"{self._model}\n{self._corpus.digest}".encode()).hexdigest()[:32]
        folder = cache_folder("search") / f"dense-{name}"
        try:
            if not folder.is_dir():
                with made_whole(folder) as unfinished:
                    np.save(unfinished / "vectors.npy", _encoded(encoder, passages))
            return passages, encoder, np.load(folder / "vectors.npy", mmap_mode="r")
        except (OSError, ValueError) as error:
            _log.warning("search vectors: cannot be read from or kept in %s (%s); set EVORUN_CACHE", folder, error)
            return passages, encoder, _encoded(encoder, passages)


def _encoder(model: str) -> Any:
    from sentence_transformers import SentenceTransformer

    try:
        return SentenceTransformer(model)
    except Exception as error:  # it raises whatever its loaders do
        raise ToolError(f"task.retriever_model: cannot load '{model}': {first_line(error)}") from error


def _encoded(encoder: Any, passages: Sequence[Passage]) -> Any:
    texts = [f"{one.title}\n{one.text}" for one in passages]
    vectors = encoder.encode_document(texts, normalize_embeddings=True, show_progress_bar=False)
    return np.asarray(vectors, dtype=np.float32)


@cache  # a run loads its task more than once
def dense(corpus: Corpus, model: str) -> Dense:
    """Return the retriever of a corpus and an encoder, which all tasks of this process share.

    Raises ToolError without the package; the encoder itself is loaded at the first search.
    """
    if absent(["sentence_transformers"]):
        raise ToolError("task.retriever=dense needs sentence-transformers: pip install 'evorun[dense]', or take bm25")
    return Dense(corpus, model)
