"""Configuration of the task: which anecdotes, from where."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import ClassVar

from evorun.errors import DataError
from evorun.tasks.base import LoadedTask, Problem, Provenance
from evorun.tasks.ethics.reading import VERDICTS
from evorun.tasks.ethics.simulator import EthicsSimulator
from evorun.tasks.ethics.task import Ethics
from evorun.tasks.loading import Row, load_rows
from evorun.tasks.prose.config import ProseConfig, Record
from evorun.tasks.text_task import TextTask


@dataclass(kw_only=True)
class EthicsConfig(ProseConfig):
    """The Anecdotes of Scruples (MPO, section 3.3.2), in the layout of their release."""

    task_class = Ethics
    sample = Path(__file__).parent / "sample"
    benchmark = "the Anecdotes of Scruples"
    sizes: ClassVar[Mapping[str, int]] = {"train": 27_766, "test": 5_000}

    complete: bool
    """Leave out of both splits what lacks a label, a title, a text or an action; false: the train split keeps anecdotes
    without a label or a text."""

    def row(self, record: Record) -> Row | None:
        """Read an anecdote. One without an action to judge is left out; one that nobody judged can only be trained on.

        So are the paper's 4.7K to be had out of 5,000: its authors' code leaves those out that have no action.
        """
        action, text = record.values.get("action"), record.values.get("text")
        described = action.get("description") if isinstance(action, Mapping) else action
        label = record.values.get("binarized_label")
        if label is not None and label not in VERDICTS:
            raise DataError(f"{record.where}: binarized_label: expected RIGHT, WRONG or none, got {label!r:.60}")
        if not described or (label is None and record.split == "test"):
            return None
        if self.complete and None in (label, text, record.values.get("title")):
            return None
        data = {"title": record.text("title"), "text": str(text or "").strip(), "action": str(described).strip()}
        return Problem(id=record.identity, stratum="all", data=data), label

    def loaded(self, rows: Sequence[Row], validation: Sequence[Row], provenance: Provenance) -> LoadedTask:
        task = Ethics(max_words=self.max_words, prompts=self.prompts, shown_reasoning_chars=self.shown_reasoning_chars)
        return load_rows(task, rows, validation=validation, provenance=provenance, simulator=_simulator)


def _simulator(task: TextTask, rows: Sequence[Row]) -> EthicsSimulator:
    # A simulated model goes by right answers: where there is none, it takes the more frequent one for it.
    return EthicsSimulator(task, [(problem, gold or VERDICTS[0]) for problem, gold in rows])
