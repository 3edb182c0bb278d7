"""A trial program that looks for a way out of the sandbox: evorun does not use an isolation that leaks."""

import os
import sysconfig
from collections.abc import Sequence
from pathlib import Path

import msgspec

from evorun.sandbox.base import Limits, Program
from evorun.sandbox.launch import Launch
from evorun.sandbox.zygotes import Zygote

_LIMITS = Limits(cpu_seconds=5.0, memory_mib=512, wall_seconds=20.0, processes=4)

# Isolation depends on the kernel, its settings, the container around us and bubblewrap's version, so evorun tests it.
# 0x10000000 is CLONE_NEWUSER: a new user namespace would give the program every privilege in it.
_TRIAL = """
import os, sys

def look(claims, needed, files, evorun, limit):
    for path in (sys.executable, os.__file__, *needed):
        if not os.access(path, os.R_OK):
            return (f"programs, which run under another user than root, cannot read {path}: "
                    "let others enter its folders (chmod o+x), or use a Python and packages that are elsewhere")
    # Only the first leak: the last claim's leak may end the program.
    return next((leak.__doc__ for leak in map(globals().get, claims) if leak(files, evorun, limit)), "")

def succeeds(call, *arguments):
    try:
        return call(*arguments) or True
    except OSError:
        return False

def privileges(files, evorun, limit):
    "it gets privileges"
    import ctypes
    return ctypes.CDLL(None).unshare(0x10000000) == 0 or succeeds(os.setuid, 0)

def environment(files, evorun, limit):
    "it sees environment variables"
    return bool(os.environ)

def own_folder(files, evorun, limit):
    "it cannot write into its scratch folder"
    return not succeeds(os.mkdir, "trial")

def sockets(files, evorun, limit):
    "it opens sockets"
    import socket
    kinds = [(family, kind) for family in range(1, 64) for kind in (1, 2, 3, 5) if family != socket.AF_UNIX]
    return any(succeeds(opening, *kind) for opening in (socket.socket, socket.socketpair) for kind in kinds)

def unix_sockets(files, evorun, limit):
    "it opens sockets to this machine's processes"
    import socket
    return succeeds(socket.socket, socket.AF_UNIX)

def processes(files, evorun, limit):
    "its processes are not limited"
    import signal
    children = []
    try:
        for _ in range(limit):
            children.append(os.fork())
            if children[-1] == 0:
                signal.pause()
    except OSError:
        return False
    finally:
        for child in children:
            os.kill(child, signal.SIGKILL)
            os.waitpid(child, 0)
    return True

def another_user(files, evorun, limit):
    "it runs as root"
    return 0 in (*os.getresuid(), *os.getresgid(), *os.getgroups())

def root_files(files, evorun, limit):
    "it reads files that only root may read"
    import glob
    found = ["/etc/shadow", *(path for path in glob.glob("/proc/[0-9]*/environ") if str(os.getpid()) not in path)]
    return any(succeeds(os.open, path, os.O_RDONLY) for path in found)

def signals(files, evorun, limit):
    "it sends signals to processes outside"
    return any(succeeds(os.kill, process, 0) for process in (os.getppid(), evorun))

def system_folders(files, evorun, limit):
    "it writes outside its scratch folder"
    return any(succeeds(os.mkdir, f"{path}/evorun-trial") for path in ("", "/usr", "/etc", "/dev", "/proc", "/var"))

def host_files(files, evorun, limit):
    "it sees the host's files"
    def identity(path):
        status = os.stat(path)
        return [status.st_dev, status.st_ino]
    return any(succeeds(os.stat, path) and there in (None, identity(path)) for path, there in files)

def host_processes(files, evorun, limit):
    "it sees the host's processes"
    if os.getpid() != 1 or os.getppid() != 0 or not {*filter(str.isdigit, os.listdir("/proc"))} <= {"1"}:
        return True
    with open("/proc/self/status") if os.path.exists("/proc/self/status") else open(os.devnull) as file:
        return any(line.startswith("NSpid") and line.split() != ["NSpid:", "1"] for line in file)

def network(files, evorun, limit):
    "it sees the network"
    with open("/proc/self/net/dev") as file:
        return any(":" in line and line.split(":")[0].strip() != "lo" for line in file)
"""
_ALWAYS = ["privileges", "environment", "own_folder", "sockets"]
_FULLY = [*_ALWAYS, "system_folders", "host_files", "host_processes", "network"]
_AS_THIS_USER = [*_ALWAYS, "unix_sockets"]
_AS_ANOTHER_USER = ["another_user", *_AS_THIS_USER, "root_files", "signals", "system_folders"]
# Without root's files: those in the container hold no secret.
_IN_CONTAINER = ["another_user", *_AS_THIS_USER, "signals", "system_folders", "host_files", "network"]


async def find_breach(zygote: Zygote, launch: Launch, private: Sequence[Path]) -> str:
    """Return a description of what a program can do in a zygote against its launch's claims, or an empty text.

    private: files and folders that programs must not see under full isolation, beside evorun's and the user's. Raises
    ZygoteLost.
    """
    settings = launch.settings
    seen = _files([*_ours(), *private])
    if launch.in_container:
        claims, needed = _IN_CONTAINER, [target for _, target in settings["layout"]["packages"]]
        # Another kernel numbers files differently: any file of that name is ours. Folders there also hold the
        # interpreter.
        seen = [(path, None) for path in _without_folders(seen)]
    elif launch.full:
        claims, needed = _FULLY, [target for _, target in settings["layout"]["packages"]]
    else:
        claims, needed = _AS_ANOTHER_USER if settings["private_user"] else _AS_THIS_USER, settings["packages"]
    if settings["own_process_count"]:
        claims = [*claims, "processes"]
    arguments = [claims, needed, seen, os.getpid(), _LIMITS.processes]
    stdin = "\n".join(msgspec.json.encode(argument).decode() for argument in arguments)
    execution = await zygote.run(Program(_TRIAL, entry="look"), stdin, _LIMITS)
    if execution.value is None:
        return f"a trial program ended with {execution.end}: {execution.stderr.strip().rpartition(chr(10))[2]}"
    return msgspec.json.decode(execution.value, type=str)


def _without_folders(files: Sequence[tuple[str, object]]) -> list[str]:
    return [path for path, _ in files if not os.path.isdir(path)]


def _ours() -> list[Path]:
    """Return the files and folders that are evorun's or the user's on any machine."""
    folders = [os.path.expanduser("~"), os.getcwd(), os.environ.get("EVORUN_DATA"), sysconfig.get_path("purelib")]
    return [Path(__file__), Path("/etc/passwd"), Path("/home"), *(Path(folder) for folder in folders if folder)]


def _files(paths: Sequence[Path]) -> list[tuple[str, tuple[int, int] | None]]:
    """Return absolute paths with device and inode numbers, which distinguish files of the same name.

    The folder that would contain a missing file replaces it.
    """
    found: list[tuple[str, tuple[int, int] | None]] = []
    for path in paths:
        existing = next(place for place in (path.resolve(), *path.resolve().parents) if os.path.exists(place))
        found.append((str(existing), (existing.stat().st_dev, existing.stat().st_ino)))
    return found
