"""The test data of the contests, and texts that close in a box."""

import os
from pathlib import Path
from typing import Any

import msgspec
import pytest

REPOSITORY = Path(__file__).resolve().parents[3]
TEST_DATA = Path(os.environ.get("EVORUN_TEST_DATA", REPOSITORY.parent / "shared" / "data")) / "math"


def records_of(name: str) -> list[dict[str, Any]]:
    file = TEST_DATA / f"{name}.jsonl"
    if not file.is_file():
        pytest.skip(f"needs {file.name}; set EVORUN_TEST_DATA to the folder of the test data")
    return [msgspec.json.decode(line) for line in file.read_bytes().splitlines()]


def answers_of(name: str) -> list[str]:
    return [str(record["answer"]) for record in records_of(name)]


def split(**changes: Any) -> dict[str, Any]:
    """Return a split without a name, of any file and year."""
    plain = {"name": "", "files": ["*.jsonl"], "hub": [], "years": None, "contests": None, "size": None, "draw": None}
    return plain | changes


def boxed(answer: object) -> str:
    return f"So it is \\boxed{{{answer}}}."
