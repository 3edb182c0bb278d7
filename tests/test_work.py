"""The work of a run or a study: what its programs cannot see, and how it ends."""

import asyncio
import errno
import os
import signal
from collections.abc import Sequence
from contextlib import closing
from pathlib import Path

import pytest

from evorun.errors import EvorunError, TrainingError
from evorun.runner import work
from evorun.runner.work import Engines, carry_out, open_effects
from evorun.runs.directory import RunDirectory
from evorun.sandbox.config import SandboxConfig
from evorun.testing.runs import FakeSandbox


async def test_programs_see_neither_the_folder_nor_the_private_files(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    hidden: list[Path] = []

    class Noted(FakeSandbox):
        def __init__(self, config: SandboxConfig, private: Sequence[Path]) -> None:
            hidden.extend(private)

    monkeypatch.setattr(work, "LazySandbox", Noted)
    with closing(RunDirectory(tmp_path / "study")) as directory:
        async with open_effects(directory, SandboxConfig(), [tmp_path / "tests"], lambda tools: Engines({})):
            pass
    assert hidden == [tmp_path / "study", tmp_path / "tests"]


def test_an_error_that_the_signal_to_a_child_has_made_is_an_interrupt() -> None:
    """A scheduler ends a trainer before the run itself has seen its own signal."""

    async def trains() -> None:
        asyncio.get_running_loop().call_later(0.01, os.kill, os.getpid(), signal.SIGTERM)
        raise TrainingError("the trainer process was killed by signal 15")

    assert carry_out(trains).status == "interrupted"


def test_a_full_disk_is_one_line_in_every_study() -> None:
    async def fill() -> None:
        raise OSError(errno.ENOSPC, "No space left on device")

    outcome = carry_out(fill)
    assert outcome.status == "failed"
    with pytest.raises(EvorunError, match="No space left on device"):
        outcome.raise_error()
