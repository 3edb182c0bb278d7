"""The check of a task whose answers are numbers on odd ones: they are refused with a reason, or graded."""

from typing import Any

from evorun.tasks.base import LoadedTask, Problem
from evorun.tasks.numbers import read_number
from evorun.tasks.text_task import TextTask
from evorun.testing.expectations import expect, locate
from evorun.testing.task_cases import SimulatedTools, parse
from evorun.testing.task_parsers import names_kind

ODD_NUMBERS = ("3e", "3 x 10^x5", "1e5000", "9" * 5000, "inf", "nan", "1/0", "1.2.3", "-")
"""Texts of which `int` and `float` raise errors of their own, or return what is no finite number."""

_ADVICE = (
    "refuse it in `read` with a ValueError `kind: reason`, as evorun.tasks.numbers.read_number does, which you may call"
)


async def check_odd_numbers(loaded: LoadedTask, problem: Problem) -> None:
    """Raise AssertionError unless the task refuses or grades each of `ODD_NUMBERS` in place of a right answer."""
    task, answer = loaded.task, loaded.answers.get(problem.id)
    if not isinstance(task, TextTask) or answer is None or not _is_number(answer):
        return
    written = task.write(problem, answer)
    tools = SimulatedTools(loaded.simulator)
    try:
        for number in ODD_NUMBERS:
            await _check(loaded, problem, written.replace(answer, number), tools)
    finally:
        await tools.close()


async def _check(loaded: LoadedTask, problem: Problem, text: str, tools: SimulatedTools) -> None:
    task: Any = loaded.task
    response, shown = parse(task, problem, text), repr(text[:50])
    if response.answer is None:
        if not names_kind(response.error):
            raise AssertionError(
                f"expected `kind: reason` of {shown}, got {_find_error(task, problem, text)}; {_ADVICE}"
            )
        return
    try:
        signature = task.signature(problem, response)
        grade = await loaded.grader.grade(problem, response, tools)
    except Exception as error:
        raise AssertionError(f"expected a grade of {shown}, got {locate(error, TextTask)}; {_ADVICE}") from error
    expect(isinstance(signature, str), f"signature: found {signature!r:.60} for {shown}")
    for score in task.scores:
        value = score.value_in(grade)
        expect(value is not None, f"score {score.name}: expected a number for {shown}, found none; {_ADVICE}")


def _is_number(answer: str) -> bool:
    try:
        read_number(answer)
    except ValueError:
        return False
    return True


def _find_error(task: TextTask, problem: Problem, text: str) -> str:
    """Return the error of `read` with its line."""
    try:
        task.read(problem, text)
    except ValueError as error:
        return locate(error, TextTask)
    return "none"
