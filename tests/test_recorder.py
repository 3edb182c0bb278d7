"""The scores that the recorder writes: the best candidate's, every candidate's, and the worst without one."""

import asyncio
import json
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import pytest

from building import NoTools, no_progress
from evorun.runner.recorder import ProblemRecorder, SharedRecorder
from evorun.runs.candidates import Candidate, Response, Step
from evorun.runs.directory import RunDirectory
from evorun.runs.schema import CandidateRecord, Spent
from evorun.runs.scores import ACCURACY, Score
from evorun.tasks.base import Grade, Problem, Tools
from method_fixture import problem

COST = {"generate": Spent(1, 5, 3)}


class Lengths:
    """Scores an answer by its length; no answer misses all 5 characters."""

    def __init__(self) -> None:
        self.graded: list[Response] = []

    async def grade(self, problem: Problem, response: Response, tools: Tools) -> Grade:
        self.graded.append(response)
        await asyncio.sleep(0)
        length = len(response.answer or "")
        return Grade(correct=length == 5, scores={"score": 20.0 * length, "missing": 5.0 - length})


def rated(name: str, answer: str | None, **more: Any) -> Candidate:
    response = Response(text=answer or "?", answer=answer, error=None if answer else "no block")
    return Candidate.from_response(response, id=name, generation=0, operator="init", survivor=True, **more)


def recorded(
    folder: Path, steps: Sequence[Step], primary: Score = ACCURACY
) -> tuple[dict[str, list[dict[str, Any]]], Lengths]:
    grader = Lengths()

    async def write() -> None:
        directory = RunDirectory(folder)
        recorder = ProblemRecorder(problem(0), grader, NoTools(), primary, directory, no_progress())
        for step in steps:
            recorder.offer(step, COST)
        recorder.close()
        await recorder.write_steps()
        await recorder.write_end(COST, False)
        directory.finish_records([problem(0).id])
        directory.close()

    asyncio.run(write())
    names = ("steps", "candidates", "predictions")
    return {name: [json.loads(line) for line in (folder / f"{name}.jsonl").open()] for name in names}, grader


def test_steps_and_end_carry_the_best_candidates_scores_graded_once(tmp_path: Path) -> None:
    short, whole = rated("a", "123"), rated("b", "12345")
    steps = [Step(step=0, best=short, candidates=[short]), Step(step=1, best=whole, candidates=[short, whole])]
    records, grader = recorded(tmp_path, steps)
    assert [step["scores"] for step in records["steps"]] == [
        {"score": 60.0, "missing": 2.0},
        {"score": 100.0, "missing": 0.0},
    ]
    assert [step["correct"] for step in records["steps"]] == [False, True]
    assert [c["scores"]["score"] for c in records["candidates"]] == [60.0, 100.0]
    assert records["predictions"][0]["scores"] == {"score": 100.0, "missing": 0.0}
    assert len(grader.graded) == 2


def test_a_problem_without_a_candidate_has_the_worst_scores(tmp_path: Path) -> None:
    lost = rated("a", None)
    steps = [Step(step=k, best=None, candidates=[lost]) for k in range(3)]
    records, grader = recorded(tmp_path, steps)
    worst = {"score": 0.0, "missing": 5.0}
    assert [step["scores"] for step in records["steps"]] == [worst] * 3
    assert [step["correct"] for step in records["steps"]] == [None] * 3
    (prediction,) = records["predictions"]
    assert (prediction["scores"], prediction["correct"], prediction["candidate"]) == (worst, False, None)
    assert [response.error for response in grader.graded] == ["no response", "no block"]


def test_a_method_without_any_step_leaves_the_worst_scores(tmp_path: Path) -> None:
    records, _ = recorded(tmp_path, [])
    assert records["predictions"][0]["scores"] == {"score": 0.0, "missing": 5.0}


def test_candidates_keep_fitness_errors_and_the_call_that_wrote_them(tmp_path: Path) -> None:
    plain = rated("a", "123")
    bred = rated("b", "1234", fitness=80.0, errors="one character is missing", call="p0|1|crossover|0|0")
    records, _ = recorded(tmp_path, [Step(step=0, best=bred, candidates=[plain, bred])])
    kept = [(c["fitness"], c["errors"], c["call"]) for c in records["candidates"]]
    assert kept == [(None, "", None), (80.0, "one character is missing", "p0|1|crossover|0|0")]


def test_a_note_is_recorded_and_left_out_where_there_is_none(tmp_path: Path) -> None:
    directory = RunDirectory(tmp_path)
    SharedRecorder(directory).record(0, [prompt("a", 25.0), prompt("b", 26.0, note="7 wins, 1 loss")])
    directory.close()
    first, second = (json.loads(line) for line in (tmp_path / "candidates.jsonl").open())
    assert "note" not in first
    assert second["note"] == "7 wins, 1 loss"


def test_a_step_s_samples_give_a_pass_rate_and_are_graded_once(tmp_path: Path) -> None:
    greedy = rated("1.0", "wrong")  # five characters are right
    samples = [rated("1.1", "12345"), rated("1.2", "123"), rated("1.3", "54321"), rated("1.4", None)]
    step = Step(step=1, best=greedy, candidates=[greedy, *samples], samples=samples)
    files, grader = recorded(tmp_path, [step])
    assert files["steps"][0]["scores"]["pass_rate"] == 0.5
    assert files["predictions"][0]["scores"]["pass_rate"] == 0.5
    assert files["predictions"][0]["correct"] is True
    assert len(grader.graded) == 5


def prompt(name: str, mean: float, *, survivor: bool = True, **more: Any) -> Candidate:
    return Candidate(
        id=name, kind="system_prompt", generation=0, operator="mutate", text=f"Text {name}", answer=None,
        mean=mean, sd=1.0, survivor=survivor, **more,
    )  # fmt: skip


SERIES = [
    [prompt("a", 25.0)],
    [prompt("a", 24.0), prompt("b", 26.0, parents=("a",))],
    [prompt("a", 24.0), prompt("b", 26.0)],
    [prompt("a", 24.0, survivor=False), prompt("b", 27.0)],
]


@pytest.mark.parametrize("broken_off_after", [0, 1, 2, 4])
def test_what_serves_all_problems_is_written_once_and_rated_where_a_step_changes_that(
    tmp_path: Path, broken_off_after: int
) -> None:
    for steps in (SERIES[:broken_off_after], SERIES):  # a resumed run repeats its records
        directory = RunDirectory(tmp_path)
        recorder = SharedRecorder(directory)
        for number, candidates in enumerate(steps):
            recorder.record(number, candidates)
        if steps is SERIES:
            directory.finish_records(["p0"])
        directory.close()
    candidates = [json.loads(line) for line in (tmp_path / "candidates.jsonl").open()]
    assert [(c["problem"], c["kind"], c["id"], c["mean"], c["correct"]) for c in candidates] == [
        ("*", "system_prompt", "a", 25.0, None),
        ("*", "system_prompt", "b", 26.0, None),
    ]
    assert candidates[1]["parents"] == ["a"]
    ratings = [json.loads(line) for line in (tmp_path / "ratings.jsonl").open()]
    assert [(r["step"], r["candidate"], r["mean"], r["survivor"]) for r in ratings] == [
        (0, "a", 25.0, True),
        (1, "a", 24.0, True),
        (1, "b", 26.0, True),
        (3, "a", 24.0, False),
        (3, "b", 27.0, True),
    ]


def test_what_serves_all_problems_stands_after_the_problems_own(tmp_path: Path) -> None:
    directory = RunDirectory(tmp_path)
    SharedRecorder(directory).record(0, [prompt("a", 25.0)])
    own = [CandidateRecord(problem=name, id="0", generation=0, operator="init", text="", answer="") for name in "qp"]
    directory.records("candidates").append(own)
    directory.finish_records(["p", "q"])
    directory.close()
    lines = [json.loads(line)["problem"] for line in (tmp_path / "candidates.jsonl").open()]
    assert lines == ["p", "q", "*"]


def test_without_right_and_wrong_samples_have_a_mean_score(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    async def by_length(self: Lengths, problem: Problem, response: Response, tools: Tools) -> Grade:
        return Grade(scores={} if response.answer is None else {"length": float(len(response.answer))})

    monkeypatch.setattr(Lengths, "grade", by_length)
    samples = [rated("1.1", "123"), rated("1.2", "123456"), rated("1.3", None)]
    step = Step(step=1, best=samples[0], candidates=samples, samples=samples)
    files, _ = recorded(tmp_path, [step], Score("length"))
    assert files["steps"][0]["scores"] == {"length": 3.0, "mean_length": 4.5}  # the third one has no length
    assert [line["correct"] for name in files for line in files[name]] == [None] * 5
    assert files["candidates"][2]["scores"] == {}
