"""BM25 against its formula, its index in the cache, and its recall on the benchmarks' questions."""

import asyncio
import json
import logging
import math
import re
import threading
from collections import Counter
from pathlib import Path
from typing import Any

import measure_search
import numpy as np
import pytest
from bm25s.stopwords import STOPWORDS_EN
from search_fixture import TEST_DATA

from evorun.errors import DataError
from evorun.tasks.search_qa.questions import SAMPLE
from evorun.tasks.search_qa.retrieval import bm25
from evorun.tasks.search_qa.retrieval.base import Corpus
from evorun.tasks.search_qa.retrieval.bm25 import Bm25, top_indices

QUERIES = ("who designed the Kestrel Bridge", "river Harn", "opera of Harnmouth seats", "tin mines closed", "Keld Keld")


def words(text: str) -> list[str]:
    return [word for word in re.findall(r"\b\w\w+\b", text.lower()) if word not in STOPWORDS_EN]


def formula(query: str, texts: list[str]) -> list[float]:
    """Score each text by BM25 in Lucene's variant, k1 1.5 and b 0.75 (Kamphuis et al., 2020, table 1)."""
    documents = [Counter(words(text)) for text in texts]
    mean = sum(one.total() for one in documents) / len(documents)
    scores = [0.0] * len(texts)
    for word in words(query):
        having = sum(word in one for one in documents)
        idf = math.log(1 + (len(texts) - having + 0.5) / (having + 0.5))
        for number, one in enumerate(documents):
            scores[number] += idf * one[word] / (one[word] + 1.5 * (1 - 0.75 + 0.75 * one.total() / mean))
    return scores


async def test_the_best_passages_by_the_formula() -> None:
    corpus = Corpus.from_file(SAMPLE / "passages.jsonl")
    passages = corpus.passages()
    found = await Bm25(corpus).find(QUERIES, 5)
    for query, one in zip(QUERIES, found, strict=True):
        scores = formula(query, [f"{p.title} {p.text}" for p in passages])
        own = [scores[passages.index(p)] for p in one]
        assert own == pytest.approx(sorted((s for s in scores if s > 0), reverse=True)[:5], rel=1e-5)


async def test_what_has_no_word_of_the_query_is_not_found() -> None:
    found = await Bm25(Corpus.from_file(SAMPLE / "passages.jsonl")).find(["of the", "", "zebra", "zebra slate"], 60)
    assert found[:3] == [[], [], []]
    assert {one.title for one in found[3]} == {"Dunmarrow", "Harn Slate Company"}


def test_of_equal_scores_the_earliest() -> None:
    scores = np.array([0.0, 2.0, 1.0, 2.0, 1.0, 0.0, 1.0])
    assert [top_indices(scores, count) for count in (1, 2, 3, 4, 6, 9)] == [
        *([1], [1, 3], [1, 3, 2]),
        *([1, 3, 2, 4], [1, 3, 2, 4, 6], [1, 3, 2, 4, 6]),
    ]


@pytest.fixture
def corpus(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Corpus:
    """Return a corpus worth keeping, and a cache of its own."""
    monkeypatch.setenv("EVORUN_CACHE", str(tmp_path / "cache"))
    lines = [{"id": n, "title": f"Place {n}", "text": f"It has {n % 7} towers and word{n}."} for n in range(1200)]
    (tmp_path / "passages.jsonl").write_text("\n".join(map(json.dumps, lines)))
    return Corpus.from_file(tmp_path / "passages.jsonl")


async def test_an_index_is_made_once_and_read_from_the_cache(corpus: Corpus, monkeypatch: pytest.MonkeyPatch) -> None:
    made = []
    real = bm25.make_index

    def counted(passages: Any) -> Any:
        made.append(threading.current_thread())
        return real(passages)

    monkeypatch.setattr(bm25, "make_index", counted)
    first, second = Bm25(corpus), Bm25(corpus)
    results = await asyncio.gather(*(first.find([f"word{n}", "towers"], 3) for n in range(20)))
    assert [one[0][0].id for one in results] == [str(n) for n in range(20)]
    assert len(made) == 1
    assert made[0] is not threading.main_thread()
    assert await second.find(["word7", "towers"], 3) == results[7]
    assert len(made) == 1
    [folder] = (corpus.path.parent / "cache" / "search").iterdir()
    assert corpus.digest[:32] in folder.name


@pytest.mark.parametrize("spoilt", ["params.index.json", "indices.csc.index.npy"])
async def test_a_cache_that_cannot_be_used_costs_a_warning(
    corpus: Corpus, spoilt: str, caplog: pytest.LogCaptureFixture
) -> None:
    expected = await Bm25(corpus).find(["word7"], 3)
    [folder] = (corpus.path.parent / "cache" / "search").iterdir()
    (folder / spoilt).write_bytes(b"?")
    with caplog.at_level(logging.WARNING):
        assert await Bm25(corpus).find(["word7"], 3) == expected
    assert "EVORUN_CACHE" in caplog.text


async def test_another_corpus_has_another_index(corpus: Corpus) -> None:
    await Bm25(corpus).find(["towers"], 1)
    corpus.path.write_text(corpus.path.read_text().replace("towers", "gates"))
    changed = Corpus.from_file(corpus.path)
    assert changed.digest != corpus.digest
    assert await Bm25(changed).find(["towers"], 1) == [[]]


@pytest.mark.parametrize(
    ("text", "error"),
    [
        ("", "expected passages, found none"),
        ('{"id": 1, "title": "T"}', r":1: expected \{.id"),
        ('{"id": 1, "title": "T", "text": "x"}\n[]', r":2: expected \{.id"),
        ('{"id": 1, "text": "x"', ":1: expected one JSON object per line"),
    ],
)
async def test_a_malformed_corpus_is_named(tmp_path: Path, text: str, error: str) -> None:
    path = tmp_path / "passages.jsonl"
    path.write_text(text)
    with pytest.raises(DataError, match=error):
        await Bm25(Corpus.from_file(path)).find(["x"], 1)


def test_contents_as_search_servers_store_them(tmp_path: Path) -> None:
    path = tmp_path / "wiki.jsonl"
    path.write_text('{"id": "7", "contents": "\\"River Harn\\"\\nIt is long.\\nVery."}')
    assert Corpus.from_file(path).passages() == [("7", "River Harn", "It is long.\nVery.")]


@pytest.mark.nightly
@pytest.mark.skipif(not TEST_DATA.is_dir(), reason="needs the test data; set EVORUN_TEST_DATA to their folder")
def test_gold_passages_are_among_three(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("EVORUN_CACHE", str(tmp_path))
    recalls = measure_search.recalls(TEST_DATA, 3)
    assert {stratum: recall.questions for stratum, recall in recalls.items()} == {"nq": 400, "hotpotqa": 100}
    assert recalls["nq"].any >= 0.89
    assert recalls["hotpotqa"].any >= 0.93
