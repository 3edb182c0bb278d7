"""Every hostile program is contained, gets its verdict, leaves nothing behind, and the next program does not notice."""

import asyncio
import os
import subprocess
import sys
import sysconfig
import time
from collections.abc import Sequence
from pathlib import Path

import psutil
import pytest

from evorun.sandbox import Limits, Program, Sandbox, SandboxConfig
from hostile_programs import HOSTILE, ONE_OF_A_KIND, Hostile
from means import AS_ROOT, SYSTEMS_OWN, version_of

HEALTHY = """
import json, os, sys, time
import random
print(json.dumps([input(), os.listdir("."), dict(os.environ), sys.getrecursionlimit(), random.random() < 1, len("x")]))
"""
TESTS = Path(__file__).parents[1]
MUCH_LATER = 40
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
    await contains(sandbox, hostile)


async def contains(sandbox: Sandbox, hostile: Hostile) -> None:
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
@pytest.mark.nightly
@pytest.mark.parametrize("names", [ONE_OF_A_KIND, None], ids=["few", "all"])
@pytest.mark.parametrize("isolation", ["bubblewrap", "namespaces"])
def test_programs_are_contained_in_full_isolation_for_an_ordinary_user_too(
    isolation: str, names: Sequence[str] | None
) -> None:
    """Root starts the sandbox otherwise: it gives up its user, and needs no user namespace for the files."""
    if not SYSTEMS_OWN.exists() or version_of(SYSTEMS_OWN) != str(sys.version_info[:2]):
        pytest.skip("no interpreter of this version that others can read")
    paths = [str(TESTS.parent), str(TESTS), str(Path(__file__).parent), sysconfig.get_path("purelib")]
    done = subprocess.run(
        [SYSTEMS_OWN, "-c", f"from {__name__.rpartition('.')[2]} import *; contain_all({isolation!r}, {names!r})"],
        capture_output=True, text=True, check=False, cwd="/", user=65534, group=65534, extra_groups=[],
        env={"PYTHONPATH": ":".join(paths), "PYTHONDONTWRITEBYTECODE": "1", "PATH": os.environ["PATH"]},
    )  # fmt: skip
    if "does not work here" in done.stderr:
        pytest.skip(done.stderr.splitlines()[-1])
    assert done.returncode == 0, done.stderr[-3000:]
    chosen = [hostile.name for hostile in HOSTILE if names is None or hostile.name in names]
    assert done.stdout.split() == chosen


def contain_all(isolation: str, names: Sequence[str] | None) -> None:
    """Run the programs of these names, and print each that is contained."""

    async def contain() -> None:
        sandbox = await Sandbox.open(SandboxConfig(isolation=isolation, slots=1))
        for hostile in HOSTILE:
            if names is None or hostile.name in names:
                await contains(sandbox, hostile)
                print(hostile.name)
        await sandbox.close()

    asyncio.run(contain())


def processes() -> set[int]:
    """Everything below this process, in whatever namespace."""
    return {process.pid for process in psutil.Process().children(recursive=True)}
