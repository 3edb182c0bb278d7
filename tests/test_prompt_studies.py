"""Studies of a finished run's system prompts: the transplant matrix, and each principle's worth."""

import json
from collections import defaultdict
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from evorun.reports.summary import describe_complete
from evorun.runs.journal_reader import read_journal
from evorun_process import evorun_here

RUN = (
    *("method=espl", "task=arithmetic", "task.limit=4", "engine=simulated", "engine.mean_tokens=3"),
    *("method.steps=4", "method.eval_every=2", "method.eval_samples=2", "method.problems_per_step=4", "method.group=3"),
    *("engine.training_gain=0.3", "engine.training_speed=1", "evorun.progress=off", "method.transplant=true"),
)


def read(path: Path) -> Any:
    return json.loads(path.read_text())


def lines(path: Path) -> list[dict[str, Any]]:
    return [json.loads(line) for line in path.read_text().splitlines()]


def graded(run: Path) -> dict[int, dict[str, list[bool]]]:
    """Return right and wrong of each sampled answer, by prompt and problem, from what a study's run recorded."""
    found: dict[int, dict[str, list[bool]]] = defaultdict(lambda: defaultdict(list))
    for one in lines(run / "candidates.jsonl"):
        if one["operator"] == "sample":
            found[one["generation"]][one["problem"]].append(one["correct"])
    return found


@pytest.fixture(scope="module")
def run(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("studied")
    done = evorun_here(*RUN, "hydra.run.dir=run", cwd=folder)
    assert done.returncode == 0, done.stderr
    assert "transplant matrix" in done.stdout
    return folder / "run"


def test_each_cell_is_the_mean_over_problems_under_its_weights_and_prompt(run: Path) -> None:
    cells = {(one["step"], one["candidate"]): one for one in read(run / "artifacts" / "transplant.json")}
    prompts = [one for one in lines(run / "candidates.jsonl") if one["problem"] == "*"]
    best = read(run / "artifacts" / "system_prompt.json")["id"]
    shown = list(dict.fromkeys(["0.0", best, prompts[-1]["id"]]))
    assert set(cells) == {(step, name) for step in (0, 2, 4) for name in shown}
    for step in (0, 2, 4):
        [study] = (run / "transplant" / f"step_{step}").iterdir()
        answers = graded(study / "run")
        for index, name in enumerate(shown):
            means = [np.mean(right) for right in answers[index].values()]
            assert len(means) == cells[step, name]["n"] == 4
            assert cells[step, name]["score"] == pytest.approx(np.mean(means))
            assert cells[step, name]["low"] <= cells[step, name]["score"] <= cells[step, name]["high"]
        learned = read(study / "run" / "manifest.json")["config"]["engine"]["learned"]
        kept = run / "artifacts" / "adapters" / f"step_{step}" / "simulated_policy.json"
        assert learned == (0 if step == 0 else read(kept)["learned"])
    assert read(run / "artifacts" / "simulated_policy.json")["learned"] > 0


@pytest.mark.nightly
def test_a_study_that_is_there_is_not_paid_for_again_and_the_window_can_be_added(run: Path) -> None:
    before = (run / "artifacts" / "transplant.json").read_bytes()
    [journal] = run.glob("transplant/step_2/*/run/journal.sqlite")
    touched = journal.stat().st_mtime_ns
    assert evorun_here("transplant", run, cwd=run.parent).returncode == 0
    assert (run / "artifacts" / "transplant.json").read_bytes() == before
    assert journal.stat().st_mtime_ns == touched
    done = evorun_here("transplant", run, "--window", cwd=run.parent)
    assert done.returncode == 0, done.stderr
    in_window: dict[int, set[str]] = {}
    inside: dict[str, bool] = {}
    ratings = lines(run / "ratings.jsonl")
    for step in (0, 2, 4):
        inside |= {one["candidate"]: one["survivor"] for one in ratings if one["step"] <= step}
        in_window[step] = {name for name, survives in inside.items() if survives}
    scores = lines(run / "prompt_scores.jsonl")
    assert {(one["step"], one["candidate"]) for one in scores} == {
        (s, name) for s, ids in in_window.items() for name in ids
    }


@pytest.mark.nightly
def test_a_test_time_method_answers_under_each_prompt_and_all_weights(run: Path) -> None:
    """The prompt reaches every request as its system message, whatever template syntax is in it."""
    words = ("method=self_consistency", "budget.calls_per_problem=5", "method.samples=null")
    done = evorun_here("transplant", run, *words, cwd=run.parent)
    assert done.returncode == 0, done.stderr
    assert "transplant matrix, answers by self_consistency" in done.stdout
    cells = {
        (one["step"], one["candidate"]): one for one in read(run / "artifacts" / "transplant_self_consistency.json")
    }
    assert {step for step, _ in cells} == {0, 2, 4}
    assert len(cells) == 3 * len({name for _, name in cells}) > 3
    texts = {one["id"]: one["text"] for one in lines(run / "candidates.jsonl") if one["problem"] == "*"}
    found = {}
    for file in run.glob("transplant/step_*/*/run/predictions.jsonl"):
        manifest = read(file.parent / "manifest.json")
        if manifest["method"] != "self_consistency":
            continue
        [asked] = {
            message["content"]
            for effect in read_journal(file.parent / "journal.sqlite")
            for message in json.loads(effect.request)["messages"]
            if message["role"] == "system"
        }
        [prompt] = [name for name, text in texts.items() if text == asked and (int(file.parts[-4][5:]), name) in cells]
        predictions = lines(file)
        assert all(one["cost"]["generate"]["calls"] == 5 for one in predictions)
        found[int(file.parts[-4][5:]), prompt] = np.mean([one["correct"] for one in predictions])
    assert found == {key: pytest.approx(one["score"]) for key, one in cells.items()}


def test_a_run_of_given_prompts_shows_the_score_of_each_and_which_its_own_are_of(tmp_path: Path) -> None:
    texts = {"own": "", "steps": "Go step by step.", "long": "Check the sum of each column twice. " * 3}
    (tmp_path / "prompts.json").write_text(json.dumps([{"id": name, "text": text} for name, text in texts.items()]))
    words = ("method=fixed_prompts", "method.prompts=prompts.json", "method.eval_samples=2", "task=arithmetic")
    simulated = ("engine=simulated", "engine.mean_tokens=3", "task.limit=8", "evorun.progress=off", "hydra.run.dir=run")
    done = evorun_here(*words, *simulated, cwd=tmp_path)
    assert done.returncode == 0, done.stderr
    points = {(one["step"], one["name"]): one["value"] for one in lines(tmp_path / "run" / "metrics.jsonl")}
    page = (tmp_path / "run" / "report.html").read_text().replace("&#39;", "'")
    starts = {
        "own": "(the task's own prompt)",
        "steps": "Go step by step.",
        "long": "Check the sum of each column twice. Check the sum of each …",
    }
    for step, (name, start) in enumerate(starts.items()):
        [row] = [line for line in done.stdout.splitlines() if line.split()[:1] == [name]]
        accuracy, rate = f"{100 * points[step, 'accuracy']:.1f} %", f"{points[step, 'pass_rate']:.3f}"
        assert all(shown in row for shown in (start, accuracy, rate))
        assert row.endswith(" 8")
        assert f'<td>{name}</td><td>{start}</td><td class="num">{accuracy}</td>' in page
    assert "These scores are of prompt long, the last of 3." in done.stdout
    assert "; of prompt long, the last of 3<" in page
    assert describe_complete(tmp_path / "run").partition(" under ")[2].startswith("prompt long, the last of 3")


def test_delete_one_pairs_problems_with_and_without_each_principle(run: Path) -> None:
    best = read(run / "artifacts" / "system_prompt.json")
    pairs = 4 * (1 + len(best["principles"]))
    done = evorun_here("delete-one", run, f"answers={3 * pairs - 1}", cwd=run.parent)
    assert done.returncode == 0, done.stderr
    cost = read(next(run.glob("delete_one/*/run/results.json")))["cost"]["total"]["calls"]
    assert cost == 2 * pairs  # one greedy, one sampled
    effects = read(run / "artifacts" / "delete_one.json")
    assert [one["principle"] for one in effects] == best["principles"] != []
    [study] = (run / "delete_one").iterdir()
    prompts = read(study / "prompts.json")
    assert prompts[0]["text"] == best["text"]
    answers = graded(study / "run")
    for number, effect in enumerate(effects, 1):
        assert best["principles"][number - 1] not in prompts[number]["text"]
        differences = [np.mean(whole) - np.mean(answers[number][name]) for name, whole in answers[0].items()]
        assert effect["effect"] == pytest.approx(np.mean(differences))
        assert effect["n"] == 4


@pytest.mark.parametrize(
    ("arguments", "said"),
    [
        (["transplant"], "expected: evorun transplant RUN_DIR"),
        (["delete-one", "run", "--window"], "expected: evorun delete-one RUN_DIR"),
        (["delete-one", "run", "method.eval_samples=-1"], "method.eval_samples: expected a number, got -1"),
        (["delete-one", "run", "answers=5"], "answers: expected "),
        (["transplant", "run", "answers=500"], "expected: evorun transplant RUN_DIR"),
        (["transplant", "run", "method.steps=3"], "method.steps: cannot change"),
        (["transplant", "run/transplant"], "run/transplant is not a run directory"),
    ],
)
def test_wrong_command_lines_are_one_line(run: Path, arguments: list[str], said: str) -> None:
    done = evorun_here(*arguments, cwd=run.parent)
    assert done.returncode == 1
    assert said in done.stderr
    assert len(done.stderr.splitlines()) == 1


@pytest.mark.parametrize(
    ("content", "said"),
    [
        (None, "expected a file with a JSON list"),
        ("[", "expected a JSON list"),
        ('[{"id": "a", "text": ""}, {"id": "a", "text": "b"}]', "expected prompts with distinct ids"),
    ],
)
def test_wrong_files_of_prompts_are_one_line(tmp_path: Path, content: str | None, said: str) -> None:
    given = []
    if content is not None:
        (tmp_path / "prompts.json").write_text(content)
        given = ["method.prompts=prompts.json"]
    done = evorun_here("method=fixed_prompts", "task=arithmetic", "engine=simulated", *given, cwd=tmp_path)
    assert done.returncode == 1
    assert said in done.stderr
    assert not list(tmp_path.glob("outputs/**/manifest.json"))
