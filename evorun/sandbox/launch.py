"""The ways to start a zygote, best first: the files that it sees, its command and its settings."""

import os
import shutil
import sys
import sysconfig
from collections.abc import Iterator
from dataclasses import asdict, dataclass, field
from pathlib import Path
from typing import Any

from evorun.sandbox.config import SandboxConfig, package_folders

SCRATCH = "/tmp"  # noqa: S108 - inside the sandbox, where nobody else is
PACKAGES = "/packages"
_UNPRIVILEGED = 65534
_DEVICES = ("/dev/null", "/dev/zero", "/dev/full", "/dev/random", "/dev/urandom")
_DEVICE_LINKS = (("/dev/stdin", "/proc/self/fd/0"), ("/dev/stdout", "/proc/self/fd/1"), ("/dev/shm", SCRATCH))  # noqa: S108
_DISTRIBUTION_PACKAGES = "/usr/lib/python3/dist-packages"
# From here on RLIMIT_NPROC counts the processes of a user namespace; before, those of the user on the whole machine.
_FIRST_KERNEL_THAT_COUNTS_BY_NAMESPACE = (5, 14)

# The interpreter gets its modules over its control channel: no file of the project is visible to it. It starts itself
# again with a large stack, for deep recursion through C code (a memoised function): the kernel fixes how far a stack
# can grow when a program is started.
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
_MODULES = ("kernel", "syscalls", "processes", "program", "cell", "zygote", "root", "start")


@dataclass(frozen=True)
class Layout:
    """The contents of a sandbox's root folder, beside /proc and the scratch folder."""

    shown: list[str]
    """Files and folders of this machine, read-only, under their own names."""
    hidden: list[str]
    """Folders inside those that appear empty."""
    packages: list[tuple[str, str]]
    """Importable packages: their path here, and their path inside."""
    links: list[tuple[str, str]]
    """Symbolic links: name and target."""
    devices: list[str] = field(default_factory=lambda: list(_DEVICES))
    scratch: str = SCRATCH


@dataclass(frozen=True)
class Launch:
    """One way to start a zygote."""

    isolation: str
    full: bool
    command: list[str]
    """Without its last word, the number of the control channel."""
    settings: dict[str, Any]
    note: str = ""

    def boot_message(self) -> dict[str, Any]:
        """Return the first message to the interpreter: the modules that it runs, and their settings."""
        package, folder = "evorun.sandbox.inside", Path(__file__).with_name("inside")
        modules = [("evorun", ""), ("evorun.sandbox", ""), (package, "")]
        modules += [(f"{package}.{name}", (folder / f"{name}.py").read_text("utf-8")) for name in _MODULES]
        return {"modules": modules, "settings": self.settings}


def launches(config: SandboxConfig) -> Iterator[Launch]:
    """Yield the ways that the configuration allows, best first; only trying shows whether one works."""
    wanted, is_root = config.isolation, os.geteuid() == 0
    if wanted != "namespaces" and wanted != "rlimits":
        yield from _bubblewrap(config)
    if wanted in ("auto", "strict", "namespaces"):
        settings = _settings(config, drop_to=_UNPRIVILEGED if is_root else None, build_root=True)
        yield Launch("namespaces", True, _interpreter(), settings)
    if wanted in ("auto", "rlimits"):
        note = "network and readable files are not shielded; install bubblewrap (Debian: apt install bubblewrap)"
        # Root becomes nobody where it may; in some containers it may not, and the limits alone have to do.
        for drop_to in (_UNPRIVILEGED, None) if is_root else (None,):
            settings = _settings(config, drop_to=drop_to, namespaces=False)
            yield Launch("rlimits", False, _interpreter(), settings, note)


def _bubblewrap(config: SandboxConfig) -> Iterator[Launch]:
    bwrap = shutil.which("bwrap")
    if bwrap is None:
        return
    layout = _layout(config)
    if os.geteuid() == 0:
        # The kernel does not limit root's number of processes: programs run under another user.
        rights = ["--cap-drop", "ALL", "--cap-add", "CAP_SETUID", "--cap-add", "CAP_SETGID"]
        command = [bwrap, *rights, *_bubblewrap_options(layout), *_interpreter()]
        yield Launch("bubblewrap", True, command, _settings(config, drop_to=_UNPRIVILEGED))
    command = [bwrap, "--unshare-user", *_bubblewrap_options(layout), *_interpreter()]
    yield Launch("bubblewrap", True, command, _settings(config))


def _bubblewrap_options(layout: Layout) -> list[str]:
    options = ["--unshare-ipc", "--unshare-pid", "--unshare-net", "--unshare-uts", "--unshare-cgroup-try"]
    options += ["--die-with-parent", "--new-session", "--clearenv", "--proc", "/proc", "--dir", layout.scratch]
    inner = [*layout.shown, *layout.devices, *(target for _, target in layout.packages)]
    for parent in sorted({str(parent) for path in inner for parent in Path(path).parents} - {"/"}):
        options += ["--perms", "0755", "--dir", parent]  # bubblewrap's default, 0700, shuts out nobody
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
    config: SandboxConfig, drop_to: int | None = None, build_root: bool = False, namespaces: bool = True
) -> dict[str, Any]:
    """Return the settings of `inside.start`; drop_to: the user and group that programs run under."""
    major, minor, *_ = os.uname().release.split(".")
    return {
        "namespaces": namespaces,
        "own_process_count": namespaces and (int(major), int(minor)) >= _FIRST_KERNEL_THAT_COUNTS_BY_NAMESPACE,
        "drop_to": drop_to,
        "build_root": build_root,
        "layout": asdict(_layout(config)),
        "packages": [PACKAGES] if namespaces else list(package_folders(config.packages)),
    }


def _interpreter() -> list[str]:
    # The interpreter behind a virtual environment, which is a link that would not be visible inside.
    python = Path(getattr(sys, "_base_executable", sys.executable)).resolve()
    # Without user site (-s), site (-S), the script's folder on the path (-P), .pyc files (-B); in UTF-8 everywhere.
    return [str(python), "-s", "-S", "-P", "-B", "-X", "utf8", "-c", _BOOT]


def _layout(config: SandboxConfig) -> Layout:
    shown, links = ["/usr"], list(_DEVICE_LINKS)
    for name in ("/bin", "/lib", "/lib32", "/lib64"):
        if os.path.islink(name):
            links.append((name, os.readlink(name)))
        elif os.path.isdir(name):
            shown.append(name)
    for prefix in {os.path.realpath(sys.base_prefix), os.path.realpath(sys.base_exec_prefix)}:
        if not prefix.startswith("/usr/") and prefix != "/usr":  # as of pyenv, conda or uv
            shown.append(prefix)
    # Site packages inside what is shown are hidden: programs may import only the packages that the settings name.
    places = {"base": sys.base_prefix, "platbase": sys.base_exec_prefix}
    hidden = {sysconfig.get_path(name, vars=places) for name in ("purelib", "platlib")} | {_DISTRIBUTION_PACKAGES}
    packages = [
        (f"{site}/{name}", f"{PACKAGES}/{name}")
        for site, names in package_folders(config.packages).items()
        for name in names
        if os.path.isdir(f"{site}/{name}")
    ]
    return Layout(shown, [path for path in sorted(hidden) if os.path.isdir(path)], packages, links)
