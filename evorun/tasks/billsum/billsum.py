"""Summaries of bills of the US Congress and of California, compared with experts' by ROUGE: BillSum (MPO, 3.3.1)."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from itertools import groupby
from pathlib import Path
from typing import Any, ClassVar

import numpy as np

from evorun.errors import ConfigError, DataError
from evorun.models.chat import load_tokenizer, prompt_token_ids
from evorun.models.config import ModelConfig
from evorun.models.simulator import Filler
from evorun.runs.candidates import Response
from evorun.runs.scores import Score
from evorun.tasks.base import Grade, Grader, Problem, Provenance
from evorun.tasks.benchmark import Found, Question
from evorun.tasks.benchmark_files import Record
from evorun.tasks.billsum.rouge import MEASURES, RougeGrader
from evorun.tasks.excerpts import excerpt
from evorun.tasks.prose.prose import PROMPTS, Prose, ProseConfig
from evorun.tasks.search_qa.reading import f1
from evorun.tasks.simulator import TextSimulator

# Wrong answers of a problem: as many eighths of the reference
_EIGHTHS = range(1, 8)


class BillSum(Prose):
    """Answers the text of a bill with a summary."""

    name = "billsum"
    scores = tuple(Score(name, 0, 1) for name in MEASURES)
    free_text = True
    prompt_folders: ClassVar[Sequence[Path]] = (Path(__file__).parent / "prompts", PROMPTS)
    words: Mapping[str, str] = {
        "persona": "an experienced officer of a legislature's research service",
        "subject": "bill",
        "source": "Bill",
        "piece": "summary",
        "correction": "The reference summary is:",
        "criteria": (
            "A good summary says nothing that is not in the bill; names the bill and has all of its main provisions, "
            "with whom they bind, amounts, terms and conditions; leaves out what a reader can do without; and is plain "
            "and neutral. A title alone, a copy of the bill's own text, and opinions about the bill are no summary."
        ),
    }

    def score(self, problem: Problem, response: Response, gold: str | None) -> Grade:
        """Return 0 for a summary that could not be read; the others are measured by the grader."""
        if gold is None or response.answer is not None:
            return Grade()
        return Grade(scores=dict.fromkeys(MEASURES, 0.0), detail=response.error or "")

    def random_answer(self, problem: Problem, rng: np.random.Generator) -> str:
        """Return words of the bill, as many as a summary has, from some place in it."""
        words = self.question(problem).split()
        start = int(rng.integers(max(1, len(words) - self._max_words)))
        return " ".join(words[start : start + self._max_words])


class BillSumSimulator(TextSimulator):
    """Writes the reference, or a part of it; judges by the words that a summary has in common with it."""

    filler: ClassVar[Filler] = Filler(
        "Requires the agency to report on the matter within the year and to make the report known to the public."
    )
    malformed: ClassVar[Sequence[str]] = ("", "<think>The bill begins with its findings.")

    def value(self, problem: Problem, answer: str | None) -> float:
        """Return the overlap of words with the reference: ROUGE would take a thirtieth of a second."""
        _, reference = self._rows[problem.id]
        return f1(answer or "", reference or "")

    def wrong_answers(self, problem: Problem, gold: str) -> Sequence[str]:
        words = gold.split()
        return [" ".join(words[: max(1, len(words) * eighths // 8)]) for eighths in _EIGHTHS]


@dataclass(kw_only=True)
class BillSumConfig(ProseConfig):
    """Bills of the US Congress, and of California in the test split, with summaries by experts (MPO, appendix K.1)."""

    task_class = BillSum
    simulator = BillSumSimulator
    folder = "billsum"
    sample = Path(__file__).parent / "sample"
    benchmark = "BillSum"
    sample_set = f"evorun's own sample set, not {benchmark}"
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
        self.check_at_least(1, "bill_chars", "max_prompt_tokens")
        if self.max_prompt_tokens is not None and self.prompt_tokenizer is None:
            raise ConfigError(
                "task.prompt_tokenizer: expected a model with task.max_prompt_tokens, got null; set "
                "task.prompt_tokenizer=OWNER/NAME or a folder"
            )

    def make_task(self) -> BillSum:
        return BillSum(**self.shown)

    def make_grader(self, task: Any, answers: Mapping[str, Sequence[str]]) -> Grader:
        return RougeGrader(task, answers, stemmer=self.stemmer)

    def find(self, split: str) -> Found:
        found = super().find(split)
        most, name = self.max_prompt_tokens, self.prompt_tokenizer
        if most is None or name is None:
            return found
        task, model = self.make_task(), ModelConfig(name=name, id=name)
        tokenizer = load_tokenizer(model)

        def fits(problem: Problem) -> bool:
            return len(prompt_token_ids(tokenizer, task.generation_prompt(problem).messages, model)) <= most

        # Long bills are left out of the draw, as they are of the records (`Found.records`): the provenance counts them.
        questions = [question for question in found.questions if fits(question.problem)]
        if not questions:
            raise DataError(
                f"task.max_prompt_tokens: expected bills of the {split} split with prompts of up to {most} tokens, "
                "found none; raise it"
            )
        return found._replace(questions=questions)

    def read(self, record: Record, split: str) -> Question | None:
        """Read a bill; one without a summary can only be trained on."""
        summary = record.values.get("summary")
        if summary is not None and (not isinstance(summary, str) or not summary.strip()):
            raise DataError(f"{record.where}: summary: expected a non-empty string or none, got {summary!r:.60}")
        if summary is None and split == "test":
            return None
        whole = _paragraphs(record.text("text"))
        data = {"question": excerpt(whole, self.bill_chars), "cut": len(whole) > self.bill_chars}
        stratum = "california" if record.source.startswith("ca_") else "congress"
        problem = Problem(id=self.identity(record), stratum=stratum, data=data)
        return Question(problem=problem, answers=() if summary is None else (summary.strip(),), where=record.where)

    def describe(self, found: Found, selected: Sequence[Question]) -> Provenance:
        provenance = super().describe(found, selected)
        cut = sum(question.problem.data["cut"] for question in selected)
        description = f"{provenance.description}, {cut} of them cut to {self.bill_chars} characters"
        return replace(provenance, description=description) if cut else provenance


def _paragraphs(text: str) -> str:
    """Return a bill's text without the line breaks and indentation of print, which cost tokens and say little."""
    groups = groupby(text.splitlines(), key=lambda line: bool(line.strip()))
    return "\n\n".join(" ".join(" ".join(lines).split()) for written, lines in groups if written)
