"""Dense retrieval: passages and queries as vectors of an encoder (sentence-transformers), compared by inner product."""

import asyncio
import threading
from collections.abc import Sequence
from functools import cache
from typing import Any

import numpy as np

from evorun.tasks.encoders import cache_vectors, load_encoder, require_encoders
from evorun.tasks.search_qa.retrieval.base import Corpus, Passage


class Dense:
    """Ranks passages by the inner product of normalised vectors; an encoder's own prompts are applied."""

    def __init__(self, corpus: Corpus, model: str) -> None:
        """model: a hub id or a folder, as sentence-transformers takes it."""
        self._corpus = corpus
        self._model = model
        # One thread at a time uses the encoder: it may be on a GPU, and batches its input.
        self._using = threading.Lock()
        self._loaded: tuple[list[Passage], Any, Any] | None = None

    async def find(self, queries: Sequence[str], count: int) -> list[list[Passage]]:
        return await asyncio.to_thread(self._find, queries, count)

    def _find(self, queries: Sequence[str], count: int) -> list[list[Passage]]:
        with self._using:
            passages, encoder, vectors = self._loaded = self._loaded or self._load()
            query_vectors = encoder.encode_query(list(queries), normalize_embeddings=True, show_progress_bar=False)
        scores = np.asarray(query_vectors, dtype=np.float32) @ vectors.T
        # Stable: of equal scores the earliest passage.
        return [[passages[n] for n in np.argsort(-row, kind="stable")[:count]] for row in scores]

    def _load(self) -> tuple[list[Passage], Any, Any]:
        encoder = load_encoder(self._model, "task.retriever_model")
        passages = self._corpus.passages()
        cache_key = f"{self._model}\n{self._corpus.digest}"
        return passages, encoder, cache_vectors(cache_key, lambda: _encode(encoder, passages))


def _encode(encoder: Any, passages: Sequence[Passage]) -> Any:
    texts = [f"{passage.title}\n{passage.text}" for passage in passages]
    vectors = encoder.encode_document(texts, normalize_embeddings=True, show_progress_bar=False)
    return np.asarray(vectors, dtype=np.float32)


@cache  # a run loads its task more than once
def dense(corpus: Corpus, model: str) -> Dense:
    """Return the retriever of a corpus and an encoder, which all tasks of this process share.

    Raises ToolError without the package; the encoder itself is loaded at the first search.
    """
    require_encoders("task.retriever=dense")
    return Dense(corpus, model)
