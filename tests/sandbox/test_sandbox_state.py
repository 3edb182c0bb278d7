"""The bits that a program can pass on to the next one, by every means of `passing_programs`."""

import asyncio
import contextlib
import math
import os
import random
import secrets

import pytest

from evorun.errors import SandboxError
from evorun.sandbox import Limits, Program, Sandbox, SandboxConfig
from means import interpreter_for_other_users
from passing_programs import MEANS, Means, sources

LIMITS = Limits(cpu_seconds=60.0, wall_seconds=120.0, open_files=256)
PAIRS = 2


SLOW = (
    *("numbers of pipes", "room in pipes", "names of sockets"),
    "locks on the interpreter's files (fcntl)",
)


@pytest.mark.nightly
@pytest.mark.parametrize(
    ("isolation", "left_out"),
    [
        ("namespaces", SLOW),
        pytest.param("namespaces", (), marks=pytest.mark.nightly),
        # The kernel isolates these as it does there, or not at all.
        *(pytest.param(other, (), marks=pytest.mark.nightly) for other in ("bubblewrap", "gvisor", "rlimits")),
    ],
)
async def test_programs_pass_nothing_on_but_by_the_means_that_are_named(
    isolation: str, left_out: tuple[str, ...]
) -> None:
    with interpreter_for_other_users() if isolation == "rlimits" else contextlib.nullcontext():
        try:
            sandbox = await Sandbox.open(SandboxConfig(isolation, slots=2))
        except SandboxError as error:
            pytest.skip(str(error))
        found = {means: await bits_passed(sandbox, means) for means in MEANS if means.name not in left_out}
        await sandbox.close()
    print(f"\nbits per execution, {isolation}")
    for means, bits in found.items():
        print(f"{bits:5.1f} of {means.bits:2}  {means.name}")
    assert {means.name for means, bits in found.items() if bits} <= {
        means.name for means in MEANS if isolation in means.passes_in or (means.counted_by_user and os.geteuid() != 0)
    }


async def bits_passed(sandbox: Sandbox, means: Means) -> float:
    """Return the information that the second program's guesses hold of the first one's numbers, per execution."""
    name = f"evorun-trial-{secrets.token_hex(6)}"
    write, read = sources(means, name)
    right = 0
    draw = random.Random(0)
    # Of many bits two numbers tell enough, and to run at once takes seconds.
    some = [draw.getrandbits(means.bits) for _ in range(1 if means.at_once or means.bits >= 20 else PAIRS)]
    # With each number its complement: who always guesses the same is right in half of all bits.
    numbers = [number ^ mask for number in some for mask in (0, (1 << means.bits) - 1)]
    for number in numbers:
        first = asyncio.create_task(sandbox.run(Program(write), str(number), LIMITS))
        # Of those that are to run at once, the first has ended already where it was refused what it does.
        ended, _ = await asyncio.wait([first], timeout=0.3 if means.at_once else None)
        guess = (await sandbox.run(Program(read), "0" if ended else "0.5", LIMITS)).stdout
        first.cancel()
        with contextlib.suppress(asyncio.CancelledError):
            await first
        for place in ("/tmp", "/dev/shm", "/var/tmp", "/run"):
            with contextlib.suppress(FileNotFoundError):
                os.unlink(f"{place}/{name}")
        right += means.bits - (number ^ int(guess or 0)).bit_count()
    total = len(numbers) * means.bits
    if abs(right - total / 2) < 4 * math.sqrt(total) / 2 and right < total:  # as near as guesses come
        return 0.0
    share = right / total
    entropy = -sum(p * math.log2(p) for p in (share, 1 - share) if p)
    return means.bits * (1 - entropy)
