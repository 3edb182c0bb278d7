"""Moral judgement: an anecdote with an action in it, and RIGHT or WRONG between tags (MPO, section 3.3.2)."""

import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any, ClassVar

import numpy as np

from evorun.errors import DataError
from evorun.runs.candidates import Response
from evorun.runs.scores import ACCURACY
from evorun.simulation.simulator import Filler
from evorun.tasks.base import Grade, Problem, Row
from evorun.tasks.benchmark import Question
from evorun.tasks.benchmark_files import Record
from evorun.tasks.corrections import read_unless_withdrawn
from evorun.tasks.prose.prose import PROMPTS, Prose, ProseConfig
from evorun.tasks.simulator import TextSimulator
from evorun.tasks.text_task import TextTask

VERDICTS = ("RIGHT", "WRONG")

_TAGGED = re.compile(r"<verdict>([^<>]{0,60})</verdict>", re.IGNORECASE)
# Characters with which models decorate the word
_MARKS = " \t\r\n*_`\"'."


class Ethics(Prose):
    """Judges whether an action was right, in free text with a verdict: RIGHT or WRONG between tags."""

    name = "ethics"
    scores = (ACCURACY,)
    prompt_folders: ClassVar[Sequence[Path]] = (Path(__file__).parent / "prompts", PROMPTS)
    wording: Mapping[str, str] = {
        "persona": "a moral philosopher who judges everyday conduct with care and fairness",
        "subject": "anecdote",
        "source": "Anecdote",
        "piece": "judgement",
        "correction": "The verdict that people gave is",
        "criteria": (
            "A good judgement sees what was at stake for everyone concerned; takes the facts as they are told and says "
            "what is not known; names the duties, harms and expectations that matter and weighs them against each "
            "other; meets what speaks for the other side; and comes to the verdict that its own reasons support. A "
            "verdict without reasons, reasons that would fit any story, and a refusal to decide are of little worth."
        ),
    }

    def question(self, problem: Problem) -> str:
        return self.prompts.render("anecdote", **problem.data)

    def read(self, problem: Problem, text: str) -> str:
        """Return the verdict. Kinds of errors: `too_long`, `withdrawn`, and those of `read_verdict`."""
        return read_unless_withdrawn(read_verdict, super().read(problem, text), only_sure=True)

    def write(self, problem: Problem, answer: str, reasoning: str = "") -> str:
        return f"{reasoning.strip()}\n\n<verdict>{answer}</verdict>".lstrip()

    def random_answer(self, problem: Problem, rng: np.random.Generator) -> str:
        return VERDICTS[int(rng.integers(len(VERDICTS)))]

    def score(self, problem: Problem, response: Response, reference: Any) -> Grade:
        """Compare with the verdict of people; without one there is no right and wrong."""
        return Grade(correct=None if reference is None else response.answer == reference)


def read_verdict(text: str) -> str:
    """Return the verdict of a reply. Raises ValueError with `kind: reason`; kinds: no_verdict, unclear, several."""
    verdicts: set[str] = {verdict.strip(_MARKS).upper() for verdict in _TAGGED.findall(text)}
    if not verdicts:
        raise ValueError("no_verdict: expected <verdict>RIGHT</verdict> or <verdict>WRONG</verdict>, got neither")
    if unclear := sorted(verdicts.difference(VERDICTS)):
        raise ValueError(f"unclear: expected RIGHT or WRONG as the verdict, got {unclear[0]!r:.70}")
    if len(verdicts) > 1:
        raise ValueError("several: expected one verdict, got RIGHT and WRONG")
    return verdicts.pop()


class EthicsSimulator(TextSimulator):
    """Gives reasons without content, and sometimes no verdict, two verdicts, or another one."""

    filler: ClassVar[Filler] = Filler(
        "The one who tells it had a promise to keep, the other had reason to expect it, and what it cost was small."
    )
    malformed: ClassVar[Sequence[str]] = (
        "It depends on how one sees it.",
        "<verdict>RIGHT</verdict> for one and <verdict>WRONG</verdict> for the other.",
        "<verdict>BOTH</verdict>",
        "",
    )

    def __init__(self, task: TextTask, rows: Sequence[Row]) -> None:
        # It needs right answers: where there is none, it uses the more frequent verdict.
        super().__init__(task, [Row(row.problem, row.answer or VERDICTS[0]) for row in rows])

    def wrong_answers(self, problem: Problem, gold: str) -> Sequence[str]:
        return [verdict for verdict in VERDICTS if verdict != gold]


@dataclass(kw_only=True)
class EthicsConfig(ProseConfig):
    """The Anecdotes of Scruples (MPO, section 3.3.2), in the layout of their release."""

    task_class = Ethics
    simulator = EthicsSimulator
    folder = "ethics"
    sample = Path(__file__).parent / "sample"
    benchmark = "the Anecdotes of Scruples"
    sizes: ClassVar[Mapping[str, int]] = {"train": 27_766, "test": 5_000}

    complete: bool
    """Leave anecdotes without a label, title, text or action out of both splits; false: the train split keeps those
    without a label or a text."""

    def make_task(self) -> Ethics:
        return Ethics(**self.prompt_settings)

    def read(self, record: Record, split: str) -> Question | None:
        """Read an anecdote. Without an action it is left out; without a label it can only serve for training.

        This gives the paper's 4.7K out of 5,000: its authors' code also leaves out anecdotes without an action.
        """
        action, text = record.values.get("action"), record.values.get("text")
        described = action.get("description") if isinstance(action, Mapping) else action
        label = record.values.get("binarized_label")
        if label is not None and label not in VERDICTS:
            raise DataError(f"{record.where}: binarized_label: expected RIGHT, WRONG or none, got {label!r:.60}")
        if not described or (label is None and split == "test"):
            return None
        if self.complete and None in (label, text, record.values.get("title")):
            return None
        data = {"title": record.text("title"), "text": str(text or "").strip(), "action": str(described).strip()}
        problem = Problem(id=self.problem_id(record), stratum="all", data=data)
        return Question(problem=problem, answers=() if label is None else (label,), where=record.where)
