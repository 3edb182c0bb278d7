"""The memory that a program can hold where no process's page table shows it, in each isolation without cgroups."""

import pytest

from evorun.sandbox import Limits, Program, Sandbox

pytestmark = pytest.mark.asyncio(loop_scope="module")

LIMITS = Limits(cpu_seconds=60.0, wall_seconds=300.0, memory_mib=256, processes=8, open_files=64)
# In each of six children, until it is refused; then all wait, longer than the supervisor looks away.
_COMMON = """
import ctypes, gc, mmap, os, socket, time
libc = ctypes.CDLL(None, use_errno=True)
def hold_in_children(hold):
    r, w = os.pipe()
    for _ in range(6):
        if os.fork() == 0:
            kept = []
            def tell(size): os.write(w, b"%8d" % size)
            try: hold(kept, tell)
            except OSError: pass
            os.write(w, b"       x")
            time.sleep(300)
    total = waiting = 0
    while waiting < 6:
        word = os.read(r, 8).strip()
        if word == b"x": waiting += 1
        else: total += int(word)
    time.sleep(1)
    print(total >> 20)
"""
WAYS = {
    "shared memory that is dropped from the page table": """
def hold(kept, tell):
    for _ in range(100):
        kept.append(mmap.mmap(-1, 1 << 20))
        kept[-1][:] = bytes([1]) * (1 << 20)
        kept[-1].madvise(mmap.MADV_DONTNEED)
        tell(1 << 20)
""",
    "pages in pipes": """
def hold(kept, tell):
    number = {"x86_64": 278, "aarch64": 75}[os.uname().machine]
    libc.vmsplice = lambda *arguments: libc.syscall(number, *arguments)
    while True:
        r, w = os.pipe()
        kept.append((r, w))
        os.set_blocking(w, False)
        # Of a huge page, one byte holds all when the rest is unmapped.
        region = mmap.mmap(-1, 1 << 22, flags=mmap.MAP_PRIVATE | mmap.MAP_ANONYMOUS)
        region.madvise(14)  # MADV_HUGEPAGE
        start = ctypes.addressof(ctypes.c_char.from_buffer(region))
        start += -start % (1 << 21)
        ctypes.memset(start, 1, 1 << 21)
        if libc.vmsplice(w, (ctypes.c_size_t * 2)(start, 1), 1, 0) == 1:
            huge = sum(int(line.split()[1]) for line in open("/proc/self/smaps") if line.startswith("AnonHuge"))
            tell(1 << 21 if huge else 4096)
        gc.collect()
        region.close()
        try:
            while True: tell(os.write(w, bytes(4096)))
        except BlockingIOError: pass
""",
    "bytes in socket pairs": """
def hold(kept, tell):
    while True:
        pair = socket.socketpair()
        kept.append(pair)
        for one in pair:
            one.setblocking(False)
            try:
                while True: tell(one.send(bytes(1 << 14)))
            except BlockingIOError: pass
""",
}


@pytest.mark.sample(3)
@pytest.mark.parametrize("way", WAYS)
async def test_what_no_page_table_shows_stays_within_the_limit(sandbox: Sandbox, way: str) -> None:
    execution = await sandbox.run(Program(_COMMON + WAYS[way] + "hold_in_children(hold)"), "", LIMITS)
    assert execution.end in ("completed", "memory_limit"), execution
    held = int(execution.stdout or 0)  # whoever is stopped holds nothing
    print(f"\n{sandbox.isolation}: {held} MiB in {way}, {max(0, held - LIMITS.memory_mib)} beyond the limit")
    assert held <= LIMITS.memory_mib
