"""The ways to start a zygote, best first: the files that it sees, its command and its settings."""

import contextlib
import os
import shutil
from collections.abc import Iterator
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

from evorun.sandbox import gvisor
from evorun.sandbox.config import SandboxConfig, find_package_folders
from evorun.sandbox.layout import PACKAGES, SCRATCH, Layout, interpreter, layout

UNSHIELDED = (
    "programs can read and change this user's files, read the environments of this user's processes (API keys) and end "
    "those processes; they have no network"
)
UNSHIELDED_AS_ROOT = (
    "programs can read what everybody may read here, write into folders such as /tmp and see all processes; they run "
    "as a user of their own and have no network"
)
NEEDS = {
    "auto": (
        "bwrap",
        "; install bubblewrap and allow user namespaces (docs/sandbox.md says how), or choose "
        f"sandbox.isolation=rlimits, where {UNSHIELDED_AS_ROOT if os.geteuid() == 0 else UNSHIELDED}",
    ),
    "gvisor": (
        "runsc",
        "; install gVisor's runsc program (gvisor.dev) and run as root, or choose sandbox.isolation=auto",
    ),
    "rlimits": ("", ""),
}
"""By `sandbox.isolation`: the program that it needs, and what to do if it does not work."""
# From this version on, RLIMIT_NPROC counts the processes of a user namespace; before, all processes of the user.
_FIRST_KERNEL_THAT_COUNTS_BY_NAMESPACE = (5, 14)

# The interpreter gets its modules over its control channel: it sees no file of the project. It restarts itself with a
# large stack, for deep recursion through C code (a memoised function). The kernel fixes a stack's limit at the start.
_BOOT = """
import json, os, resource, sys, types
soft, hard = resource.getrlimit(resource.RLIMIT_STACK)
wanted = STACK_BYTES if hard == resource.RLIM_INFINITY else min(STACK_BYTES, hard)
if soft != resource.RLIM_INFINITY and soft < wanted:
    resource.setrlimit(resource.RLIMIT_STACK, (wanted, hard))
    os.execv(sys.executable, sys.orig_argv)
def read(n):
    data = b""
    while len(data) < n:
        part = channel.read(n - len(data))
        if not part: sys.exit(1)
        data += part
    return data
control = int(sys.argv[1])
channel = open(control, "rb", buffering=0, closefd=False)
message = json.loads(read(int.from_bytes(read(4), "big")))
for name, source in message["modules"]:
    module = sys.modules[name] = types.ModuleType(name)
    module.__path__ = []
    parent, _, child = name.rpartition(".")
    if parent: setattr(sys.modules[parent], child, module)
    exec(compile(source, name, "exec"), module.__dict__)
module.start(control, message["settings"])
""".replace("STACK_BYTES", str(512 << 20))
_MODULES = (
    "kernel",
    "syscalls",
    "processes",
    "scratch",
    "program",
    "cell",
    "template",
    "supervisor",
    "root",
    "relay",
    "start",
)


@dataclass(frozen=True)
class Launch:
    """A way to start a zygote."""

    isolation: str
    full: bool
    command: list[str]
    """The command without its last argument, the number of the control channel."""
    settings: dict[str, Any]
    note: str = ""
    runsc: str = ""
    """gVisor's program, which runs the command in a container."""

    @property
    def in_container(self) -> bool:
        """True if the control channel is the zygote's standard input, which carries only bytes."""
        return bool(self.runsc)

    def make_command(self, control: int, files: contextlib.ExitStack) -> list[str]:
        """Return the command that starts a zygote on a control channel; closing `files` releases its resources."""
        if self.in_container:
            return gvisor.container_command(self.runsc, Layout(**self.settings["layout"]), [*self.command, "0"], files)
        return [*self.command, str(control)]

    def boot_message(self) -> dict[str, Any]:
        """Return the first message to the interpreter: its modules, and their settings."""
        package, folder = "evorun.sandbox.inside", Path(__file__).with_name("inside")
        modules = [("evorun", ""), ("evorun.sandbox", ""), (package, "")]
        modules += [(f"{package}.{name}", (folder / f"{name}.py").read_text("utf-8")) for name in _MODULES]
        return {"modules": modules, "settings": self.settings}


def list_launches(config: SandboxConfig) -> Iterator[Launch]:
    """Yield the launches that the configuration allows, best first; only trying shows whether one works."""
    if config.isolation == "rlimits":  # never chosen automatically: the user must know what it does not shield
        is_root = os.geteuid() == 0
        settings = _settings(config, namespaces=False, private_user=is_root)
        yield Launch("rlimits", False, _interpreter(), settings, UNSHIELDED_AS_ROOT if is_root else UNSHIELDED)
    if config.isolation == "gvisor":
        yield from _gvisor(config)
    if config.isolation in ("auto", "bubblewrap"):
        yield from _bubblewrap(config)
    if config.isolation in ("auto", "namespaces"):
        settings = _settings(config, give_up_root=os.geteuid() == 0, build_root=True)
        yield Launch("namespaces", True, _interpreter(), settings)


def _gvisor(config: SandboxConfig) -> Iterator[Launch]:
    runsc = shutil.which("runsc")
    if runsc is None:
        return
    settings = _settings(config, namespaces=False, private_user=True)
    # gVisor does not count a user's processes, so the supervisor does.
    settings |= {"gvisor": True, "own_process_count": False, "packages": [PACKAGES], "scratch_parent": SCRATCH}
    settings["layout"] = asdict(layout(config))
    yield Launch("gvisor", True, _interpreter(), settings, runsc=runsc)


def _bubblewrap(config: SandboxConfig) -> Iterator[Launch]:
    bwrap = shutil.which("bwrap")
    if bwrap is None:
        return
    options = _bubblewrap_options(layout(config))
    if os.geteuid() == 0:
        # The kernel does not limit root's number of processes, so programs run under another user.
        rights = ["--cap-drop", "ALL", "--cap-add", "CAP_SETUID", "--cap-add", "CAP_SETGID"]
        command = [bwrap, *rights, *options, *_interpreter()]
        yield Launch("bubblewrap", True, command, _settings(config, give_up_root=True))
    command = [bwrap, "--unshare-user", *options, *_interpreter()]
    yield Launch("bubblewrap", True, command, _settings(config))


def _bubblewrap_options(layout: Layout) -> list[str]:
    options = ["--unshare-ipc", "--unshare-pid", "--unshare-net", "--unshare-uts", "--unshare-cgroup-try"]
    options += ["--die-with-parent", "--new-session", "--clearenv", "--bind", "/proc", "/proc", "--dir", layout.scratch]
    inner = [*layout.shown, *layout.devices, *(target for _, target in layout.packages)]
    for parent in sorted({str(parent) for path in inner for parent in Path(path).parents} - {"/"}):
        options += ["--perms", "0755", "--dir", parent]  # bubblewrap's default, 0700, shuts out the user nobody
    for path in layout.shown:
        options += ["--ro-bind", path, path]
    for path in layout.hidden:
        options += ["--tmpfs", path, "--remount-ro", path]
    for path, target in layout.packages:
        options += ["--ro-bind", path, target]
    for path in layout.devices:
        options += ["--dev-bind", path, path]
    for path, target in layout.links:
        options += ["--symlink", target, path]
    return [*options, "--remount-ro", "/", "--chdir", "/", "--setenv", "PYTHONHASHSEED", "0", "--"]


def _settings(
    config: SandboxConfig,
    give_up_root: bool = False,
    build_root: bool = False,
    namespaces: bool = True,
    private_user: bool = False,
) -> dict[str, Any]:
    """Return the settings of `inside.start`.

    give_up_root: the zygote and its programs run under a user that nobody else has.
    private_user: only the programs do; the supervisor stays root, so that it can end them.
    """
    major, minor, *_ = os.uname().release.split(".")
    counts_by_namespace = (int(major), int(minor)) >= _FIRST_KERNEL_THAT_COUNTS_BY_NAMESPACE
    return {
        "namespaces": namespaces,
        "own_process_count": counts_by_namespace if namespaces else private_user,
        "give_up_root": give_up_root,
        "private_user": private_user,
        "gvisor": False,
        "build_root": build_root,
        "layout": asdict(layout(config)) if namespaces else None,
        "preload": config.preload,
        "packages": [PACKAGES] if namespaces else list(find_package_folders(config)),
    }


def _interpreter() -> list[str]:
    # No user site (-s), no site (-S), no script folder on the path (-P), no .pyc files (-B); UTF-8 everywhere.
    return [interpreter(), "-s", "-S", "-P", "-B", "-X", "utf8", "-c", _BOOT]
