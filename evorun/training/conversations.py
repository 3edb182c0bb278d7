"""Conversations to fine-tune on: a user's file in chat format, checked line by line, and its part that is held out."""

from collections import defaultdict
from collections.abc import Iterator, Sequence
from hashlib import blake2b
from pathlib import Path
from typing import NamedTuple, cast

import msgspec

from evorun.errors import DataError
from evorun.models.base import Message, Role
from evorun.runs.paths import display
from evorun.runs.records import complete_lines

ROLES = ("system", "user", "assistant")


class Conversation(msgspec.Struct, frozen=True, kw_only=True):
    """A conversation with at least one answer of the assistant, as a run keeps it."""

    line: int
    """Of the file that it comes from."""
    messages: tuple[Message, ...]


class Split(NamedTuple):
    """What is learned from, and what loss is measured on; both in the order of the file."""

    train: list[Conversation]
    held_out: list[Conversation]
    empty: int
    """Conversations that are left out: an answer in them is empty, which would teach to say nothing."""


class _Turn(msgspec.Struct, frozen=True):
    role: str
    content: str


class _Line(msgspec.Struct, frozen=True):
    messages: list[_Turn]
    problem: msgspec.Raw = msgspec.Raw(b"null")
    task: msgspec.Raw = msgspec.Raw(b"null")


def read_split(file: Path, *, limit: int | None, held_out: float) -> Split:
    """Return the conversations of a file, one a line: `{"messages": [{"role": ..., "content": ...}, ...]}`.

    limit: the first ones only. held_out: the share that is held out. No problem is in both parts, as `problem` and
    `task` name it (`evorun traces` writes them), or, without a `problem`, no prompt. Which are held out depends on
    nothing but what they are: neither on a seed nor on their order. Raises DataError naming the line.
    """
    conversations: list[Conversation] = []
    topics: list[bytes] = []
    empty = 0
    for number, line in _lines(file):
        if limit is not None and len(conversations) == limit:
            break
        read = _decode(line, f"{display(file)}, line {number}")
        if not all(turn.content.strip() for turn in read.messages):
            empty += 1
            continue
        conversations.append(Conversation(line=number, messages=_messages(read)))
        topics.append(_topic(read))
    if not conversations:
        but = f" but {empty} with an empty answer" if empty else ""
        raise DataError(f"{display(file)}: expected conversations, one a line, found none{but}")
    out = _held_out(topics, held_out) if held_out else set()
    if held_out and len(out) in (0, len(conversations)):
        raise DataError(
            f"{display(file)}: expected conversations about two problems at least, so that one can be held out, got "
            f"{len(conversations)} about one; set method.held_out=0"
        )
    return Split(
        [one for index, one in enumerate(conversations) if index not in out],
        [one for index, one in enumerate(conversations) if index in out],
        empty,
    )


def read_conversations(file: Path) -> list[Conversation]:
    """Read a file that a run keeps."""
    decoder = msgspec.json.Decoder(Conversation)
    return [decoder.decode(line) for line in complete_lines(file)]


def _lines(file: Path) -> Iterator[tuple[int, bytes]]:
    try:
        with file.open("rb") as lines:
            for number, line in enumerate(lines, start=1):
                if not line.isspace():
                    yield number, line
    except OSError as error:
        raise DataError(f"method.data: cannot read {display(file)}: {error.strerror}; expected a JSONL file") from error


def _decode(line: bytes, where: str) -> _Line:
    try:
        read = msgspec.json.decode(line, type=_Line)
    except (msgspec.DecodeError, UnicodeDecodeError) as error:
        raise DataError(
            f'{where}: expected {{"messages": [{{"role": ..., "content": ...}}, ...]}}, got a line with: {error}'
        ) from error
    flaw = _flaw(read.messages)
    if flaw is not None:
        raise DataError(f"{where}: {flaw}")
    return read


def _flaw(turns: Sequence[_Turn]) -> str | None:
    """Return why nothing can be learned from a conversation."""
    for number, turn in enumerate(turns, start=1):
        if turn.role not in ROLES:
            return f"message {number}: expected a role of {', '.join(ROLES)}, got '{turn.role}'"
        if turn.role != "assistant" and not turn.content.strip():
            return f"message {number} ({turn.role}) is empty"
    roles = [turn.role for turn in turns]
    if "assistant" not in roles:
        return "expected an answer of the assistant, got none"
    if "user" not in roles[: roles.index("assistant")]:
        return "expected a prompt of the user before the first answer, got none"
    return None


def _messages(read: _Line) -> tuple[Message, ...]:
    return tuple(Message(role=cast(Role, turn.role), content=turn.content) for turn in read.messages)


def _topic(read: _Line) -> bytes:
    """Return what tells a conversation from those about something else."""
    if bytes(read.problem) != b"null":
        about: object = [read.task, read.problem]
    else:
        about = read.messages[: [turn.role for turn in read.messages].index("assistant")]
    return blake2b(msgspec.json.encode(about), digest_size=16).digest()


def _held_out(topics: Sequence[bytes], share: float) -> set[int]:
    """Return the indices of whole topics that make up the share, or the smallest one where none is so small."""
    by_topic: dict[bytes, list[int]] = defaultdict(list)
    for index, topic in enumerate(topics):
        by_topic[topic].append(index)
    out: set[int] = set()
    for topic in sorted(by_topic):
        if len(out) + len(by_topic[topic]) <= share * len(topics):
            out.update(by_topic[topic])
    smallest = min(sorted(by_topic), key=lambda topic: len(by_topic[topic]))
    return out or set(by_topic[smallest])
