"""BM25 over title and text of the passages (the library bm25s), its index kept in evorun's cache."""

import asyncio
import logging
import threading
from collections.abc import Sequence
from functools import cache
from importlib.metadata import version
from typing import TYPE_CHECKING, Any

import numpy as np

from evorun.models.cache import cache_folder, fill_atomically
from evorun.tasks.search_qa.retrieval.base import Corpus, Passage

if TYPE_CHECKING:
    import bm25s

MIN_CACHED_PASSAGES = 1_000
"""Least passages for which the index is cached on disk (ours): a smaller index is made faster than it is read."""

_log = logging.getLogger(__name__)


class Bm25:
    """Ranks passages by BM25 with the library's own parameters (Lucene's variant, k1 1.5, b 0.75)."""

    def __init__(self, corpus: Corpus) -> None:
        self._corpus = corpus
        self._loading = threading.Lock()
        self._loaded: tuple[list[Passage], bm25s.BM25] | None = None

    async def find(self, queries: Sequence[str], count: int) -> list[list[Passage]]:
        # In a thread: the first call makes the index, and later calls wait for it.
        return await asyncio.to_thread(self._find, queries, count)

    def load(self) -> "tuple[list[Passage], bm25s.BM25]":
        """Return the passages and their index, read or made at the first call."""
        with self._loading:
            if self._loaded is None:
                passages = self._corpus.passages()
                self._loaded = (passages, _index(passages, self._corpus.digest))
            return self._loaded

    def _find(self, queries: Sequence[str], count: int) -> list[list[Passage]]:
        passages, index = self.load()
        words: list[list[str]] = _tokenized(queries, return_ids=False)
        return [
            [passages[number] for number in top_indices(index.get_scores(tokens), count)]
            if tokens
            else []  # only stop words
            for tokens in words
        ]


@cache  # a run loads its task more than once
def bm25(corpus: Corpus) -> Bm25:
    """Return the retriever of a corpus, which all tasks of this process share."""
    return Bm25(corpus)


def top_indices(scores: "np.ndarray[Any, np.dtype[Any]]", count: int) -> list[int]:
    """Return the indices of the `count` highest scores above 0, the best first, of equal ones the earliest."""
    # Not the library's own choice: its numpy partition, hence the machine, decides among equal scores.
    count = min(count, len(scores))
    lowest = np.partition(scores, -count)[-count]
    found = np.flatnonzero((scores >= lowest) & (scores > 0))
    order = np.argsort(-scores[found], kind="stable")
    return [int(number) for number in found[order][:count]]


def _index(passages: Sequence[Passage], digest: str) -> "bm25s.BM25":
    """Return the index from the cache, or make it and put it there."""
    if len(passages) < MIN_CACHED_PASSAGES:
        return make_index(passages)
    # All that an index depends on: the library, the indexed fields, and the passages.
    folder = cache_folder("search") / f"bm25s-{version('bm25s')}-title-text-en-{digest[:32]}"
    try:
        if folder.is_dir():
            return _library().BM25.load(folder, load_corpus=False)
        index = make_index(passages)
        with fill_atomically(folder) as unfinished:
            index.save(unfinished, show_progress=False)
    except (OSError, ValueError, KeyError) as error:
        _log.warning(
            "search index: cannot be read from or kept in %s (%s); delete that folder, or set EVORUN_CACHE to a "
            "writable one",
            folder,
            error,
        )
        return make_index(passages)
    return index


def make_index(passages: Sequence[Passage]) -> "bm25s.BM25":
    """Index title and text of the passages."""
    index = _library().BM25()
    index.index(_tokenized([f"{passage.title} {passage.text}" for passage in passages]), show_progress=False)
    return index


def _tokenized(texts: Sequence[str], *, return_ids: bool = True) -> Any:
    """Split texts into words of two letters or more, in lower case and without English stop words."""
    return _library().tokenize(list(texts), stopwords="en", return_ids=return_ids, show_progress=False)


@cache
def _library() -> Any:
    import bm25s

    # The library sets its logger to DEBUG, and would log every index into the run's log.
    logging.getLogger("bm25s").setLevel(logging.WARNING)
    return bm25s
