"""The examples work as a third party would install and run them, under the real program."""

import json
import os
import re
import subprocess
import sys
import tomllib
from collections import Counter
from pathlib import Path
from typing import Any

import pytest

from evorun.models.embedded import is_ready
from evorun.testing import check_method, check_task
from evorun_process import environment, evorun
from tiny_llama import write_talking_llama

EXAMPLES = Path(__file__).parents[1] / "examples"
PACKAGES = sorted(path.parent for path in EXAMPLES.glob("*/pyproject.toml"))
ROLES = {
    "zero_shot": {"generate"},
    "few_shot": {"generate", "demonstrate"},
    "self_consistency": {"generate"},
    "best_of_n": {"generate", "judge"},
    "feedback_descent": {"generate", "judge"},
    "duel_evolve": {"generate", "judge"},
    "lyria": {"generate", "crossover", "mutate", "fitness", "errors"},
    "gepa": {"evaluate", "reflect", "answer"},
    "first_to_agree": {"generate"},
}
"""The calls that each method makes."""


@pytest.fixture
def installed(tmp_path: Path) -> dict[str, str]:
    """Install the examples' packages as their pyproject.toml says, and return the environment that sees them."""
    site = tmp_path / "site"
    for package in PACKAGES:
        project = tomllib.loads((package / "pyproject.toml").read_text())["project"]
        info = site / f"{project['name'].replace('-', '_')}-{project['version']}.dist-info"
        info.mkdir(parents=True)
        (info / "METADATA").write_text(
            f"Metadata-Version: 2.1\nName: {project['name']}\nVersion: {project['version']}\n"
        )
        groups = project["entry-points"].items()
        lines = [
            f"[{group}]\n" + "".join(f"{n} = {target}\n" for n, target in points.items()) for group, points in groups
        ]
        (info / "entry_points.txt").write_text("\n".join(lines))
    earlier = os.environ.get("PYTHONPATH")
    paths = [str(site), *map(str, PACKAGES), *([earlier] if earlier else [])]
    return {**environment(), "PYTHONPATH": os.pathsep.join(paths)}


@pytest.fixture
def importable(monkeypatch: pytest.MonkeyPatch) -> None:
    """Let this process import the examples' modules."""
    for package in PACKAGES:
        monkeypatch.syspath_prepend(package)


def records(run: Path, name: str) -> list[dict[str, Any]]:
    return [json.loads(line) for line in (run / f"{name}.jsonl").read_text().splitlines()]


def in_place(board: str, answer: str) -> float:
    """Return the share of rows whose queen stands where it may, by the lines that queens share."""
    lines = [{("column", c), ("rising", r + c), ("falling", r - c)} for r, c in enumerate(map(int, answer))]
    queens_on = Counter(line for own in lines for line in own)
    alone = [all(queens_on[line] == 1 for line in own) for own in lines]
    kept = [given in (".", column) for given, column in zip(board, answer, strict=True)]
    return sum(map(all, zip(alone, kept, strict=True))) / len(board)


def test_a_task_in_one_module_passes_the_suite_of_tasks(importable: None) -> None:
    import nqueens

    assert len((EXAMPLES / "nqueens" / "nqueens.py").read_text().splitlines()) <= 80
    check_task(nqueens.NQueensConfig())


def test_a_method_in_one_module_passes_the_suite_of_methods(importable: None) -> None:
    import first_to_agree
    import nqueens

    config = first_to_agree.FirstToAgreeConfig(agreeing=2, samples=4)
    check_method(first_to_agree.FirstToAgree, config, nqueens.NQueensConfig(problems=2))


def test_every_per_problem_method_runs_on_the_example_task(tmp_path: Path, installed: dict[str, str]) -> None:
    size = ("task.problems=2", "budget=calls_300", "budget.calls_per_problem=200", "evorun.progress=off")
    model = ("engine=simulated", "engine.skill=0.05")
    sweep = (f"method={','.join(ROLES)}", "task=nqueens", *model, *size, "hydra.sweep.dir=sweep")
    done = evorun("-m", *sweep, cwd=tmp_path, env=installed)
    assert done.returncode == 0, done.stderr
    runs = {json.loads(path.read_text())["method"]: path.parent for path in tmp_path.glob("sweep/*/manifest.json")}
    assert set(runs) == set(ROLES)
    for method, run in runs.items():
        check_run(run, method)
    check_votes(runs["first_to_agree"])
    check_reading(runs["duel_evolve"], installed)


def check_run(run: Path, method: str) -> None:
    """Check what a run was asked and how its candidates were graded."""
    assert json.loads((run / "manifest.json").read_text())["status"] == "completed"
    cost = json.loads((run / "results.json").read_text())["cost"]
    assert set(cost) - {"total"} == ROLES[method], method
    answered = [one for one in records(run, "candidates") if one["answer"]]
    assert answered, method
    for one in answered:
        expected = in_place(one["problem"], one["answer"])  # a problem's id is its board
        assert (one["correct"], one["scores"]) == (expected == 1, {"queens_in_place": expected})


def check_votes(run: Path) -> None:
    """Check that `first_to_agree` drew until three agreed, its default, or fifteen times."""
    for prediction in records(run, "predictions"):
        drawn = [one["answer"] for one in records(run, "candidates") if one["problem"] == prediction["problem"]]
        votes = Counter(answer for answer in drawn if answer)
        assert votes[prediction["answer"]] == max(votes.values())
        assert max(votes.values()) == 3 or len(drawn) == 15
        assert Counter(answer for answer in drawn[:-1] if answer).most_common(1)[0][1] < 3


def check_reading(run: Path, environment: dict[str, str]) -> None:
    """Check what the script that reads runs prints: the score by generation, then each winner and its ancestors."""
    command = [sys.executable, str(EXAMPLES / "read_run.py"), str(run)]
    shown = subprocess.run(command, env=environment, capture_output=True, text=True, check=True).stdout
    curve, *problems = shown.strip().split("\n\n")
    predictions = records(run, "predictions")
    final = sum(one["correct"] for one in predictions) / len(predictions)
    assert curve.splitlines()[-1].split()[1] == f"{final:.3f}"
    parents = {(one["problem"], one["id"]): one["parents"] for one in records(run, "candidates")}
    for prediction, lines in zip(predictions, problems, strict=True):
        ancestors, open_ = set[str](), [prediction["candidate"]]
        while open_:
            ancestors.add(name := open_.pop())
            open_ += set(parents[prediction["problem"], name]) - ancestors
        title, *listed = lines.splitlines()
        assert title.startswith(f"{prediction['problem']}: accuracy ")
        assert sorted(line.split()[0] for line in listed) == sorted(ancestors)
        assert all(re.search(r", asked in [1-9]\d+ characters$", line) for line in listed)


@pytest.mark.embedded
@pytest.mark.slow
@pytest.mark.skipif(not is_ready(), reason="no embedded model")
def test_the_example_task_runs_on_an_engine_with_weights(tmp_path: Path, installed: dict[str, str]) -> None:
    weights = write_talking_llama(tmp_path / "weights")
    model = ("model=local", f"model.id={weights}", "model.context_length=8192")
    engine = ("engine=transformers", "engine.device=cpu", "evorun.progress=off")
    size = ("task.size=4", "task.given=1", "task.problems=1", "task.held_out=1", "task.reasoning_chars=20")
    sampling = ("task.sampling.max_tokens=200", "task.sampling.judge_max_tokens=12")
    method = ("method=duel_evolve", "method.generations=1", "method.initial_candidates=2", "method.children=1")
    few = ("method.parents=1", "method.duels=1", "hydra.run.dir=duel_evolve")
    done = evorun("task=nqueens", *method, *few, *model, *engine, *size, *sampling, cwd=tmp_path, env=installed)
    assert done.returncode == 0, done.stderr
    check_run(tmp_path / "duel_evolve", "duel_evolve")
    assert [one["operator"] for one in records(tmp_path / "duel_evolve", "candidates")] == ["init", "init", "evolve"]
