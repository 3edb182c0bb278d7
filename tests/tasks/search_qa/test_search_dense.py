"""Dense retrieval with an encoder whose vectors are known."""

import sys
import types
from collections.abc import Sequence
from typing import Any

import numpy as np
import pytest
from search_fixture import config

from evorun.errors import ToolError
from evorun.tasks.search_qa.questions import SAMPLE
from evorun.tasks.search_qa.retrieval.base import Corpus
from evorun.tasks.search_qa.retrieval.dense import Dense

LETTERS = "abcdefghijklmnopqrstuvwxyz"


class Encoder:
    """Counts letters; told apart what was encoded as a query and what as a document."""

    calls: list[tuple[str, int]]

    def __init__(self, model: str) -> None:
        if model == "absent":
            raise OSError("absent is not a local folder\nand no hub id")
        self.calls = calls

    def encode_query(self, texts: Sequence[str], **options: Any) -> Any:
        return self._encode("query", texts, **options)

    def encode_document(self, texts: Sequence[str], **options: Any) -> Any:
        return self._encode("document", texts, **options)

    def _encode(self, kind: str, texts: Sequence[str], *, normalize_embeddings: bool, show_progress_bar: bool) -> Any:
        assert normalize_embeddings
        assert not show_progress_bar
        self.calls.append((kind, len(texts)))
        return np.array([vector(text) for text in texts], dtype=np.float32)


calls: list[tuple[str, int]] = []


def vector(text: str) -> Any:
    counts = np.array([text.lower().count(letter) for letter in LETTERS], dtype=float)
    return counts / np.linalg.norm(counts)


@pytest.fixture(autouse=True)
def _package(monkeypatch: pytest.MonkeyPatch, tmp_path: Any) -> None:
    calls.clear()
    package = types.ModuleType("sentence_transformers")
    package.SentenceTransformer = Encoder  # type: ignore[attr-defined]
    monkeypatch.setitem(sys.modules, "sentence_transformers", package)
    monkeypatch.setenv("EVORUN_CACHE", str(tmp_path))


async def test_the_nearest_passages_and_vectors_from_the_cache() -> None:
    corpus = Corpus.from_file(SAMPLE / "passages.jsonl")
    passages, query = corpus.passages(), "a runner and a postman"
    nearness = [float(vector(query) @ vector(f"{one.title}\n{one.text}")) for one in passages]
    expected = [passages[n] for n in np.argsort(-np.array(nearness))[:3]]
    assert await Dense(corpus, "letters").find([query], 3) == [expected]
    assert await Dense(corpus, "letters").find([query, query], 3) == [expected, expected]
    assert calls == [("document", len(passages)), ("query", 1), ("query", 2)]
    await Dense(corpus, "other").find([query], 3)  # its vectors are others
    assert ("document", len(passages)) in calls[3:]


async def test_what_is_missing_is_said(monkeypatch: pytest.MonkeyPatch) -> None:
    with pytest.raises(ToolError, match=r"task.retriever_model: cannot load 'absent': OSError: absent is not a local"):
        await Dense(Corpus.from_file(SAMPLE / "passages.jsonl"), "absent").find(["x"], 3)
    monkeypatch.setitem(sys.modules, "sentence_transformers", None)
    with pytest.raises(ToolError, match=r"pip install 'evorun\[dense\]'"):  # before any model loads
        config(retriever="dense", retriever_model="letters").load()
