"""The check of a task's parsers on texts that have broken some: they never raise, and return the right form."""

import asyncio
from collections.abc import Iterator
from typing import Any

from evorun.errors import EvorunError
from evorun.models.base import Message
from evorun.runs.candidates import Response
from evorun.tasks.base import Problem
from evorun.tasks.capabilities import (
    HasTools,
    SupportsErrorDetection,
    SupportsFitnessScores,
    SupportsJudging,
    SupportsPairRatings,
    SupportsParadigms,
    SupportsScratchpad,
)
from evorun.tasks.text_task import TextTask
from evorun.testing.expectations import expect, locate
from evorun.testing.task_cases import MAX_ERRORS

ODD_TEXTS = (
    *("", " \r\n\t", "\x00", "\ud800 lone", "```", "```\n```", "~~~\n[[1, 2]]\n~~~", "\\boxed{", "\\boxed{}"),
    *("{", "{}", "[]", "null", "42", "A", "T", "57.5/100", "The answer is B.", "{" * 500, "A" * 20_000),
    *('{"solution": "A"}', '{"solution": ["A"], "reasoning": {"a": 1}}', '{"reasoning": "cut o', '{"solution": 1e999}'),
    *('{"reasoning": "\\ud800", "solution": "b"}', '{"fitness": 180}', '{"errors": ["a", "b", "c", "d"]}'),
    *("<tool_call>", "</tool_call><tool_call>", '<tool_call>{"name": "x"}</tool_call>', "<tool_call>[[</tool_call>"),
    *("```\n1 2 3\n```", "```python\ndef solve(:\n```", "{{ 7 * 7 }}{% raw %} {problem} %s {0} \\1 ${x}"),
)
"""Completions that have broken parsers, templates or encoders."""


def check_parsers(task: Any, problem: Problem) -> None:
    """Raise AssertionError for a parser that raises, or returns a wrong form, on one of `ODD_TEXTS`."""
    for text in ODD_TEXTS:
        try:
            read = list(_readings(task, problem, text))
        except Exception as error:
            told = f"expected parsers that never raise, got {locate(error, TextTask)} for {text[:50]!r}"
            raise AssertionError(told) from error
        for what, value, holds in read:
            expect(holds, f"{what}: found {value!r} for {text[:50]!r}")
    if isinstance(task, HasTools):
        asyncio.run(_check_tools(task, problem))


async def _check_tools(task: HasTools, problem: Problem) -> None:
    for text in ODD_TEXTS:
        try:
            answer = await task.answer_tools(problem, Message(role="assistant", content=text))
        except EvorunError as error:
            raise AssertionError(f"answer_tools: expected an answer to {text[:50]!r}, got {error!r}") from error
        except Exception:  # noqa: S112 - allowed: the episode continues with the error as the answer
            continue
        tools = answer is None or (answer["role"] == "tool" and isinstance(answer["content"], str))
        expect(tools, f"answer_tools: expected a message of the role tool or None, found {answer!r} for {text[:50]!r}")


def _readings(task: Any, problem: Problem, text: str) -> Iterator[tuple[str, Any, object]]:
    """Yield the name of each of the task's parsers, its result on a text, and whether the result has the right form."""
    response = task.parse(problem, text)
    yield "parse", response, isinstance(response, Response) and (response.answer is not None or response.error)
    if response.answer is None:
        yield "error of `read`, expected as `kind: reason`", response.error, names_kind(response.error)
    else:
        signature = task.signature(problem, response)
        yield "signature", signature, isinstance(signature, str)
    if isinstance(task, SupportsJudging):
        judgment = task.parse_judgment(text)
        yield "parse_judgment", judgment, judgment.verdict in ("A", "B", "T", "invalid")
    if isinstance(task, SupportsPairRatings):
        ratings = task.parse_ratings(text).ratings
        yield "parse_ratings", ratings, ratings is None or all(1 <= rating <= 10 for rating in ratings)
    if isinstance(task, SupportsParadigms):
        paradigms = task.parse_paradigms(text)
        yield "parse_paradigms", paradigms, all(paradigm.title and paradigm.plan for paradigm in paradigms)
    if isinstance(task, SupportsScratchpad):
        recommended = task.parse_recommendations(text)
        yield "parse_recommendations", recommended, all(item.strip() for item in recommended)
    if isinstance(task, SupportsFitnessScores):
        fitness = task.parse_fitness(text)
        yield "parse_fitness", fitness, fitness is None or 0 <= fitness <= 100
    if isinstance(task, SupportsErrorDetection):
        diagnosis = task.parse_errors(problem, text, MAX_ERRORS)
        yield "parse_errors", diagnosis, diagnosis is None or len(diagnosis.findings) <= MAX_ERRORS


def names_kind(error: str | None) -> bool:
    """Return whether an error has the form `kind: reason`."""
    kind, _, reason = (error or "").partition(": ")
    return kind.isidentifier() and bool(reason.strip())
