"""Reads the conversations to fine-tune on from a user's file in chat format, and holds a part of them out."""

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

ROLES = ("system", "user", "assistant", "tool")


class Conversation(msgspec.Struct, frozen=True, kw_only=True, omit_defaults=True):
    """A conversation with at least one answer of the assistant, as a run stores it."""

    line: int
    """Line number in the source file."""
    messages: tuple[Message, ...]
    problem: str | None = None
    """Id of the problem that its last answer is a response to, where the file names one; `task` the same. Only a
    simulated model reads them."""
    task: str | None = None


class Split(NamedTuple):
    """The conversations to train on and those held out to measure the loss, in the order of the file."""

    train: list[Conversation]
    held_out: list[Conversation]
    empty: int
    """Number of conversations left out because of an empty answer, which would teach the model silence."""


class _Turn(msgspec.Struct, frozen=True):
    role: str
    content: str


class _Line(msgspec.Struct, frozen=True):
    messages: list[_Turn]
    problem: msgspec.Raw = msgspec.Raw(b"null")
    task: msgspec.Raw = msgspec.Raw(b"null")


def read_split(file: Path, *, limit: int | None, held_out: float) -> Split:
    """Return the conversations of a file, one per line: `{"messages": [{"role": ..., "content": ...}, ...]}`.

    limit: the number of conversations to read. held_out: the share to hold out. No problem is in both parts; `problem`
    and `task` identify it (`evorun traces` writes them), or, without a `problem`, the prompt. Raises DataError naming
    the line.
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
        messages = tuple(Message(role=cast(Role, turn.role), content=turn.content) for turn in read.messages)
        problem, task = _decode_name(read.problem), _decode_name(read.task)
        conversations.append(Conversation(line=number, messages=messages, problem=problem, task=task))
        topics.append(_topic(read))
    if not conversations:
        but = f" but {empty} with an empty answer" if empty else ""
        raise DataError(f"{display(file)}: expected conversations, one per line, found none{but}")
    out = _held_out(topics, held_out) if held_out else set()
    if held_out and len(out) in (0, len(conversations)):
        raise DataError(
            f"{display(file)}: expected conversations about at least two problems, to hold one out, got "
            f"{len(conversations)} about one; set method.held_out=0"
        )
    return Split(
        [conversation for index, conversation in enumerate(conversations) if index not in out],
        [conversation for index, conversation in enumerate(conversations) if index in out],
        empty,
    )


def read_conversations(file: Path) -> list[Conversation]:
    """Read conversations as a run stores them."""
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
    for number, turn in enumerate(read.messages, start=1):
        if turn.role not in ROLES:
            raise DataError(f"{where}: message {number}: expected a role of {', '.join(ROLES)}, got '{turn.role}'")
        if turn.role != "assistant" and not turn.content.strip():
            raise DataError(f"{where}: message {number} ({turn.role}) is empty")
    roles = [turn.role for turn in read.messages]
    if "assistant" not in roles:
        raise DataError(f"{where}: expected an answer of the assistant, got none")
    if "user" not in roles[: roles.index("assistant")]:
        raise DataError(f"{where}: expected a prompt of the user before the first answer, got none")
    return read


def _decode_name(value: msgspec.Raw) -> str | None:
    """Return a string; None for anything else."""
    name = msgspec.json.decode(value)
    return name if isinstance(name, str) else None


def _topic(read: _Line) -> bytes:
    """Return a digest of a conversation's problem, or of its prompt if it names no problem."""
    if bytes(read.problem) != b"null":
        about: object = [read.task, read.problem]
    else:
        about = read.messages[: [turn.role for turn in read.messages].index("assistant")]
    return blake2b(msgspec.json.encode(about), digest_size=16).digest()


def _held_out(topics: Sequence[bytes], share: float) -> set[int]:
    """Return the indices of whole topics that make up at most `share`, or of the smallest topic if all are larger."""
    by_topic: dict[bytes, list[int]] = defaultdict(list)
    for index, topic in enumerate(topics):
        by_topic[topic].append(index)
    out: set[int] = set()
    # In the order of their digests: the split depends only on the content, not on a seed or the file's order.
    for topic in sorted(by_topic):
        if len(out) + len(by_topic[topic]) <= share * len(topics):
            out.update(by_topic[topic])
    smallest = min(sorted(by_topic), key=lambda topic: len(by_topic[topic]))
    return out or set(by_topic[smallest])


def count_examples(conversations: int, epochs: float) -> int:
    """Return the number of conversations that all epochs together learn from, each as often as it comes."""
    return max(1, round(epochs * conversations))
