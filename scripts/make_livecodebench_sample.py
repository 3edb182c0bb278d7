"""Write the sample set of the task `livecodebench`: original problems in evorun's own layout.

usage: make_livecodebench_sample.py [FILE]     (FILE: the sample inside the package)

Each difficulty has four problems for scripts and four with starter code (livecodebench_problems/). Hidden inputs are
drawn from a fixed seed; what is expected comes from the reference program. Each record also carries a wrong program
that passes the public tests and fails a hidden one. The output is always the same;
tests/tasks/test_livecodebench_sample.py solves every problem again by other means.
"""

import contextlib
import io
import re
import sys
from collections.abc import Sequence
from datetime import date, timedelta
from pathlib import Path
from random import Random
from typing import Any

import msgspec
from livecodebench_problems import easy, hard, medium
from livecodebench_problems.draft import Draft

SEED = 1
HIDDEN_TESTS = 12
FILE = Path(__file__).resolve().parents[1] / "evorun/tasks/livecodebench/sample.jsonl"
DIFFICULTIES = {"easy": easy.DRAFTS, "medium": medium.DRAFTS, "hard": hard.DRAFTS}
FIRST_DAY = date(2025, 1, 4)
PRELUDE = "from typing import *\nfrom collections import *\nfrom functools import *\nfrom itertools import *\n\
from math import *\nimport re\n"


def func_name(draft: Draft) -> str | None:
    return draft.method.split("(")[0] or None


def as_text(draft: Draft, given: Any) -> str:
    """Return an input as a test has it: for a method one JSON value a line."""
    return "\n".join(msgspec.json.encode(value).decode() for value in given) if draft.method else given


def run(draft: Draft, source: str, given: Any) -> str:
    """Return what a program of this repository makes of an input."""
    space: dict[str, Any] = {"__name__": "__main__"}
    if draft.method:
        exec(PRELUDE + source, space)  # noqa: S102 - our own programs
        return msgspec.json.encode(getattr(space["Solution"](), str(func_name(draft)))(*given)).decode()
    printed, stdin = io.StringIO(), sys.stdin
    sys.stdin = io.StringIO(given)
    try:
        with contextlib.redirect_stdout(printed):
            exec(source, space)  # noqa: S102
    finally:
        sys.stdin = stdin
    return printed.getvalue()


def tests(draft: Draft, inputs: Sequence[Any]) -> list[dict[str, str]]:
    return [{"input": as_text(draft, given), "output": run(draft, draft.right, given)} for given in inputs]


def hidden_inputs(draft: Draft, rng: Random) -> list[Any]:
    """Draw distinct inputs, among them one that the wrong program fails."""
    drawn: dict[str, Any] = {}
    while len(drawn) < HIDDEN_TESTS:
        given = draft.generate(rng)
        if given not in draft.examples:
            drawn[as_text(draft, given)] = given
    while not any(fails(draft, given) for given in drawn.values()):
        given = draft.generate(rng)
        drawn.popitem()
        drawn[as_text(draft, given)] = given
    return list(drawn.values())


def fails(draft: Draft, given: Any) -> bool:
    return run(draft, draft.wrong, given) != run(draft, draft.right, given)


def record(draft: Draft, difficulty: str, day: date) -> dict[str, Any]:
    slug = re.sub(r"[^a-z]+", "_", draft.title.lower())
    if any(fails(draft, given) for given in draft.examples):
        sys.exit(f"{draft.title}: the wrong program must pass the examples")
    public = tests(draft, draft.examples)
    shown = "".join(
        f"\n\nExample {n}\n\nInput:\n{test['input'].strip()}\n\nOutput:\n{test['output'].strip()}"
        for n, test in enumerate(public, 1)
    )
    return {
        "id": f"sample/{difficulty}/{slug}",
        "title": draft.title,
        "platform": "evorun",
        "difficulty": difficulty,
        "contest_date": day.isoformat(),
        "kind": "functional" if draft.method else "stdin",
        "func_name": func_name(draft),
        "statement": draft.statement + shown,
        "starter_code": f"class Solution:\n    def {draft.method}:\n        " if draft.method else "",
        "public_tests": public,
        "hidden_tests": tests(draft, hidden_inputs(draft, Random(f"{SEED}/{slug}"))),
        "solutions": [{"code": draft.right, "verdict": "correct"}, {"code": draft.wrong, "verdict": "wrong"}],
    }


def main() -> None:
    path = Path(sys.argv[1]) if len(sys.argv) > 1 else FILE
    drafts = [(draft, difficulty) for difficulty, every in DIFFICULTIES.items() for draft in every]
    records = [
        record(draft, difficulty, FIRST_DAY + timedelta(weeks=n)) for n, (draft, difficulty) in enumerate(drafts)
    ]
    path.write_bytes(b"".join(msgspec.json.encode(made) + b"\n" for made in records))


if __name__ == "__main__":
    main()
