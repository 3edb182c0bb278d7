"""Configuration of the task: which questions, from where, how many, and with which prompts."""

from dataclasses import dataclass
from hashlib import sha256
from pathlib import Path

import msgspec

from evorun.errors import ConfigError, at_least, one_of
from evorun.tasks.base import LoadedTask, Provenance, TaskConfig
from evorun.tasks.benchmark_files import MissingFilesError, default_folder, download
from evorun.tasks.loading import load_rows
from evorun.tasks.mathbench import files
from evorun.tasks.mathbench.records import Question
from evorun.tasks.mathbench.simulator import MathBenchSimulator
from evorun.tasks.mathbench.task import MathBench
from evorun.tasks.sampling import stratified_draw

SOURCES = ("auto", "benchmark", "stand_in", "sample", "hub")


@dataclass(kw_only=True)
class MathBenchConfig(TaskConfig):
    """MathBench as Duel-Evolve uses it: English four-option application questions of three stages (§4.1)."""

    task_class = MathBench

    source: str
    """auto: `data`, else $EVORUN_DATA/mathbench, else `hub_id`; the files count as the benchmark's own when the folder
    also holds the archive's other parts (Chinese and theory questions). benchmark | stand_in: the same places, and you
    say what the files are. hub: `hub_id` only. sample: evorun's own small set."""
    data: str | None
    """Folder with MathBench's files: the archive's root, or the folder that it was unpacked in."""
    hub_id: str | None
    """Hub data set that holds MathBench's folders."""
    strata: list[str]
    """Stages to draw from, each a stratum of the results (§4.1)."""
    per_stratum: int | None
    """Problems of each stage; null: all that there are. A smaller stage is an error, except that the sample set gives
    what it has."""
    validation_per_stratum: int | None
    """Further problems of each stage, held out for demonstrations and for the search of prompts; null: what the
    smallest stage has beyond 100, at least 6 and at most 50."""
    limit: int | None
    """Work on this many problems only: the first ones of the full draw, which goes round the stages in turn."""
    prompts: str | None
    """Folder of your own prompt files; each replaces the built-in one of its name (null: the built-in ones)."""
    reasoning_max_chars: int
    """Longest reasoning that the JSON schema allows."""
    shown_reasoning_chars: int | None
    """As much of a candidate's reasoning as a later prompt shows, its beginning and its end; null: all. Demonstrations
    show all of theirs."""

    def __post_init__(self) -> None:
        super().__post_init__()
        one_of("task.source", self.source, SOURCES)
        at_least("task.per_stratum", self.per_stratum, 1)
        at_least("task.validation_per_stratum", self.validation_per_stratum, 0)
        at_least("task.limit", self.limit, 1)
        at_least("task.reasoning_max_chars", self.reasoning_max_chars, 1)
        at_least("task.shown_reasoning_chars", self.shown_reasoning_chars, 1)
        for stage in self.strata:
            one_of("task.strata", stage, ("middle", "high", "college"))
        if not self.strata or len(set(self.strata)) < len(self.strata):
            raise ConfigError(f"task.strata: expected distinct stages, at least one, got {list(self.strata)}")
        if self.source == "sample" and self.data is not None:
            raise ConfigError("task.data: has no effect with task.source=sample; leave one of the two out")
        if self.source == "hub" and self.hub_id is None:
            raise ConfigError("task.hub_id: expected a hub data set with task.source=hub, got null")

    def load(self) -> LoadedTask:
        """Read, check and draw the problems.

        Raises DataError for missing or malformed files and stages that are too small, ConfigError for prompt files.
        """
        task = MathBench(
            prompts=self.prompts,
            reasoning_max_chars=self.reasoning_max_chars,
            shown_reasoning_chars=self.shown_reasoning_chars,
        )
        folder, place = self._locate()
        root = files.archive_root(folder, self.strata)
        stages = files.read_stages(root, self.strata)
        held_out = self.validation_per_stratum
        if held_out is None:
            held_out = min(50, max(6, min(map(len, stages.values())) - 100))
        draw = stratified_draw(
            stages,
            per_stratum=self.per_stratum,
            held_out=held_out,
            seed=self.draw_seed,
            name=self.name,
            allow_fewer=self.source == "sample",
        )
        selected = draw.selected[: self.limit]
        rows, validation = ([(q.problem, q.answer) for q in part] for part in (selected, draw.held_out))
        provenance = self._provenance(root, place, selected)
        return load_rows(task, rows, validation=validation, provenance=provenance, simulator=MathBenchSimulator)

    def _locate(self) -> tuple[Path, str]:
        """Return the folder to read and how results name it."""
        if self.source == "sample":
            return files.SAMPLE, "sample"
        if self.source != "hub":
            folder = Path(self.data).expanduser() if self.data is not None else default_folder("mathbench")
            if folder is not None:
                return folder, f"folder {folder.resolve().name}"
        if self.hub_id is not None:
            return download(self.hub_id, files.HUB_FILES, "task.hub_id"), f"hub data set {self.hub_id}"
        raise MissingFilesError(
            "MathBench's files",
            f"download and unpack {files.RELEASE}, then give their folder as task.data=FOLDER or "
            "$EVORUN_DATA/mathbench",
            f"{files.RELEASE}, unpacked in $EVORUN_DATA/mathbench",
        )

    def _provenance(self, root: Path, place: str, selected: list[Question]) -> Provenance:
        source = self.source
        # A folder with the right names may hold other questions; the archive's other parts are the best evidence at
        # hand.
        if source in ("auto", "hub"):
            source = "benchmark" if files.looks_like_archive(root, self.strata) else "stand_in"
        description = {
            "benchmark": f"MathBench's own files ({place})",
            "stand_in": f"questions in MathBench's layout, not MathBench itself ({place})",
            "sample": "evorun's own sample set of generated word problems, not MathBench",
        }[source]
        digest = sha256(msgspec.json.encode(selected)).hexdigest()
        return Provenance(source=source, description=description, digest=digest)
