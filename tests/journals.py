"""Journals in tests: counted while they grow, and written as a test wants them."""

import contextlib
import sqlite3
import subprocess
import time
from collections.abc import Iterable
from pathlib import Path

from evorun.runs.journal import Journal
from evorun.runs.journal_file import Effect, Writer


def effects_in(path: Path) -> int:
    """Return the number of effects in a journal that another process may be writing; 0 before there is one."""
    with (
        contextlib.suppress(sqlite3.Error),
        contextlib.closing(sqlite3.connect(f"file:{path}?mode=ro", uri=True)) as db,
    ):
        return int(db.execute("SELECT coalesce(sum(count), 0) FROM keys").fetchone()[0])
    return 0


def wait_for_effects(run: Path, count: int, process: subprocess.Popen[bytes]) -> int:
    """Return the number of recorded effects once there are `count`."""
    while process.poll() is None:
        if (recorded := effects_in(run / "journal.sqlite")) >= count:
            return recorded
        time.sleep(0.01)
    raise AssertionError("the run ended before it could be interrupted")


def write_journal(path: Path, effects: Iterable[Effect]) -> None:
    """Write a journal that holds these effects and no others."""
    path.unlink(missing_ok=True)
    Journal(path).close()
    with contextlib.closing(sqlite3.connect(path)) as connection:
        Writer(connection).write(list(effects))
