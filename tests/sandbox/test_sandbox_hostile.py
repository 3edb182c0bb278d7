"""Every hostile program is contained, gets its verdict, leaves nothing behind, and the next program does not notice."""

import os
import subprocess
import sys
import sysconfig
import time
from pathlib import Path

import psutil
import pytest

from evorun.sandbox import Limits, Program, Sandbox
from hostile_programs import HOSTILE, ONE_OF_A_KIND, Hostile
from means import AS_ROOT, SYSTEMS_OWN, version_of

HEALTHY = """
import json, os, sys, time
import random
print(json.dumps([input(), os.listdir("."), dict(os.environ), sys.getrecursionlimit(), random.random() < 1, len("x")]))
"""
MUCH_LATER = 10
"""A program may end so many times its limit late: this machine may be busy with something else."""


def strength(sandbox: Sandbox) -> list[str]:
    if sandbox.fully_isolated:
        return ["limits", "another_user", "walls"]
    return ["limits", "another_user"] if os.geteuid() == 0 else ["limits"]


@pytest.mark.asyncio(loop_scope="module")
@pytest.mark.parametrize("hostile", HOSTILE, ids=lambda hostile: hostile.name)
async def test_is_contained(sandbox: Sandbox, hostile: Hostile) -> None:
    if hostile.contained_by not in strength(sandbox):
        pytest.skip(f"not contained by {sandbox.isolation}")
    before = processes()
    started = time.monotonic()
    execution = await sandbox.run(Program(hostile.source), "input\n", hostile.limits)
    seconds = time.monotonic() - started
    assert execution.end in hostile.ends, execution
    assert seconds < MUCH_LATER * hostile.limits.wall_limit()
    assert execution.cpu_seconds < MUCH_LATER * hostile.limits.cpu_seconds
    assert len(execution.stdout) + len(execution.stderr) <= 1024 * hostile.limits.output_kib + 100
    if hostile.printed is not None:
        assert execution.stdout.removesuffix("\n") == hostile.printed.removesuffix("\n")
    assert len(processes()) <= len(before)
    assert sandbox._scratch is None or os.listdir(sandbox._scratch) == []
    healthy = await sandbox.run(Program(HEALTHY), "hello\n", Limits(cpu_seconds=60))
    assert (healthy.stdout, healthy.stderr) == ('["hello", [], {}, 50000, true, 1]\n', "")


@AS_ROOT
@pytest.mark.slow
@pytest.mark.parametrize("names", [ONE_OF_A_KIND, pytest.param(("",), marks=pytest.mark.nightly)], ids=["few", "all"])
def test_programs_are_contained_in_full_isolation_for_an_ordinary_user_too(names: tuple[str, ...]) -> None:
    """Root starts the sandbox otherwise: it gives up its user, and needs no user namespace for the files."""
    if not SYSTEMS_OWN.exists() or version_of(SYSTEMS_OWN) != str(sys.version_info[:2]):
        pytest.skip("no interpreter of this version that others can read")
    tests = Path(__file__).parents[1]
    paths = [str(tests.parent), str(tests), sysconfig.get_path("purelib")]
    done = subprocess.run(
        [SYSTEMS_OWN, "-m", "pytest", "-q", "--assert=plain", "-p", "no:cacheprovider",
         "-c", tests.parent / "pyproject.toml", __file__,
         "-k", f"is_contained and not rlimits and ({' or '.join(names) or 'is_contained'})"],
        capture_output=True, text=True, check=False, cwd="/", user=65534, group=65534, extra_groups=[],
        env={"PYTHONPATH": ":".join(paths), "PYTHONDONTWRITEBYTECODE": "1", "PATH": os.environ["PATH"]},
    )  # fmt: skip
    assert done.returncode == 0, done.stdout[-3000:] + done.stderr[-1000:]
    if "skipped" not in done.stdout:
        chosen = [hostile for hostile in HOSTILE if any(name in hostile.name for name in names)]
        assert f"{2 * len(chosen)} passed" in done.stdout


def processes() -> set[int]:
    """Everything below this process, in whatever namespace."""
    return {process.pid for process in psutil.Process().children(recursive=True)}
