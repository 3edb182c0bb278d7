"""`evorun grade`: scores of each response and their means, several responses a problem, tests of programs."""

import asyncio
import json
from collections.abc import Sequence
from pathlib import Path
from statistics import fmean
from typing import Any

import pytest

from building import load_task
from evorun.cli import grading
from evorun.cli.grading import grade_file
from evorun.cli.task_grading import TaskGrading
from evorun.runner.registry import TASKS
from evorun.runs.statistics import wilson
from evorun.runs.terminal import Terminal
from evorun.sandbox.config import SandboxConfig
from evorun.tasks.constructions.construction import VALID, Construction
from evorun.testing.runs import FakeSandbox
from evorun_process import evorun, evorun_here

SUDOKU = ("task=sudoku", "task.limit=3", "responses=r.jsonl")


@pytest.fixture(name="graded")
def _graded(tmp_path: Path) -> tuple[str, list[dict[str, Any]]]:
    run = ("method=zero_shot", "task=sudoku", "engine=simulated", "engine.skill=0.97", "task.limit=3")
    done = evorun_here(*run, "hydra.run.dir=run", cwd=tmp_path)
    assert done.returncode == 0, done.stderr
    written = [json.loads(line) for line in (tmp_path / "run" / "candidates.jsonl").read_text().splitlines()]
    responses = [{"id": c["problem"], "response": c["text"]} for c in written]
    responses[-1]["response"] = "I do not know."
    (tmp_path / "r.jsonl").write_text("".join(json.dumps(r) + "\n" for r in responses))
    done = evorun_here("grade", *SUDOKU, cwd=tmp_path)
    assert done.returncode == 0, done.stderr
    records = [json.loads(line) for line in (tmp_path / "r.graded.jsonl").read_text().splitlines()]
    for record, candidate in zip(records[:-1], written[:-1], strict=True):
        assert record["scores"] == candidate["scores"]
    return done.stdout, records


@pytest.mark.skipif("sudoku" not in TASKS, reason="needs a task with scores")
def test_scores_of_each_response_and_their_means(graded: tuple[str, list[dict[str, Any]]]) -> None:
    printed, records = graded
    rows = [" ".join(line.replace("│", " ").split()) for line in printed.splitlines()]
    assert records[-1]["scores"] == {
        "score": 0.0,
        "penalised_score": 0.0,
        "score_paper": 0.0,
        "penalised_score_paper": 0.0,
    }
    for record in records:
        (row,) = [row for row in rows if row.startswith(f"{record['id']} ")]
        correct, *shown = row.split()[1:]
        assert correct == ("yes" if record["correct"] else "no")
        assert [float(value) for value in shown] == pytest.approx(list(record["scores"].values()), rel=1e-5)
    for name in ("score", "penalised_score"):
        (row,) = [row for row in rows if row.startswith(f"all {name} 3 ")]
        assert float(row.split()[3]) == pytest.approx(fmean(r["scores"][name] for r in records), rel=1e-3)


MATHBENCH = ("task=mathbench", "task.source=sample")


def rows_of(printed: str) -> list[list[str]]:
    return [line.replace("│", " ").split() for line in printed.splitlines()]


def lettered(answers: dict[str, str]) -> str:
    """Return a line for each response: problems with the letters that they are answered by."""
    return "".join(
        json.dumps({"id": name, "response": json.dumps({"solution": letter})}) + "\n"
        for name, letters in answers.items()
        for letter in letters
    )


def right_and_wrong(count: int) -> list[tuple[str, str, str]]:
    """Return problems of one stratum, each with its right letter and a wrong one."""
    loaded = load_task("mathbench", source="sample")
    answers = loaded.answers
    chosen = [problem.id for problem in loaded.problems if problem.stratum == loaded.problems[0].stratum][:count]
    return [(name, answers[name], "B" if answers[name] == "A" else "A") for name in chosen]


def test_every_problem_weighs_the_same_however_many_responses_it_has(tmp_path: Path) -> None:
    (one, right, wrong), (other, right_too, wrong_too) = right_and_wrong(2)
    (tmp_path / "r.jsonl").write_text(lettered({one: right * 2 + wrong, other: right_too + wrong_too * 3}))
    done = evorun_here("grade", *MATHBENCH, "responses=r.jsonl", cwd=tmp_path)
    assert done.returncode == 0, done.stderr
    rows = rows_of(done.stdout)
    (summary,) = [row for row in rows if row[:3] == ["all", "2", "7"]]
    assert summary[3:5] == ["3", "45.8"]  # the mean of 2/3 and 1/4, not 3/7
    # Of the pairs of responses, 3 of 3 and 3 of 6 hold a right one; of the triples 1 of 1 and 3 of 4.
    found = {row[1]: row[3] for row in rows if row[:1] == ["all"] and len(row) > 4 and row[2] == "2"}
    assert (found["2"], found["3"]) == ("75.0", "87.5")
    records = [json.loads(line) for line in (tmp_path / "r.graded.jsonl").read_text().splitlines()]
    assert [(record["id"], record["sample"]) for record in records] == [
        *((one, sample) for sample in range(3)),
        *((other, sample) for sample in range(4)),
    ]
    assert [record["correct"] for record in records] == [True, True, False, True, False, False, False]


def test_pass_at_k_of_problems_that_are_all_solved_has_an_interval(tmp_path: Path) -> None:
    responses = {name: right * 2 + wrong for name, right, wrong in right_and_wrong(3)}
    (tmp_path / "r.jsonl").write_text(lettered(responses))
    done = evorun_here("grade", *MATHBENCH, "responses=r.jsonl", cwd=tmp_path)
    rows = [" ".join(row) for row in rows_of(done.stdout)]
    low, high = wilson(3, 3)  # with one wrong response of three, pairs and triples hold a right one
    shown = f"100.0 % {100 * low:.1f} to {100 * high:.1f} %"
    assert f"all 2 3 {shown}" in rows
    assert f"all 3 3 {shown}" in rows


def test_responses_come_from_standard_input(tmp_path: Path) -> None:
    ((one, right, _),) = right_and_wrong(1)
    done = evorun("grade", *MATHBENCH, "responses=-", "output=o.jsonl", cwd=tmp_path, input=lettered({one: right}))
    assert done.returncode == 0, done.stderr
    assert json.loads((tmp_path / "o.jsonl").read_text())["correct"]
    for words, line in (
        (["output=o.jsonl", "overwrite=true"], "standard input, line 1: expected"),
        ([], "output: expected a file"),
    ):
        done = evorun("grade", *MATHBENCH, "responses=-", *words, cwd=tmp_path, input="no JSON")
        assert done.returncode == 1
        assert done.stderr.startswith(f"error: {line}")


def test_unequal_strata_and_what_the_public_tests_say_of_programs_are_graded_in_one_call(tmp_path: Path) -> None:
    def problem(number: int, difficulty: str) -> dict[str, Any]:
        return {
            **{"id": f"p{number}", "title": f"Title {number}", "statement": f"Add one. ({number})"},
            **{"platform": "codeforces", "difficulty": difficulty, "contest_date": "2024-03-02", "kind": "stdin"},
            "public_tests": [
                {"input": "1\n", "output": "3\n"},
                {"input": "2\n", "output": "3\n"},
            ],  # the first is wrong
            "hidden_tests": [{"input": f"{n}\n", "output": f"{n + 1}\n"} for n in range(3)],
        }

    problems = [problem(1, "easy"), problem(2, "easy"), problem(3, "hard")]
    (tmp_path / "lcb.jsonl").write_text("".join(json.dumps(one) + "\n" for one in problems))
    programs = {"p1": "print(int(input()) + 1)", "p2": "print(int(input()) * 2 + 1)", "p3": "print(1)"}
    (tmp_path / "r.jsonl").write_text(
        "".join(json.dumps({"id": name, "response": f"```python\n{it}\n```"}) + "\n" for name, it in programs.items())
    )
    every = ("task.strata=[easy,hard]", "task.per_stratum=null", "task.validation_per_stratum=0")
    words = ("task=livecodebench", "task.data=lcb.jsonl", *every, "responses=r.jsonl")
    done = evorun_here("grade", *words, cwd=tmp_path)
    assert done.returncode == 0, done.stderr
    records = {one["id"]: one for one in map(json.loads, (tmp_path / "r.graded.jsonl").read_text().splitlines())}
    assert records["p1"]["correct"]
    counts = {name: (one["public_tests"]["passed"], one["hidden_tests"]["passed"]) for name, one in records.items()}
    assert counts == {"p1": (1, 3), "p2": (1, 1), "p3": (0, 1)}
    assert {one["hidden_tests"]["tests"] for one in records.values()} == {3}
    rows = rows_of(done.stdout)
    assert ["easy", "2", "1", "50.0"] in [row[:4] for row in rows]
    assert ["hard", "1", "0", "0.0"] in [row[:4] for row in rows]
    # Public tests passed by none, hidden ones by one, which fails a public one.
    assert ["all", "0", "1", "1"] in rows


def test_programs_cannot_read_the_tests_that_they_are_graded_by(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    problem = {
        **{"id": "p", "title": "Title", "statement": "Add one.", "platform": "codeforces", "difficulty": "easy"},
        **{"contest_date": "2024-03-02", "kind": "stdin", "public_tests": [{"input": "1\n", "output": "2\n"}]},
        "hidden_tests": [{"input": "2\n", "output": "3\n"}],
    }
    (tmp_path / "lcb.jsonl").write_text(json.dumps(problem) + "\n")
    (tmp_path / "r.jsonl").write_text(json.dumps({"id": "p", "response": "```python\nprint(2)\n```"}) + "\n")
    hidden: list[Path] = []

    class Noted(FakeSandbox):
        def __init__(self, config: SandboxConfig, private: Sequence[Path] = ()) -> None:
            hidden.extend(private)

    monkeypatch.setattr(grading, "LazySandbox", Noted)
    every = ("task.strata=[easy]", "task.per_stratum=null", "task.validation_per_stratum=0")
    words = ("task=livecodebench", f"task.data={tmp_path / 'lcb.jsonl'}", *every)
    assert grade_file([*words, f"responses={tmp_path / 'r.jsonl'}"], Terminal(quiet=True)) == 0
    assert hidden == [tmp_path / "lcb.jsonl"]


def test_a_task_without_strata_has_one_row_of_all_its_responses(tmp_path: Path) -> None:
    problems = load_task("ethics", source="sample").problems[:3]
    (tmp_path / "r.jsonl").write_text("".join(json.dumps({"id": one.id, "response": "NTA"}) + "\n" for one in problems))
    done = evorun_here("grade", "task=ethics", "task.source=sample", "responses=r.jsonl", cwd=tmp_path)
    assert done.returncode == 0, done.stderr
    assert len([row for row in rows_of(done.stdout) if row[:1] == ["all"]]) == 1


def test_exported_rewards_are_those_of_training(monkeypatch: pytest.MonkeyPatch) -> None:
    """Packages of `evorun export format=verifiers` reward by the score that training uses, where a task names one."""
    text = "```python\ndef build(n):\n    return [[0.25, 0.5, 0.25], [0.75, 0.5, 0.25]]\n```"
    for score, reward in ((None, 0.5), (VALID, 1.0)):
        monkeypatch.setattr(Construction, "reward_score", score)
        grading = TaskGrading("task=circle_packing", "task.circles=[2]")
        assert asyncio.run(grading.reward("circles_2", text)) == reward
