"""Programs that try to harm, escape, hide, stay or cheat, and how each must end under small limits."""

from typing import Literal, NamedTuple

import evorun
from evorun.sandbox import Limits

_SIZES = {"memory_mib": 160, "output_kib": 64, "file_mib": 1, "processes": 8, "open_files": 32}
SHORT = Limits(cpu_seconds=0.1, wall_seconds=1.2, **_SIZES)
LONG = Limits(cpu_seconds=60.0, wall_seconds=120.0, **_SIZES)
"""Times out of reach, for programs that must meet another end: none may depend on the machine's speed."""

OK, ERROR, TIME, MEMORY, OUTPUT = "completed", "runtime_error", "time_limit", "memory_limit", "output_limit"


class Hostile(NamedTuple):
    """One program. `printed`: what it must have printed, where that says whether it got through."""

    name: str
    source: str
    ends: tuple[str, ...]
    printed: str | None = None
    contained_by: Literal["limits", "another_user", "walls"] = "limits"
    """The weakest isolation that contains it: rlimits as any user, rlimits as root (which programs lose), or a full
    one. Only the last hides this machine's files and processes."""

    @property
    def limits(self) -> Limits:
        """The limits to run it under."""
        return SHORT if TIME in self.ends else LONG


def _child(body: str) -> str:
    return f"import os, time\nif os.fork() == 0:\n    {body}\n    os._exit(0)\n"


_LIBC = "import ctypes, os\nlibc = ctypes.CDLL(None, use_errno=True)\n"

HOSTILE = [
    # hunger
    Hostile("infinite_loop", "while True: pass", (TIME,)),
    Hostile("sleep_forever", "import time\ntime.sleep(1e6)", (TIME,)),
    Hostile("memory_bomb", "x = []\nwhile True: x.append(bytearray(1 << 20))", (MEMORY,)),
    Hostile("one_huge_allocation", "x = bytearray(1 << 40)", (MEMORY,)),
    Hostile(
        "memory_in_children",
        "import os, time\nfor i in range(6):\n    if os.fork() == 0:\n"
        "        x = bytearray(60 << 20)\n        time.sleep(60)\ntime.sleep(60)",
        (MEMORY,),
    ),
    Hostile(
        "zip_bomb",
        "import zlib\nx = zlib.compress(bytes(1 << 24), level=1)\ny = [zlib.decompress(x) for _ in range(100)]",
        (MEMORY,),
    ),
    Hostile("output_flood", "while True: print('x' * 1000)", (OUTPUT,)),
    Hostile("error_flood", "import sys\nwhile True: sys.stderr.write('x' * 1000)", (OUTPUT,)),
    Hostile("result_flood", "import os\nwhile True: os.write(3, b'x' * 1000)", (OUTPUT,)),
    Hostile("huge_file", "with open('f', 'wb') as f:\n    while True: f.write(bytes(1 << 16))", (ERROR,)),
    Hostile("sparse_file", "open('f', 'wb').truncate(1 << 40)", (ERROR,)),
    Hostile("many_files", "for i in range(100):\n    open(f'f{i}', 'wb').write(bytes(1 << 19))", (ERROR,)),
    Hostile("many_inodes", "for i in range(10**6): open(f'f{i}', 'w')", (ERROR,)),
    Hostile("nested_folders", "import os\nfor i in range(1500):\n    os.mkdir('d')\n    os.chdir('d')", (OK, ERROR)),
    Hostile("many_descriptors", "x = [open('/dev/null') for _ in range(100)]", (ERROR,)),
    Hostile("memfd_hoard", "import os\nfor i in range(20):\n    os.truncate(os.memfd_create('m'), 1 << 20)", (ERROR,)),
    Hostile(
        "hoards_in_sockets",  # of connections that nobody accepts, and whose senders are closed
        "import socket, time\nlistener = socket.socket(socket.AF_UNIX)\nlistener.bind('\\0a')\nlistener.listen(4096)\n"
        "for _ in range(4000):\n    s = socket.socket(socket.AF_UNIX)\n    s.setblocking(False)\n"
        "    s.connect(listener.getsockname())\n    s.send(bytes(1 << 16))\n    s.close()\ntime.sleep(60)",
        (MEMORY, ERROR),
    ),
    Hostile(
        "grows_socket_buffers",
        "import socket\nfor _ in range(10):\n    for s in socket.socketpair():\n"
        "        s.setsockopt(socket.SOL_SOCKET, socket.SO_SNDBUF, 1 << 22)",
        (ERROR,),
    ),
    # Memory that is in no process's page table, or is nothing but page tables.
    Hostile(
        "shared_memory_dropped",
        "import mmap\nm = mmap.mmap(-1, 1 << 20)\nm[:] = b'x' * (1 << 20)\nm.madvise(mmap.MADV_DONTNEED)",
        (ERROR,),
    ),
    Hostile(
        "shared_zeros", "import mmap, os\nmmap.mmap(os.open('/dev/zero', os.O_RDWR), 1 << 20)", (ERROR,), "", "walls"
    ),
    Hostile(
        "pages_in_pipes",
        _LIBC
        + "r, w = os.pipe()\nb = ctypes.create_string_buffer(9)\nv = (ctypes.c_size_t * 2)(ctypes.addressof(b), 1)\n"
        "number = {'x86_64': (278, 275, 276), 'aarch64': (75, 76, 77)}[os.uname().machine]\n"
        "print(*(libc.syscall(n, w, v, 1, 0, 1, 0) for n in number), libc.fcntl(w, 1031, 1 << 20))",
        (OK,),
        "-1 -1 -1 -1",
    ),
    Hostile("watches_files", _LIBC + "print(libc.inotify_init1(0), libc.fanotify_init(0, 0))", (OK,), "-1 -1"),
    Hostile(
        "tables_of_pages",
        # Of every 2 MiB of addresses a page that nobody writes: no memory, but a page of the table.
        _LIBC
        + "import time\n"
        + "libc.mmap.argtypes = [ctypes.c_size_t, ctypes.c_size_t, *[ctypes.c_int] * 3, ctypes.c_long]\n"
        "for i in range(2): os.fork()\nfor i in range(15000):\n    at = (1 << 40) + (i << 21)\n"
        "    libc.mmap(at, 4096, 1, 0x100022, -1, 0)\n"
        "    ctypes.string_at(at, 1)\ntime.sleep(60)",
        (MEMORY,),
    ),
    Hostile("huge_integer", "x = 9 ** 9 ** 9", (TIME, MEMORY)),
    Hostile("huge_integer_printed", "print(10 ** 60000)", (ERROR,)),
    Hostile("catastrophic_regex", "import re\nre.match('(a+)+$', 'a' * 60 + 'b')", (TIME,)),
    Hostile("deep_recursion", "def f(n): return f(n + 1)\nf(0)", (ERROR, MEMORY, TIME)),
    Hostile(
        "deep_recursion_in_c",
        "import functools, sys\nsys.setrecursionlimit(10**9)\n@functools.cache\ndef f(n): return f(n + 1)\nf(0)",
        (ERROR, MEMORY, TIME),
    ),
    Hostile("deep_syntax", "x = " + "-" * 100_000 + "1", (ERROR, MEMORY)),
    # processes and threads
    Hostile("fork_bomb", "import os\nwhile True: os.fork()", (ERROR, MEMORY, TIME)),
    Hostile(
        "patient_fork_bomb",
        "import os\nwhile True:\n    try: os.fork()\n    except OSError: pass",
        (ERROR, TIME, MEMORY),
    ),
    Hostile(
        "fork_bomb_of_groups",
        "import os\nwhile True:\n    try:\n        if os.fork() == 0: os.setpgid(0, 0)\n    except OSError: pass",
        (ERROR, TIME, MEMORY),
    ),
    Hostile(
        "thread_bomb",
        "import threading, time\nfor i in range(1000): threading.Thread(target=time.sleep, args=(60,)).start()",
        (ERROR, TIME),
    ),
    Hostile(
        "thread_that_stays", "import threading, time\nthreading.Thread(target=time.sleep, args=(60,)).start()", (TIME,)
    ),
    Hostile(
        "busy_children",
        "import os, time\nfor i in range(4):\n    if os.fork() == 0:\n        while True: pass\ntime.sleep(60)",
        (TIME,),
    ),
    Hostile(
        "short_lived_children",
        "import os, signal\ntry: signal.signal(signal.SIGCHLD, signal.SIG_IGN)\nexcept OSError: pass\n"
        "while True:\n    try:\n        if os.fork() == 0:\n            sum(range(10**6))\n            os._exit(0)\n"
        "    except OSError: pass",
        (TIME, ERROR, MEMORY),
    ),
    Hostile(
        "children_of_children",
        "import os\nwhile True:\n    if (child := os.fork()) == 0:\n        if os.fork() == 0: sum(range(10**6))\n"
        "        os._exit(0)\n    os.waitpid(child, 0)",
        (TIME, ERROR, MEMORY),
    ),
    Hostile("child_left_behind", _child("time.sleep(60)") + "print('bye')", (OK,), "bye\n"),
    Hostile(
        "daemon_left_behind",
        _child(
            "os.setpgid(0, 0)\n    if os.fork() == 0:\n        for i in range(9): os.close(i) if i > 3 else None\n"
            "        time.sleep(60)"
        )
        + "print('bye')",
        (OK,),
        "bye\n",
    ),
    Hostile("shell_left_behind", "import os\nos.system('sleep 60 >/dev/null 2>&1 &')\nprint('bye')", (OK,), "bye\n"),
    Hostile("becomes_a_shell", "import os\nos.execv('/bin/sh', ['sh', '-c', 'while :; do :; done'])", (TIME, ERROR)),
    # signals
    Hostile(
        "kills_its_parent",
        "import os, signal\nos.kill(os.getppid(), signal.SIGKILL)\nprint('on')",
        (OK, ERROR),
        contained_by="another_user",
    ),
    Hostile(
        "kills_all",
        "import os, signal\ntry: os.kill(-1, signal.SIGKILL)\nexcept ProcessLookupError: pass\nprint('on')",
        (OK,),
        "on\n",
        contained_by="another_user",
    ),
    Hostile("kills_its_group", "import os, signal\nos.killpg(0, signal.SIGKILL)", (OK, ERROR)),
    Hostile("kills_itself", "import os, signal\nos.kill(os.getpid(), signal.SIGKILL)", (OK, ERROR)),
    Hostile("stops_itself", "import os, signal\nos.kill(os.getpid(), signal.SIGSTOP)", (OK, TIME)),
    Hostile("aborts", "import os\nos.abort()", (ERROR,)),
    Hostile("crashes", "import ctypes\nctypes.string_at(8)", (ERROR,)),
    Hostile(
        "blocks_signals",
        "import signal\nsignal.pthread_sigmask(signal.SIG_BLOCK, signal.valid_signals())\nwhile True: pass",
        (TIME,),
    ),
    Hostile(
        "catches_signals",
        "import signal\nfor s in (signal.SIGXCPU, signal.SIGTERM, signal.SIGALRM, signal.SIGINT):\n"
        "    signal.signal(s, lambda *_: None)\nwhile True:\n    try:\n        while True: pass\n"
        "    except BaseException: pass",
        (TIME,),
    ),
    # the interpreter turned against its host
    Hostile("atexit_loop", "import atexit\n@atexit.register\ndef f():\n    while True: pass", (TIME,)),
    Hostile("finalizer_loop", "class A:\n    def __del__(self):\n        while True: pass\nA()", (TIME,)),
    Hostile("trace_loop", "import sys\ndef f(*_):\n    while True: pass\nsys.settrace(f)\n(lambda: 0)()", (TIME,)),
    Hostile(
        "collector_loop",
        "import gc\ndef f(*_):\n    while True: pass\ngc.callbacks.append(f)\ngc.collect()",
        (TIME,),
    ),
    Hostile(
        "patched_modules",
        "import builtins, json, os, sys, traceback, threading, atexit, random\n"
        "print('last')\nsys.stdout.flush()\n"
        "for m in (json, traceback, threading, atexit, random):\n"
        "    for n in list(vars(m)):\n        setattr(m, n, None)\n"
        "os._exit = os.write = os.fork = sys.exit = lambda *_: None\n"
        "builtins.print = builtins.open = builtins.compile = builtins.exec = None\nsys.modules.clear()",
        (OK, ERROR),
        "last\n",
    ),
    Hostile(
        "hostile_exception",
        "class E(Exception):\n    def __str__(self): raise self\n    __repr__ = __str__\nraise E",
        (ERROR,),
    ),
    Hostile("base_exception", "class E(BaseException): pass\nraise E", (ERROR,)),
    Hostile("stderr_closed", "import os, sys\nos.close(2)\n1 / 0", (ERROR,)),
    Hostile("stdout_closed", "import os\nos.close(1)\nprint('x')", (ERROR,)),
    Hostile("stdout_object_closed", "import sys\nprint('x')\nsys.stdout.close()", (OK,), "x\n"),
    Hostile("stdin_closed", "import os, sys\nsys.stdin.close()\nos.close(0)\nprint('x')", (OK,), "x\n"),
    Hostile("bytes_that_are_no_text", "import os\nos.write(1, b'\\xff\\x00\\xc3')", (OK,), "\ufffd\0\ufffd"),
    # a way out
    Hostile("reads_users", "print(open('/etc/passwd').read())", (ERROR,), "", "walls"),
    Hostile("reads_passwords", "print(open('/etc/shadow').read())", (ERROR,), ""),
    Hostile(
        "reads_through_link",
        "import os\nos.symlink('/etc', 'e')\nprint(open('e/passwd').read())",
        (ERROR,),
        "",
        "walls",
    ),
    Hostile("reads_project", f"print(open({evorun.__file__!r}).read())", (ERROR,), "", "walls"),
    Hostile(
        "reads_the_system",
        "import os\nprint(*filter(os.path.exists, ('/usr/src', '/usr/sbin', '/usr/include', '/var', '/srv', '/boot')))",
        (OK,),
        "",
        "walls",
    ),
    Hostile(
        "reads_environments",
        "import glob\ntext = open('/proc/self/environ').read()\n"
        "print(glob.glob('/proc/[!1st]*/environ'), any(name in text for name in ('HOME', 'PATH', 'USER', 'SHELL')))",
        (OK,),
        "[] False",
        "walls",
    ),
    Hostile(
        "reads_environments_of_others",
        "import glob, os\nfor path in glob.glob('/proc/[0-9]*/environ'):\n    if str(os.getpid()) in path: continue\n"
        "    try: print(path, open(path).read())\n    except OSError: pass",
        (OK,),
        "",
        "another_user",
    ),
    Hostile(
        "writes_outside",
        "import os\nfor p in ('/', '/usr', '/dev', '/proc', '/packages', os.__file__.rpartition('/')[0]):\n"
        "    try: open(p + '/x', 'w')\n    except OSError: continue\n    print(p)",
        (OK,),
        "",
        "another_user",
    ),
    Hostile(
        "marks_devices",
        "import os\nopen('/dev/null', 'w').write('x')\n"
        "for path in ('/dev/null', '/dev/full', '/dev/random', '/dev/urandom'):\n"
        "    try: os.utime(path)\n    except OSError: continue\n    print(path)",
        (OK,),
        "",
        "walls",
    ),
    Hostile("numbers_sessions", "import os\nif os.fork(): os.wait()\nelse:\n    os.setsid()\n    print(1)", (OK,), ""),
    Hostile("numbers_events", "import os\nprint(os.eventfd(0))", (ERROR,), ""),
    Hostile("lets_the_kernel_choose_a_name", "import socket\nsocket.socket(socket.AF_UNIX).bind('')", (ERROR,)),
    Hostile("connects", "import socket\nsocket.create_connection(('192.0.2.1', 80), timeout=60)", (ERROR,), ""),
    Hostile("connects_here", "import socket\nsocket.create_connection(('127.0.0.1', 22), timeout=60)", (ERROR,), ""),
    Hostile("resolves_names", "import socket\nprint(socket.gethostbyname('example.org'))", (ERROR,), ""),
    Hostile(
        "opens_other_sockets",  # AF_VSOCK, AF_NETLINK, AF_ALG, ...
        "import socket\nfor open in (socket.socket, socket.socketpair):\n    for family in range(2, 64):\n"
        "        for kind in (1, 2, 3, 5):\n            try: print(open(family, kind))\n"
        "            except OSError: pass",
        (OK,),
        "",
    ),
    Hostile(
        "mounts",
        _LIBC + "print(libc.mount(b'x', b'/tmp', b'tmpfs', 0, None), libc.umount2(b'/tmp', 2))",
        (OK,),
        "-1 -1\n",
    ),
    Hostile(
        "clones_into_user_namespace",  # clone, and clone3 as if the kernel did not know it
        _LIBC + "clone = {'x86_64': 56, 'aarch64': 220}[os.uname().machine]\n"
        "print(libc.syscall(clone, 0x10000011, 0, 0, 0, 0), libc.syscall(435, 0, 0), ctypes.get_errno())",
        (OK,),
        "-1 -1 38\n",
    ),
    Hostile("new_user_namespace", _LIBC + "print(libc.unshare(0x10000000))", (OK,), "-1\n"),
    Hostile(
        "joins_namespace", _LIBC + "print(libc.setns(os.open('/proc/self/ns/mnt', os.O_RDONLY), 0))", (OK,), "-1\n"
    ),
    Hostile("traces_its_parent", _LIBC + "print(libc.ptrace(16, os.getppid() or 1, 0, 0))", (OK,), "-1\n"),
    Hostile("chroots", "import os\nos.mkdir('d')\nos.chroot('d')", (ERROR,)),
    Hostile("becomes_root", "import os\nos.setuid(0)", (ERROR,)),
    Hostile("more_priority", "import os\nos.nice(-5)", (ERROR,)),
    Hostile(
        "more_limits",
        "import resource\nresource.setrlimit(resource.RLIMIT_AS, (resource.RLIM_INFINITY,) * 2)",
        (ERROR,),
    ),
    Hostile(
        "runs_sudo",
        "import subprocess\nfor command in (['sudo', '-n', 'id', '-u'], ['su', '-c', 'id -u']):\n"
        "    try: print(subprocess.run(command, capture_output=True).stdout.decode(), end='')\n"
        "    except OSError: pass",
        (OK,),
        "",
    ),
    Hostile(
        "scans_descriptors",
        "import os\ndef is_open(i):\n    try: os.fstat(i)\n    except OSError: return False\n    return True\n"
        "print([i for i in range(1024) if is_open(i)])",
        (OK,),
        "[0, 1, 2, 3]\n",
    ),
    Hostile(
        "forbidden_folder",
        "import os\nos.mkdir('d')\nopen('d/f', 'w')\nos.chmod('d', 0)\nos.chmod('.', 0)",
        (OK, ERROR),
    ),
]

ONE_OF_A_KIND = (
    *("infinite_loop", "memory_bomb", "huge_file", "fork_bomb", "child_left_behind", "kills_all", "collector_loop"),
    *("reads_passwords", "writes_outside", "connects_here", "becomes_root"),
)
"""Programs of each kind."""
LIKE_ANOTHER = (
    *("sleep_forever", "zip_bomb", "huge_integer", "catastrophic_regex", "deep_recursion_in_c", "catches_signals"),
    *("patient_fork_bomb", "fork_bomb_of_groups", "short_lived_children", "children_of_children"),
    *("thread_that_stays", "atexit_loop", "finalizer_loop", "trace_loop"),
)
"""Programs that take longest of those that meet the same wall as another one."""
