"""Pairs of programs of which the first tries to tell the second a number, by every means that they know."""

from typing import NamedTuple


class Means(NamedTuple):
    """One way: the first program has the number `x` of `bits` bits, the second prints its guess at it.

    at_once: the second runs beside the first, in another slot, since what the first does ends with it. passes_in: the
    isolations that let something through (rlimits: as any user). counted_by_user: something passes wherever slots
    share a user of this machine, for only root has others to give.
    """

    name: str
    bits: int
    write: str
    read: str
    at_once: bool = False
    passes_in: tuple[str, ...] = ()
    counted_by_user: bool = False


_COMMON = """
import contextlib, ctypes, fcntl, gc, glob, mmap, os, re, resource, sys, threading, time
BITS, NAME = {bits}, "{name}"
libc = ctypes.CDLL(None, use_errno=True)
SHARED = sorted(glob.glob(os.path.dirname(os.__file__) + "/*/*.py"))[:65]
def bits_of(x): return [x >> i & 1 for i in range(BITS)]
def number(bits): return sum(bit << i for i, bit in enumerate(bits))
# A counter that others move, too: its values are told apart in steps of `unit`.
def advance(count, step, unit, x):
    missing = (x * unit + unit // 2 - count()) % (unit << BITS)
    step(missing)
def reading(count, unit): return count() // unit % (1 << BITS)
"""
_WRITE = "x = int(input())\n"
_READ = "\nprint(guess)\n"

_LONG_ERRORS = "sys.stderr.write('x' * x)\nsys.stderr.flush()\nos._exit(x & 127)"
_PIDS = """
def count():
    r, w = os.pipe()
    if os.fork() == 0:
        lines = [line for line in open("/proc/self/status") if line.startswith(("NSpid", "Pid"))]
        line = lines[-1]  # gVisor shows the second alone
        os.write(w, line.split()[1].encode())
        os._exit(0)
    os.wait()
    return int(os.read(r, 99))
def step(n):
    for _ in range(n):
        thread = threading.Thread(target=int)
        thread.start()
        thread.join()
"""
_INODES = """
with contextlib.suppress(OSError): os.sched_setaffinity(0, [min(os.sched_getaffinity(0))])
def count():
    r, w = os.pipe()
    found = os.fstat(r).st_ino
    os.close(r), os.close(w)
    return found
def step(n):
    for _ in range(n): count()
"""
_CPU = """
def count(): return sum(map(int, open(f"/proc/{os.getppid()}/stat").read().rpartition(")")[2].split()[13:15]))
def step(n):
    while time.process_time() < n / 100: pass
"""
_SEGMENT = """
libc.shmat.restype = ctypes.c_void_p
def segment():
    at = libc.shmat(libc.shmget(0x65766F, 4096, 0o1666), None, 0)
    if at in (None, ctypes.c_void_p(-1).value): raise OSError
    return (ctypes.c_uint64 * 1).from_address(at)
"""
_PLACES = """
PLACES = [f"{place}/{NAME}" for place in (".", "/tmp", "/dev/shm", "/var/tmp", "/run", os.path.expanduser("~"))]
"""
_PARENTS_CHILDREN = """
def siblings():
    for name in filter(str.isdigit, os.listdir("/proc")):
        with contextlib.suppress(OSError):
            if open(f"/proc/{name}/stat").read().rpartition(")")[2].split()[1] == str(os.getppid()): yield int(name)
"""
_SESSIONS = """
def count(): return int(re.search("[0-9]+", open("/proc/self/autogroup").read())[0])
def step(n):
    for _ in range(n):
        if os.fork() == 0:
            try: os.setsid()
            except OSError: os._exit(1)
            os._exit(0)
        if os.wait()[1]: return
"""
_FREE_NAMES = """
import socket
def count():
    with socket.socket(socket.AF_UNIX) as s:
        s.bind("")  # the kernel gives it one
        return int(s.getsockname()[1:], 16)
def step(n):
    for _ in range(n): count()
"""
_DEVICES = """
FIRST, *DEVICES = ("/dev/full", "/dev/null", "/dev/random", "/dev/urandom")
def touch(path):
    time.sleep(0.05)
    with contextlib.suppress(OSError): os.utime(path)
"""
_PIPES = """
def full_pipes():
    made = []
    with contextlib.suppress(OSError):
        while True: made += os.pipe()
    return [w for w in made[1::2] if fcntl.fcntl(w, 1032) < 65536]
def in_children(many, work):
    for i in range(many):
        if os.fork() == 0:
            work()
            time.sleep(60)
"""
_EVENTS = """
def count():
    found = os.eventfd(0)
    return int(re.search("eventfd-id: *([0-9]+)", open(f"/proc/self/fdinfo/{found}").read())[1])
"""
_STAY = "\ntime.sleep(60)"
_WAIT = """
def wait(ready):
    until = time.monotonic() + float(input())
    while not ready() and time.monotonic() < until: time.sleep(0.01)
"""
_LOCKED = """
def locked(file):
    try: fcntl.flock(file, fcntl.LOCK_EX | fcntl.LOCK_NB)
    except BlockingIOError: return True
    fcntl.flock(file, fcntl.LOCK_UN)
    return False
files = [open(path) for path in SHARED]
"""
_RANGES = """
import struct
file = open(SHARED[0])
def locked(i):
    asked = struct.pack("hhqqi", fcntl.F_WRLCK, 0, i, 1, 0)
    return struct.unpack("hhqqi", fcntl.fcntl(file, fcntl.F_GETLK, asked))[0] != fcntl.F_UNLCK
"""
_NAMES = """
import socket
def bound(i):
    s = socket.socket(socket.AF_UNIX)
    try: s.bind(f"\\0{NAME}-{i}")
    except OSError: return True
    s.close()
    return False
"""

MEANS = [
    Means(
        "frames of the process that programs are forked from",
        20,
        _LONG_ERRORS,
        "frame, waiting, guess = sys._getframe(), gc.get_objects(), 0\n"
        "while frame: waiting, frame = [*waiting, *frame.f_locals.values()], frame.f_back\n"
        "for found in waiting:\n"
        "    if isinstance(found, dict) and 'lengths' in found and 'code' in found: guess = found['lengths'][1]",
    ),
    Means(
        "memory that it has freed",
        20,
        _LONG_ERRORS,
        "guess = 0\n"
        "with open('/proc/self/maps') as maps, open('/proc/self/mem', 'rb', buffering=0) as memory:\n"
        "    for line in maps:\n"
        "        span, rights, *_ = line.split()\n"
        "        start, end = (int(n, 16) for n in span.split('-'))\n"
        "        if not rights.startswith('rw') or end - start > 1 << 26: continue\n"
        "        memory.seek(start)\n"
        "        with contextlib.suppress(OSError):\n"
        '            for found in re.findall(rb\'"code": \\d+, "lengths": .\\d+, (\\d+)\', memory.read(end - start)):\n'
        "                guess = int(found)",
    ),
    Means(
        "numbers of processes",
        5,
        _PIDS + "advance(count, step, 32, x)",
        _PIDS + "guess = reading(count, 32)",
        passes_in=("gvisor", "rlimits"),
    ),
    Means(
        "numbers of pipes",
        4,
        _INODES + "advance(count, step, 4096, x)",
        _INODES + "guess = reading(count, 4096)",
        passes_in=("bubblewrap", "namespaces", "gvisor", "rlimits"),
    ),
    Means(
        "CPU time of the parent's children",
        3,
        _CPU + "advance(count, step, 4, x)",
        _CPU + "guess = reading(count, 4)",
        passes_in=("rlimits",),
    ),
    Means(
        "numbers of sessions", 5, _SESSIONS + "advance(count, step, 16, x)", _SESSIONS + "guess = reading(count, 16)"
    ),
    Means(
        "names that the kernel gives to sockets",
        8,
        _FREE_NAMES + "advance(count, step, 1, x)",
        _FREE_NAMES + "guess = reading(count, 1)",
    ),
    Means(
        "times of devices",
        3,
        _DEVICES + "touch(FIRST)\nfor path, bit in zip(DEVICES, bits_of(x)):\n    if bit: touch(path)",
        _DEVICES + "def at(path): return os.stat(path).st_mtime_ns\n"
        "guess = number(at(path) > at(FIRST) for path in DEVICES)",
        passes_in=("gvisor", "rlimits"),
    ),
    Means(
        "files",
        64,
        _PLACES + "for place in PLACES:\n    with contextlib.suppress(OSError): open(place, 'w').write(str(x))",
        _PLACES + "guess = 0\nfor place in PLACES:\n"
        "    with contextlib.suppress(OSError, ValueError): guess = int(open(place).read())",
        passes_in=("rlimits",),
    ),
    Means("shared memory", 64, _SEGMENT + "segment()[0] = x", _SEGMENT + "guess = segment()[0]"),
    Means(
        "environment",
        64,
        "os.environ[NAME] = str(x)\nos.putenv(NAME, str(x))\nlibc.prctl(15, NAME.encode())\nos.umask(x & 0o777)",
        "guess = int(os.environ.get(NAME, 0)) or int(os.popen(f'echo ${NAME}').read() or 0)",
    ),
    Means(
        "limits of the process that programs are forked from",
        10,
        _PARENTS_CHILDREN + "for pid in siblings():\n    with contextlib.suppress(OSError):\n"
        "        hard = resource.prlimit(pid, resource.RLIMIT_SIGPENDING)[1]\n"
        "        resource.prlimit(pid, resource.RLIMIT_SIGPENDING, (x, hard))",
        "guess = resource.getrlimit(resource.RLIMIT_SIGPENDING)[0] % (1 << BITS)",
    ),
    Means(
        "pages that the kernel keeps of files",
        64,
        "for path, bit in zip(SHARED, bits_of(x)):\n    with open(path, 'rb') as file:\n        file.read()\n"
        "        if not bit: continue\n"
        "        with contextlib.suppress(OSError): os.posix_fadvise(file.fileno(), 0, 0, os.POSIX_FADV_DONTNEED)\n"
        "        with contextlib.suppress(OSError):\n"
        "            mmap.mmap(file.fileno(), 0, prot=mmap.PROT_READ).madvise(21)  # MADV_PAGEOUT",
        "def gone(path):\n    with open(path, 'rb') as file:\n"
        "        try: os.preadv(file.fileno(), [bytearray(1)], 0, os.RWF_NOWAIT)\n"
        "        except BlockingIOError: return True\n"
        "        except OSError:\n            start = time.perf_counter()\n            os.pread(file.fileno(), 1, 0)\n"
        "            return time.perf_counter() - start > 5e-5\n"
        "        return False\n"
        "guess = number(map(gone, SHARED[:BITS]))",
    ),
    Means(
        "locks on the interpreter's files (flock)",
        64,
        _LOCKED
        + "for file, bit in zip(files, [*bits_of(x), 1]):\n    if bit: fcntl.flock(file, fcntl.LOCK_EX)"
        + _STAY,
        _LOCKED + _WAIT + "wait(lambda: locked(files[BITS]))\nguess = number(map(locked, files[:BITS]))",
        at_once=True,
    ),
    Means(
        "locks on the interpreter's files (fcntl)",
        64,
        _RANGES + "for i, bit in enumerate([*bits_of(x), 1]):\n"
        "    if bit: fcntl.lockf(file, fcntl.LOCK_SH, 1, i)" + _STAY,
        _RANGES + _WAIT + "wait(lambda: locked(BITS))\nguess = number(map(locked, range(BITS)))",
        at_once=True,
    ),
    Means(
        "room in pipes",
        4,
        # Of 1,024 pipes of a user 16 pages long, the first takes 64 for each step.
        _PIPES
        + "def take(n=32): made = [os.pipe() for _ in range(n)]; time.sleep(60)\nin_children(2 * x, take)"
        + _STAY,
        _PIPES + _WAIT + "wait(lambda: False)\n"
        "r, w = os.pipe()\n"
        "def look():\n    for i in range(32):\n        p = os.pipe()\n"
        "        os.write(w, b'x' if fcntl.fcntl(p[1], 1032) == 65536 else b'y')\n        keep.append(p)\n"
        "keep = []\nin_children(31, look)\ntime.sleep(1)\n"
        "guess = min(15, round((1024 - 1 - os.read(r, 9999).count(b'x')) / 64))",
        at_once=True,
        counted_by_user=True,
    ),
    Means(
        "numbers of event descriptors",
        4,
        _EVENTS + "events = [os.eventfd(0) for _ in range(4 * x)]" + _STAY,
        _EVENTS + _WAIT + "wait(lambda: False)\nguess = count() // 4 % 16",
        at_once=True,
    ),
    Means(
        "names of sockets",
        64,
        _NAMES + "sockets = [socket.socket(socket.AF_UNIX) for _ in range(BITS + 1)]\n"
        "for i, bit in enumerate([*bits_of(x), 1]):\n    if bit: sockets[i].bind(f'\\0{NAME}-{i}')" + _STAY,
        _NAMES + _WAIT + "wait(lambda: bound(BITS))\nguess = number(map(bound, range(BITS)))",
        at_once=True,
    ),
]


def sources(means: Means, name: str) -> tuple[str, str]:
    """Return the two programs, whose marks bear a name that nobody else uses."""
    common = _COMMON.format(bits=means.bits, name=name)
    return common + _WRITE + means.write, common + means.read + _READ
