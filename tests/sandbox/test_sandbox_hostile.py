"""Every hostile program is contained, gets its verdict, leaves nothing behind, and the next program does not notice."""

import shutil
import time
from collections.abc import AsyncIterator
from pathlib import Path

import psutil
import pytest
import pytest_asyncio

from evorun.errors import SandboxError
from evorun.sandbox import Limits, Program, Sandbox, SandboxConfig
from hostile_programs import HOSTILE, LIMITS, Hostile

HEALTHY = """
import json, os, sys, time
import random
print(json.dumps([input(), os.listdir("."), dict(os.environ), sys.getrecursionlimit(), random.random() < 1, len("x")]))
"""
ONE_MOMENT = 1.0


@pytest_asyncio.fixture(scope="module", loop_scope="module", params=["bubblewrap", "namespaces", "rlimits"])
async def sandbox(request: pytest.FixtureRequest) -> AsyncIterator[Sandbox]:
    try:
        opened = await Sandbox.open(SandboxConfig(isolation=request.param, slots=1))
    except SandboxError as error:
        pytest.skip(str(error))
    yield opened
    await opened.close()


@pytest.mark.asyncio(loop_scope="module")
@pytest.mark.parametrize("hostile", HOSTILE, ids=lambda hostile: hostile.name)
async def test_is_contained(sandbox: Sandbox, hostile: Hostile) -> None:
    if not sandbox.fully_isolated and not hostile.bare:
        pytest.skip("not contained by rlimits")
    before = processes()
    for _ in range(3):  # the clock is checked on the quickest: this machine may be busy with something else
        started = time.monotonic()
        execution = await sandbox.run(Program(hostile.source), "input\n", LIMITS)
        seconds = time.monotonic() - started
        assert execution.end in hostile.ends, execution
        if seconds < LIMITS.wall_limit() + ONE_MOMENT:
            break
    assert seconds < LIMITS.wall_limit() + ONE_MOMENT
    assert execution.cpu_seconds < LIMITS.cpu_seconds + ONE_MOMENT
    assert len(execution.stdout) + len(execution.stderr) <= 1024 * LIMITS.output_kib + 100
    if hostile.printed is not None:
        assert execution.stdout.removesuffix("\n") == hostile.printed.removesuffix("\n")
    assert len(processes()) <= len(before)
    healthy = await sandbox.run(Program(HEALTHY), "hello\n", Limits(cpu_seconds=5))
    assert (healthy.stdout, healthy.stderr) == ('["hello", [], {}, 50000, true, 1]\n', "")


def processes() -> set[int]:
    """Everything below this process, in whatever namespace."""
    return {process.pid for process in psutil.Process().children(recursive=True)}


@pytest.mark.asyncio(loop_scope="module")
async def test_disk_is_as_before(sandbox: Sandbox, tmp_path: Path) -> None:
    free = shutil.disk_usage(tmp_path).free
    source = "open('f', 'wb').write(bytes(1 << 24))"
    await sandbox.run(Program(source), "", Limits(cpu_seconds=5, file_mib=32))
    assert shutil.disk_usage(tmp_path).free > free - (8 << 20)
