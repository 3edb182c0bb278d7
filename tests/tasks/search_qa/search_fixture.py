"""Data and doubles for the tests of task=search_qa."""

import json
import os
from collections.abc import Sequence
from pathlib import Path
from typing import Any

from building import task_config
from evorun.models.base import Message
from evorun.tasks.search_qa.questions import SearchQaConfig
from evorun.tasks.search_qa.retrieval.base import Passage

REPOSITORY = Path(__file__).parents[3]
TEST_DATA = Path(os.environ.get("EVORUN_TEST_DATA", REPOSITORY.parent / "shared" / "data")) / "qa"


def config(**settings: Any) -> SearchQaConfig:
    settings = {"source": "sample"} | settings
    made = task_config("search_qa", **settings)
    assert isinstance(made, SearchQaConfig)
    return made


def calling(*queries: str) -> Message:
    """Return an assistant's turn with a search call."""
    call = json.dumps({"name": "search", "arguments": {"query_list": queries}})
    return Message(role="assistant", content=f"I look it up.\n<tool_call>{call}</tool_call>")


class Fixed:
    """Finds the same passages for every query."""

    def __init__(self, *passages: Passage) -> None:
        self.passages = passages
        self.asked: list[tuple[tuple[str, ...], int]] = []

    async def find(self, queries: Sequence[str], count: int) -> list[list[Passage]]:
        self.asked.append((tuple(queries), count))
        return [list(self.passages[:count]) for _ in queries]
