"""Print the system calls that programs make in the sandbox, and those among them that its filter does not list.

    python scripts/record_system_calls.py [FOLDER] [--isolation auto]

Needs strace, and the rights to trace the sandbox. The programs are those below, and with FOLDER the known solutions
that scripts/measure_known_solutions.py reads (lcb_with_tests.jsonl, the first test of each). The filter's list
(evorun/sandbox/inside/syscalls.py) is what this printed, the same calls as other C libraries and other machines make
them, and the rest of each family that reads or writes open files, waits or tells the time.
"""

# ruff: noqa: E501 - the programs stand in few lines

import argparse
import asyncio
import collections
import contextlib
import json
import os
import re
import subprocess
import sys
import tempfile
from collections.abc import Iterator
from pathlib import Path

from evorun.sandbox import Limits, Program, Sandbox, SandboxConfig
from evorun.sandbox.inside.syscalls import ALLOWED, CHECKED

MARK = "/evorun-recording-starts"
LIMITS = Limits(cpu_seconds=60.0, wall_seconds=120.0)

PROGRAMS = [
    "import sys\nfor line in sys.stdin: print(line)",
    "import sys, os\nprint(os.read(0, 9), open('/dev/stdin').read(), sys.stdin.readline(), open(0).read())",
    "import mmap\nprint(mmap.mmap(0, 0, prot=mmap.PROT_READ)[:1])",
    "def f(n): return n and 1 + f(n - 1)\nprint(f(40000))",
    "@cache\ndef f(n): return n and 1 + f(n - 1)\nprint(f(20000))",
    "import sys, threading\nthreading.stack_size(1 << 27)\nsys.setrecursionlimit(10 ** 6)\n"
    "t = threading.Thread(target=lambda: print(1))\nt.start()\nt.join()",
    "x = [0] * 10 ** 7\ndel x\nx = list(range(10 ** 6))\nx.sort(key=str)",
    "x = []\nwhile True: x.append([0] * 10 ** 6)",
    "from queue import Queue\nfrom threading import *\nq = Queue()\nt = Timer(0.01, q.put, (1,))\nt.start()\n"
    "print(q.get(timeout=5))\ne = Event()\ne.wait(0.01)\nb = Barrier(2)\nThread(target=b.wait).start()\nb.wait()",
    "from concurrent.futures import *\nwith ThreadPoolExecutor(4) as p: print(list(p.map(str, range(9))))",
    "from concurrent.futures import *\nwith ProcessPoolExecutor(2) as p: print(list(p.map(str, range(9))))",
    "import multiprocessing as m\nwith m.Pool(2) as p: print(p.map(abs, [-1, -2]))",
    "import multiprocessing as m\ndef f(q, v, a):\n    q.put(1)\n    with v.get_lock(): v.value += 1\n    a[0] = 2\n"
    "q, v, a = m.Queue(), m.Value('i', 0), m.Array('d', 3)\np = m.Process(target=f, args=(q, v, a))\np.start()\n"
    "print(q.get())\np.join()\na, b = m.Pipe()\na.send(1)\nprint(b.recv())",
    "from multiprocessing.shared_memory import SharedMemory\ns = SharedMemory(create=True, size=9)\ns.buf[0] = 1\n"
    "s.close()\ns.unlink()",
    "import subprocess\nprint(subprocess.run([sys.executable, '-c', 'import time; print(1)'], capture_output=True))\n"
    "p = subprocess.Popen([sys.executable, '-c', 'input()'], stdin=-1)\np.communicate(b'x', timeout=9)\np.kill()",
    "import os\nif os.fork() == 0: os._exit(3)\nprint(os.wait(), os.system('true'))",
    "import asyncio\nasync def f():\n    await asyncio.sleep(0.01)\n    await asyncio.to_thread(print, 1)\n"
    "    p = await asyncio.create_subprocess_exec(sys.executable, '-c', '', stdout=-1)\n    await p.communicate()\n"
    "asyncio.run(f())",
    "import socket, select\na, b = socket.socketpair()\na.send(b'x')\nprint(b.recv(1), select.select([a], [b], [], 0))\n"
    "e = select.epoll()\ne.register(a)\ne.poll(0)\np = select.poll()\np.register(a)\np.poll(0)\na.shutdown(2)",
    "import socket\ns = socket.socket(socket.AF_UNIX)\ns.bind('s')\ns.listen()\nc = socket.socket(socket.AF_UNIX)\n"
    "c.connect('s')\na, _ = s.accept()\nsocket.send_fds(a, [b'x'], [0])\nprint(socket.recv_fds(c, 1, 1))\n"
    "print(c.getpeername(), c.getsockname(), c.getsockopt(1, 3))",
    "import signal, time\nsignal.signal(signal.SIGALRM, print)\nsignal.alarm(1)\nsignal.pause()\n"
    "signal.setitimer(signal.ITIMER_REAL, 0.01)\nsignal.sigwait([signal.SIGALRM]) if False else time.sleep(0.02)\n"
    "signal.raise_signal(signal.SIGALRM)\nsignal.pthread_sigmask(0, [])\nsignal.sigpending()\n"
    "signal.getitimer(0)\nsignal.sigtimedwait([signal.SIGUSR1], 0)\nimport faulthandler\nfaulthandler.enable()",
    "import time\nprint(time.time(), time.monotonic(), time.process_time(), time.thread_time(), time.clock_getres(0),\n"
    "time.perf_counter(), time.localtime(), time.strftime('%c'))\ntime.sleep(0.001)",
    "import resource, os\nresource.setrlimit(resource.RLIMIT_STACK, resource.getrlimit(resource.RLIMIT_STACK))\n"
    "print(resource.getrusage(0), os.times(), os.getloadavg() if os.path.exists('/proc/loadavg') else 0, os.nice(1))\n"
    "print(os.cpu_count(), os.sched_getaffinity(0), os.getpriority(0, 0), os.sched_yield(), os.uname())\n"
    "os.sched_setaffinity(0, os.sched_getaffinity(0))",
    "import os\nprint(os.getpid(), os.getppid(), os.getuid(), os.geteuid(), os.getgid(), os.getegid(), os.getgroups(),\n"
    "os.getpgid(0), os.getsid(0), os.getpgrp(), os.getresuid(), os.getresgid(), os.umask(0), os.getcwd(), os.urandom(3),\n"
    "os.getrandom(3), os.get_terminal_size.__name__, os.isatty(0))",
    "import os\nos.mkdir('d')\nopen('d/f', 'w').write('x' * 9999)\nos.rename('d/f', 'd/g')\nos.link('d/g', 'd/h')\n"
    "os.symlink('g', 'd/i')\nos.readlink('d/i')\nos.chmod('d/g', 0o600)\nos.truncate('d/g', 5)\nos.utime('d/g')\n"
    "os.access('d/g', 4)\nos.stat('d/g')\nos.lstat('d/i')\nos.listdir('d')\nlist(os.scandir('d'))\nos.chdir('d')\n"
    "f = open('g', 'r+b')\nf.seek(1)\nf.truncate()\nos.fsync(f)\nos.fdatasync(f)\nos.pread(f.fileno(), 1, 0)\n"
    "os.pwrite(f.fileno(), b'x', 0)\nos.readv(f.fileno(), [bytearray(1)])\nos.writev(f.fileno(), [b'x'])\n"
    "os.fstat(f.fileno())\nos.statvfs('.')\nos.fstatvfs(f.fileno())\nos.mkfifo('p')\nos.unlink('h')\nos.chdir('..')\n"
    "os.fchmod(f.fileno(), 0o600)\nos.ftruncate(f.fileno(), 3)\nos.posix_fallocate(f.fileno(), 0, 9)\nos.sync()\n"
    "os.pipe2(0)\nos.dup(0)\nos.dup2(0, 9)\nos.closerange(9, 12)\nos.set_blocking(0, True)\nos.set_inheritable(0, True)",
    "import shutil, tempfile, os, glob\nd = tempfile.mkdtemp()\nopen('a', 'w').write('x')\nshutil.copy('a', 'b')\n"
    "os.mkdir('e')\nshutil.copytree('e', 'f')\nshutil.move('a', 'c')\nglob.glob('**', recursive=True)\n"
    "shutil.rmtree(d)\nshutil.disk_usage('.')\ntempfile.TemporaryFile().write(b'x')\ntempfile.NamedTemporaryFile()",
    "import sqlite3\nc = sqlite3.connect('d.db')\nc.execute('create table t (x)')\nc.execute('insert into t values (1)')\n"
    "c.commit()\nprint(list(c.execute('select * from t')))\nc.execute('pragma journal_mode=wal')\nc.close()",
    "import bz2, ctypes, ctypes.util, decimal, hashlib, lzma, ssl, uuid, zlib, zoneinfo, fractions, cmath, secrets\n"
    "print(uuid.uuid4(), zoneinfo.ZoneInfo('Europe/Rome'), hashlib.sha256(b'').hexdigest(), secrets.token_hex())\n"
    "print(ctypes.CDLL(None).getpid(), ctypes.util.find_library('m'))",
    "import numpy as np\nr = np.random.default_rng(0)\na = r.random((300, 300))\n"
    "print(np.linalg.solve(a, a).shape, np.linalg.eigvals(a).sum(), np.linalg.svd(a)[1][0], np.fft.fft(a).sum())\n"
    "print(np.sort(a, axis=None)[:2], np.einsum('ij,jk->i', a, a)[0], np.random.rand(3), np.zeros(10 ** 7).sum())\n"
    "np.save('x.npy', a)\nprint(np.load('x.npy', mmap_mode='r')[0, 0])\na.tofile('y')\nnp.fromfile('y')\n"
    "np.loadtxt(['1 2'])\nm = np.memmap('z', mode='w+', shape=9)\nm[0] = 1\nm.flush()",
    "import pdb, traceback, warnings, logging, unittest, doctest, cProfile, timeit, platform, locale, getpass, code\n"
    "print(timeit.timeit('1', number=9), platform.platform(), locale.getlocale())\ncProfile.run('1')\n1 / 0",
    "import os, signal\nos.kill(os.getpid(), signal.SIGTERM)",
    "print('x' * 10 ** 9)",
    "import sys\nsys.stdin.close()\nprint(1)\nsys.exit(3)",
]  # fmt: skip


def main() -> None:
    """Record, and print calls with the number of programs' calls."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("folder", nargs="?", type=Path)
    parser.add_argument("--isolation", default="auto")
    parser.add_argument("--run", action="store_true", help=argparse.SUPPRESS)
    options = parser.parse_args()
    if options.run:
        asyncio.run(run(options.folder, options.isolation))
        return
    with tempfile.NamedTemporaryFile("r") as trace:
        strace = ["strace", "-f", "-qq", "-e", "signal=none", "-s", "30", "-o", trace.name]
        subprocess.run([*strace, sys.executable, *sys.argv, "--run"], check=True)
        counts = count_calls(trace)
    print(*(f"{count:8} {name}" for name, count in counts.most_common()), sep="\n")
    print("\nrefused by the list:", *sorted(set(counts) - ALLOWED.keys() - CHECKED.keys()))


def count_calls(trace: Iterator[str]) -> collections.Counter[str]:
    """Count the calls of processes that start after the mark, from the filter on where they enter it themselves."""
    before: set[str] = set()
    recording = False
    calls: dict[str, collections.Counter[str]] = collections.defaultdict(collections.Counter)
    for line in trace:
        process, _, rest = line.partition(" ")
        call = re.match(r"\s*(\w+)\(", rest)
        if not recording:
            before.add(process)
            recording = MARK in rest
        elif call and process not in before:
            if call[1] == "seccomp":
                calls[process].clear()  # what it did until then was ours
            else:
                calls[process][call[1]] += 1
    return sum(calls.values(), collections.Counter())


async def run(folder: Path | None, isolation: str) -> None:
    """Run all programs, one after another on one zygote."""
    sandbox = await Sandbox.open(SandboxConfig(isolation, slots=1))
    with contextlib.suppress(FileNotFoundError):  # it stands in the trace, which is all that is wanted
        os.stat(MARK)
    for program, stdin in [*((Program(source), "1\n2\n") for source in PROGRAMS), *known(folder)]:
        execution = await sandbox.run(program, stdin, LIMITS)
        if execution.end != "completed" and folder is None:
            print(f"{program.source[:60]!r}: {execution.end} {execution.stderr[-200:]}", file=sys.stderr)
    await sandbox.close()


def known(folder: Path | None) -> Iterator[tuple[Program, str]]:
    """Yield all known solutions with their problem's first test."""
    for line in (folder / "lcb_with_tests.jsonl").read_text("utf-8").splitlines() if folder else []:
        record = json.loads(line)
        entry = f"Solution.{record['func_name']}" if record["kind"] == "functional" else None
        for solution in record["solutions"]:
            yield Program(solution["code"], entry), record["public_tests"][0]["input"]


if __name__ == "__main__":
    main()
