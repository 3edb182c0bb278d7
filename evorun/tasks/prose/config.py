"""Configuration that tasks in prose share: which records are in which split, and where they come from."""

from abc import abstractmethod
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from hashlib import sha256
from pathlib import Path
from typing import Any, ClassVar, NamedTuple

import msgspec

from evorun.errors import ConfigError, DataError, at_least, one_of
from evorun.runs.streams import stream
from evorun.tasks.base import LoadedTask, Provenance, TaskConfig
from evorun.tasks.benchmark_files import MissingFilesError, default_folder, download_records, records
from evorun.tasks.loading import Row

SPLITS = ("train", "test")


class Record(NamedTuple):
    """A record of a file, not yet checked."""

    values: Mapping[str, Any]
    identity: str
    """Its own id, or one made of its file's name and its line."""
    where: str
    """`FILE:LINE`, for errors."""
    file: str
    """The file's name without its suffix."""
    split: str

    def text(self, field: str) -> str:
        """Return a text, stripped. Raises DataError where there is none."""
        text = self.values.get(field)
        if not isinstance(text, str) or not text.strip():
            raise DataError(f"{self.where}: {field}: expected a non-empty string, got {text!r:.60}")
        return text.strip()


class Found(NamedTuple):
    """The problems of a split's files, before any is drawn."""

    split: str
    rows: list[Row]
    records: int
    """In the files, those too that were left out."""
    place: str
    """As results name it."""


@dataclass(kw_only=True)
class ProseConfig(TaskConfig):
    """The settings that all tasks in prose have.

    A train split never holds a problem of the test split, so that both can be drawn from the same files.
    """

    training_split = "train"
    sample: ClassVar[Path]
    """Folder of evorun's own small set, with a file for each split."""
    benchmark: ClassVar[str]
    """The benchmark's name."""
    sizes: ClassVar[Mapping[str, int]]
    """Records in the benchmark's own files, by split."""

    split: str
    """train | test: which problems the run works on."""
    source: str
    """auto: `data`, else $EVORUN_DATA/NAME. hub: the hub data sets. sample: evorun's own small set."""
    data: str | None
    """Folder with the splits' files, or a single file that both splits are drawn from (JSON lines or Parquet)."""
    files: dict[str, list[str]]
    """Patterns of the files in the folder, by split."""
    hub: dict[str, list[str]]
    """Hub data sets by split: OWNER/NAME/PATTERN each."""
    train_problems: int | None
    """Problems of the train split; null: all that there are. The sample set has its own number, of both splits."""
    test_problems: int | None
    validation_problems: int
    """Problems of the train split that serve as demonstrations, where the run does not work on them."""
    limit: int | None
    """Work on this many problems only: the first ones in the drawn order."""
    max_words: int
    """Longest text that prompts ask for."""
    prompts: str | None
    """Folder of your own prompt files; each replaces the built-in one of its name (null: the built-in ones)."""
    shown_reasoning_chars: int | None
    """As much of a candidate's text as a later prompt shows, its beginning and its end; null: all."""

    def __post_init__(self) -> None:
        super().__post_init__()
        one_of("task.split", self.split, SPLITS)
        one_of("task.source", self.source, ("auto", "hub", "sample"))
        for key in ("files", "hub"):
            if set(getattr(self, key)) != set(SPLITS):
                raise ConfigError(f"task.{key}: expected train and test, got {', '.join(getattr(self, key)) or 'none'}")
        at_least("task.validation_problems", self.validation_problems, 0)
        for key in ("train_problems", "test_problems", "limit", "max_words", "shown_reasoning_chars"):
            at_least(f"task.{key}", getattr(self, key), 1)
        if self.source != "auto" and self.data is not None:
            raise ConfigError(f"task.data: has no effect with task.source={self.source}; leave one of the two out")

    # --- what a subclass knows ---

    @abstractmethod
    def row(self, record: Record) -> Row | None:
        """Return a record's problem, with its right answer or its reference where it has one; None: it is left out.

        Raises DataError, beginning with the record's place, where it is malformed.
        """

    @abstractmethod
    def loaded(self, rows: Sequence[Row], validation: Sequence[Row], provenance: Provenance) -> LoadedTask:
        """Return the task with rows to work on, and others that are held out."""

    # --- loading ---

    def load(self) -> LoadedTask:
        """Read and draw the problems of the chosen split.

        Raises DataError for missing or malformed files and splits that are too small, ConfigError for prompt files.
        """
        found, tested = self._test()
        if self.split == "test":
            held_out = self._train(tested)[1] if self.validation_problems else []
            # Where some have a right answer, only those can be demonstrations.
            labelled = [row for row in held_out if row[1] is not None] or held_out
            return self._loaded(found, tested[: self.limit], labelled[: self.validation_problems])
        found, trained = self._train(tested)
        return self._loaded(found, trained[: self.limit])

    def training(self) -> LoadedTask:
        """Give the train split. Raises ConfigError with task.split=train, and DataError as `load` does."""
        if self.split == "train":
            raise ConfigError(
                "task.split: expected test where weights are trained, got train: the train split is what is trained on"
            )
        return self._loaded(*self._train(self._test()[1]))

    def _loaded(self, found: Found, rows: Sequence[Row], validation: Sequence[Row] = ()) -> LoadedTask:
        return self.loaded(rows, validation, self._provenance(found, rows))

    def _test(self) -> tuple[Found, list[Row]]:
        found = self._found("test")
        return found, self._drawn(found, found.rows)

    def _train(self, tested: Sequence[Row]) -> tuple[Found, list[Row]]:
        """Return the train split: nothing that the test split has, in the same record or another, is in it."""
        found = self._found("train")
        known = {problem.id for problem, _ in tested} | {_content(row) for row in tested}
        rows = [row for row in found.rows if known.isdisjoint((row[0].id, _content(row)))]
        if not rows:
            raise DataError(
                f"task={self.name}: expected problems of the train split ({found.place}) that are not in the test "
                "split; give other files, lower task.test_problems, or set task.validation_problems=0 to do without"
            )
        return found, self._drawn(found, rows)

    def _drawn(self, found: Found, rows: list[Row]) -> list[Row]:
        key = f"{found.split}_problems"
        size: int | None = None if self.source == "sample" else getattr(self, key)
        if size is not None and size > len(rows):
            raise DataError(
                f"task={self.name}: the {found.split} split holds {len(rows)} problems; expected at least {size} to "
                f"draw from. Lower task.{key}, or set it to null to take them all"
            )
        # Shuffled whole, then cut: a smaller draw is the beginning of a larger one.
        order = stream(self.draw_seed, "draw", self.name, found.split).permutation(len(rows))
        return [rows[index] for index in order[:size]]

    def _found(self, split: str) -> Found:
        """Read a split's files; a problem that is repeated is kept where it comes first."""
        paths, place = self._locate(split)
        located = [(path, number, *one) for path in paths for number, one in enumerate(records(path), 1)]
        rows: dict[bytes, Row] = {}
        ids: dict[str, str] = {}
        for path, number, where, record in located:
            if not isinstance(record, Mapping):
                raise DataError(f"{where}: expected a JSON object, got {type(record).__name__}")
            own = record.get("id") or record.get("bill_id") or f"{path.stem}_{number:05d}"
            # '|' separates the parts of a journal's keys
            row = self.row(Record(record, str(own).replace("|", "/"), where, path.stem, split))
            if row is None:
                continue
            if (earlier := ids.setdefault(row[0].id, where)) != where:
                raise DataError(f"{where}: id '{row[0].id}' is already used in {earlier}")
            rows.setdefault(_content(row), row)
        if not rows:
            raise DataError(f"task={self.name}: expected problems of the {split} split, the files ({place}) hold none")
        return Found(split, list(rows.values()), len(located), place)

    def _locate(self, split: str) -> tuple[list[Path], str]:
        """Return the files to read and how results name their place."""
        if self.source == "sample":
            return [self.sample / f"{split}.jsonl"], "sample"
        if self.source == "hub":
            if not self.hub[split]:
                raise ConfigError(
                    f"task.hub.{split}: expected hub data sets with task.source=hub, got none; give a folder with the "
                    f"files of {self.benchmark}, as task.data=PATH"
                )
            return [path for place in self.hub[split] for path in download_records(place)], "hub"
        folder = Path(self.data).expanduser() if self.data is not None else default_folder(self.name)
        if folder is not None and folder.is_file():
            return [folder], f"file {folder.name}"
        patterns = " or ".join(self.files[split])
        if folder is None or not folder.is_dir():
            on_hub = bool(self.hub[split])
            raise MissingFilesError(
                f"the problems of task={self.name}",
                f"give a folder with {patterns}, or a file, as task.data=PATH or $EVORUN_DATA/{self.name}"
                + ", or fetch them with task.source=hub" * on_hub,
                f"{patterns} in $EVORUN_DATA/{self.name}" + "; or task.source=hub" * on_hub,
            )
        paths = sorted({path for pattern in self.files[split] for path in folder.glob(pattern)})
        if not paths:
            raise DataError(f"task.files.{split}: expected {patterns} in '{folder}', found none")
        return paths, f"folder {folder.resolve().name}"

    def _provenance(self, found: Found, rows: Sequence[Row]) -> Provenance:
        digest = sha256(msgspec.json.encode(rows)).hexdigest()
        if self.source == "sample":
            description = f"evorun's own sample set, not {self.benchmark}"
            return Provenance(source="sample", description=description, digest=digest)
        whole = found.records == self.sizes[found.split]
        description = f"{len(rows)} problems of the {found.split} split of {self.benchmark}"
        description += "" if whole else f", of which {found.records} records of {self.sizes[found.split]} are there"
        left_out = f", {found.records - len(found.rows)} left out" if found.records > len(found.rows) else ""
        return Provenance(
            source="benchmark" if whole else "stand_in",
            description=f"{description} ({found.place}{left_out})",
            digest=digest,
        )


def _content(row: Row) -> bytes:
    return msgspec.json.encode(row[0].data, order="deterministic")
