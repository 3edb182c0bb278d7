"""The questions of NQ and HotpotQA: their files, the two splits, and their retrievers."""

from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Annotated

from evorun.errors import ConfigError, DataError
from evorun.fields import NonNegativeInt, OneOf, PositiveFloat, PositiveInt
from evorun.models.urls import checked_url
from evorun.runs.streams import stream
from evorun.tasks.base import LoadedTask, Problem
from evorun.tasks.benchmark import Question, hash_content
from evorun.tasks.benchmark_files import Record, Source
from evorun.tasks.search_qa.retrieval.base import Corpus, Retriever
from evorun.tasks.search_qa.retrieval.bm25 import bm25
from evorun.tasks.search_qa.retrieval.dense import dense
from evorun.tasks.search_qa.retrieval.http import Http
from evorun.tasks.search_qa.search_qa import SearchQa, SearchSimulator
from evorun.tasks.split_benchmark import Part, SplitBenchmark, SplitData, refuse_training_on

SAMPLE = Path(__file__).parent / "sample"
SAMPLE_TRAIN, SAMPLE_TEST = 12, 8
"""Problems of the sample's two splits."""
PASSAGES = "passages.jsonl"
"""The corpus in a data folder."""
BENCHMARK_SIZES = {"nq": 3610, "hotpotqa": 7405}
"""Questions in the benchmarks' own test files: NQ's open version, HotpotQA's development set."""
ANSWERS = ("answers", "golden_answers", "answer")
"""Fields that may hold the accepted answers, a list or a single answer; the first present field counts."""


@dataclass(kw_only=True)
class SearchQaConfig(SplitBenchmark):
    """Questions answered with a search tool: NQ and HotpotQA, as E-SPL draws from them (section 4)."""

    task_class = SearchQa
    simulator = SearchSimulator
    folder = "search_qa"
    wanted = "questions"
    given_as = "FOLDER"
    sample_set = "evorun's own sample set of questions about invented places, not NQ or HotpotQA"

    files: dict[str, str]
    """Pattern of the files in the folder, by stratum."""
    hub: dict[str, str]
    """Hub data set by stratum: OWNER/NAME/PATTERN."""
    train_problems: PositiveInt
    test_problems: PositiveInt
    corpus: str | None
    """File of passages to search (JSON lines: id, title, text); null: the data folder's own."""
    retriever: Annotated[str, OneOf(("bm25", "dense", "http"))]
    """bm25 | dense | http."""
    retriever_model: str | None
    """With `dense`: the encoder, a hub id or a folder."""
    retriever_url: str | None
    """With `http`: the address that queries are posted to."""
    retriever_timeout: PositiveFloat
    """With `http`: seconds per request."""
    retriever_retries: NonNegativeInt
    """With `http`: further attempts at a request that failed."""
    max_turns: PositiveInt
    """Most turns of the model; the last turn is its response."""
    max_queries: PositiveInt
    """Most queries per call."""
    passages_per_query: PositiveInt
    passage_chars: PositiveInt
    """Most characters of a passage's text in the prompt."""

    def __post_init__(self) -> None:
        super().__post_init__()
        for key, kind in (("retriever_model", "dense"), ("retriever_url", "http")):
            if (getattr(self, key) is None) == (self.retriever == kind):
                raise ConfigError(f"task.{key}: expected exactly with task.retriever={kind}, got {getattr(self, key)}")
        if self.retriever_url is not None:
            checked_url("task.retriever_url", self.retriever_url)
        if self.retriever == "http" and self.corpus is not None:
            raise ConfigError("task.corpus: has no effect with task.retriever=http; leave it null")

    # --- questions ---

    def read(self, record: Record, split: str) -> Question:
        return read_question(record)

    def part(self, name: str) -> Part:
        """Return the sources of a stratum's questions: both splits are drawn from all of them."""
        files, hub = ([group[name]] if name in group else [] for group in (self.files, self.hub))
        return Part(name, files, hub, f"task.files.{name}", f"task.hub.{name}")

    def locate(self, split: str) -> tuple[list[Source], str]:
        if self.source == "sample":
            return [Source(stratum, [SAMPLE / f"{stratum}.jsonl"]) for stratum in ("one_hop", "two_hops")], "sample"
        if self.source == "auto":
            self._folder()
        found = {name: self.search(self.part(name))[0] for name in (self.hub if self.source == "hub" else self.files)}
        return [
            Source(name, [path for source in sources for path in source.paths]) for name, sources in found.items()
        ], self.source

    def _folder(self) -> Path:
        place = self.place()
        if place is None or not place.is_dir():
            raise self.missing(f"{', '.join(self.files.values())} and {PASSAGES}")
        return place

    # --- loading ---

    def load(self) -> LoadedTask:
        found = self.find(self.split)
        held_out = self._drawn(found, "train")[: self.validation_problems] if self.split == "test" else []
        return self._with_corpus(found, self._drawn(found, self.split)[: self.limit], held_out)

    def load_training(self) -> LoadedTask:
        refuse_training_on(self.split)
        found = self.find("train")
        return self._with_corpus(found, self._drawn(found, "train"), ())

    def _drawn(self, found: SplitData, split: str) -> list[Question]:
        """Return the questions of a split: drawn from all strata, test from the front and train from the back."""
        sample, available = self.source == "sample", len(found.questions)
        train, test = (SAMPLE_TRAIN, SAMPLE_TEST) if sample else (self.train_problems, self.test_problems)
        if available < train + test:
            raise DataError(
                f"task={self.name}: expected at least {train + test} different questions to draw from, found "
                f"{available}; lower task.train_problems or task.test_problems"
            )
        # From both ends, so that the size of one split does not change the other.
        order = stream(self.draw_seed, "draw", self.name).permutation(available).tolist()
        return [found.questions[index] for index in (order[:test] if split == "test" else order[-train:])]

    def _with_corpus(self, found: SplitData, selected: Sequence[Question], held_out: Sequence[Question]) -> LoadedTask:
        corpus = self._corpus()
        task = SearchQa(
            self._retriever(corpus),
            max_turns=self.max_turns,
            max_queries=self.max_queries,
            passages=self.passages_per_query,
            passage_chars=self.passage_chars,
            prompts=self.prompts,
            shown_reasoning_chars=self.shown_reasoning_chars,
        )
        # The corpus belongs to the problems: another corpus makes them easier or harder.
        searched = self.retriever_url if corpus is None else corpus.digest
        digest = hash_content(([question.identifying_fields for question in selected], searched))
        counts = Counter(question.problem.stratum for question in found.questions)
        pool = ", ".join(f"{stratum} {count}" for stratum, count in counts.items())
        place = "a search server" if corpus is None else f"the passages of {corpus.path.name}"
        whole = all(counts[stratum] >= count for stratum, count in BENCHMARK_SIZES.items())
        description = f"{len(selected)} questions of {pool} ({self.source}), searching {place}"
        provenance = self.provenance("benchmark" if whole else "stand_in", description, digest)
        return self.assemble(task, selected, held_out, provenance)

    def _corpus(self) -> Corpus | None:
        """Return the corpus to search; None where a server searches."""
        if self.retriever == "http":
            return None
        if self.corpus is not None:
            return Corpus.from_file(Path(self.corpus).expanduser())
        if self.source == "hub":
            raise ConfigError(
                "task.corpus: expected a file of passages with task.source=hub, which fetches questions alone; or set "
                "task.retriever=http"
            )
        return Corpus.from_file((SAMPLE if self.source == "sample" else self._folder()) / PASSAGES)

    def _retriever(self, corpus: Corpus | None) -> Retriever:
        if corpus is None:
            return Http(self.retriever_url or "", self.retriever_timeout, self.retriever_retries)
        return bm25(corpus) if self.retriever == "bm25" else dense(corpus, self.retriever_model or "")


def read_question(record: Record) -> Question:
    """Return a record's question; its source is its stratum. Raises DataError for a malformed one."""
    name = record.values.get("id", record.number)
    text = record.text("question")
    if isinstance(name, bool) or not isinstance(name, str | int) or "|" in str(name):
        raise DataError(f"{record.where}: id: expected a string without '|' or an integer, got {name!r:.60}")
    # Ids are unique within a file only, and some collections use bare numbers.
    identity = f"{record.source}/{str(name).strip() or record.number}"
    return Question(
        problem=Problem(id=identity, stratum=record.source, data={"question": text}),
        answers=_answers(record),
        details={"gold_passages": tuple(map(str, record.values.get("gold_passages") or ()))},
        where=record.where,
    )


def _answers(record: Record) -> tuple[str, ...]:
    given = next((record.values[field] for field in ANSWERS if field in record.values), None)
    answers = [given] if isinstance(given, str) else given
    if (
        not isinstance(answers, list)
        or not answers
        or not all(isinstance(answer, str) and answer.strip() for answer in answers)
    ):
        raise DataError(f"{record.where}: expected accepted answers under {' or '.join(ANSWERS)}, got {given!r:.60}")
    return tuple(dict.fromkeys(" ".join(answer.split()) for answer in answers))
