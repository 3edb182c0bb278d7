"""Data of the tests of tasks in prose."""

import json
import os
from collections.abc import Iterable
from pathlib import Path
from typing import Any

from evorun.tasks.base import LoadedTask

REPOSITORY = Path(__file__).parents[1]
TEST_DATA = Path(os.environ.get("EVORUN_TEST_DATA", REPOSITORY.parent / "shared" / "data"))


def write(path: Path, records: Iterable[Any]) -> Path:
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_text("".join(json.dumps(record) + "\n" for record in records))
    return path


def ids(loaded: LoadedTask) -> list[str]:
    return [problem.id for problem in loaded.problems]
