"""A run against a server that fails as real ones do loses nothing but what the server never answers."""

import json
import re
import subprocess
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import pytest

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


@pytest.fixture(name="clean", scope="module")
def _clean(tmp_path_factory: pytest.TempPathFactory) -> tuple[Path, dict[str, Any], dict[str, int]]:
    """Return a run against a server without faults, its results, and what the server did."""
    folder = tmp_path_factory.mktemp("clean") / "run"
    return folder, *carry_out(folder, "--clean")


@pytest.mark.nightly
def test_what_is_never_answered_is_counted(clean: tuple[Path, dict[str, Any], dict[str, int]]) -> None:
    folder, results, done = clean
    assert results["wasted"] == {}
    assert results["counts"]["rejected_requests"] > 0  # some of what is never answered
    # Refusals of all roles, as the server counted them, and by the journal
    assert sum(results["refused"].values()) == done["refused"] > results["counts"]["rejected_requests"]
    assert results["refused"]["judge"] == results["counts"]["refused_judgments"]
    spending = read_spending(folder / "journal.sqlite")
    assert spending.refused == results["refused"]
    assert {role: usage.calls for role, usage in spending.by_role.items()} == {
        role: spent["calls"] for role, spent in results["cost"].items() if role != "total"
    }


@pytest.mark.nightly  # models/test_server_engine.py has each fault
def test_it_loses_nothing_but_what_is_never_answered(
    clean: tuple[Path, dict[str, Any], dict[str, int]], tmp_path: Path
) -> None:
    folder, results, done_clean = clean
    faulty, done = carry_out(tmp_path / "faulty")
    for name in RECORDS:
        assert records(tmp_path / "faulty", name) == records(folder, name), name
    assert [faulty[part] for part in ("metrics", "by_stratum", "counts")] == [
        results[part] for part in ("metrics", "by_stratum", "counts")
    ]
    assert done.keys() >= {"500", "429, seconds", "429, date", "hang", "malformed", "cut", "empty", "always 500"}
    # Every attempt that the server has seen is an answer or counted.
    answered = faulty["cost"]["total"]["calls"] - done_clean["refused"]
    assert sum(done.values()) == answered + sum(kind["attempts"] for kind in faulty["wasted"].values())
