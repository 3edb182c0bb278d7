"""Shell completion: what may follow on a command line, and that a real bash offers it."""

import os
import shutil
import subprocess
import sys
from pathlib import Path

import pytest

from building import composed
from evorun.cli.completion import TOP_KEYS, complete
from evorun.cli.groups import choices
from evorun.cli.usage import USAGES
from evorun_process import environment


@pytest.mark.parametrize(
    ("line", "offered"),
    [
        ("evorun res", ["rescore", "reselect", "resume"]),
        ("evorun method=du", ["method=duel_evolve"]),
        ("evorun -m method=zero_shot,best", ["method=zero_shot,best_of_n"]),
        ("evorun +experiment=espl/ti", ["+experiment=espl/tiny"]),  # Hydra offers no choice of a subfolder
        ("evorun task=arithmetic judge=sm", ["judge=smollm2_135m"]),  # a group with the choices of another
        ("evorun method=best_of_n method.sam", ["method.samples="]),
        ("evorun method=lyria method.sam", []),
        ("evorun method=nothing_of_the_kind method.sam", []),
        ("evorun hydra/launcher=sl", ["hydra/launcher=slurm"]),
        ("evorun resume RUN --", ["--redo-calls", "--trust"]),
        ("evorun traces RUN kind=l", ["kind=laft"]),
        ("evorun list m", ["methods", "models"]),
        ("evorun grade task=math5", ["task=math500"]),
        ("evorun report outputs/", []),
        ("evorun doctor ", ["--json"]),
        ("evorun view outputs --", ["--no-browser", "--port="]),
    ],
)
def test_what_a_word_may_become(line: str, offered: list[str]) -> None:
    assert complete(line) == offered


def test_an_empty_word_may_become_any_verb_and_group() -> None:
    offered = set(complete("evorun "))
    assert offered >= {*USAGES, "method=", "hydra/launcher=", "task.", "evorun."}
    assert {f"task={name}" for name in choices("task")} == set(complete("evorun task="))
    keys = {f"{key}{'.' if isinstance(value, dict) else '='}" for key, value in composed().items()}
    assert set(TOP_KEYS) >= keys


@pytest.mark.nightly
def test_bash_offers_them(tmp_path: Path) -> None:
    bash = shutil.which("bash")
    if bash is None:
        pytest.skip("needs bash")
    program = tmp_path / "evorun"
    program.write_text(f'#!/bin/sh\nexec {sys.executable} -m evorun "$@"\n')
    program.chmod(0o755)
    script = """\
        eval "$(evorun -sc install=bash)"
        for COMP_LINE in "evorun tr"; do
            COMP_WORDS=($COMP_LINE) COMP_CWORD=1 COMP_POINT=${#COMP_LINE}
            $(complete -p evorun | sed 's/.*-F \\([^ ]*\\).*/\\1/')
            printf '%s\\n' "${COMPREPLY[@]}"
        done
    """
    path = os.pathsep.join([str(tmp_path), os.environ["PATH"]])
    done = subprocess.run(
        [bash, "--norc", "-c", script], env={**environment(), "PATH": path}, capture_output=True, text=True, timeout=600
    )
    assert done.stdout.split() == ["traces", "tracker=", "training=", "transplant"], done.stderr
