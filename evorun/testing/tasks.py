"""Conformance of tasks: reproducible splits, hidden answers, parsers that never raise, right grades."""

import asyncio
import warnings
from collections.abc import Sequence

import msgspec

from evorun.cli.compose import yaml_values
from evorun.errors import DataError
from evorun.runs.candidates import Response
from evorun.runs.scores import find_violation
from evorun.sandbox.config import SandboxConfig
from evorun.simulation.skill import Skill
from evorun.tasks.base import LoadedTask, Problem, TaskConfig
from evorun.tasks.simulator import TextSimulator
from evorun.tasks.text_task import TextTask
from evorun.testing.expectations import expect, expect_equal, locate
from evorun.testing.hidden_answers import check_hidden_answers
from evorun.testing.odd_numbers import check_odd_numbers
from evorun.testing.task_cases import SimulatedTools, make_case
from evorun.testing.task_grading import check_grading
from evorun.testing.task_parsers import check_parsers
from evorun.testing.task_prompts import check_prompts

_UNREAD = Response(text="", answer=None, error="no_answer: expected one")


def check_task(config: TaskConfig, *, problems: int = 3, picked_answers: bool = False) -> None:
    """Check a task on its first `problems`. Raises AssertionError for the first broken rule.

    If the task has programs, they run in the sandbox. picked_answers: an answer may be a part of its question, such as
    the largest of its numbers.
    """
    loaded = _check_loading(config)
    training = _check_training(config, loaded)
    asyncio.run(_check_scores(loaded))
    cases = [make_case(loaded, problem) for problem in loaded.problems[:problems]]
    check_hidden_answers(loaded, cases, picked_answers)
    if isinstance(loaded.simulator, TextSimulator):
        usual = yaml_values("engine", "simulated")
        simulator = loaded.simulator.with_skill(Skill(skill=usual["skill"], improvement=usual["improvement"]))
        if (lack := simulator.find_lack_of_skill(loaded.problems)) is not None:
            warnings.warn(lack, stacklevel=2)
    check_parsers(loaded.task, cases[0].problem)
    asyncio.run(check_odd_numbers(loaded, cases[0].problem))
    for case in cases:
        check_prompts(loaded, case)
    sandbox = config.add_to_sandbox(SandboxConfig())
    asyncio.run(check_grading(loaded, cases, sandbox, "the problems"))
    if training is not None:
        training_cases = [make_case(training, problem) for problem in training.problems[:problems]]
        asyncio.run(check_grading(training, training_cases, sandbox, "the problems to train on"))


def _check_loading(config: TaskConfig) -> LoadedTask:
    # Load twice: a draw that depends on the order of a set or on a shared generator would differ.
    loaded, again = config.load(), config.load()
    expect(loaded.problems, "expected problems to work on")
    for what in ("problems", "validation", "provenance"):
        expect(getattr(again, what) == getattr(loaded, what), f"{what}: expected the same when loaded twice")
    held_out = [example.problem for example in loaded.validation]
    for what, split in (("problems", loaded.problems), ("the validation split", held_out)):
        ids_by_data: dict[bytes, str] = {}
        for problem in split:
            first = ids_by_data.setdefault(_encode(problem), problem.id)
            same = f"{what}: expected different ones, found {problem.id} with the data of {first}; leave one out"
            expect(first == problem.id, same)
    ids = [problem.id for problem in (*loaded.problems, *held_out)]
    expect_equal(len(set(ids)), len(ids), "problems with a unique id, in both splits together")
    _check_apart(loaded.problems, held_out, "the validation split")
    for problem in loaded.problems:
        # '|' separates the parts of a journal's keys.
        expect(problem.id.strip() and "|" not in problem.id, f"expected an id without '|', found {problem.id!r}")
    return loaded


def _encode(problem: Problem) -> bytes:
    return msgspec.json.encode(problem.data, order="deterministic")


def _check_training(config: TaskConfig, loaded: LoadedTask) -> LoadedTask | None:
    """Check the training problems and return them; None if there are none."""
    try:  # a task may have no training split
        training = config.load_training()
    except DataError:
        return None
    expect(training.problems, "expected problems to train on")
    expect_equal(training.validation, (), "validation split of the problems to train on")
    _check_apart(loaded.problems, training.problems, "the training split")
    again = config.load_training()
    expect(training.problems == again.problems, "expected the same problems to train on when loaded twice")
    expect(training.provenance.digest != loaded.provenance.digest, "expected a digest of the training split's own")
    return training


def _check_apart(problems: Sequence[Problem], others: Sequence[Problem], split: str) -> None:
    def identities(problem: Problem) -> set[object]:
        # The data too: the same problem under another id would leak just as much.
        return {problem.id, _encode(problem)}

    known = set[object]().union(*map(identities, problems))
    for other in others:
        expect(
            known.isdisjoint(identities(other)), f"expected no problem of {split} among the others, found {other.id}"
        )


async def _check_scores(loaded: LoadedTask) -> None:
    """Check that a response without an answer is graded by the declared scores; what comes later relies on it."""
    tools = SimulatedTools(loaded.simulator)
    try:
        grade = await loaded.grader.grade(loaded.problems[0], _UNREAD, tools)
    except Exception as error:
        raise AssertionError(
            f"problem {loaded.problems[0].id}: expected a grade of a response without an answer (its `answer` is "
            f"None), got {locate(error, TextTask)}"
        ) from error
    finally:
        await tools.close()
    violation = find_violation(loaded.task.scores, grade)
    expect(violation is None, f"problem {loaded.problems[0].id}: {violation}; `scores` and `score` name the same ones")
