"""The simulated model for LiveCodeBench: it knows the tests and a skill, and writes programs."""

import base64
import zlib
from collections.abc import Mapping, Sequence
from typing import Any, ClassVar, NamedTuple

import msgspec
import numpy as np

from evorun.sandbox.base import Case
from evorun.simulation.simulator import Filler
from evorun.tasks.base import Problem, Row
from evorun.tasks.simulator import TextSimulator
from evorun.tasks.text_task import TextTask

MAX_TABLE_CHARS = 2400
"""Maximum characters of a program's table. Problems with longer outputs are never solved in simulated runs."""
_MAX_OUTPUT_CHARS = 200_000
# Number of distinct programs of a kind; beyond it programs repeat, as with a real model
_VARIANTS = 1000

_LOOK_UP = """\
import base64
import json
import sys
import zlib

VARIANT = {variant}
TABLE = "{table}"
known = json.loads(zlib.decompress(base64.b85decode(TABLE)))
key = str(zlib.crc32(sys.stdin.read().strip().encode()))
print({answer})
"""
_BROKEN = """\
VARIANT = {variant}
print(solve(input())
"""
_WITH_MEMORY = ("generate", "evolve", "aggregate", "refine", "crossover", "mutate")


class _Tables(NamedTuple):
    """Compressed answers by checksum of the input, which programs for a problem embed."""

    full: str | None
    """Answers to all tests; None where the table would be too long."""
    public: str
    """Only the public tests' answers: right on these, wrong on hidden tests."""


class LiveCodeBenchSimulator(TextSimulator):
    """Writes programs that look up answers.

    Right programs contain every test's output; wrong ones pass only the public tests, or none, or stop with an error.
    When it judges programs, only its own right programs count as right.
    """

    filler: ClassVar[Filler] = Filler(
        "Read the input, look at the sizes that it may have, pick a method that is fast enough and trace an example."
    )
    malformed: ClassVar[Sequence[str]] = (
        '{"reasoning": "Read the input, look at the sizes',
        "I would sort the values first and then go through them once.",
        '{"reasoning": "It cannot be done.", "solution": ""}',
        '{"reasoning": "A program is not needed.", "answer": 42}',
        "",
    )
    verdict_reason: ClassVar[str] = "It reads the input as the examples have it."
    has_typical_mistake: ClassVar[bool] = False

    def __init__(self, task: TextTask, rows: Sequence[Row], hidden: Mapping[str, Sequence[Case]]) -> None:
        """hidden: tests by problem id."""
        super().__init__(task, rows)
        self._hidden = hidden
        self._tables: dict[str, _Tables] = {}

    def value(self, problem: Problem, answer: str | None) -> float:
        return float(self.is_right(problem, answer))

    def is_right(self, problem: Problem, answer: str | None) -> bool:
        full = self._make_tables(problem).full
        return answer is not None and full is not None and full in answer

    def judgment(self, verdict: str) -> str:
        return msgspec.json.encode({"reasoning": self.verdict_reason, "solution": verdict}).decode()

    def attempt(
        self, hints: Mapping[str, Any], succeeds: bool, luck: float, steps: str, rng: np.random.Generator
    ) -> str:
        problem = self._rows[hints["problem"]].problem
        # Drawn before the program is made, so that right and wrong programs use the same draws.
        variant = int(rng.random() * _VARIANTS)
        reply = {"reasoning": steps.strip()}
        if hints["role"] in _WITH_MEMORY:
            reply["evolving_memory"] = f"Variant {variant}: mind the smallest input."
        program = _program(self._make_tables(problem), succeeds, luck, variant)
        return msgspec.json.encode({**reply, "solution": f"```python\n{program}```"}).decode()

    def _make_tables(self, problem: Problem) -> _Tables:
        if problem.id not in self._tables:
            public = [Case(test["input"], test["output"]) for test in problem.data["public_tests"]]
            all_tests, examples = _table([*public, *self._hidden[problem.id]]), _table(public)
            # If the public tests are the only ones, their answers would be right.
            if examples is None or examples == all_tests:
                examples = _encode({})
            self._tables[problem.id] = _Tables(all_tests, examples)
        return self._tables[problem.id]


def _table(cases: Sequence[Case]) -> str | None:
    if sum(len(case.expected) for case in cases) > _MAX_OUTPUT_CHARS:
        return None
    table = _encode({str(zlib.crc32(case.stdin.strip().encode())): case.expected.strip() for case in cases})
    return table if len(table) <= MAX_TABLE_CHARS else None


def _encode(answers: Mapping[str, str]) -> str:
    return base64.b85encode(zlib.compress(msgspec.json.encode(answers), 9)).decode()


def _program(tables: _Tables, right: bool, luck: float, variant: int) -> str:
    if right and tables.full is not None:
        return _LOOK_UP.format(variant=variant, table=tables.full, answer='known.get(key, "?")')
    if luck < 0.4:
        return _LOOK_UP.format(variant=variant, table=tables.public, answer='known.get(key, "?")')
    if luck < 0.7:
        return _LOOK_UP.format(variant=variant, table=tables.public, answer='"?"')
    if luck < 0.85:
        return _LOOK_UP.format(variant=variant, table=tables.public, answer="known[len(key)]")
    return _BROKEN.format(variant=variant)
