"""Numbers that no run can mean: one line says so, whatever the key."""

import copy
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from building import composed
from evorun.cli.overrides import change
from evorun.errors import ConfigError
from evorun.runner.settings import check
from evorun_process import DRY_RUN, evorun_here

DIGITS = "9" * 5_000


@pytest.mark.parametrize(
    "words",
    [
        (*DRY_RUN, f"seed={DIGITS}"),
        (*DRY_RUN, f"method.generations=-{DIGITS}"),
        (*DRY_RUN, f"seed={'1_' * 5_000}1"),
        ("-m", *DRY_RUN, f"seed=0,{DIGITS}"),
        (*DRY_RUN, "seed=1e5000"),
        (*DRY_RUN, f"seed={'9' * 400}"),
        (*DRY_RUN, f"task.limit={'9' * 400}"),
        ("grade", "task=mathbench", "responses=r.jsonl", f"task.limit={DIGITS}"),
        ("grade", "task=mathbench", "responses=r.jsonl", f"task.limit={'9' * 400}"),
    ],
    ids=lambda words: " ".join(words)[:60],
)
def test_an_endless_number_is_one_line(tmp_path: Path, words: tuple[str, ...]) -> None:
    done = evorun_here(*words, cwd=tmp_path)
    assert done.returncode == 1
    (line,) = done.stderr.splitlines()
    assert line.startswith("error: ")
    assert "expected a" in line
    assert len(line) < 200


def test_a_resume_refuses_it_too() -> None:
    with pytest.raises(ConfigError, match=r"sandbox\.processes: expected a number of at most"):
        change({"sandbox": {"processes": 1}}, [f"sandbox.processes={DIGITS}"])


def leaves(node: dict[str, Any], path: tuple[str, ...] = ()) -> Iterator[tuple[tuple[str, ...], Any]]:
    for key, value in node.items():
        if isinstance(value, dict):
            yield from leaves(value, (*path, key))
        elif not isinstance(value, str | bool):
            yield (*path, key), value


@pytest.mark.parametrize(
    "number", [10**400, pytest.param(float("nan"), marks=pytest.mark.nightly)], ids=["huge", "nan"]
)
def test_every_key_of_a_run_takes_or_refuses_every_number(number: float) -> None:
    config = composed("engine=simulated", "method=duel_evolve", "task=livecodebench")
    for path, _ in leaves(config):
        changed: dict[str, Any] = copy.deepcopy(config)
        group = changed
        for key in path[:-1]:
            group = group[key]
        group[path[-1]] = number
        try:
            check(changed)
        except ConfigError:
            continue
        assert number != 10**400, path
