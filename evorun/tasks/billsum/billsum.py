"""Summaries of bills of the US Congress and of California, compared with experts' by ROUGE: BillSum (MPO, 3.3.1)."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from itertools import groupby
from pathlib import Path
from typing import Any, ClassVar

import numpy as np

from evorun.errors import ConfigError, DataError
from evorun.fields import PositiveInt
from evorun.models.chat import load_tokenizer, prompt_token_ids
from evorun.models.config import ModelConfig
from evorun.runs.candidates import Response
from evorun.runs.scores import Score
from evorun.simulation.simulator import Filler
from evorun.tasks.base import Grade, Grader, Problem, Provenance
from evorun.tasks.benchmark import Question
from evorun.tasks.benchmark_files import Record
from evorun.tasks.billsum.rouge import MEASURES, RougeGrader
from evorun.tasks.excerpts import excerpt
from evorun.tasks.prose.prose import PROMPTS, Prose, ProseConfig
from evorun.tasks.short_answers import f1
from evorun.tasks.simulator import TextSimulator
from evorun.tasks.split_benchmark import SplitData

# A problem's wrong answers are this many eighths of its reference
_EIGHTHS = range(1, 8)


class BillSum(Prose):
    """Answers the text of a bill with a summary."""

    name = "billsum"
    scores = tuple(Score(name, 0, 1) for name in MEASURES)
    free_text = True
    prompt_folders: ClassVar[Sequence[Path]] = (Path(__file__).parent / "prompts", PROMPTS)
    wording: Mapping[str, str] = {
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

    def score(self, problem: Problem, response: Response, reference: Any) -> Grade:
        """Return 0 for an unparsed summary; the grader measures the others."""
        if reference is None or response.answer is not None:
            return Grade()
        return Grade(scores=dict.fromkeys(MEASURES, 0.0), detail=response.error or "")

    def random_answer(self, problem: Problem, rng: np.random.Generator) -> str:
        """Return consecutive words of the bill from a random position, as many as a summary has."""
        words = self.question(problem).split()
        start = int(rng.integers(max(1, len(words) - self._max_words)))
        return " ".join(words[start : start + self._max_words])


class BillSumSimulator(TextSimulator):
    """Writes the reference or a part of it; judges by the words that a summary shares with it."""

    filler: ClassVar[Filler] = Filler(
        "Requires the agency to report on the matter within the year and to make the report known to the public."
    )
    malformed: ClassVar[Sequence[str]] = ("", "<think>The bill begins with its findings.")

    def value(self, problem: Problem, answer: str | None) -> float:
        """Return the overlap of words with the reference; ROUGE would take a thirtieth of a second."""
        reference = self._rows[problem.id].answer
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
    sizes: ClassVar[Mapping[str, int]] = {"train": 18_949, "test": 3_269 + 1_237}

    bill_chars: PositiveInt
    """Maximum characters of a bill in prompts, which show its beginning and end and mark the omission."""
    stemmer: bool
    """Let ROUGE compare words without their suffixes."""

    max_prompt_tokens: PositiveInt | None
    """Maximum tokens of a bill's prompt, counted by `prompt_tokenizer`; longer bills are left out of both splits; null:
    no limit."""
    prompt_tokenizer: str | None
    """Model whose tokenizer and chat template count a prompt's tokens: a hub id or a folder."""

    def __post_init__(self) -> None:
        super().__post_init__()
        if self.max_prompt_tokens is not None and self.prompt_tokenizer is None:
            raise ConfigError(
                "task.prompt_tokenizer: expected a model with task.max_prompt_tokens, got null; set "
                "task.prompt_tokenizer=OWNER/NAME or a folder"
            )

    def make_task(self) -> BillSum:
        return BillSum(**self.prompt_settings)

    def make_grader(self, task: Any, answers: Mapping[str, Sequence[str]]) -> Grader:
        return RougeGrader(task, answers, stemmer=self.stemmer)

    def find(self, split: str) -> SplitData:
        data = super().find(split)
        max_tokens, name = self.max_prompt_tokens, self.prompt_tokenizer
        if max_tokens is None or name is None:
            return data
        task, model = self.make_task(), ModelConfig(name=name, id=name)
        tokenizer = load_tokenizer(model)

        def fits(problem: Problem) -> bool:
            return len(prompt_token_ids(tokenizer, task.generation_prompt(problem).messages, model)) <= max_tokens

        # The provenance counts the bills that are too long, through `SplitData.records`.
        questions = [question for question in data.questions if fits(question.problem)]
        if not questions:
            raise DataError(
                f"task.max_prompt_tokens: expected bills of the {split} split with prompts of up to {max_tokens} "
                "tokens, found none; raise it"
            )
        return data._replace(questions=questions)

    def read(self, record: Record, split: str) -> Question | None:
        """Read a bill; without a summary it can only serve for training."""
        summary = record.values.get("summary")
        if summary is not None and (not isinstance(summary, str) or not summary.strip()):
            raise DataError(f"{record.where}: summary: expected a non-empty string or none, got {summary!r:.60}")
        if summary is None and split == "test":
            return None
        full_text = _join_lines(record.text("text"))
        data = {"question": excerpt(full_text, self.bill_chars), "cut": len(full_text) > self.bill_chars}
        stratum = "california" if record.source.startswith("ca_") else "congress"
        problem = Problem(id=self.problem_id(record), stratum=stratum, data=data)
        return Question(problem=problem, answers=() if summary is None else (summary.strip(),), where=record.where)

    def describe(self, data: SplitData, selected: Sequence[Question]) -> Provenance:
        provenance = super().describe(data, selected)
        cut = sum(question.problem.data["cut"] for question in selected)
        description = f"{provenance.description}, {cut} of them cut to {self.bill_chars} characters"
        return replace(provenance, description=description) if cut else provenance


def _join_lines(text: str) -> str:
    """Return a bill's paragraphs without the line breaks and indentation of the printed page, which waste tokens."""
    groups = groupby(text.splitlines(), key=lambda line: bool(line.strip()))
    return "\n\n".join(" ".join(" ".join(lines).split()) for has_text, lines in groups if has_text)
