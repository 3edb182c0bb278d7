"""Tasks whose answers are prose: prompts about drafts, replies that are the answer as a whole, and settings."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any, ClassVar

from evorun.errors import ConfigError
from evorun.fields import PositiveInt
from evorun.runs.candidates import Response
from evorun.tasks.base import Demonstration, Grade, Problem, Provenance
from evorun.tasks.benchmark import Question, hash_content
from evorun.tasks.benchmark_files import Record, Source, download_records
from evorun.tasks.split_benchmark import SPLIT_HELP, SPLITS, Part, SplitBenchmark, SplitData
from evorun.tasks.tags import escape_tags
from evorun.tasks.text_task import TextTask

MAX_CHARS = 20_000
"""Maximum characters of a text (ours): five times what these tasks ask for, to bound what judges read."""
PROMPTS = Path(__file__).parent / "prompts"


class Prose(TextTask):
    """Asks for a text of at most `max_words` words. A subclass sets `wording`, with what the prompts here add.

    `piece`: the kind of text. `source`: the heading above its subject. `criteria`: what makes a text good, for judges
    and revisers.
    """

    prompt_folders: ClassVar[Sequence[Path]] = (PROMPTS,)
    draw_help = SPLIT_HELP

    def __init__(self, *, max_words: int, prompts: str | None = None, shown_reasoning_chars: int | None = None) -> None:
        """Compile the prompts as `TextTask` does. max_words: the maximum in prompts; nothing is cut."""
        self._max_words = max_words
        super().__init__(prompts=prompts, shown_reasoning_chars=shown_reasoning_chars)
        self.answer_format = self.prompts.render("answer_format", max_words=max_words)

    def shared_values(self) -> Mapping[str, Any]:
        return {**super().shared_values(), "max_words": self._max_words}

    def read(self, problem: Problem, text: str) -> str:
        """Return the whole text; a judge or a metric decides about its quality. Kind of error: `too_long`."""
        answer = text.strip()
        if len(answer) > MAX_CHARS:
            raise ValueError(f"too_long: expected a text of at most {MAX_CHARS} characters, got {len(answer)}")
        return answer

    def write(self, problem: Problem, answer: str, reasoning: str = "") -> str:
        return answer

    def render_candidate(self, problem: Problem, response: Response) -> str:
        # A writer's text must not end its section of a judge's prompt or begin the rival's.
        return escape_tags(super().render_candidate(problem, response))

    def truth_values(
        self, problem: Problem, response: Response, demonstration: Demonstration | None, grade: Grade | None
    ) -> Mapping[str, Any]:
        """Return the reference text, where there is one; no single word says how good a text is."""
        right = grade is not None and grade.correct is True
        return {"right": right, "right_answer": demonstration.answer if demonstration else "", "grade": ""}


@dataclass(kw_only=True)
class ProseConfig(SplitBenchmark):
    """The settings that all tasks in prose have."""

    sample: ClassVar[Path]
    """Folder of evorun's own small set, with a file for each split."""
    benchmark: ClassVar[str]
    """The benchmark's name."""
    sizes: ClassVar[Mapping[str, int]]
    """Records in the benchmark's own files, by split."""

    files: dict[str, list[str]]
    """Patterns of the files in the folder, by split."""
    hub: dict[str, list[str]]
    """Hub data sets by split: OWNER/NAME/PATTERN each."""
    train_problems: PositiveInt | None
    """Problems of the train split; null: all. The sample set has fixed numbers for both splits."""
    test_problems: PositiveInt | None
    max_words: PositiveInt
    """Maximum words of a text, as stated in prompts."""

    def __init_subclass__(cls) -> None:
        super().__init_subclass__()
        cls.sample_set = f"evorun's own sample set, not {cls.benchmark}"

    def __post_init__(self) -> None:
        super().__post_init__()
        for key, parts in (("files", self.files), ("hub", self.hub)):
            if set(parts) != set(SPLITS):
                raise ConfigError(f"task.{key}: expected train and test, got {', '.join(parts) or 'none'}")

    @property
    def prompt_settings(self) -> dict[str, Any]:
        """The settings of the task's prompts."""
        return {
            "max_words": self.max_words,
            "prompts": self.prompts,
            "shown_reasoning_chars": self.shown_reasoning_chars,
        }

    def problem_id(self, record: Record) -> str:
        """Return a record's id, or one made from its file's name and its number."""
        name = record.values.get("id") or record.values.get("bill_id") or f"{record.source}_{record.number:05d}"
        return str(name).replace("|", "/")  # '|' separates the parts of a journal's keys

    def part(self, name: str) -> Part:
        return Part(self.benchmark, self.files[name], self.hub[name], f"task.files.{name}", f"task.hub.{name}")

    def sample_sources(self, split: str) -> list[Source]:
        return [Source(split, [self.sample / f"{split}.jsonl"])]

    def download_sources(self, place: str) -> list[Source]:
        return [Source(path.stem, [path]) for path in download_records(place)]

    def size(self, split: str) -> tuple[str, int | None]:
        return f"task.{split}_problems", self.train_problems if split == "train" else self.test_problems

    def describe(self, data: SplitData, selected: Sequence[Question]) -> Provenance:
        is_complete = data.records == self.sizes[data.split]
        description = f"{len(selected)} problems of the {data.split} split of {self.benchmark}"
        description += "" if is_complete else f", of which {data.records} records of {self.sizes[data.split]} are there"
        left_out = data.records - len(data.questions)
        place = ("hub" if self.source == "hub" else data.place) + (f", {left_out} left out" if left_out else "")
        digest = hash_content([question.row for question in selected])
        return self.provenance("benchmark" if is_complete else "stand_in", f"{description} ({place})", digest)
