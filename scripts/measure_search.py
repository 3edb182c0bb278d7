"""Print how long the passages of task=search_qa take to index, and how often a gold passage is among those found.

    python scripts/measure_search.py FOLDER [--passages 3]

FOLDER holds nq_open*.jsonl, hotpotqa*.jsonl and passages.jsonl, as for task.data; each question is searched for as it
is asked. `any`: one of its gold passages was found; `all`: all were.
"""

import argparse
import asyncio
import time
from collections import defaultdict
from pathlib import Path
from typing import NamedTuple

from evorun.tasks.benchmark import drop_repeats
from evorun.tasks.benchmark_files import Source, read_sources
from evorun.tasks.search_qa.questions import read_question
from evorun.tasks.search_qa.retrieval.base import Corpus
from evorun.tasks.search_qa.retrieval.bm25 import Bm25, make_index

PATTERNS = {"nq": "nq_open*.jsonl", "hotpotqa": "hotpotqa*.jsonl"}


class Recall(NamedTuple):
    """Shares of a benchmark's questions, in [0, 1]."""

    questions: int
    any: float
    all: float


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("folder", type=Path)
    parser.add_argument("--passages", type=int, default=3)
    arguments = parser.parse_args()
    corpus = Corpus.from_file(arguments.folder / "passages.jsonl")
    passages = corpus.passages()
    make_index(passages[:10])  # the library's import is no part of it
    started, began = time.perf_counter(), time.process_time()
    make_index(passages)
    elapsed, used = time.perf_counter() - started, time.process_time() - began
    print(f"{len(passages):,} passages indexed in {elapsed:.2f} s ({used:.2f} s of CPU time)")
    for stratum, recall in recalls(arguments.folder, arguments.passages).items():
        found = f"any {recall.any:.3f}, all {recall.all:.3f}"
        print(f"{stratum}: {recall.questions} questions, gold passages among {arguments.passages}: {found}")


def recalls(folder: Path, count: int) -> dict[str, Recall]:
    """Return the recall of BM25 by benchmark, `count` passages a question."""
    files = [Source(stratum, sorted(folder.glob(pattern))) for stratum, pattern in PATTERNS.items()]
    questions = drop_repeats(map(read_question, read_sources(files)))
    texts = [question.problem.data["question"] for question in questions]
    results = asyncio.run(Bm25(Corpus.from_file(folder / "passages.jsonl")).find(texts, count))
    hits = defaultdict[str, list[tuple[bool, bool]]](list)
    for question, passages in zip(questions, results, strict=True):
        gold, found = set(question.details["gold_passages"]), {passage.id for passage in passages}
        hits[question.problem.stratum].append((bool(gold & found), gold <= found))
    return {
        stratum: Recall(len(ones), *(sum(column) / len(ones) for column in zip(*ones, strict=True)))
        for stratum, ones in hits.items()
    }


if __name__ == "__main__":
    main()
