"""Configuration of the task: which bills, how much of their text, and how summaries are measured."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from itertools import groupby
from pathlib import Path
from typing import ClassVar

from evorun.errors import DataError, at_least
from evorun.tasks.base import LoadedTask, Problem, Provenance
from evorun.tasks.billsum.grader import RougeGrader
from evorun.tasks.billsum.simulator import BillSumSimulator
from evorun.tasks.billsum.task import BillSum
from evorun.tasks.excerpts import excerpt
from evorun.tasks.loading import Row, load_rows
from evorun.tasks.prose.config import ProseConfig, Record


@dataclass(kw_only=True)
class BillSumConfig(ProseConfig):
    """Bills of the US Congress, and of California in the test split, with summaries by experts (MPO, appendix K.1)."""

    task_class = BillSum
    sample = Path(__file__).parent / "sample"
    benchmark = "BillSum"
    sizes: ClassVar[Mapping[str, int]] = {"train": 18_949, "test": 3_269 + 1_237}

    bill_chars: int
    """As much of a bill's text as prompts show, its beginning and its end; they say where something is left out."""
    stemmer: bool
    """ROUGE compares words without their suffixes."""

    def __post_init__(self) -> None:
        super().__post_init__()
        at_least("task.bill_chars", self.bill_chars, 1)

    def row(self, record: Record) -> Row | None:
        """Read a bill; one without a summary can only be trained on."""
        summary = record.values.get("summary")
        if summary is not None and (not isinstance(summary, str) or not summary.strip()):
            raise DataError(f"{record.where}: summary: expected a non-empty string or none, got {summary!r:.60}")
        if summary is None and record.split == "test":
            return None
        whole = _paragraphs(record.text("text"))
        data = {"question": excerpt(whole, self.bill_chars), "cut": len(whole) > self.bill_chars}
        stratum = "california" if record.file.startswith("ca_") else "congress"
        problem = Problem(id=record.identity, stratum=stratum, data=data)
        return problem, None if summary is None else summary.strip()

    def loaded(self, rows: Sequence[Row], validation: Sequence[Row], provenance: Provenance) -> LoadedTask:
        task = BillSum(max_words=self.max_words, prompts=self.prompts, shown_reasoning_chars=self.shown_reasoning_chars)
        references = {problem.id: reference for problem, reference in (*rows, *validation)}
        cut = sum(problem.data["cut"] for problem, _ in rows)
        description = f"{provenance.description}, {cut} of them cut to {self.bill_chars} characters"
        return load_rows(
            task,
            rows,
            validation=validation,
            provenance=replace(provenance, description=description) if cut else provenance,
            grader=RougeGrader(task, references, stemmer=self.stemmer),
            simulator=BillSumSimulator,
        )


def _paragraphs(text: str) -> str:
    """Return a bill's text without the line breaks and indentation of print, which cost tokens and say little."""
    groups = groupby(text.splitlines(), key=lambda line: bool(line.strip()))
    return "\n\n".join(" ".join(" ".join(lines).split()) for written, lines in groups if written)
