"""The net: every request and every record of small simulated runs, all methods on all task families, as digests.

It holds what a restructuring must not change: the runs go through the real command line, prompts and parsers are asked
directly with odd texts, and a failure names the method, the task, the role or file, and the part that differs. What is
expected is in a file for each method, and one for each task's prompts, in expected/ beside this file. Where a
difference is meant, rewrite them and read the difference in version control, with a line for each role or record file:

    EVORUN_REWRITE_NET=1 pytest tests/net -p no:xdist

Of the pairs of a method and a task `make test` runs one for each method, on nearly all tasks; `make test-all` and the
command above run all.

LiveCodeBench's simulated programs hold compressed tables and show Python's own errors: their digests belong to zlib and
CPython 3.11 as the project's continuous integration has them.
"""

import json
import os
from pathlib import Path

import pytest
from net_digests import Digests, differences, digest_run
from net_rendering import FAMILIES, render_family
from net_runs import OTHER_PAIRS, RUNS, carry_out

EXPECTED = Path(__file__).parent / "expected"
OWN_PROMPTS = Path(__file__).parent / "placeholders.json"
"""For each task, its prompt files and the placeholders that users' own files may have in them."""

REWRITE = bool(os.environ.get("EVORUN_REWRITE_NET"))


AT_NIGHT = (
    *("lyria-livecodebench-by_a_model", "lyria-livecodebench-by_operators", "gepa-livecodebench-by_labels"),
    *("best_of_n-livecodebench-by_the_oracle", "lyria-aime-by_a_model", "lyria-sudoku-by_a_model"),
    "islands-circle_packing",
)
"""Runs of programs, and twins. By day another one runs some; these methods run on other tasks, or in other tests."""


def marks(name: str) -> list[pytest.MarkDecorator]:
    return [pytest.mark.all_pairs] * (name in OTHER_PAIRS) + [pytest.mark.nightly] * (name in AT_NIGHT)


@pytest.mark.parametrize("name", [pytest.param(name, marks=marks(name)) for name in RUNS])
def test_run(name: str, tmp_path: Path) -> None:
    path = tmp_path / "run"
    asked = carry_out(RUNS[name], path)
    assert asked
    compare(f"run {name}", digest_run(path, asked))


@pytest.mark.parametrize("name", FAMILIES)
def test_prompts_and_parsers(name: str) -> None:
    compare(f"task {name}", render_family(name))


@pytest.mark.parametrize("name", FAMILIES)
def test_prompts_from_users_files(name: str, tmp_path: Path) -> None:
    for file, placeholders in json.loads(OWN_PROMPTS.read_text())[name].items():
        lines = [f"own {file}", *(f"{one}: <{{{{ {one} }}}}>" for one in placeholders)]
        (tmp_path / file).write_text("\n".join(lines))
    compare(f"task {name} with a user's prompts", render_family(name, tmp_path))


def test_nothing_else_is_expected() -> None:
    names = {*(f"run {name}" for name in RUNS), *(f"task {name}" for name in FAMILIES)}
    names |= {f"task {name} with a user's prompts" for name in FAMILIES}
    found = set()
    for file in sorted(EXPECTED.glob("*.json")):
        in_file = read(file)
        if REWRITE:
            write(file, {name: digests for name, digests in in_file.items() if name in names})
        assert all(file_of(name) == file for name in in_file)
        found |= set(in_file)
    assert found == names


def compare(name: str, found: Digests) -> None:
    file = file_of(name)
    if REWRITE:
        write(file, {**read(file), name: found})
    different = differences(read(file).get(name, {}), found)
    if different:
        pytest.fail("\n".join([f"{name}: not as expected", *different]), pytrace=False)


def file_of(name: str) -> Path:
    """Return the file of what is expected of `run METHOD-TASK...` or of `task NAME...`."""
    kind, subject = name.split()[:2]
    return EXPECTED / (f"task_{subject}.json" if kind == "task" else f"{subject.split('-')[0]}.json")


def read(file: Path) -> dict[str, Digests]:
    found: dict[str, Digests] = json.loads(file.read_text()) if file.exists() else {}
    return found


def write(file: Path, net: dict[str, Digests]) -> None:
    """Write digests in order, with a line for each role, record file or capability; no file where there are none."""
    if not net:
        file.unlink()
        return
    file.write_text(as_json({name: net[name] for name in sorted(net)}, 3) + "\n")


def as_json(digests: Digests, levels: int) -> str:
    """Return a JSON object with a line for each value of its upper levels."""
    if not levels or not any(isinstance(value, dict) for value in digests.values()):
        return json.dumps(digests)
    lines = (
        f"{json.dumps(name)}: {as_json(value, levels - 1) if isinstance(value, dict) else json.dumps(value)}"
        for name, value in digests.items()
    )
    return "{\n" + ",\n".join(lines) + "\n}"
