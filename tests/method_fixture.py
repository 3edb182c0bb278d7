"""Methods under a scripted model: a small task, whose prompts are JSON for tests to read back, and a driver."""

import asyncio
import json
from collections.abc import AsyncIterator, Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any, NamedTuple

import msgspec
import numpy as np
from msgspec import UNSET

from building import make_context, make_driver, toy_task
from evorun.methods.base import Method, PerProblem
from evorun.models import Completion, Message, Reply, Request
from evorun.models.base import FinishReason
from evorun.models.confidence import confidence_fields, find_end
from evorun.rollouts.calls import Caller
from evorun.runner.driver import Driver
from evorun.runs.budget import Meter
from evorun.runs.candidates import Feedback, Response, Step
from evorun.runs.directory import RunDirectory
from evorun.tasks.base import Demonstration, Grade, LoadedTask, Problem, Prompt, Task, Tools
from evorun.tasks.capabilities import Attempt, Explanation, Judgment, PairRating, ScoredResponse
from evorun.tasks.rubric_items import WeightedItem
from evorun.tasks.rubrics import Rubric, RubricItem

SEED_INSTRUCTION = "Answer."
TOKENS = 8
"""Of every call: 5 in the prompt and 3 in the completion."""


def problem(number: int) -> Problem:
    """Return the problem `p<number>`."""
    return Problem(
        id=f"p{number}", stratum="even" if number % 2 == 0 else "odd", data={"question": f"question {number}"}
    )


def example(number: int) -> Demonstration:
    """Return the problem `v<number>` of the validation split; as everywhere here, `right` is right."""
    return Demonstration(problem=Problem(id=f"v{number}", stratum="even", data={}), answer="right")


class Quiz(Task):
    """Takes `ANSWER` or `ANSWER;MEMORY` for a response, cannot parse what starts with `?`, and shows all as JSON."""

    name = "quiz"

    def parse(self, problem: Problem, text: str) -> Response:
        if not text or text.startswith("?"):
            return Response(text=text, answer=None, error="no_answer: a question mark")
        answer, _, memory = text.partition(";")
        return Response(text=text, answer=answer, reasoning=f"because of {answer}", memory=memory)

    def signature(self, problem: Problem, response: Response) -> str:
        return (response.answer or "").lower()

    def generation_prompt(self, problem: Problem) -> Prompt:
        return _prompt(ask="generate", problem=problem.id)

    def evolution_prompt(self, problem: Problem, parents: Sequence[ScoredResponse]) -> Prompt:
        shown = [{**_shown(p.response), "score": p.score, "won": _told(p.win), "lost": _told(p.loss)} for p in parents]
        return _prompt(ask="evolve", problem=problem.id, parents=shown)

    def aggregation_prompt(self, problem: Problem, responses: Sequence[Response]) -> Prompt:
        return _prompt(ask="aggregate", problem=problem.id, candidates=[_shown(response) for response in responses])

    def distillation_prompt(self, problem: Problem, responses: Sequence[Response], max_tokens: int) -> Prompt:
        shown = [_shown(response) for response in responses]
        return _prompt(ask="distill", problem=problem.id, candidates=shown, most=max_tokens)

    def distilled_prompt(self, problem: Problem, notes: str, responses: Sequence[Response]) -> Prompt:
        return _prompt(ask="distilled", problem=problem.id, notes=notes)

    def judge_prompt(self, problem: Problem, first: Response, second: Response) -> Prompt:
        return _prompt(ask="judge", problem=problem.id, a=_shown(first), b=_shown(second))

    def parse_judgment(self, text: str) -> Judgment:
        verdict, _, reason = text.partition(":")
        return Judgment(verdict=verdict if verdict in ("A", "B", "T") else "invalid", reason=reason)  # type: ignore[arg-type]

    def rating_prompt(self, problem: Problem, first: Response, second: Response) -> Prompt:
        return _prompt(ask="rate", problem=problem.id, a=_shown(first), b=_shown(second))

    def parse_ratings(self, text: str) -> PairRating:
        """Read `RATING RATING:REASON`."""
        ratings, _, reason = text.partition(":")
        numbers = [float(word) for word in ratings.split() if word.isascii() and word.isdecimal()]
        return PairRating(ratings=(numbers[0], numbers[1]) if len(numbers) == 2 else None, reason=reason)

    def few_shot_prompt(self, problem: Problem, demonstrations: Sequence[Demonstration]) -> Prompt:
        shown = [[d.problem.id, d.answer, d.reasoning] for d in demonstrations]
        return _prompt(ask="few_shot", problem=problem.id, demonstrations=shown)

    def demonstration(self, demonstration: Demonstration, response: Response) -> Demonstration:
        return msgspec.structs.replace(demonstration, answer=response.answer or "", reasoning=response.reasoning)

    def refinement_prompt(self, problem: Problem, incumbent: Response, attempts: Sequence[Attempt]) -> Prompt:
        shown = [
            {**_shown(a.response), "outcome": a.outcome, "reason": a.judged.reason, "letter": a.judged.letter}
            for a in attempts
        ]
        return _prompt(ask="refine", problem=problem.id, incumbent=_shown(incumbent), attempts=shown)

    def seed_instruction(self) -> str:
        return SEED_INSTRUCTION

    def instructed_prompt(self, problem: Problem, instruction: str) -> Prompt:
        asked = _prompt(ask="instruct", problem=problem.id)
        return msgspec.structs.replace(asked, messages=(Message(role="system", content=instruction), *asked.messages))

    def reflection_record(
        self, problem: Problem, response: Response, demonstration: Demonstration | None, grade: Grade | None = None
    ) -> str:
        known = demonstration.answer if demonstration else response.feedback.text if response.feedback else "nothing"
        return f"record of {problem.id}: {response.answer or response.error}, known: {known}"


class TestedQuiz(Quiz):
    """A quiz with public tests: an answer `good...` passes them all, any other one half of them."""

    __test__ = False

    async def observe(self, problem: Problem, response: Response, tools: Tools) -> Response:
        score = 1.0 if (response.answer or "").startswith("good") else 0.5
        await asyncio.sleep(0)
        return msgspec.structs.replace(response, feedback=Feedback(text=f"tests of {response.answer}", score=score))


def _prompt(**content: Any) -> Prompt:
    return Prompt(messages=(Message(role="user", content=json.dumps(content)),), hints=content)


def _told(explanation: Explanation) -> str:
    return explanation.reason and f"{explanation.letter}: {explanation.reason}"


def _shown(response: Response) -> dict[str, Any]:
    feedback = response.feedback.text if response.feedback else None
    return {"answer": response.answer, "memory": response.memory, "feedback": feedback}


class RightIsRight:
    """Grades `right` as right, and counts what it was asked."""

    def __init__(self) -> None:
        self.graded: list[tuple[str, str | None]] = []

    async def grade(self, problem: Problem, response: Response, tools: Tools) -> Grade:
        self.graded.append((problem.id, response.answer))
        await asyncio.sleep(0)
        return Grade(correct=response.answer == "right")


class Ask(NamedTuple):
    """One call of a method, read back."""

    name: str
    """The problem's id, or `*` for a call that is made for all problems."""
    step: int
    role: str
    index: int
    attempt: int
    shown: Mapping[str, Any]
    """The prompt's JSON; a prompt that is none is under `text`."""
    instruction: str | None
    """The system prompt."""
    request: Request


Script = Callable[[Ask], str | Exception | None]
"""The model's answer: a text, None to refuse the request, or an error to raise."""


class Scripted(Caller):
    """A model that says what its script says, and keeps what it was asked; each reply comes a turn later."""

    def __init__(self, script: Script, confidence: Callable[["Ask"], Sequence[float]] | None = None) -> None:
        """confidence: of each token, where a request asks for it."""
        self.script = script
        self.confidence = confidence or _confidence
        self.asked: list[Ask] = []

    async def complete(self, key: str, request: Request, step: int) -> Reply:
        ask = _read_back(key, request)
        self.asked.append(ask)
        await asyncio.sleep(0)
        said = self.script(ask)
        if isinstance(said, Exception):
            raise said
        if said is None:
            refused = Completion(text="", finish_reason="rejected", tokens=0)
            return Reply(completions=(refused,), prompt_tokens=0, seconds=0.0, error="prompt too long")
        done = Completion(text=said, finish_reason="stop", tokens=3)
        if (wanted := request.sampling.confidence) is not UNSET:
            values = np.array(self.confidence(ask), np.float16)
            end = find_end(values, wanted)
            reason: FinishReason = "stop" if end is None else "low_confidence"
            values = values[:end]
            done = Completion(text=said, finish_reason=reason, tokens=len(values), **confidence_fields(values, wanted))
        return Reply(completions=(done,), prompt_tokens=TOKENS - 3, seconds=0.0)

    def of(self, role: str) -> list[Ask]:
        """Return the calls of a role, in order."""
        return [ask for ask in self.asked if ask.role == role]

    def everything(self) -> list[tuple[Any, ...]]:
        """Return all that was asked, in an order that does not depend on who came first."""
        return sorted((*ask[:5], repr(ask.request)) for ask in self.asked)


def _confidence(ask: "Ask") -> list[float]:
    """Return different confidences of three tokens."""
    return [5 + (7 * ask.index + 3 * place + ask.step) % 11 for place in range(3)]


def _read_back(key: str, request: Request) -> Ask:
    name, step, role, index, attempt = key.rsplit("|", 4)
    content = request.messages[-1]["content"]
    try:
        shown = json.loads(content)
    except ValueError:
        shown = {"ask": "reflect", "text": content}
    system = request.messages[0]["content"] if request.messages[0]["role"] == "system" else None
    return Ask(name, int(step), role, int(index), int(attempt), shown, system, request)


async def solve(
    method: Method,
    model: Scripted,
    *,
    task: Task | None = None,
    meter: Meter | None = None,
    seed: int = 0,
    number: int = 0,
) -> list[Step]:
    """Let a method that prepares nothing work on one problem, and return its steps."""
    assert isinstance(method, PerProblem)
    context = make_context(task or Quiz(), problem(number), model, meter=meter, seed=seed)
    return [step async for step in steps(method.solve(context))]


async def steps(history: AsyncIterator[Step]) -> AsyncIterator[Step]:
    """Yield the steps, checked: numbered in order, every candidate's id its own, the best one among the candidates."""
    last = -1
    async for step in history:
        assert step.step > last
        last = step.step
        ids = [rated.id for rated in step.candidates]
        assert len(set(ids)) == len(ids)
        assert step.best is None or step.best in step.candidates
        assert step.pool in (None, sum(rated.survivor for rated in step.candidates))
        assert {side for duel in step.comparisons for side in (duel.first, duel.second)} <= set(ids)
        yield step


@dataclass
class Driven:
    """The results and records of a driven method."""

    folder: Path
    model: Scripted
    driver: Driver

    def records(self, name: str) -> list[dict[str, Any]]:
        """Return the records of a file."""
        return [json.loads(line) for line in (self.folder / f"{name}.jsonl").read_text().splitlines()]

    def files(self) -> dict[str, bytes]:
        """Return every record file's bytes."""
        return {path.name: path.read_bytes() for path in sorted(self.folder.glob("*.jsonl"))}

    def artifact(self, name: str) -> Any:
        """Return a file that the method left."""
        return json.loads((self.folder / "artifacts" / name).read_text())

    def cost(self) -> dict[str, int]:
        """Return the calls of all problems, by role."""
        calls: dict[str, int] = {}
        for prediction in self.records("predictions"):
            for role, spent in prediction["cost"].items():
                calls[role] = calls.get(role, 0) + spent["calls"]
        return calls


def quiz(task: Task | None = None, problems: int = 3, validation: int = 8) -> LoadedTask:
    """Return a quiz, or another task, with problems `p0`, `p1`, ... and examples `v0`, `v1`, ..."""
    return toy_task(
        task or Quiz(), [problem(i) for i in range(problems)], RightIsRight(), [example(i) for i in range(validation)]
    )


async def drive(
    method: Method,
    folder: Path,
    script: Script,
    *,
    task: Task | None = None,
    problems: int = 3,
    validation: int = 8,
    **how: Any,
) -> Driven:
    """Drive a method over a quiz to its end; `how`: see `make_driver`. Raises what ended the run."""
    directory = RunDirectory(folder)
    model = Scripted(script)
    try:
        driver = make_driver(method, quiz(task, problems, validation), directory, model, **how)
        async with asyncio.timeout(60):
            await driver.run()
        directory.finish_records([one.id for one in driver.loaded.problems])
    finally:
        directory.close()
    return Driven(folder, model, driver)


def answers(records: Iterable[Mapping[str, Any]]) -> list[Any]:
    """Return the answers in records."""
    return [record["answer"] for record in records]


CRITERIA = (WeightedItem("Merit", "It is good.", 2.0), WeightedItem("Fault", "It is rude.", -1.0))


class RubricQuiz(Quiz):
    """A quiz with a rubric for all problems together."""

    def rubric_keys(self) -> tuple[str, ...]:
        return ("",)

    def rubric_key(self, problem: Problem) -> str:
        return ""

    def task_description(self) -> str:
        return "Say something good."


class CriteriaQuiz(RubricQuiz):
    """A quiz whose problems have two criteria of their own, and whose prompts are JSON."""

    def starting_rubric(self, name: str, rubric_key: str) -> Rubric:
        raise NotImplementedError

    def rubric_items(self, problem: Problem) -> Sequence[WeightedItem]:
        return CRITERIA

    def planning_prompt(self, problem: Problem, rubric: Rubric, reference: str | None = None) -> Prompt:
        raise NotImplementedError

    def scoring_prompt(
        self, problem: Problem, response: Response, rubric: Rubric, item: RubricItem | None = None, **_: Any
    ) -> Prompt:
        assert item is not None
        content = {"response": response.text, "title": item.title, "maximum": item.maximum}
        return Prompt(messages=(Message(role="user", content=json.dumps(content)),))
