"""The process that programs are forked from knows nothing of them and counts all that they use."""

import asyncio

import psutil
import pytest

from evorun.sandbox import Limits, Program, Sandbox

pytestmark = pytest.mark.asyncio(loop_scope="module")

FAR = 60.0
"""Seconds that no test comes near."""


SEARCH = """
import os, re
marks, places = set(), []
with open("/proc/self/maps") as maps, open("/proc/self/mem", "rb", buffering=0) as memory:
    for line in maps:
        span, rights, *_, = line.split()
        start, end = (int(x, 16) for x in span.split("-"))
        while rights[0] == "r" and start < end:
            size = min(end - start, 1 << 22)
            try:
                memory.seek(start)
                marks |= set(re.findall(rb"MARK[-][a-z]+[-][0-9]{9}", memory.read(size)))
            except (OSError, ValueError, OverflowError):  # the kernel's own pages
                pass
            start += size
for number in range(64):
    if os.path.isfile(f"/proc/self/fd/{number}"):
        marks |= set(re.findall(rb"MARK[-][a-z]+[-][0-9]{9}", open(f"/proc/self/fd/{number}", "rb").read()))
print(sorted(marks))
"""


@pytest.mark.sample(1)
async def test_a_program_finds_nothing_of_earlier_ones_in_its_memory(sandbox: Sandbox) -> None:
    script = (
        "# MARK-source-123456789\nimport sys\ntext = sys.stdin.read()\nprint(text, 'MARK-stdout-%d' % 123456789)\n"
        "sys.stderr.write('MARK-stderr-%d' % 123456789)"
    )
    entry = (
        "def f(x):  # MARK-source-987654321\n    print('MARK-stdout-%d' % 987654321)\n    return 'MARK-result-%d' % x"
    )
    limits = Limits(cpu_seconds=FAR)
    for _ in range(3):
        printed = await sandbox.run(Program(script), "MARK-stdin-123456789", limits)
        returned = await sandbox.run(Program(entry, "f"), "987654321", limits)
    assert printed.stdout == "MARK-stdin-123456789 MARK-stdout-123456789\n"
    assert printed.stderr == "MARK-stderr-123456789"
    assert returned.value == '"MARK-result-987654321"'
    # the search finds what is there, and nothing else
    found = await sandbox.run(Program("x = 'MARK-own-' + '1' * 9\n" + SEARCH), "MARK-stdin-222222222", limits)
    assert found.stdout.strip() == "[b'MARK-own-111111111', b'MARK-stdin-222222222']", found
    found = await sandbox.run(Program(SEARCH), "", limits)
    assert found.stdout == "[]\n", found


BURN = """
import ctypes, os, signal, time
def burn(seconds=0.03):
    while sum(os.times()[:2]) < seconds: pass
def child(work):
    pid = os.fork()
    if pid == 0:
        try: work()
        finally: os._exit(0)
    return pid
"""
# Each burns 0.9 s in children of 0.03 s, one after another.
UNCOUNTED = {
    "waited for": "for _ in range(30): os.waitpid(child(burn), 0)",
    "ignored": "try: signal.signal(signal.SIGCHLD, signal.SIG_IGN)\nexcept OSError: pass\n"
    "for _ in range(30):\n    try: os.waitpid(child(burn), 0)\n    except ChildProcessError: pass",
    "not kept": "action = bytearray(160)\naction[136] = 2  # SA_NOCLDWAIT\n"
    "ctypes.CDLL(None).sigaction(signal.SIGCHLD, (ctypes.c_char * 160).from_buffer(action), None)\n"
    "for _ in range(30):\n    try: os.waitpid(child(burn), 0)\n    except ChildProcessError: pass",
    "orphans": "for _ in range(30):\n    r, w = os.pipe()\n    os.waitpid(child(lambda: child(burn)), 0)\n"
    "    os.close(w)\n    os.read(r, 1)\n    os.close(r)",
}


@pytest.mark.sample(6)
@pytest.mark.parametrize("way", UNCOUNTED)
async def test_no_way_to_end_a_child_hides_its_cpu_time(sandbox: Sandbox, way: str) -> None:
    limits = Limits(cpu_seconds=0.1, wall_seconds=FAR, processes=64)
    execution = await sandbox.run(Program(BURN + UNCOUNTED[way] + "\nprint('through')"), "", limits)
    assert (execution.end, execution.stdout) == ("time_limit", ""), execution
    assert "of CPU time" in execution.stderr
    assert execution.cpu_seconds > 0.1


# What it sends is held by connections that nobody accepts, of sockets that are closed: 400 MiB.
HOARD = """
import socket, time
def listener():
    s = socket.socket(socket.AF_UNIX)
    s.bind(f"\\0{len(listeners)}")
    s.listen(4096)
    return s
listeners = []
listeners.append(listener())
for _ in range(2000):
    s = socket.socket(socket.AF_UNIX)
    s.setblocking(False)
    try: s.connect(listeners[-1].getsockname())
    except BlockingIOError:  # its queue is full
        listeners.append(listener())
        continue
    try:
        while True: s.send(bytes(1 << 16))
    except BlockingIOError: pass
    s.close()
time.sleep(20)
"""


async def test_what_sockets_hold_counts_as_memory(sandbox: Sandbox) -> None:
    limits = Limits(cpu_seconds=FAR, memory_mib=100)
    if sandbox.fully_isolated:
        execution = await sandbox.run(Program(HOARD), "", limits)
        assert execution.end == "memory_limit", execution
    grow = "import socket\na, b = socket.socketpair()\na.setsockopt(socket.SOL_SOCKET, socket.%s, 1 << 22)"
    for option in ("SO_SNDBUF", "SO_RCVBUF"):
        assert "Operation not permitted" in (await sandbox.run(Program(grow % option), "", limits)).stderr
    asynchronous = "import asyncio\nasync def main(): print(await asyncio.sleep(0, 1))\nasyncio.run(main())"
    assert (await sandbox.run(Program(asynchronous), "", limits)).stdout == "1\n"


async def test_no_part_of_a_huge_page_stays_behind_one_that_counts(sandbox: Sandbox) -> None:
    source = "print(*(line.split() for line in open('/proc/self/status') if line.startswith('THP_enabled')))"
    assert (await sandbox.run(Program(source), "", Limits())).stdout in ("['THP_enabled:', '0']\n", "\n")


@pytest.mark.sample(1)
async def test_a_program_that_is_killed_from_outside_runs_again(sandbox: Sandbox) -> None:
    await sandbox.run(Program(""), "", Limits())  # so that it need not start a zygote
    before = {process.pid for process in psutil.Process().children(recursive=True)}
    task = asyncio.create_task(sandbox.run(Program("import time\ntime.sleep(0.3)\nprint(1)"), "", Limits()))
    while not (new := [p for p in psutil.Process().children(recursive=True) if p.pid not in before]):  # noqa: ASYNC110
        await asyncio.sleep(0.01)
    new[0].kill()
    assert (await task).stdout == "1\n"


async def test_the_kernel_kills_programs_first_where_memory_runs_out(sandbox: Sandbox) -> None:
    source = "import os\nprint(open('/proc/self/oom_score_adj').read())\n"
    assert (await sandbox.run(Program(source), "", Limits())).stdout == "1000\n\n"
    lower = "open('/proc/self/oom_score_adj', 'w').write('0')\nprint('lowered')"
    if sandbox.fully_isolated:
        assert (await sandbox.run(Program(lower), "", Limits())).stdout == ""
