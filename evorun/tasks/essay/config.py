"""Configuration of the task: which writing instructions, from where."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import ClassVar

from evorun.tasks.base import LoadedTask, Problem, Provenance
from evorun.tasks.essay.simulator import EssaySimulator
from evorun.tasks.essay.task import Essay
from evorun.tasks.loading import Row, load_rows
from evorun.tasks.opinions import OpinionGrader
from evorun.tasks.prose.config import ProseConfig, Record


@dataclass(kw_only=True)
class EssayConfig(ProseConfig):
    """Writing instructions of English examinations, a persuasion corpus and Change My View (MPO, section 3.2)."""

    task_class = Essay
    sample = Path(__file__).parent / "sample"
    benchmark = "the collection of writing instructions"
    sizes: ClassVar[Mapping[str, int]] = {"train": 26_013, "test": 4_096}

    def row(self, record: Record) -> Row:
        kind = str(record.values.get("kind") or "all")
        return Problem(id=record.identity, stratum=kind, data={"question": record.text("prompt")}), None

    def loaded(self, rows: Sequence[Row], validation: Sequence[Row], provenance: Provenance) -> LoadedTask:
        task = Essay(max_words=self.max_words, prompts=self.prompts, shown_reasoning_chars=self.shown_reasoning_chars)
        return load_rows(
            task,
            rows,
            validation=validation,
            provenance=provenance,
            grader=OpinionGrader(task),
            simulator=EssaySimulator,
        )
