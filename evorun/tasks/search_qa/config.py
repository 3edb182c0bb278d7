"""Configuration of the task: which questions train, which test, and what is searched how."""

from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass
from hashlib import sha256
from pathlib import Path

import msgspec

from evorun.errors import ConfigError, DataError, above, at_least, one_of
from evorun.models.server.http import checked_url
from evorun.runs.streams import stream
from evorun.tasks.base import LoadedTask, Provenance, TaskConfig
from evorun.tasks.benchmark_files import MissingFilesError, default_folder, download_records
from evorun.tasks.search_qa.loading import loaded
from evorun.tasks.search_qa.records import Question, read_questions
from evorun.tasks.search_qa.retrieval.base import Corpus, Retriever
from evorun.tasks.search_qa.retrieval.bm25 import bm25
from evorun.tasks.search_qa.retrieval.dense import dense
from evorun.tasks.search_qa.retrieval.http import Http
from evorun.tasks.search_qa.task import SearchQa

SAMPLE = Path(__file__).parent / "sample"
SAMPLE_TRAIN, SAMPLE_TEST = 12, 8
"""Problems of the sample's two splits."""
PASSAGES = "passages.jsonl"
"""The corpus in a data folder."""
WHOLE = {"nq": 3610, "hotpotqa": 7405}
"""Questions in the benchmarks' own test files: NQ's open version, HotpotQA's development set."""


@dataclass(kw_only=True)
class SearchQaConfig(TaskConfig):
    """Questions answered with a search tool: NQ and HotpotQA, as E-SPL draws from them (section 4)."""

    task_class = SearchQa
    training_split = "train"

    split: str
    """train | test: which problems the run works on."""
    source: str
    """auto: `data`, else $EVORUN_DATA/search_qa. hub: hub data sets. sample: evorun's own small set."""
    data: str | None
    """Folder with the questions' files and, unless `corpus` names another, `passages.jsonl`."""
    files: dict[str, str]
    """Pattern of the files in the folder, by stratum."""
    hub: dict[str, str]
    """Hub data set by stratum: OWNER/NAME/PATTERN."""
    train_problems: int
    test_problems: int
    validation_problems: int
    """Problems of the train split that serve as demonstrations, where the run does not work on them."""
    limit: int | None
    """Work on this many problems only: the first ones in the drawn order."""
    corpus: str | None
    """File of passages to search (JSON lines: id, title, text); null: the data folder's own."""
    retriever: str
    """bm25 | dense | http."""
    retriever_model: str | None
    """With `dense`: the encoder, a hub id or a folder."""
    retriever_url: str | None
    """With `http`: the address that queries are posted to."""
    retriever_timeout: float
    """With `http`: seconds for one request."""
    retriever_retries: int
    """With `http`: further attempts at a request that failed."""
    max_turns: int
    """Turns of the model at most; the last one is its response."""
    max_queries: int
    """Queries of one call at most."""
    passages_per_query: int
    passage_chars: int
    """As much of a passage's text as the model is shown."""
    prompts: str | None
    """Folder of your own prompt files; each replaces the built-in one of its name (null: the built-in ones)."""
    shown_reasoning_chars: int | None
    """As much of a candidate's text as a later prompt shows, its beginning and its end; null: all."""

    def __post_init__(self) -> None:
        super().__post_init__()
        one_of("task.split", self.split, ("train", "test"))
        one_of("task.source", self.source, ("auto", "hub", "sample"))
        one_of("task.retriever", self.retriever, ("bm25", "dense", "http"))
        at_least("task.validation_problems", self.validation_problems, 0)
        at_least("task.retriever_retries", self.retriever_retries, 0)
        above("task.retriever_timeout", self.retriever_timeout, 0)
        counts = ("train_problems", "test_problems", "limit", "max_turns", "max_queries", "passages_per_query")
        for key in (*counts, "passage_chars", "shown_reasoning_chars"):
            at_least(f"task.{key}", getattr(self, key), 1)
        if self.source != "auto" and self.data is not None:
            raise ConfigError(f"task.data: has no effect with task.source={self.source}; leave one of the two out")
        for key, kind in (("retriever_model", "dense"), ("retriever_url", "http")):
            if (getattr(self, key) is None) == (self.retriever == kind):
                raise ConfigError(f"task.{key}: expected exactly with task.retriever={kind}, got {getattr(self, key)}")
        if self.retriever_url is not None:
            checked_url("task.retriever_url", self.retriever_url)
        if self.retriever == "http" and self.corpus is not None:
            raise ConfigError("task.corpus: has no effect with task.retriever=http; leave it null")

    def load(self) -> LoadedTask:
        """Read and draw the questions of the chosen split.

        Raises DataError for missing or malformed files and too few questions, ConfigError for prompt files.
        """
        found = self._questions()
        held_out = self._drawn(found, "train")[: self.validation_problems] if self.split == "test" else []
        return self._loaded(found, self._drawn(found, self.split)[: self.limit], held_out)

    def training(self) -> LoadedTask:
        """Give the train split. Raises ConfigError with task.split=train, and DataError as `load` does."""
        if self.split == "train":
            raise ConfigError(
                "task.split: expected test where weights are trained, got train: the train split is what is trained on"
            )
        found = self._questions()
        return self._loaded(found, self._drawn(found, "train"), ())

    def _loaded(
        self, found: Sequence[Question], selected: Sequence[Question], held_out: Sequence[Question]
    ) -> LoadedTask:
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
        return loaded(task, selected, held_out, self._provenance(found, selected, corpus))

    def _drawn(self, found: Sequence[Question], split: str) -> list[Question]:
        """Return the questions of a split: drawn from all together, test from the front and train from the back."""
        sample = self.source == "sample"
        train, test = (SAMPLE_TRAIN, SAMPLE_TEST) if sample else (self.train_problems, self.test_problems)
        if len(found) < train + test:
            raise DataError(
                f"task={self.name}: expected at least {train + test} different questions to draw from, found "
                f"{len(found)}; lower task.train_problems or task.test_problems"
            )
        # From both ends, so that the size of one split does not change the other.
        order = stream(self.draw_seed, "draw", self.name).permutation(len(found)).tolist()
        chosen = order[:test] if split == "test" else order[-train:]
        return [found[index] for index in chosen]

    def _questions(self) -> list[Question]:
        if self.source == "sample":
            return read_questions({stratum: [SAMPLE / f"{stratum}.jsonl"] for stratum in ("one_hop", "two_hops")})
        if self.source == "hub":
            return read_questions({stratum: download_records(place) for stratum, place in self.hub.items()})
        folder = self._folder()
        paths = {stratum: sorted(folder.glob(pattern)) for stratum, pattern in self.files.items()}
        for stratum, found in paths.items():
            if not found:
                raise DataError(f"task.data: expected {self.files[stratum]} in '{folder}', found none")
        return read_questions(paths)

    def _folder(self) -> Path:
        folder = Path(self.data).expanduser() if self.data is not None else default_folder("search_qa")
        if folder is None or not folder.is_dir():
            files = f"{', '.join(self.files.values())} and {PASSAGES}"
            raise MissingFilesError(
                f"the questions of task={self.name}",
                f"give a folder with {files} as task.data=FOLDER or $EVORUN_DATA/search_qa, or fetch questions with "
                "task.source=hub",
                f"{files} in $EVORUN_DATA/search_qa; or task.source=hub",
            )
        return folder

    def _corpus(self) -> Corpus | None:
        """Return what is searched; None where a server searches."""
        if self.retriever == "http":
            return None
        if self.corpus is not None:
            return Corpus.of(Path(self.corpus).expanduser())
        if self.source == "hub":
            raise ConfigError(
                "task.corpus: expected a file of passages with task.source=hub, which fetches questions alone; or set "
                "task.retriever=http"
            )
        return Corpus.of((SAMPLE if self.source == "sample" else self._folder()) / PASSAGES)

    def _retriever(self, corpus: Corpus | None) -> Retriever:
        if corpus is None:
            return Http(self.retriever_url or "", self.retriever_timeout, self.retriever_retries)
        return bm25(corpus) if self.retriever == "bm25" else dense(corpus, self.retriever_model or "")

    def _provenance(self, found: Sequence[Question], selected: Sequence[Question], corpus: Corpus | None) -> Provenance:
        # The corpus belongs to the problems: another one makes them easier or harder.
        searched = self.retriever_url if corpus is None else corpus.digest
        digest = sha256(msgspec.json.encode((selected, searched))).hexdigest()
        if self.source == "sample":
            description = "evorun's own sample set of questions about invented places, not NQ or HotpotQA"
            return Provenance(source="sample", description=description, digest=digest)
        counts = Counter(question.problem.stratum for question in found)
        pool = ", ".join(f"{stratum} {count}" for stratum, count in counts.items())
        place = "a search server" if corpus is None else f"the passages of {corpus.path.name}"
        whole = all(counts[stratum] >= count for stratum, count in WHOLE.items())
        return Provenance(
            source="benchmark" if whole else "stand_in",
            description=f"{len(selected)} questions of {pool} ({self.source}), searching {place}",
            digest=digest,
        )
