"""Every hostile program is contained, gets its verdict, leaves nothing behind, and the next program does not notice."""

import os
import time

import psutil
import pytest

from evorun.sandbox import Limits, Program, Sandbox
from hostile_programs import HOSTILE, Hostile

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


def processes() -> set[int]:
    """Everything below this process, in whatever namespace."""
    return {process.pid for process in psutil.Process().children(recursive=True)}
