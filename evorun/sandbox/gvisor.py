"""A container of gVisor's runsc around a zygote: its programs talk to gVisor's kernel, not to the machine's."""

import contextlib
import json
import os
import tempfile
from pathlib import Path
from typing import Any

from evorun.sandbox.layout import Layout

# As root of the container, the supervisor hands folders to programs' users, becomes them, ends and cleans up.
_CAPABILITIES = ("CHOWN", "DAC_OVERRIDE", "FOWNER", "KILL", "SETGID", "SETUID", "SYS_ADMIN", "SYS_PTRACE")
_NAMESPACES = ("pid", "network", "ipc", "uts", "mount")


def container_command(runsc: str, layout: Layout, inner: list[str], files: contextlib.ExitStack) -> list[str]:
    """Return the command of a container that runs `inner` on the layout's files and passes standard input on.

    Closing `files` removes the files that the container needs on disk.
    """
    folder = Path(files.enter_context(tempfile.TemporaryDirectory(prefix="evorun-gvisor-", ignore_cleanup_errors=True)))
    (folder / "config.json").write_text(json.dumps(_configuration(layout, inner)))
    _make_mount_points(folder / "rootfs", layout)
    # The zygote's cgroup, if there is one, serves the container: runsc must not create another.
    options = ["--root", str(folder / "state"), "--network=none", "--ignore-cgroups"]
    return [runsc, *options, "run", "--bundle", str(folder), folder.name]


def _configuration(layout: Layout, inner: list[str]) -> dict[str, Any]:
    """Return the OCI runtime configuration (opencontainers/runtime-spec, config.md)."""
    capabilities = [f"CAP_{name}" for name in _CAPABILITIES]
    mounts = [
        {"destination": "/proc", "type": "proc", "source": "proc"},
        # Only the supervisor may write here directly; each program gets a subfolder.
        {
            "destination": layout.scratch,
            "type": "tmpfs",
            "source": "tmpfs",
            "options": ["mode=0711", "nosuid", "nodev"],
        },
    ]
    for source, target in _bound(layout):
        mounts.append({"destination": target, "type": "bind", "source": source, "options": ["rbind", "ro"]})
    for path in layout.hidden:
        mounts.append({"destination": path, "type": "tmpfs", "source": "tmpfs", "options": ["ro"]})
    return {
        "ociVersion": "1.0.2",
        "process": {
            "user": {"uid": 0, "gid": 0},
            "args": inner,
            "env": ["PYTHONHASHSEED=0"],
            "cwd": "/",
            "capabilities": dict.fromkeys(("bounding", "effective", "permitted"), capabilities),
        },
        "root": {"path": "rootfs", "readonly": True},
        "hostname": "sandbox",
        "mounts": mounts,
        "linux": {"namespaces": [{"type": kind} for kind in _NAMESPACES]},
    }


def _bound(layout: Layout) -> list[tuple[str, str]]:
    return [*((path, path) for path in layout.shown), *layout.packages]


def _make_mount_points(root: Path, layout: Layout) -> None:
    for source, target in [*_bound(layout), ("/", "/proc"), ("/", layout.scratch)]:
        place = root / target.lstrip("/")
        (place if os.path.isdir(source) else place.parent).mkdir(parents=True, exist_ok=True)
        if not os.path.isdir(source):
            place.touch()
    # Programs run under another user than the one that created these.
    for folder, _, _ in os.walk(root):
        os.chmod(folder, 0o755)  # noqa: S103
