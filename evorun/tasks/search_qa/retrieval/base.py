"""Passages, the corpus that they come from, and retrievers, which find passages in it."""

import hashlib
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any, NamedTuple, Protocol

from evorun.errors import DataError
from evorun.tasks.benchmark_files import read_records


class Passage(NamedTuple):
    """A passage to search for and to read."""

    id: str
    title: str
    text: str


class Retriever(Protocol):
    """Finds passages. Safe to call from many coroutines at once; blocks none of them."""

    async def find(self, queries: Sequence[str], count: int) -> list[list[Passage]]:
        """Return at most `count` passages per query, the best first.

        Raises EvorunError where the search fails: a failure must not be recorded as an empty result.
        """
        ...


@dataclass(frozen=True)
class Corpus:
    """A file of passages, by its content."""

    path: Path
    digest: str
    """SHA-256 of the file."""

    @classmethod
    def from_file(cls, path: Path) -> "Corpus":
        """Return the corpus in a file. Raises DataError for an unreadable file or a malformed first record."""
        try:
            with path.open("rb") as file:
                digest = hashlib.file_digest(file, "sha256").hexdigest()
        except OSError as error:
            raise DataError(f"{path}: cannot read the passages: {error.strerror or error}") from error
        first = next(read_records(path), None)
        if first is None:
            raise DataError(f"{path}: expected passages, found none")
        _passage(*first)
        return cls(path, digest)

    def passages(self) -> list[Passage]:
        """Read all passages. Raises DataError naming the line of a malformed one."""
        return [_passage(where, record) for where, record in read_records(self.path)]


def split_title(text: str) -> tuple[str, str]:
    """Return title and text of `contents` as search servers store them: the title in quotes, a line feed, the text."""
    title, _, rest = text.partition("\n")
    return (title.strip().strip('"'), rest) if rest else ("", text)


def _passage(where: str, record: Any) -> Passage:
    known = record if isinstance(record, dict) else {}
    title, text = known.get("title", ""), known.get("text")
    if text is None and isinstance(known.get("contents"), str):
        title, text = split_title(known["contents"])
    name = known.get("id")
    if not isinstance(name, str | int) or not isinstance(title, str) or not isinstance(text, str):
        raise DataError(
            f'{where}: expected {{"id": ..., "title": "...", "text": "..."}} or {{"id": ..., "contents": "..."}}'
        )
    return Passage(str(name), title, text)
