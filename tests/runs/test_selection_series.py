"""Series of the selection: against counting by hand, and against results.json, which counts another way."""

from pathlib import Path
from typing import Any

import msgspec
import pytest

from building import simulated_run
from evorun.runs.counting import count_candidates, count_comparisons
from evorun.runs.reading import read_metrics, read_results
from evorun.runs.schema import Belief, CandidateRecord, ComparisonRecord, MetricPoint, ReturnedCandidate, StepRecord
from evorun.runs.scores import ACCURACY, Score
from evorun.runs.selection import SEARCH_PREFIX, Agreements, Searches, selection_series

LENGTH = Score("length", 0.0, 10.0, higher_is_better=False)


def candidate(name: str, generation: int, answer: str | None, correct: bool | None, **fields: Any) -> CandidateRecord:
    problem = name[0]
    return CandidateRecord(
        problem=problem,
        id=name,
        generation=generation,
        operator="init",
        text="t",
        answer=answer,
        correct=correct,
        **fields,
    )


def step(problem: str, number: int, correct: bool | None, mean: float | None = None, **fields: Any) -> StepRecord:
    best = None if correct is None and not fields else ReturnedCandidate("0", "a", "t")
    return StepRecord(problem, "s", number, best, Belief(mean, None), correct, 1, 1, {}, {}, **fields)


def series(
    folder: Path,
    candidates: list[CandidateRecord],
    steps: list[StepRecord],
    duels: list[ComparisonRecord] | None = None,
    measure: Score = ACCURACY,
) -> dict[tuple[str, int], float | None]:
    for name, records in (("candidates", candidates), ("comparisons", duels or [])):
        (folder / f"{name}.jsonl").write_bytes(b"".join(msgspec.json.encode(record) + b"\n" for record in records))
    points = [MetricPoint(number, "score", 0.0, None, 1, 7.0 * number, 0.0) for number in (0, 1, 2)]
    searches = Searches(steps, measure)
    count_candidates(folder, searches)
    count_comparisons(folder, agreements := Agreements(searches))
    found = list(selection_series(folder, searches, agreements, points))
    assert all(point.calls == 7.0 * point.step for point in found)
    return {(point.name.removeprefix(SEARCH_PREFIX), point.step): point.value for point in found}


def test_right_and_wrong_by_hand(tmp_path: Path) -> None:
    """p finds a right answer at step 1 and returns it at step 2; q has one at once, returns it, and ends at step 0."""
    candidates = [
        *(candidate("p0", 0, "3", False), candidate("p1", 0, "3", False), candidate("p2", 0, None, False)),
        *(candidate("p3", 1, "7", True), candidate("p4", 1, "8", False)),
        candidate("p5", 2, "8", False),
        *(candidate("q0", 0, "5", True), candidate("q1", 0, "6", False)),
        candidate("*", 0, "a rubric", None, kind="rubric"),
    ]
    steps = [step("p", 0, None), step("p", 1, False, 0.2), step("p", 2, True, 0.5), step("q", 0, True, 0.2)]
    duels = [
        ComparisonRecord(
            problem="p", step=1, first=first, second=second, verdicts=("A",), outcome=outcome, reasons=("",)
        )
        for first, second, outcome in (
            *(("p3", "p0", "first"), ("p3", "p1", "first"), ("p1", "p3", "first")),
            *(("p0", "p1", "first"), ("p3", "p4", None)),
        )
    ]
    found = series(tmp_path, candidates, steps, duels)
    assert [found["oracle", number] for number in (0, 1, 2)] == [0.5, 1.0, 1.0]
    assert [found["regret", number] for number in (0, 1, 2)] == [0.0, 0.5, 0.0]
    # a problem that has ended adds nothing to later steps
    assert [found["step_oracle", number] for number in (0, 1, 2)] == [0.5, 1.0, 0.0]
    assert [found["distinct_answers", number] for number in (0, 1, 2)] == [0.75, 1.0, 1.0]
    assert {key: value for key, value in found.items() if key[0] == "belief_auc"} == {("belief_auc", 1): 0.5}
    assert {key: value for key, value in found.items() if key[0] == "judge_agreement"} == {
        ("judge_agreement", 1): pytest.approx(2 / 3)
    }


def test_degrees_are_utilities_whichever_way_the_score_runs(tmp_path: Path) -> None:
    candidates = [
        candidate("p0", 0, "a", None, scores={"length": 8.0}),
        candidate("p1", 0, "b", None, scores={"length": 5.0}),
        candidate("p2", 1, "c", None, scores={"length": 2.0}),
        candidate("p3", 1, "d", None, scores={"length": None}),
    ]
    steps = [step("p", number, None, scores={"length": value}) for number, value in ((0, 8.0), (1, 5.0), (2, 2.0))]
    found = series(tmp_path, candidates, steps, measure=LENGTH)
    assert [found["oracle", number] for number in (0, 1, 2)] == pytest.approx([0.5, 0.8, 0.8])
    assert [found["regret", number] for number in (0, 1, 2)] == pytest.approx([0.3, 0.3, 0.0])


@pytest.mark.sample(2)
@pytest.mark.parametrize("method", ["duel_evolve", "rsa", "lyria"])
def test_the_last_point_is_what_results_count_over_the_whole_run(tmp_path: Path, method: str) -> None:
    run = simulated_run(
        tmp_path / "run",
        *(f"method={method}", "task=mathbench", "task.source=sample", "task.limit=8", "budget.calls_per_problem=40"),
        *(["method.population=6"] if method != "duel_evolve" else ["method.initial_candidates=6", "method.children=4"]),
    )
    last = {point.name: point.value for point in read_metrics(run.path) if point.name.startswith(SEARCH_PREFIX)}
    results = read_results(run.path)
    assert results is not None
    coverage, choice = (results.metrics[name].value for name in ("pool_coverage", "choice_given_coverage"))
    assert coverage is not None
    assert last["search/oracle"] == pytest.approx(coverage)
    assert last["search/regret"] == pytest.approx(coverage * (1 - (choice or 0.0)))


def test_a_run_that_trains_has_none(tmp_path: Path) -> None:
    (tmp_path / "training.jsonl").write_text("")
    assert series(tmp_path, [candidate("p0", 0, "3", True)], [step("p", 0, True)]) == {}


def test_a_run_that_compares_prompts_and_rates_no_response_has_none(tmp_path: Path) -> None:
    prompt, steps = candidate("*", 0, None, None, kind="system_prompt"), [step("p", 0, True)]
    assert series(tmp_path, [prompt, candidate("p0", 0, "3", True)], steps) == {}
    assert series(tmp_path, [prompt, candidate("p0", 0, "3", True, mean=1.0)], steps)
