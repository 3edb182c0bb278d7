"""Runs that are killed as processes of their own, and go on."""

import os
import subprocess
import sys
import time
from collections.abc import Sequence
from pathlib import Path
from typing import Any

from evorun.runs.journal_reader import read_journal
from evorun_process import evorun_here, records, start
from journals import effects_in


def check_killed_run(words: Sequence[str], folder: Path, effect: str, modules: Path | None = None) -> None:
    """Kill a run at its first effect whose key contains `effect`, resume it, and compare it with an undisturbed one.

    words: of the command, slow enough to be killed in the middle. folder: may have the undisturbed run as `whole`.
    modules: a folder of modules that the run imports.
    """
    whole, killed = folder / "whole", folder / "killed"
    if not whole.exists():
        done = evorun_here(*words, f"hydra.run.dir={whole}", cwd=folder)
        assert done.returncode == 0, done.stderr
    command = (*words, f"hydra.run.dir={killed}")
    process: Any
    if modules is None:
        process = start(*command, cwd=folder)
    else:
        path = os.pathsep.join(filter(None, (str(modules), os.environ.get("PYTHONPATH", ""))))
        process = subprocess.Popen(
            [sys.executable, "-m", "evorun", *command],
            cwd=folder,
            env={**os.environ, "PYTHONPATH": path},
            stdout=subprocess.DEVNULL,
            stderr=subprocess.DEVNULL,
        )
    journal = killed / "journal.sqlite"
    try:
        while not effects_in(journal) or not any(effect in recorded.key for recorded in read_journal(journal)):
            assert process.poll() is None, "the run ended before it could be killed"
            time.sleep(0.02)
    finally:
        process.kill()
        process.wait()
    before, all_effects = (list(read_journal(run / "journal.sqlite")) for run in (killed, whole))
    assert len(before) < len(all_effects)
    resumed = evorun_here("resume", killed, cwd=folder)
    assert resumed.returncode == 0, resumed.stderr
    after = list(read_journal(journal))
    assert after[: len(before)] == before
    assert sorted(found.key for found in after) == sorted(found.key for found in all_effects)
    assert records(killed) == records(whole)
