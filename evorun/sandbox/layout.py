"""The files of this machine that programs see: those of the interpreter, and the packages that they may import."""

import os
import subprocess
import sys
import sysconfig
from dataclasses import dataclass, field
from functools import cache
from pathlib import Path

from evorun.sandbox.config import SandboxConfig, find_package_folders

SCRATCH = "/tmp"  # noqa: S108 - inside the sandbox, where nobody else is
PACKAGES = "/packages"
# Without /dev/zero, which gives shared memory that no limit counts.
_DEVICES = ("/dev/null", "/dev/full", "/dev/random", "/dev/urandom")
_DEVICE_LINKS = (("/dev/stdin", "/proc/self/fd/0"), ("/dev/stdout", "/proc/self/fd/1"), ("/dev/shm", SCRATCH))  # noqa: S108
# The loader's cache, for libraries outside its standard folders, and the time zones of `zoneinfo`.
_SHARED = ("/etc/ld.so.cache", "/usr/share/zoneinfo")


@dataclass(frozen=True)
class Layout:
    """The contents of a sandbox's root folder, beside /proc and the scratch folder."""

    shown: list[str]
    """Files and folders of this machine, read-only, under their own names."""
    hidden: list[str]
    """Folders inside the shown ones that appear empty."""
    packages: list[tuple[str, str]]
    """Importable packages: path on this machine, and path inside the sandbox."""
    links: list[tuple[str, str]] = field(default_factory=lambda: list(_DEVICE_LINKS))
    """Symbolic links: name and target."""
    devices: list[str] = field(default_factory=lambda: list(_DEVICES))
    scratch: str = SCRATCH


def interpreter() -> str:
    """Return the real interpreter: a virtual environment's is a link, whose target would not exist inside."""
    return os.path.realpath(getattr(sys, "_base_executable", sys.executable))


def layout(config: SandboxConfig) -> Layout:
    """Return the layout for a configuration."""
    packages = [
        (f"{site}/{name}", f"{PACKAGES}/{name}")
        for site, names in find_package_folders(config).items()
        for name in names
        if os.path.exists(f"{site}/{name}")
    ]
    library, folders = _standard_library(), _own_libraries()
    # Installed packages inside the standard library's folder: programs may import only those that the settings name.
    hidden = [f"{folder}/{name}" for folder in library for name in ("site-packages", "dist-packages")]
    sources = tuple(path for path, _ in packages)
    loaded = _shared_libraries(interpreter(), tuple(f"{folder}/lib-dynload" for folder in library) + sources)
    folders += [folder for folder in library if not folder.startswith(tuple(f"{own}/" for own in folders))]
    inside = tuple(f"{folder}/" for folder in (*folders, *sources))
    outside = [path for path in loaded if not path.startswith(inside)]
    shown = [path for path in (interpreter(), *folders, *outside, *_SHARED) if os.path.exists(path)]
    return Layout(shown, [folder for folder in hidden if os.path.isdir(folder)], packages)


def _standard_library() -> list[str]:
    places = {"base": sys.base_prefix, "platbase": sys.base_exec_prefix}
    named = {sysconfig.get_path(name, vars=places) for name in ("stdlib", "platstdlib")}
    return sorted(os.path.realpath(folder) for folder in named if os.path.isdir(folder))


def _own_libraries() -> list[str]:
    """Return the library folder of an interpreter with a separate prefix (pyenv, conda, uv).

    Its libraries may load others that no file names; conda's MKL does.
    """
    prefixes = {os.path.realpath(prefix) for prefix in (sys.base_prefix, sys.base_exec_prefix)}
    return [f"{prefix}/lib" for prefix in sorted(prefixes - {"/usr", "/usr/local"})]


@cache
def _shared_libraries(program: str, folders: tuple[str, ...]) -> list[str]:
    """Return the shared libraries of a program and of the extension modules in folders, as the loader lists them."""
    with open("/proc/self/maps") as file:
        mapped = {line.split(maxsplit=5)[-1].strip() for line in file}
    loader = next((path for path in sorted(mapped) if os.path.basename(path).startswith("ld-")), None)
    if loader is None:  # a static interpreter
        return []
    # Without tkinter's libraries: there is no display, and each library costs every program one more mount.
    extensions = [str(path) for folder in folders for path in Path(folder).rglob("*.so") if "tkinter" not in path.name]
    # libgcc_s is loaded only when a thread is cancelled, so no file names it.
    preloaded = {"LD_PRELOAD": ":".join(["libgcc_s.so.1", *extensions])}
    done = subprocess.run([loader, "--list", program], env=preloaded, capture_output=True, text=True, check=False)
    # `libz.so.1 => /lib/libz.so.1 (0x7f...)`; for the loader itself both names are paths.
    words = [word for line in done.stdout.splitlines() for word in line.split() if word.startswith("/")]
    return sorted({os.path.normpath(word) for word in words})
