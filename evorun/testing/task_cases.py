"""A task's problems with simulated responses: a right, a wrong and an unreadable one, on which its checks rely."""

import asyncio
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np

from evorun.models.base import Message, Request
from evorun.runs.candidates import Response
from evorun.sandbox.config import SandboxConfig
from evorun.sandbox.lazy import LazySandbox
from evorun.simulation.simulator import TaskSimulator
from evorun.simulation.skill import Skill
from evorun.tasks.base import LoadedTask, Problem, Prompt
from evorun.tasks.capabilities import Diagnosis, HasEpisodes, HasTools, Individual, SupportsGeneration
from evorun.tasks.text_task import TextTask
from evorun.testing.expectations import expect, expect_equal, locate

MAX_ERRORS = 2
"""Errors that a model or a verifier may find in a response."""


@dataclass(frozen=True)
class Case:
    """A problem with three simulated responses."""

    problem: Problem
    right: Response
    wrong: Response
    unread: Response

    @property
    def responses(self) -> tuple[Response, Response, Response]:
        return self.right, self.wrong, self.unread


def make_individual(response: Response) -> Individual:
    """Return a response as an individual of a population, with the errors that an unreadable one has."""
    errors = Diagnosis(text="- It is wrong.") if response.answer is None else Diagnosis()
    return Individual(response=response, fitness=50.0, errors=errors)


def make_case(loaded: LoadedTask, problem: Problem) -> Case:
    """Return a problem with its simulated responses. Raises AssertionError where the task cannot read them."""
    task: Any = loaded.task
    expect(
        isinstance(task, SupportsGeneration), "expected generation prompts: methods answer its problems from scratch"
    )
    _check_round_trip(loaded, problem)
    prompt = task.generation_prompt(problem)
    # The task's simulator gives the replies: right with skill 1, wrong with skill 0, unreadable if malformed.
    right, wrong = (
        simulate_reply(loaded, problem, prompt, Skill(skill=skill, malformed=0, spread=0)) for skill in (1, 0)
    )
    unread = parse(task, problem, simulate_reply(loaded, problem, prompt, Skill(malformed=1)))
    expect(unread.answer is None and unread.error, "expected a malformed reply to have no answer, and to say why")
    return Case(problem, parse(task, problem, right), parse(task, problem, wrong), unread)


def _check_round_trip(loaded: LoadedTask, problem: Problem) -> None:
    """Check that the task reads what it writes; all simulated replies rely on it."""
    task, gold = loaded.task, loaded.answers.get(problem.id)
    if not isinstance(task, TextTask):
        return
    drawn = task.random_answer(problem, np.random.default_rng(0))  # of model=random, the random baseline
    for what, answer in (("the right answer", gold), ("a random_answer", drawn)):
        if answer is not None:
            written = task.write(problem, answer)
            error = parse(task, problem, written).error
            expect(
                error is None,
                f"problem {problem.id}: expected `read` to read what `write` writes of {what} {_cut(answer)}, found "
                f"{_cut(written)}, of which `read` says: {error}",
            )


def _cut(text: str, limit: int = 80) -> str:
    return repr(text) if len(text) <= limit else f"{text[:limit]!r}[...]"


def parse(task: Any, problem: Problem, text: str) -> Response:
    """Return the task's reading of a text. Raises AssertionError where the task raises."""
    try:
        response: Response = task.parse(problem, text)
    except Exception as error:
        raise AssertionError(
            f"expected parsers that never raise, got {locate(error, TextTask)} for {text[:50]!r}; of errors, `read` "
            "raises ValueError"
        ) from error
    return response


def simulate_reply(loaded: LoadedTask, problem: Problem, prompt: Prompt, skill: Skill) -> str:
    """Return the simulator's response to a prompt: its last turn, or all turns of an episode.

    The task's tools answer earlier turns.
    """
    task, simulator, messages = loaded.task, loaded.simulator.with_skill(skill), prompt.messages
    turns = task.max_turns(problem) if isinstance(task, HasTools) else 1
    expect(turns >= 1, f"max_turns: expected at least 1, found {turns}")
    said_so_far: list[str] = []
    for turn in range(turns):
        request = Request(messages=messages, json_schema=prompt.json_schema, hints=prompt.hints)
        try:
            text = simulator.respond(request, np.random.default_rng(turn))
        except Exception as error:  # it reads its own mistakes
            raise AssertionError(
                f"problem {problem.id}: expected no error while the simulator wrote a reply, got "
                f"{locate(error, TextTask)}; of errors, `read` alone raises one: ValueError"
            ) from error
        said = Message(role="assistant", content=text)
        said_so_far.append(text)
        if isinstance(task, HasEpisodes):
            text = task.join_turns(said_so_far)
            answer = asyncio.run(_answer_episode(task, problem, said_so_far, loaded.simulator))
        else:
            answer = asyncio.run(task.answer_tools(problem, said)) if isinstance(task, HasTools) else None
        if answer is None:
            return text
        expect_equal(answer["role"], "tool", "answer_tools: role of the message")
        messages = (*messages, said, answer)
    return text


async def _answer_episode(
    task: HasEpisodes, problem: Problem, turns: Sequence[str], simulator: TaskSimulator
) -> Message | None:
    tools = SimulatedTools(simulator)
    try:
        return await task.answer_episode(problem, turns, tools)
    finally:
        await tools.close()


class SimulatedTools(LazySandbox):
    """The sandbox, with the task's simulator as the gold judge."""

    def __init__(self, simulator: TaskSimulator, sandbox: SandboxConfig | None = None) -> None:
        super().__init__(sandbox or SandboxConfig())
        self._simulator = simulator.with_skill(Skill(malformed=0))

    async def judge(self, prompt: Prompt, attempt: int = 0) -> str | None:
        request = Request(messages=prompt.messages, hints=prompt.hints)
        return self._simulator.respond(request, np.random.default_rng(attempt))
