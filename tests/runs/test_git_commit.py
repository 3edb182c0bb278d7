"""The commit that a run's manifest names, of a checkout made for the test."""

import os
import subprocess
from pathlib import Path

import pytest

import evorun
from evorun.runs.environment import git_commit


def test_a_checkout_is_named_with_its_changes_and_left_untouched(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    module = tmp_path / "evorun" / "__init__.py"
    module.parent.mkdir()
    module.write_text("")
    monkeypatch.setattr(evorun, "__file__", str(module))
    git = ["git", "-C", str(tmp_path), "-c", "user.name=A", "-c", "user.email=a@b"]
    for words in (["init", "-q"], ["add", "."], ["commit", "-q", "-m", "first"]):
        subprocess.run([*git, *words], check=True)
    head = subprocess.run([*git, "rev-parse", "HEAD"], capture_output=True, text=True, check=True).stdout.strip()
    index = tmp_path / ".git" / "index"
    before = index.read_bytes()
    os.utime(module, (1, 1))  # git would record it in its index, under a lock that a killed run leaves behind
    assert git_commit.__wrapped__() == head
    assert index.read_bytes() == before
    module.write_text("changed = True\n")
    assert git_commit.__wrapped__() == f"{head}+changes"
