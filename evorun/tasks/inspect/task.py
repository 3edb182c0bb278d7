"""An inspect_ai task as methods see it: the prompt that its solver writes, and the answer that its scorer reads."""

import asyncio
from collections.abc import Coroutine, Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any, ClassVar, NamedTuple, TypeVar

from evorun.errors import EvorunError, first_line
from evorun.models.base import Message
from evorun.runs.candidates import Response
from evorun.runs.scores import ACCURACY, Score
from evorun.tasks import replaying
from evorun.tasks.base import DrawHelp, Grade, GradingTools, Problem, Prompt, look_up
from evorun.tasks.outside import GivenPromptsTask, OpinionTask, Unsupported, ask_gold_judge

if TYPE_CHECKING:
    from evorun.tasks.inspect.replay import Replay

T = TypeVar("T")

FORMS = ("{reasoning}\n\nANSWER: {answer}", "{reasoning}\n\n{answer}", "{reasoning}\n\n\\boxed{{answer}}", "{answer}")
"""Forms of replies that are tried until the scorer finds the target right in one (ours)."""
VERDICTS = [f"It was compared with the criterion.\nGRADE: {letter}" for letter in "CI"]
"""Replies of a simulated judge to a right and to a wrong reply, in the form that inspect_ai's own scorers ask for."""


class Source(NamedTuple):
    """An inspect_ai task, read from its function."""

    name: str
    """Function and arguments, which the journal's keys and the provenance name."""
    replay: "Replay"
    samples: Mapping[str, Any]
    """By problem id, without their targets."""
    decoys: Sequence[Sequence[str]]
    """Two targets, the same for all problems, under which the answer of a reply is read."""
    form: str
    """A reply, with {answer} and perhaps {reasoning}."""
    right_from: float
    """The least value of a right reply."""


class InspectTask(GivenPromptsTask):
    """Poses the prompts of an inspect_ai task of one model call, and scores replies by its solver and scorer."""

    name = "inspect"
    reward_score = Score("score")
    scores = (ACCURACY, reward_score)
    script = None
    prompt_folders: ClassVar[Sequence[Path]] = (Path(__file__).parent / "prompts",)
    draw_help = DrawHelp(
        more_validation="raise task.validation_problems",
        grade_held_out="lower task.validation_problems or task.train_problems to grade it",
        keys="task.function, task.arguments, task.validation_problems, task.train_problems, task.draw_seed and "
        "task.limit",
    )

    def __init__(self, source: Source, *, prompts: str | None = None, shown_reasoning_chars: int | None = None) -> None:
        super().__init__(prompts=prompts, shown_reasoning_chars=shown_reasoning_chars)
        self.answer_format = self.prompts.render("answer_format")
        self._source, self.form = source, source.form

    # --- replies ---

    def read(self, problem: Problem, text: str) -> str:
        """Return the answer that the scorer reads, or the whole reply where it reads none without the target.

        Raises ValueError (`no_answer`) where the scorer finds that the reply gives none.
        """
        # Two other targets: an answer that depends on the target would tell which reply is right.
        answers = {self._read_answer(problem, text, decoy) for decoy in self._source.decoys}
        answer = answers.pop() if len(answers) == 1 else None
        if answer is not None and not answer.strip():
            raise ValueError("no_answer: the scorer finds no answer in the reply")
        return text.strip() if answer is None else answer.strip()

    def _read_answer(self, problem: Problem, text: str, target: Sequence[str]) -> str | None:
        try:
            score = run_apart(self._source.replay.score(self._sample(problem), target, text, refuse_model))
        except EvorunError:
            raise
        except Exception:  # the scorer cannot compare the reply with a foreign target
            return None
        return None if score is None else score.answer

    def wrong_answers(self, problem: Problem, gold: str) -> Sequence[str]:
        """Return the other options of a multiple-choice sample."""
        options = self._sample(problem).choices or ()
        letters = [chr(ord("A") + index) for index in range(len(options))]
        return [letter for letter in letters if letter != gold] if gold in letters else ()

    def score(self, problem: Problem, response: Response, reference: Any) -> Grade:
        """Grade a reply by solver and scorer. reference: the sample's targets."""
        return run_apart(self.replay(problem, response, reference, refuse_model))

    async def replay(self, problem: Problem, response: Response, reference: Sequence[str], ask: Any) -> Grade:
        """Grade a reply; `ask` answers what the scorer asks of a model. A scorer that fails at it finds it wrong."""
        source = self._source
        try:
            score = await source.replay.score(self._sample(problem), reference, response.text, ask)
            value = source.replay.read_value(score)
        except EvorunError:
            raise
        except Exception as error:  # of the task's own code, at a model's words
            return Grade(correct=False, scores={"score": 0.0}, detail=f"scorer_error: {first_line(error)}")
        if value is None:
            reason = "" if score is None else score.reason or score.explanation or ""
            return Grade(detail=f"unscored: {reason}"[:200])
        return Grade(correct=value >= source.right_from, scores={"score": value}, detail=response.error or "")

    def _sample(self, problem: Problem) -> Any:
        return look_up(self._source.samples, problem)


class ModelGradedTask(OpinionTask, InspectTask):
    """An inspect_ai task whose scorer asks a model: the gold judge."""


class InspectGrader:
    """Holds the targets; scores are recorded in the journal."""

    def __init__(self, source: Source, task: InspectTask, targets: Mapping[str, Sequence[str]]) -> None:
        self._source = source
        self._task = task
        self._targets = targets

    async def grade(self, problem: Problem, response: Response, tools: GradingTools) -> Grade:
        """Grade one response. Raises DataError for an unknown problem."""
        target, judge = look_up(self._targets, problem), ask_gold_judge(tools, problem, response)

        async def ask(messages: tuple[Message, ...]) -> str | None:
            if not self._task.graded_by_opinion:
                return await refuse_model(messages)
            return await judge(Prompt(messages=messages, hints={"verdicts": VERDICTS}))

        async def work() -> Grade:
            # In an asyncio task of its own, since inspect_ai keeps its state in context variables.
            return await asyncio.create_task(_with_model(self._task.replay(problem, response, target, ask)))

        if self._task.graded_by_opinion:  # the journal has the judge's words
            return await work()
        return await tools.remember(["inspect", self._source.name, problem.id, response.text], work, Grade)


async def refuse_model(messages: tuple[Message, ...]) -> str | None:
    """Raise Unsupported: the scorer asks a model, and the task was not said to be graded by one."""
    raise Unsupported(
        "expected a scorer that asks no model, got one that does; set task.model_graded=true, and gold=MODEL for its "
        "judge"
    )


def run_apart(work: Coroutine[Any, Any, T]) -> T:
    """Run a replay to its end, whether or not this thread has a running event loop."""
    return replaying.run_apart(_with_model(work))


async def _with_model(work: Coroutine[Any, Any, T]) -> T:
    from evorun.tasks.inspect.replay import activate_model

    activate_model()
    return await work
