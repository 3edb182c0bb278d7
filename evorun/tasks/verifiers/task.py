"""A taskset of verifiers as methods see it: its prompts as they are, and its rewards of a reply."""

import asyncio
import math
from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any, ClassVar, NamedTuple

from evorun.errors import EvorunError, first_line
from evorun.runs.candidates import Response
from evorun.runs.scores import ACCURACY, Score
from evorun.tasks.base import DrawHelp, Grade, GradingTools, Problem, Row, look_up
from evorun.tasks.outside import Ask, GivenPromptsTask, OpinionTask, ask_gold_judge
from evorun.tasks.replaying import run_apart

if TYPE_CHECKING:
    from evorun.tasks.verifiers.offline import Scorer

REWARD = "reward"
FORMS = (
    "{reasoning}\n\n{answer}",
    "{reasoning}\n\nANSWER: {answer}",
    "{reasoning}\n\n\\boxed{{answer}}",
    "{reasoning}\n\n<answer>{answer}</answer>",
    "{answer}",
)
"""Forms of replies that are tried until the rewards find the answer right in one (ours)."""


class Source(NamedTuple):
    """A taskset, read by its id."""

    name: str
    """Id, version and settings, which the journal's keys and the provenance name."""
    scorer: "Scorer"
    form: str
    """A reply, with {answer} and perhaps {reasoning}."""
    right_from: float
    """The least reward of a right reply."""


class VerifiersTask(GivenPromptsTask):
    """Poses the prompts of a taskset, and scores replies by its rewards."""

    name = "verifiers"
    reward_score = Score(REWARD)
    scores = (ACCURACY, reward_score)
    script = None
    prompt_folders: ClassVar[Sequence[Path]] = (Path(__file__).parent / "prompts",)
    draw_help = DrawHelp(
        more_validation="raise task.validation_problems",
        grade_held_out="lower task.validation_problems or task.train_problems to grade it",
        keys="task.id, task.arguments, task.first, task.validation_problems, task.train_problems, task.draw_seed and "
        "task.limit",
    )

    def __init__(self, source: Source, *, prompts: str | None = None, shown_reasoning_chars: int | None = None) -> None:
        super().__init__(prompts=prompts, shown_reasoning_chars=shown_reasoning_chars)
        self.answer_format = self.prompts.render("answer_format")
        self._source, self.form = source, source.form

    # --- replies ---

    def read(self, problem: Problem, text: str) -> str:
        """Return what stands in the answer's place in the form of a reply, or the whole reply where it has none."""
        before, _, after = self.form.partition("{answer}")
        opening = before.rpartition("{reasoning}")[2].rpartition("\n")[2].strip()
        closing = after.partition("\n")[0].strip()
        _, found, rest = text.rpartition(opening) if opening else ("", "", text)
        if not found:
            return text.strip()
        answer = rest[: rest.rfind(closing)] if closing in rest else rest
        return (answer if closing else answer.strip().partition("\n")[0]).strip() or text.strip()

    def score(self, problem: Problem, response: Response, reference: Any) -> Grade:
        """Grade a reply by the taskset's rewards. reference: the task's data."""
        return run_apart(self.reward(response, reference))

    async def reward(self, response: Response, reference: Any, ask: Ask | None = None) -> Grade:
        """Grade a reply; `ask` answers judges. Rewards that fail at it find it wrong, with the reason in the grade.

        A judge without a verdict leaves it without a score, as in verifiers.
        """
        from evorun.tasks.verifiers.offline import JudgeFailed

        try:
            scored = await self._source.scorer.score(reference, response.text, ask)
        except EvorunError:
            raise
        except JudgeFailed as error:
            return Grade(detail=f"unscored: {error}"[:200])
        except Exception as error:  # of the taskset's own code, at a model's words
            return Grade(correct=False, scores={REWARD: 0.0}, detail=f"reward_error: {first_line(error)}")
        if not math.isfinite(scored.reward):
            return Grade(detail=f"unscored: the reward is {scored.reward}")
        parts = ", ".join(f"{name} {value:.4g}" for name, value in scored.parts.items())
        return Grade(correct=scored.reward >= self._source.right_from, scores={REWARD: scored.reward}, detail=parts)


class JudgedVerifiersTask(OpinionTask, VerifiersTask):
    """A taskset with rewards that ask a model: the gold judge."""


class VerifiersGrader:
    """Holds the tasks' data; rewards, or the replies of judges, are recorded in the journal."""

    def __init__(self, source: Source, task: VerifiersTask, rows: Sequence[Row]) -> None:
        self._source = source
        self._task = task
        self._references = {row.problem.id: row.reference for row in rows}

    async def grade(self, problem: Problem, response: Response, tools: GradingTools) -> Grade:
        """Grade one response. Raises DataError for an unknown problem."""
        reference = look_up(self._references, problem)
        judge = ask_gold_judge(tools, problem, response) if self._task.graded_by_opinion else None

        async def work() -> Grade:
            # In an asyncio task of its own, since a context variable tells who answers judges.
            return await asyncio.create_task(self._task.reward(response, reference, judge))

        if self._task.graded_by_opinion:  # the journal has the judges' words
            return await work()
        return await tools.remember(["verifiers", self._source.name, problem.id, response.text], work, Grade)
