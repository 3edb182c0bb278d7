"""The journal's file: what is written comes back to the byte, takes little room, and cannot harm who reads it."""

import json
import os
import random
import sqlite3
import tracemalloc
import zlib
from collections.abc import Callable
from contextlib import closing
from pathlib import Path

import msgspec
import pytest
from hypothesis import given
from hypothesis import strategies as st

import evorun.runs.journal_file as journal_file
from evorun.errors import EvorunError, JournalError, RunDirectoryError
from evorun.models.base import Request, Sampling
from evorun.models.encoding import encode_request
from evorun.runs.journal import Journal
from evorun.runs.journal_file import Effect, Writer, digest_request
from evorun.runs.journal_reader import open_journal, read_journal
from journals import write_journal

RNG = random.Random(0)


def words(count: int) -> str:
    return " ".join("".join(RNG.choices("abcdefghijklmnopqrstuvwxyz", k=6)) for _ in range(count))


def call(number: int, prompt: str, text: str = "so", usage: str | None = '{"prompt_tokens":1}') -> Effect:
    messages = ({"role": "system", "content": "Be brief."}, {"role": "user", "content": prompt})
    about = encode_request("m", Request(messages=messages, sampling=Sampling(max_tokens=9), seed=number))
    return Effect(
        f"p|0|generate|{number}|0", digest_request(about), about, json.dumps(text).encode(), usage, number / 7
    )


@pytest.fixture
def journal(tmp_path: Path) -> Path:
    """A journal of three effects."""
    path = tmp_path / "journal.sqlite"
    write_journal(path, [call(number, f"a\n\n{words(30)}\nb") for number in range(3)])
    return path


def test_effects_of_many_writes_come_back_in_order(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(journal_file, "ITEMS", 16)
    monkeypatch.setattr(journal_file, "REMEMBERED_BYTES", 2_000)  # texts are forgotten, and stored again
    path = tmp_path / "journal.sqlite"
    problems = [f"# Problem\n{words(40)}\n\n# Options\nA. 1\nB. 2\n\n" for _ in range(9)]
    prompts = [problems[number % 9] + words(5) + "\nAnswer: C \u2028 \\n\n\n" for number in range(150)]
    effects = [
        call(number, prompt, words(number % 4), [None, "{}"][number % 2]) for number, prompt in enumerate(prompts)
    ]
    Journal(path).close()
    start = 0
    for size in (1, 1, 3, 40, 2, 20, 1, 1, 11, 70):  # of the second half, by another process
        if start % 45 == 0:
            connection = sqlite3.connect(path)
            writer = Writer(connection)
        assert writer.write(effects[start : start + size]) == start
        start += size
    connection.close()
    assert list(read_journal(path)) == effects


async def test_of_two_effects_with_one_key_the_first_counts(tmp_path: Path) -> None:
    path = tmp_path / "journal.sqlite"
    first, second = call(0, "?", "first"), call(0, "?", "second")
    write_journal(path, [first, second])
    with closing(Journal(path)) as journal:
        assert journal.get(first.key, first.digest) == b'"first"'
        await journal.put(call(0, "?", "third"))
        assert journal.get(first.key, first.digest) == b'"first"'


@given(st.lists(st.sampled_from(["x" * 63, "x" * 64, "y" * 70, "", "a", "\\", '"', "\\n"]), max_size=12))
def test_the_texts_of_a_request_are_the_request(lines: list[str]) -> None:
    request = json.dumps("\n".join(lines)).encode()
    paragraphs, rest = journal_file._split_paragraphs(request)
    texts = [text for paragraph in paragraphs for text in journal_file._split_texts(paragraph)]
    assert b"".join(texts) + rest == request
    assert all(texts)


def test_what_stands_in_many_prompts_is_stored_once(tmp_path: Path) -> None:
    problem, solutions = words(100), [words(120) for _ in range(40)]
    # as duels ask: each solution in many prompts, on either side
    pairs = [RNG.sample(solutions, 2) for _ in range(2000)]
    prompts = [f"{problem}\n\n# A\n{first}\n\n# B\n{second}\n\nWhich?" for first, second in pairs]
    effects = [call(number, prompt) for number, prompt in enumerate(prompts)]
    path = tmp_path / "journal.sqlite"
    write_journal(path, effects)
    asked = sum(len(effect.request) for effect in effects)
    assert path.stat().st_size < asked / 25
    # the solutions cannot be told from noise: they set the least size there can be
    assert path.stat().st_size > sum(len(zlib.compress(one.encode())) for one in solutions)
    assert list(read_journal(path)) == effects


def test_a_reader_follows_a_writer_that_packs(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(journal_file, "ITEMS", 8)
    path = tmp_path / "journal.sqlite"
    effects = [call(number, words(20) + "\n") for number in range(40)]
    Journal(path).close()
    with closing(sqlite3.connect(path)) as connection:
        writer = Writer(connection)
        writer.write(effects[:3])
        reader = open_journal(path)
        found = [reader.effect(number) for number in range(3)]
        for number in range(3, 40):
            writer.write(effects[number : number + 1])
            found.append(reader.effect(number))
            assert reader.result(number // 2) == effects[number // 2].result
        reader.close()
    assert found == effects


@pytest.mark.parametrize("table", journal_file.TABLES)
def test_an_overwritten_byte_is_found_before_a_run_goes_on(journal: Path, table: str) -> None:
    with closing(sqlite3.connect(journal)) as connection, connection:
        (body,) = connection.execute(f"SELECT body FROM {table}").fetchone()
        changed = body[:-1] + bytes([body[-1] ^ 1])
        connection.execute(f"UPDATE {table} SET body = ?", (changed,))
    with pytest.raises(JournalError, match=f"is damaged .wrong checksum of {table} 0 to .*restore it from a copy"):
        Journal(journal)
    with pytest.raises(JournalError, match="is damaged"):
        list(read_journal(journal))


def test_overwritten_pages_are_told_in_one_line(journal: Path) -> None:
    with journal.open("r+b") as file:
        file.seek(4096)
        file.write(os.urandom(8192))
    with pytest.raises((JournalError, RunDirectoryError), match=r"is damaged|cannot use the journal") as told:
        Journal(journal)
    assert "\n" not in str(told.value)
    with pytest.raises((JournalError, RunDirectoryError)):
        list(read_journal(journal))


def _execute(path: Path, *statements: str) -> None:
    with closing(sqlite3.connect(path)) as connection, connection:
        for statement in statements:
            connection.execute(statement)


def _endless_view(path: Path) -> None:
    endless = "WITH RECURSIVE n(i) AS (SELECT 0 UNION ALL SELECT i + 1 FROM n) SELECT i first, 1 count FROM n"
    _execute(path, "DROP TABLE keys", f"CREATE VIEW keys AS {endless}")


def _trigger(path: Path) -> None:
    _execute(path, "CREATE TRIGGER t AFTER INSERT ON keys BEGIN DELETE FROM results; END")


def _another_table(path: Path) -> None:
    _execute(path, "CREATE TABLE other (a)")


def _integers_for_blobs(path: Path) -> None:
    _execute(path, "UPDATE keys SET body = 7", "UPDATE results SET body = 2.5, count = 'many'")


def _no_items(path: Path) -> None:
    _execute(path, "UPDATE keys SET count = 0")


def _more_items_than_there_are(path: Path) -> None:
    _execute(path, "UPDATE keys SET count = 9223372036854775807")


def _replace_bodies(path: Path, body: bytes) -> None:
    with closing(sqlite3.connect(path)) as connection, connection:
        for table in journal_file.TABLES:
            connection.execute(f"UPDATE {table} SET body = ?, checksum = ?", (body, zlib.crc32(body)))


def _zeros(path: Path) -> None:
    packer = zlib.compressobj(1)
    _replace_bodies(path, b"".join(packer.compress(bytes(1 << 20)) for _ in range(256)) + packer.flush())


def _an_array_of_millions(path: Path) -> None:
    _replace_bodies(path, zlib.compress(b"\xdd" + (10_000_000).to_bytes(4, "big") + b"\xc4\x00" * 10_000_000))


def _deep_array(path: Path) -> None:
    _replace_bodies(path, zlib.compress(b"\x91" * 100_000 + b"\xc0"))


def _other_types(path: Path) -> None:
    _replace_bodies(path, zlib.compress(msgspec.msgpack.encode([1, 2, 3])))


def _request_of_gigabytes(path: Path) -> None:
    text = zlib.compress(msgspec.msgpack.encode([b"x" * (30 << 20)]))
    request = zlib.compress(msgspec.msgpack.encode([([0] * 2_000, b"", None, 0.0)] * 3))
    with closing(sqlite3.connect(path)) as connection, connection:
        for table, body, count in (("texts", text, 1), ("requests", request, 3)):
            connection.execute(f"DELETE FROM {table}")
            connection.execute(f"INSERT INTO {table} VALUES (0, ?, ?, ?)", (count, body, zlib.crc32(body)))


def _pipe_beside_it(path: Path) -> None:
    os.mkfifo(f"{path}-wal")


def _pipe(path: Path) -> None:
    path.unlink()
    os.mkfifo(path)


def _zeros_without_end(path: Path) -> None:
    path.unlink()
    path.symlink_to("/dev/zero")


@pytest.mark.parametrize(
    "attack",
    [
        _endless_view,
        _trigger,
        _another_table,
        _integers_for_blobs,
        _no_items,
        _more_items_than_there_are,
        pytest.param(_zeros, marks=pytest.mark.nightly),
        _an_array_of_millions,
        _deep_array,
        _other_types,
        _request_of_gigabytes,
        _pipe_beside_it,
        _pipe,
        _zeros_without_end,
    ],
)
def test_somebody_elses_journal_does_no_harm(journal: Path, attack: Callable[[Path], None]) -> None:
    attack(journal)
    tracemalloc.start()
    try:
        with pytest.raises(EvorunError) as told:
            list(read_journal(journal))
        _, peak = tracemalloc.get_traced_memory()
    finally:
        tracemalloc.stop()
    assert peak < 200e6
    assert str(journal) in str(told.value)
    assert "\n" not in str(told.value)
