"""The common part of tasks from outside whose prompts are posed as they are and whose replies their own code grades."""

from collections.abc import Awaitable, Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, NamedTuple

import numpy as np
from msgspec.structs import replace

from evorun.errors import ConfigError, DataError
from evorun.fields import NonNegativeInt, PositiveInt
from evorun.models.base import Message, Request
from evorun.runs.candidates import Response
from evorun.runs.streams import stream
from evorun.tasks.base import Grade, GradingTools, Problem, Prompt, Row, TaskConfig
from evorun.tasks.simulator import TextSimulator
from evorun.tasks.text_task import TextTask

Ask = Callable[[Prompt], Awaitable[str | None]]
"""Answers a grader's request of a model; None: refused."""
GRADER_ROLE = "outside_grade"
"""Role, in hints, of a request that the code of a task from outside makes to grade a reply."""


class Unsupported(ConfigError):
    """A task from outside needs more than one reply to be posed or scored."""


class Split(NamedTuple):
    """Problems of a run, of demonstrations, and to train on; none is in two of them."""

    problems: list[Problem]
    validation: list[Problem]
    training: list[Problem]


@dataclass(kw_only=True)
class OutsideConfig(TaskConfig):
    """Base schema of tasks whose problems come in one list, without a split of their own."""

    train_problems: NonNegativeInt
    """Number of problems to train on."""
    validation_problems: NonNegativeInt
    """Number of problems for demonstrations and for the choice of prompts."""
    limit: PositiveInt | None
    """Work on this many problems only: the first ones in the drawn order."""
    prompts: str | None
    """Folder of your own prompt files; each replaces the built-in one of its name (null: the built-in ones)."""
    shown_reasoning_chars: PositiveInt | None
    """Maximum characters of a candidate's text in later prompts; null: no limit."""

    def split(self, problems: Sequence[Problem], source: str) -> Split:
        """Draw the order of the problems and divide them. Raises DataError where `source` has too few."""
        order = stream(self.draw_seed, "draw", self.name).permutation(len(problems))
        drawn = [problems[index] for index in order]
        held_out = self.train_problems + self.validation_problems
        if held_out >= len(drawn):
            raise DataError(
                f"task={self.name}: expected more than task.train_problems + task.validation_problems = {held_out} "
                f"different problems, {source} has {len(drawn)}"
            )
        validation, training = drawn[: self.validation_problems], drawn[self.validation_problems : held_out]
        return Split(drawn[held_out:][: self.limit], validation, training)


@dataclass(kw_only=True)
class GivenPromptsConfig(OutsideConfig):
    """Base schema of tasks whose prompts are given, and whose form of a reply has to be found."""

    reply: str | None
    """Form of a reply, with {answer} and perhaps {reasoning}, for demonstrations and simulated replies; null: the first
    common one in which answers are found right."""

    def __post_init__(self) -> None:
        super().__post_init__()
        if self.reply is not None and "{answer}" not in self.reply:
            raise ConfigError(f"task.reply: expected a text with {{answer}}, got {self.reply!r:.60}")


class GivenPromptsTask(TextTask):
    """Poses prompts as they are, in `messages` of a problem's data; replies have a form."""

    form: str
    """A reply, with {answer} and perhaps {reasoning}."""

    def generation_prompt(self, problem: Problem) -> Prompt:
        """Return the very messages that the problem gives."""
        messages = tuple(Message(role=role, content=content) for role, content in problem.data["messages"])
        return Prompt(messages=messages, hints={"role": "generate", "problem": problem.id, "answers": []})

    def write(self, problem: Problem, answer: str, reasoning: str = "") -> str:
        return self.form.replace("{reasoning}", reasoning.strip()).replace("{answer}", answer).strip()


class OpinionTask(GivenPromptsTask):
    """A task whose code asks a model, the gold judge, to grade replies."""

    graded_by_opinion = True
    free_text = True

    def read(self, problem: Problem, text: str) -> str:
        return text.strip()

    def score(self, problem: Problem, response: Response, reference: Any) -> Grade:
        """Return no score: only the grader may ask the gold judge."""
        return Grade()


def ask_gold_judge(tools: GradingTools, problem: Problem, response: Response) -> Ask:
    """Return what asks the gold judge for the code that grades a response; a repeated request is drawn anew."""
    asked: list[tuple[Message, ...]] = []

    async def ask(prompt: Prompt) -> str | None:
        asked.append(prompt.messages)
        hints = {"role": GRADER_ROLE, "problem": problem.id, "answers": [response.text], **prompt.hints}
        return await tools.judge(replace(prompt, hints=hints), asked.count(prompt.messages) - 1)

    return ask


class GradedSimulator(TextSimulator):
    """Gives a right answer, or another problem's, in the form of a reply; the task's own grading says what is right."""

    def __init__(self, task: TextTask, rows: Sequence[Row]) -> None:
        super().__init__(task, rows)
        self._values: dict[tuple[str, str], float] = {}

    def value(self, problem: Problem, answer: str | None) -> float:
        if answer is None:
            return 0.0
        key = (problem.id, answer)
        if key not in self._values:  # grading takes milliseconds
            reply = self._task.parse(problem, self._task.write(problem, answer))
            grade = self._task.score(problem, reply, self._rows[problem.id].truth)
            self._values[key] = float(bool(grade.correct))
        return self._values[key]


class JudgedSimulator(GradedSimulator):
    """A simulator for replies that a model grades: right ones hold the answer, and the judge errs by its skill."""

    def value(self, problem: Problem, answer: str | None) -> float:
        if not self._task.graded_by_opinion:
            return super().value(problem, answer)
        gold = self._rows[problem.id].answer or ""
        return float(answer is not None and bool(gold) and gold.casefold() in answer.casefold())

    def respond(self, request: Request, rng: np.random.Generator) -> str:
        """Answer a request. Reads the hint `verdicts` of a grader: what it says of a right and of a wrong reply."""
        if request.hints["role"] != GRADER_ROLE:
            return super().respond(request, rng)
        problem = self._rows[request.hints["problem"]].problem
        luck, persistence = rng.random(2).tolist()
        is_right = self.value(problem, request.hints["answers"][0]) > 0
        judged = is_right == self._skill.judges_rightly(problem.id, luck, persistence)
        right, wrong = request.hints["verdicts"]
        return str(right if judged else wrong)


def find_form(
    forms: Sequence[str],
    make_task: Callable[[str], GivenPromptsTask],
    make_row: Callable[[Any, Problem, Any], Row],
    problems: Sequence[Problem],
    references: Mapping[str, Any],
) -> str:
    """Return the form in which most of the first problems' answers are right, the earliest of equal ones."""
    counts = {}
    for form in forms:
        task = make_task(form)
        rows = [make_row(task, problem, references[problem.id]) for problem in problems[:5]]
        counts[form] = sum(row.answer is not None for row in rows)
    return max(forms, key=lambda form: counts[form])


def name_call(loaded: str | None, arguments: Mapping[str, Any]) -> str:
    """Return what is loaded with its arguments, as provenance and the journal's keys name it."""
    return f"{loaded}({', '.join(f'{name}={value!r}' for name, value in sorted(arguments.items()))})"


def join_messages(messages: Sequence[Sequence[str]]) -> str:
    """Return a prompt's messages (role, content) as one text; with several turns, each under its role."""
    if sum(role != "system" for role, _ in messages) == 1:
        return "\n\n".join(content for _, content in messages)
    return "\n\n".join(f"{role}: {content}" for role, content in messages)
