"""A run against a server that fails as real ones do loses nothing but what the server never answers."""

import json
import re
import subprocess
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

from evorun.runs.spending import read_spending
from evorun_process import RECORDS, SMALL, evorun_here

SERVER = Path(__file__).parents[1] / "scripts" / "fault_server.py"

RUN = ("method=duel_evolve", "task=mathbench", "task.source=sample", *SMALL, "task.limit=6", "evorun.progress=off")
ENGINE = ("engine=server", "model=api", "model.id=faulty")
# Hangs end after a second, and what is never answered takes a second or two.
WAITS = ("engine.timeout=1", "engine.backoff_base=0.02", "engine.backoff_cap=0.1")
# One request in so many is never answered: a small run needs some of them.
ALWAYS = "24"


@contextmanager
def served(*options: str) -> Iterator[tuple[str, dict[str, int]]]:
    """Start the server; yield its URL, and a dictionary that at the end has what it did."""
    command = [sys.executable, str(SERVER), "--always", ALWAYS, *options]
    done: dict[str, int] = {}
    with subprocess.Popen(command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True) as process:
        assert process.stdin is not None
        assert process.stdout is not None
        yield process.stdout.readline().strip(), done
        process.stdin.close()
        done.update(json.loads(process.stdout.read().splitlines()[-1]))


def carry_out(folder: Path, *options: str) -> tuple[dict[str, Any], dict[str, int]]:
    """Run against the server in a folder; return its results and what the server did."""
    with served(*options) as (url, done):
        words = (*RUN, *ENGINE, *WAITS, f"engine.base_urls=[{url}]", f"hydra.run.dir={folder}")
        ended = evorun_here(*words, cwd=folder.parent)
        assert ended.returncode == 0, ended.stderr
    return json.loads((folder / "results.json").read_text()), done


def records(folder: Path, name: str) -> str:
    """Return records without the reasons of refusals, which say how often a request was sent."""
    return re.sub(r"rejected: (HTTP 400|\d+ attempts)[^\"]*", "rejected", (folder / name).read_text())


def test_it_loses_nothing_but_what_is_never_answered(tmp_path: Path) -> None:
    clean, done_clean = carry_out(tmp_path / "clean", "--clean")
    faulty, done = carry_out(tmp_path / "faulty")
    for name in RECORDS:
        assert records(tmp_path / "faulty", name) == records(tmp_path / "clean", name), name
    assert [faulty[part] for part in ("metrics", "by_stratum", "counts")] == [
        clean[part] for part in ("metrics", "by_stratum", "counts")
    ]
    assert clean["wasted"] == {}
    assert clean["counts"]["rejected_requests"] > 0  # some of what is never answered
    assert done.keys() >= {"500", "429, seconds", "429, date", "hang", "malformed", "cut", "empty", "always 500"}
    # Refusals of all roles, as the server counted them, and by the journal
    assert sum(clean["refused"].values()) == done_clean["refused"] > clean["counts"]["rejected_requests"]
    assert clean["refused"]["judge"] == clean["counts"]["refused_judgments"]
    spending = read_spending(tmp_path / "clean" / "journal.sqlite")
    assert spending.refused == clean["refused"]
    assert {role: usage.calls for role, usage in spending.by_role.items()} == {
        role: spent["calls"] for role, spent in clean["cost"].items() if role != "total"
    }
    # Every attempt that the server has seen is an answer or counted.
    answered = faulty["cost"]["total"]["calls"] - done_clean["refused"]
    assert sum(done.values()) == answered + sum(kind["attempts"] for kind in faulty["wasted"].values())
