import asyncio
import queue
import sqlite3
import subprocess
import sys
import textwrap
import time
from pathlib import Path
from typing import Any

import pytest

import evorun.runs.journal as journal_module
from evorun.errors import JournalError, RunDirectoryError
from evorun.runs.journal import Journal
from evorun.runs.journal_file import Effect
from evorun.runs.journal_reader import open_journal


def effect(key: str, digest: bytes = b"d", result: bytes = b"{}") -> Effect:
    return Effect(key, digest, b"request", result, None, 0.5)


async def test_what_was_put_comes_back_after_reopening(tmp_path: Path) -> None:
    journal = Journal(tmp_path / "j")
    await asyncio.gather(*(journal.put(effect(f"k{i}", result=b"%d" % i)) for i in range(500)))
    assert journal.get("k7", b"d") == b"7"
    journal.close()
    again = Journal(tmp_path / "j")
    assert len(again) == 500
    assert [again.get(f"k{i}", b"d") for i in (0, 499)] == [b"0", b"499"]
    assert again.get("other", b"d") is None
    again.close()


async def test_another_request_under_a_key_is_refused(tmp_path: Path) -> None:
    journal = Journal(tmp_path / "j")
    await journal.put(effect("problem|0", digest=b"first"))
    with pytest.raises(JournalError, match=r"'problem\|0' was recorded for another request"):
        journal.get("problem|0", b"second")
    journal.close()


@pytest.fixture
def connections(monkeypatch: pytest.MonkeyPatch) -> list[tuple[sqlite3.Connection, list[str]]]:
    """The connections that journals open from now on, each with the statements that it runs."""
    opened: list[tuple[sqlite3.Connection, list[str]]] = []
    connect = journal_module._connect

    def traced(path: Path) -> sqlite3.Connection:
        connection, statements = connect(path), list[str]()
        connection.set_trace_callback(statements.append)
        opened.append((connection, statements))
        return connection

    monkeypatch.setattr(journal_module, "_connect", traced)
    return opened


async def test_puts_at_once_share_transactions(
    tmp_path: Path, connections: list[tuple[sqlite3.Connection, list[str]]]
) -> None:
    journal = Journal(tmp_path / "j")
    await journal.put(effect("first"))
    blocker = sqlite3.connect(tmp_path / "j", isolation_level=None)
    blocker.execute("BEGIN IMMEDIATE")  # the writer waits while all puts are made
    puts = [asyncio.create_task(journal.put(effect(f"k{i}"))) for i in range(1000)]
    await asyncio.sleep(0)
    blocker.execute("COMMIT")
    await asyncio.gather(*puts)
    commits = sum(statement == "COMMIT" for _, statements in connections for statement in statements)
    assert 2 <= commits <= 4
    assert len(journal) == 1001
    assert blocker.execute("SELECT sum(count) FROM keys").fetchone() == (1001,)
    journal.close()


class WatchedQueue(queue.SimpleQueue[Any]):
    """A queue out of which everything is taken at once."""

    def put(self, item: Any) -> None:
        super().put(item)
        while not self.empty():
            time.sleep(0)  # another thread's turn


async def test_what_one_turn_of_the_loop_records_is_one_transaction(
    tmp_path: Path, connections: list[tuple[sqlite3.Connection, list[str]]], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(queue, "SimpleQueue", WatchedQueue)
    journal = Journal(tmp_path / "j")
    await journal.put(effect("first"))

    def commits() -> int:
        return sum(statement == "COMMIT" for _, statements in connections for statement in statements)

    before = commits()
    await asyncio.gather(*(journal.put(effect(f"k{i}")) for i in range(300)))
    assert commits() == before + 1
    journal.close()


async def test_what_waits_for_the_end_of_the_turn_is_written_on_closing(tmp_path: Path) -> None:
    journal = Journal(tmp_path / "j")
    put = asyncio.create_task(journal.put(effect("k")))
    await asyncio.sleep(0)
    journal.close()
    await asyncio.wait_for(put, timeout=60)
    reader = open_journal(tmp_path / "j")
    assert [key for key, _ in reader.index()] == ["k"]
    reader.close()


async def test_a_commit_is_flushed_to_the_disk(
    tmp_path: Path, connections: list[tuple[sqlite3.Connection, list[str]]]
) -> None:
    journal = Journal(tmp_path / "j")
    await journal.put(effect("k"))
    writers = [connection for connection, statements in connections if any("INSERT" in text for text in statements)]
    assert len(writers) == 1
    assert writers[0].execute("PRAGMA synchronous").fetchone() == (2,)  # FULL: no commit is lost by a power cut
    assert writers[0].execute("PRAGMA journal_mode").fetchone() == ("wal",)
    journal.close()


async def test_what_is_recorded_is_never_replaced(tmp_path: Path) -> None:
    journal = Journal(tmp_path / "j")
    await journal.put(effect("k", result=b"first"))
    await journal.put(effect("k", result=b"second"))
    assert journal.get("k", b"d") == b"first"
    journal.close()


def test_a_kill_while_the_tables_are_made_leaves_none_or_all(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    path = tmp_path / "journal.sqlite"
    with monkeypatch.context() as patch:
        # a statement in their middle does not get through
        patch.setattr(journal_module, "SCHEMA", {*journal_module.SCHEMA, "CREATE TABLE m ("})
        with pytest.raises(RunDirectoryError):
            Journal(path)
    Journal(path).close()


def test_a_put_that_returned_survives_kill_9(tmp_path: Path) -> None:
    program = """
        import asyncio, os, signal, sys
        from pathlib import Path
        from evorun.runs.journal import Journal
        from evorun.runs.journal_file import Effect

        async def main():
            journal = Journal(Path(sys.argv[1]))
            for i in range(20):
                await journal.put(Effect(f"k{i}", b"d", b"r", b"x", None, 0.0))
            os.kill(os.getpid(), signal.SIGKILL)

        asyncio.run(main())
    """
    path = tmp_path / "j"
    done = subprocess.run([sys.executable, "-c", textwrap.dedent(program), str(path)], timeout=60)
    assert done.returncode == -9
    journal = Journal(path)
    assert len(journal) == 20
    journal.close()


def test_the_disk_is_full(tmp_path: Path) -> None:
    program = """
        import asyncio, os, resource, sys
        from pathlib import Path
        from evorun.errors import RunDirectoryError
        from evorun.runs.journal import Journal
        from evorun.runs.journal_file import Effect

        async def main():
            journal = Journal(Path(sys.argv[1]))
            await journal.put(Effect("small", b"d", b"r", b"x", None, 0.0))
            resource.setrlimit(resource.RLIMIT_FSIZE, (200_000, 200_000))
            try:
                await journal.put(Effect("big", b"d", b"r", os.urandom(1_000_000), None, 0.0))
            except RunDirectoryError as error:
                print(error)

        asyncio.run(main())
    """
    path = tmp_path / "j"
    done = subprocess.run(
        [sys.executable, "-c", textwrap.dedent(program), str(path)], capture_output=True, text=True, timeout=60
    )
    assert done.returncode == 0, done.stderr
    assert done.stdout.startswith(f"cannot write {path}: ")
    journal = Journal(path)
    assert journal.get("small", b"d") == b"x"
    journal.close()


def test_a_file_that_is_no_journal(tmp_path: Path) -> None:
    (tmp_path / "j").write_text("not a database, but long enough to be taken for a file with a header of its own")
    with pytest.raises(RunDirectoryError, match="cannot use the journal"):
        Journal(tmp_path / "j")
    with pytest.raises(RunDirectoryError, match="is not a journal of evorun"):
        open_journal(tmp_path / "j")
    with pytest.raises(RunDirectoryError, match="found no file"):
        open_journal(tmp_path / "absent")


async def test_waiting_for_the_disk_does_not_block_the_loop(tmp_path: Path) -> None:
    journal = Journal(tmp_path / "j")
    blocker = sqlite3.connect(tmp_path / "j", isolation_level=None)
    blocker.execute("BEGIN IMMEDIATE")
    put = asyncio.create_task(journal.put(effect("k")))
    for _ in range(50):  # the loop turns while the writer waits for the other connection's lock
        await asyncio.sleep(0.001)
    assert not put.done()
    blocker.execute("COMMIT")
    await asyncio.wait_for(put, timeout=60)
    journal.close()
