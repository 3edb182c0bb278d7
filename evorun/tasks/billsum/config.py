"""Configuration of the task: which bills, how much of their text, and how summaries are measured."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from itertools import groupby
from pathlib import Path
from typing import ClassVar

from evorun.errors import ConfigError, DataError, at_least
from evorun.models.chat import load_tokenizer, prompt_token_ids
from evorun.models.config import ModelConfig
from evorun.tasks.base import LoadedTask, Problem, Provenance
from evorun.tasks.billsum.grader import RougeGrader
from evorun.tasks.billsum.simulator import BillSumSimulator
from evorun.tasks.billsum.task import BillSum
from evorun.tasks.excerpts import excerpt
from evorun.tasks.loading import Row, load_rows
from evorun.tasks.prose.config import Found, ProseConfig, Record


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

    max_prompt_tokens: int | None
    """Leave bills out of both splits whose prompt is longer (`prompt_tokenizer` counts); null: none."""
    prompt_tokenizer: str | None
    """Model whose tokenizer and chat template count a prompt's tokens: its id on the hub, or a folder."""

    def __post_init__(self) -> None:
        super().__post_init__()
        for key in ("bill_chars", "max_prompt_tokens"):
            at_least(f"task.{key}", getattr(self, key), 1)
        if self.max_prompt_tokens is not None and self.prompt_tokenizer is None:
            raise ConfigError(
                "task.prompt_tokenizer: expected a model with task.max_prompt_tokens, got null; set "
                "task.prompt_tokenizer=OWNER/NAME or a folder"
            )

    def _found(self, split: str) -> Found:
        found = super()._found(split)
        most, name = self.max_prompt_tokens, self.prompt_tokenizer
        if most is None or name is None:
            return found
        task, model = self._task(), ModelConfig(name=name, id=name)
        tokenizer = load_tokenizer(model)

        def fits(row: Row) -> bool:
            return len(prompt_token_ids(tokenizer, task.generation_prompt(row[0]).messages, model)) <= most

        # Long bills are left out of the draw, as they are of the records (`Found.records`): the provenance counts them.
        rows = [row for row in found.rows if fits(row)]
        if not rows:
            raise DataError(
                f"task.max_prompt_tokens: expected bills of the {split} split with prompts of up to {most} tokens, "
                "found none; raise it"
            )
        return found._replace(rows=rows)

    def _task(self) -> BillSum:
        return BillSum(max_words=self.max_words, prompts=self.prompts, shown_reasoning_chars=self.shown_reasoning_chars)

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
        task = self._task()
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
