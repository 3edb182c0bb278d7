"""The means of isolation that this machine gives the sandbox's tests."""

import contextlib
import functools
import os
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path
from unittest import mock

import pytest

SYSTEMS_OWN = Path("/usr/bin/python3")
AS_ROOT = pytest.mark.skipif(os.geteuid() != 0, reason="only root becomes somebody else")


@functools.cache
def user_namespaces_work() -> bool:
    """Return whether the kernel lets us make user namespaces, by another program's account than evorun's."""
    command = ["unshare", "--user", "--map-root-user", "--mount", "true"]
    return subprocess.run(command, capture_output=True, check=False).returncode == 0


@contextlib.contextmanager
def interpreter_for_other_users() -> Iterator[None]:
    """Let the sandbox start an interpreter that other users can enter, where this one lies in a private folder.

    Skips the test where there is none of this version.
    """
    present = Path(getattr(sys, "_base_executable", sys.executable)).resolve()
    if os.geteuid() != 0 or all(folder.stat().st_mode & 0o001 for folder in present.parents):
        yield
        return
    if not SYSTEMS_OWN.exists() or version_of(SYSTEMS_OWN) != str(sys.version_info[:2]):
        pytest.skip("no interpreter of this version that other users can run")
    with mock.patch.object(sys, "_base_executable", str(SYSTEMS_OWN)):
        yield


def version_of(interpreter: Path) -> str:
    """Return an interpreter's major and minor version."""
    command = [str(interpreter), "-c", "import sys; print(sys.version_info[:2])"]
    return subprocess.run(command, capture_output=True, text=True, check=False).stdout.strip()
