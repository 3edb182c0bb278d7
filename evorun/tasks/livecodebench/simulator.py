"""What plays the model in simulated runs of LiveCodeBench: it knows the tests and a skill, and writes programs."""

import base64
import zlib
from collections.abc import Mapping, Sequence
from typing import NamedTuple

import msgspec
import numpy as np

from evorun.models.base import Request
from evorun.models.simulator import DEFAULT_SKILL, Filler, Skill, new_instruction
from evorun.sandbox.base import Case
from evorun.tasks.base import Problem
from evorun.tasks.diagnosis import EVALUATIONS, evaluation

MAX_TABLE_CHARS = 2400
"""Longest table that a program may embed. A problem whose outputs take more is never solved in simulated runs."""
_MAX_OUTPUT_CHARS = 200_000
_VARIANTS = 1000
"""Different programs of a kind: with more of them written, some are repeats, as with a real model."""

_FILLER = Filler(
    "Read the input, look at the sizes that it may have, pick a method that is fast enough and trace an example."
)
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
_MALFORMED = (
    '{"reasoning": "Read the input, look at the sizes',
    "I would sort the values first and then go through them once.",
    '{"reasoning": "It cannot be done.", "solution": ""}',
    '{"reasoning": "A program is not needed.", "answer": 42}',
    "",
)


_WITH_MEMORY = ("generate", "evolve", "refine", "crossover", "mutate")


class _Tables(NamedTuple):
    """What programs for one problem embed: answers by checksum of the input, compressed."""

    full: str | None
    """None where it would be too long."""
    public: str
    """The public tests' answers only: right there, wrong on hidden tests."""


class LiveCodeBenchSimulator:
    """Writes programs that look answers up, judges and scores them and finds errors, by coin tosses around the truth.

    Reads `hints`: `role` (generate | evolve | refine | few_shot | instruct | crossover | mutate | judge | fitness |
    errors | reflect), `problem` (id), and `answers` (programs or None): the parents', the incumbent's, the two judged
    ones in the order shown, or the one that is evaluated.
    Its right programs hold every test's output; those of wrong ones pass the public tests, or none, or stop with an
    error. Only its own right programs count as right where it sees programs.
    """

    def __init__(
        self, problems: Mapping[str, Problem], hidden: Mapping[str, Sequence[Case]], skill: Skill = DEFAULT_SKILL
    ) -> None:
        """Both by problem id."""
        self._problems = problems
        self._hidden = hidden
        self._skill = skill
        self._tables: dict[str, _Tables] = {}

    def with_skill(self, skill: Skill) -> "LiveCodeBenchSimulator":
        """Return a simulator with the same problems that plays as well as `skill` says."""
        return LiveCodeBenchSimulator(self._problems, self._hidden, skill)

    def respond(self, request: Request, rng: np.random.Generator) -> str:
        """Return the completion's text. The request must carry the hints of this task's prompts."""
        hints = request.hints
        if hints["role"] == "reflect":
            return new_instruction(rng)
        malformed, luck, other, length, variety = rng.random(5).tolist()
        if malformed < self._skill.malformed:
            return _MALFORMED[int(other * len(_MALFORMED))]
        tables = self._tables_of(hints["problem"])
        right = [_is_right(answer, tables) for answer in hints["answers"]]
        if hints["role"] == "judge":
            first, second = right
            verdict = self._skill.verdict(first, second, luck, other)
            return _text(reasoning="It reads the input as the examples have it.", solution=verdict)
        if hints["role"] in EVALUATIONS:
            return evaluation(hints["role"], right[0] == (luck < self._skill.judge_skill), other)
        succeeds = luck < self._skill.chance(hints["problem"], right, hints.get("instruction", ""))
        variant = int(variety * _VARIANTS)
        memory = {"evolving_memory": f"Variant {variant}: mind the smallest input."}
        return _text(
            reasoning=_FILLER.text(self._skill.words(length)).strip(),
            **(memory if hints["role"] in _WITH_MEMORY else {}),
            solution=f"```python\n{_program(tables, succeeds, other, variant)}```",
        )

    def _tables_of(self, identity: str) -> _Tables:
        if identity not in self._tables:
            public = [Case(test["input"], test["output"]) for test in self._problems[identity].data["public_tests"]]
            self._tables[identity] = _tables(public, self._hidden[identity])
        return self._tables[identity]


def _is_right(answer: str | None, tables: _Tables) -> bool:
    return answer is not None and tables.full is not None and tables.full in answer


def _text(**reply: str) -> str:
    return msgspec.json.encode(reply).decode()


def _tables(public: Sequence[Case], hidden: Sequence[Case]) -> _Tables:
    everything, examples = _table([*public, *hidden]), _table(public)
    # Where the public tests are all there is, knowing them would be right.
    if examples is None or examples == everything:
        examples = _encoded({})
    return _Tables(everything, examples)


def _table(cases: Sequence[Case]) -> str | None:
    if sum(len(case.expected) for case in cases) > _MAX_OUTPUT_CHARS:
        return None
    table = _encoded({str(zlib.crc32(case.stdin.strip().encode())): case.expected.strip() for case in cases})
    return table if len(table) <= MAX_TABLE_CHARS else None


def _encoded(answers: Mapping[str, str]) -> str:
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
