"""Clusters of problems: centres against brute force, vectors against a dense computation, and real problems."""

import itertools
import math
import sys
import types
from collections import Counter
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from building import load_task
from evorun.errors import ToolError
from evorun.tasks.math.clusters import DIMENSIONS, Clusters, Encoded, TfIdf

CIRCLES = ["the radius of a circle", "area of a circle with radius", "a circle and its radius and area"]
PRIMES = ["is this number prime", "the smallest prime number", "a prime and another prime number", "prime number"]
COINS = ["a fair coin is tossed", "tossed coin heads"]
TEXTS = [*CIRCLES, *PRIMES, *COINS]


def test_kindred_texts_share_a_cluster_and_the_largest_is_the_first() -> None:
    clusters = Clusters(TEXTS, 3, TfIdf(TEXTS))
    assert clusters.assign(TEXTS) == [2] * 3 + [1] * 4 + [3] * 2
    assert clusters.assign(["the coin is heads", "numbers that are prime", "no known wordings", ""])[:2] == [3, 1]


def test_the_order_of_texts_and_repeated_ones_change_nothing() -> None:
    first = Clusters(TEXTS, 3, TfIdf(TEXTS))
    again = Clusters([*reversed(TEXTS), *CIRCLES], 3, TfIdf(TEXTS))
    assert np.array_equal(first.centres, again.centres)


def test_a_text_belongs_to_the_nearest_centre_and_no_partition_into_two_is_better() -> None:
    rng = np.random.default_rng(1)
    points = {str(n): rng.normal(size=2) + (6 if n < 4 else 0) for n in range(11)}

    def embed(texts: Sequence[str]) -> Any:
        return np.array([points[text] for text in texts])

    clusters = Clusters(list(points), 2, embed)
    for name, number in zip(points, clusters.assign(list(points)), strict=True):
        distances = [math.dist(points[name], centre) for centre in clusters.centres]
        assert number == 1 + distances.index(min(distances))

    def inertia(members: Sequence[str]) -> float:
        there = embed(members)
        return float(((there - there.mean(axis=0)) ** 2).sum()) if len(members) else math.inf

    found = [[name for name in points if clusters.assign([name]) == [number]] for number in (1, 2)]
    assert len(found[0]) >= len(found[1])
    least = min(
        inertia(one) + inertia([name for name in points if name not in one])
        for size in range(1, len(points))
        for one in itertools.combinations(points, size)
    )
    assert sum(map(inertia, found)) == pytest.approx(least)


def test_fewer_different_texts_than_clusters_have_a_centre_each() -> None:
    clusters = Clusters(["prime number 7", "prime number 11", "circle"], 3, TfIdf(["prime number 7", "circle"]))
    assert len(clusters.centres) == 2  # numbers are no words
    numbers = clusters.assign(["prime number 2", "circle", "prime"])
    assert numbers[0] == numbers[2] != numbers[1]
    assert Clusters(["1 + 1"], 3, TfIdf(["1 + 1"])).assign(["2 + 2", "circle"]) == [1, 1]


@pytest.mark.parametrize("count", [9, 90])
def test_vectors_are_those_of_a_dense_computation(count: int) -> None:
    rng = np.random.default_rng(count)
    texts = [
        " ".join("w" + chr(97 + n // 26) + chr(97 + n % 26) for n in rng.zipf(1.3, 12) % 300) for _ in range(count)
    ]
    words = sorted({word for text in texts for word in text.split()})
    counts = np.array([[Counter(text.split())[word] for word in words] for text in texts], dtype=float)
    idf = 1 + np.log((1 + count) / (1 + (counts > 0).sum(axis=0)))
    weighted = np.where(counts > 0, 1 + np.log(np.maximum(counts, 1)), 0) * idf
    weighted /= np.linalg.norm(weighted, axis=1, keepdims=True)
    projected = weighted @ np.linalg.svd(weighted)[2][:DIMENSIONS].T
    projected /= np.linalg.norm(projected, axis=1, keepdims=True)
    vectors = TfIdf(texts)(texts)
    assert np.allclose(vectors @ vectors.T, projected @ projected.T, atol=1e-9)  # axes may be mirrored


def test_a_diagram_is_no_text_and_commands_are_words() -> None:
    texts = ["Let $\\triangle ABC$ [asy]\ndraw((0,0)--cycle);\n[/asy] be given", "Draw a cycle", "$\\frac{1}{2}$"]
    vectors = TfIdf(texts)(["draw cycle", "triangle", "frac", "[asy] draw cycle"])
    assert [round(float(vectors[0] @ one), 6) for one in vectors[1:3]] == [0, 0]
    assert np.linalg.norm(vectors, axis=1).tolist() == pytest.approx([1, 1, 1, 0])


class Encoder:
    """Counts letters."""

    def __init__(self, model: str) -> None:
        loaded.append(model)

    def encode(self, texts: Sequence[str], **options: bool) -> Any:
        assert options["normalize_embeddings"]
        vectors = np.array([[text.count(letter) for letter in "ciprm"] for text in texts], dtype=np.float32)
        return vectors / np.maximum(np.linalg.norm(vectors, axis=1, keepdims=True), 1)


loaded: list[str] = []


def test_an_encoder_may_give_the_vectors_which_are_kept(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    monkeypatch.setenv("EVORUN_CACHE", str(tmp_path))
    monkeypatch.setitem(sys.modules, "sentence_transformers", None)
    with pytest.raises(ToolError, match=r"task.embeddings=letters needs sentence-transformers: pip install"):
        Encoded("letters")
    package = types.ModuleType("sentence_transformers")
    package.SentenceTransformer = Encoder  # type: ignore[attr-defined]
    package.__spec__ = types.SimpleNamespace()  # type: ignore[assignment]
    monkeypatch.setitem(sys.modules, "sentence_transformers", package)
    for _ in range(2):
        embedding = Encoded("letters")
        assert Clusters(CIRCLES + PRIMES, 2, embedding).assign([*CIRCLES, *PRIMES]) == [2] * 3 + [1] * 4
    assert loaded == ["letters"]
    clusters = {one.data["cluster"] for one in load_task("math", source="sample", embeddings="letters").problems}
    assert loaded == ["letters"] * 2  # for texts that were not kept
    assert "number_theory/2" in clusters
