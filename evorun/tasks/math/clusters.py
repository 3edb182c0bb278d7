"""Clusters of a subject's problems: k-means over embeddings of their texts, fitted on the training problems."""

import math
import re
import warnings
from collections import Counter
from collections.abc import Callable, Sequence
from typing import Any, TypeAlias

import numpy as np
from scipy.cluster.vq import kmeans2, vq
from scipy.sparse import csr_array
from scipy.sparse.linalg import svds

from evorun.runs.streams import stream
from evorun.tasks.encoders import cache_vectors, load_encoder, require_encoders

Array: TypeAlias = np.ndarray[Any, np.dtype[np.float64]]
Embedding: TypeAlias = Callable[[Sequence[str]], Array]
"""Returns the vectors of texts, one row per text."""

DIMENSIONS = 64
"""Dimensions of the space that words are projected to (ours; latent semantic analysis usually takes 50 to 300)."""
STARTS = 5
"""Starts of k-means (ours); the best start counts."""
ITERATIONS = 30
"""Iterations of k-means per start (ours)."""
_SEED = 0
"""Not the run's seed: runs with different seeds share the clusters."""

# Programs of diagrams: they describe a drawing, not the problem
_DIAGRAM = re.compile(r"\[asy\].*?(?:\[/asy\]|\Z)", re.DOTALL)
_WORD = re.compile(r"[a-z]{2,}")


class Clusters:
    """Centres of training problems; a problem belongs to the nearest centre."""

    def __init__(self, training: Sequence[str], count: int, embedding: Embedding) -> None:
        """Fit `count` centres to the texts, whatever their order; fewer where fewer texts differ."""
        self._embedding = embedding
        self.centres = _centres(embedding(sorted(set(training))), count)
        """One row per centre; the centre with the most problems comes first."""

    def assign(self, texts: Sequence[str]) -> list[int]:
        """Return the cluster of each text, from 1."""
        nearest, _ = vq(self._embedding(texts), self.centres)
        return [int(number) + 1 for number in nearest]


class TfIdf:
    """Vectors of words, weighted by their rarity in the fitted texts and projected to their main directions.

    That is latent semantic analysis: logarithmic counts, smooth inverse document frequencies, rows of length 1, the
    first singular vectors, rows of length 1 again. LaTeX's commands count as words; numbers do not.
    """

    def __init__(self, texts: Sequence[str]) -> None:
        counts = [_words(text) for text in texts]
        documents = Counter(word for words in counts for word in words)
        self._columns = {word: column for column, word in enumerate(sorted(documents))}
        self._weights = np.array([1 + math.log((1 + len(texts)) / (1 + documents[word])) for word in self._columns])
        matrix = self._matrix(counts)
        self._directions: Array | None = None  # None: few texts or words are not projected
        if min(matrix.shape) > DIMENSIONS:
            # A fixed start: the solver's own is random.
            _, _, rows = svds(matrix, k=DIMENSIONS, v0=np.ones(min(matrix.shape)), return_singular_vectors="vh")
            self._directions = rows.T

    def __call__(self, texts: Sequence[str]) -> Array:
        """Return the vectors of any texts; the vector of a text without known words is 0."""
        matrix = self._matrix([_words(text) for text in texts])
        return _normalize(matrix.toarray() if self._directions is None else matrix @ self._directions)

    def _matrix(self, counts: Sequence[Counter[str]]) -> csr_array:
        known = [[(self._columns[word], n) for word, n in words.items() if word in self._columns] for words in counts]
        columns = np.array([column for row in known for column, _ in row], dtype=int)
        values = (1 + np.log([n for row in known for _, n in row])) * self._weights[columns]
        rows = np.repeat(np.arange(len(known)), [len(row) for row in known])
        lengths = np.sqrt(np.bincount(rows, weights=values**2, minlength=len(known)))
        return csr_array((values / lengths[rows], (rows, columns)), shape=(len(known), len(self._columns)))


class Encoded:
    """Vectors of an encoder, kept on disk."""

    def __init__(self, model: str) -> None:
        """model: a hub id or a folder. Raises ToolError without the package."""
        require_encoders(f"task.embeddings={model}")
        self._model = model
        self._encoder: Any = None

    def __call__(self, texts: Sequence[str]) -> Array:
        """Return the vectors of any texts; load the encoder when some are not cached yet."""
        return np.asarray(
            cache_vectors("\n".join((self._model, *texts)), lambda: self._encode(texts)), dtype=np.float64
        )

    def _encode(self, texts: Sequence[str]) -> Any:
        self._encoder = self._encoder or load_encoder(self._model, "task.embeddings")
        return self._encoder.encode(list(texts), normalize_embeddings=True, show_progress_bar=False)


def _words(text: str) -> Counter[str]:
    return Counter(_WORD.findall(_DIAGRAM.sub(" ", text).lower()))


def _normalize(vectors: Array) -> Array:
    lengths = np.linalg.norm(vectors, axis=1, keepdims=True)
    return np.asarray(vectors / np.where(lengths > 0, lengths, 1))


def _centres(vectors: Array, count: int) -> Array:
    """Return the centres of the best of several runs of k-means, the centre with the most vectors first."""
    best, lowest_inertia = np.unique(vectors, axis=0), math.inf
    for start in range(STARTS if len(best) > count else 0):  # without starts, each different vector is a centre
        with warnings.catch_warnings():
            warnings.simplefilter("ignore", UserWarning)  # a centre that loses all of its vectors stays where it is
            centres, _ = kmeans2(vectors, count, iter=ITERATIONS, minit="++", rng=stream(_SEED, "clusters", start))
        inertia = float((vq(vectors, centres)[1] ** 2).sum())
        if inertia < lowest_inertia * (1 - 1e-9):  # of equally good starts, the first, whatever their last digits
            best, lowest_inertia = centres, inertia
    sizes = np.bincount(vq(vectors, best)[0], minlength=len(best))
    return np.asarray(best[np.argsort(-sizes, kind="stable")])
