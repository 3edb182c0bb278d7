"""Coverage, choice, area under the curve, agreement and readability, against counting by hand and by brute force."""

from itertools import product
from pathlib import Path
from typing import Any

import msgspec
import pytest
from hypothesis import given
from hypothesis import strategies as st

from evorun.runs.schema import CandidateRecord, ComparisonRecord, Metric, PredictionRecord, Spent, StepRecord
from evorun.runs.scores import ACCURACY, Score
from evorun.runs.search_figures import search_figures

LENGTH = Score("length", 0.0, None, higher_is_better=False)


def candidate(
    problem: str, name: str, correct: bool | None, mean: float | None = None, **fields: Any
) -> CandidateRecord:
    return CandidateRecord(
        problem=problem, id=name, generation=0, operator="init", text="t", answer="a", correct=correct, mean=mean,
        **fields,
    )  # fmt: skip


def prediction(problem: str, correct: bool | None) -> PredictionRecord:
    return PredictionRecord(problem, "s", "0", "a", correct, {}, None, 1, 1, "generations", {})


def duel(problem: str, first: str, second: str, outcome: Any) -> ComparisonRecord:
    return ComparisonRecord(
        problem=problem, step=0, first=first, second=second, verdicts=("A", "B"), outcome=outcome, reasons=("", "")
    )


def figures(
    folder: Path,
    candidates: list[CandidateRecord],
    predictions: list[PredictionRecord],
    duels: list[ComparisonRecord] | None = None,
    steps: list[StepRecord] | None = None,
    declared: Score = ACCURACY,
) -> dict[str, Metric]:
    for name, records in (("candidates", candidates), ("comparisons", duels or [])):
        (folder / f"{name}.jsonl").write_bytes(b"".join(msgspec.json.encode(one) + b"\n" for one in records))
    return search_figures(folder, steps or [], predictions, [declared])[0]


def test_coverage_and_choice_multiply_to_accuracy(tmp_path: Path) -> None:
    pool = [
        *(candidate("found", "0", False), candidate("found", "1", True)),
        *(candidate("missed", "0", True), candidate("missed", "1", False)),
        candidate("absent", "0", False),
        candidate("*", "prompt", None, kind="rubric"),
    ]
    ends = [
        prediction("found", True),
        prediction("missed", False),
        prediction("absent", False),
        prediction("cut", False),
    ]
    found = figures(tmp_path, pool, ends)
    assert (found["pool_coverage"].value, found["pool_coverage"].n) == (0.5, 4)
    assert (found["choice_given_coverage"].value, found["choice_given_coverage"].n) == (0.5, 2)
    assert "posterior_auc" not in found  # nothing has a posterior


MEANS = st.lists(st.sampled_from([-1.0, 0.0, 0.5, 2.0]), min_size=1, max_size=6)


@given(st.lists(st.tuples(MEANS, MEANS), min_size=1, max_size=4))
def test_the_area_is_the_share_of_ordered_pairs_and_each_problem_weighs_the_same(
    tmp_path_factory: pytest.TempPathFactory, problems: list[tuple[list[float], list[float]]]
) -> None:
    pool = [
        candidate(f"p{i}", f"{right}{k}", right, mean)
        for i, (of_right, of_wrong) in enumerate(problems)
        for right, means in ((True, of_right), (False, of_wrong))
        for k, mean in enumerate(means)
    ]
    only_wrong = [candidate("q", str(k), False, 3.0) for k in range(3)]
    unjudged = [candidate("p0", "never rated", True)]
    found = figures(tmp_path_factory.mktemp("run"), [*pool, *only_wrong, *unjudged], [])["posterior_auc"]
    pairs = [[(a > b) + (a == b) / 2 for a, b in product(right, wrong)] for right, wrong in problems]
    assert found.value == pytest.approx(sum(sum(p) / len(p) for p in pairs) / len(pairs))
    assert found.n == len(problems)


def test_agreement_is_over_decisive_duels_of_unequal_candidates(tmp_path: Path) -> None:
    pool = [candidate("p", "right", True), candidate("p", "wrong", False), candidate("p", "bad", False)]
    duels = [
        duel("p", "right", "wrong", "first"),
        duel("p", "wrong", "right", "second"),
        duel("p", "bad", "right", "first"),
        duel("p", "wrong", "bad", "first"),
        duel("p", "right", "bad", None),
    ]
    found = figures(tmp_path, pool, [prediction("p", True)], duels)
    assert (found["judge_agreement"].value, found["judge_agreement"].n) == (pytest.approx(2 / 3), 3)
    assert found["decisive_rate"].value == pytest.approx(4 / 5)


def test_shares_of_verdicts_are_over_those_that_could_say_so(tmp_path: Path) -> None:
    given = (("A", "T"), ("invalid", "B"), ("A", "A"))
    duels = [msgspec.structs.replace(duel("p", "a", "b", None), verdicts=verdicts) for verdicts in given]
    found = figures(tmp_path, [], [prediction("p", True)], duels)
    shares = {name: (found[f"{name}_rate"].value, found[f"{name}_rate"].n) for name in ("position_a", "tie", "invalid")}
    assert shares == {"position_a": (3 / 4, 4), "tie": (1 / 6, 6), "invalid": (1 / 6, 6)}


def test_without_right_and_wrong_agreement_follows_the_score(tmp_path: Path) -> None:
    pool = [
        candidate("p", name, None, 0.0, scores={"length": value}) for name, value in (("short", 1.0), ("long", 9.0))
    ]
    found = figures(tmp_path, pool, [prediction("p", None)], [duel("p", "long", "short", "second")], declared=LENGTH)
    assert found["judge_agreement"].value == 1
    assert not {"pool_coverage", "choice_given_coverage", "posterior_auc"} & set(found)


def test_texts_that_parse_are_counted_with_those_asked_for_again(tmp_path: Path) -> None:
    def step(problem: str, number: int, **extra: float) -> StepRecord:
        return StepRecord(problem, "s", number, None, None, None, 0, 0, {"generate": Spent(9, 9, 9)}, extra)

    steps = [step("p", 0, texts=8, unparsable_texts=2), step("p", 1, texts=2, unparsable_texts=1), step("q", 0)]
    found = figures(tmp_path, [], [], steps=steps)["parsable_rate"]
    assert (found.value, found.n) == (pytest.approx(7 / 10), 10)
    assert found.ci95 is None  # texts of one problem, however many
    of_two = figures(tmp_path, [], [], steps=[*steps, step("r", 0, texts=10, unparsable_texts=1)])["parsable_rate"]
    assert of_two.ci95 == pytest.approx((7 / 10, 9 / 10))  # problems are drawn again: p alone, and r alone


def test_judgments_that_the_engine_refused_are_no_verdicts(tmp_path: Path) -> None:
    def asked(problem: str, *said: tuple[Any, str]) -> ComparisonRecord:
        verdicts, reasons = zip(*said, strict=True)
        record = duel(problem, "0", "1", None)
        return msgspec.structs.replace(record, verdicts=verdicts, reasons=reasons)

    unread, refused = ("invalid", "prose"), ("invalid", "rejected: HTTP 400")
    duels = [asked("p", unread, ("T", "")), asked("p", refused, ("A", "")), asked("q", refused, refused)]
    found = figures(tmp_path, [], [], duels=duels)
    assert (found["invalid_rate"].value, found["invalid_rate"].n) == (pytest.approx(1 / 3), 3)
    assert (found["tie_rate"].value, found["tie_rate"].n) == (pytest.approx(1 / 3), 3)
    assert (found["refused_rate"].value, found["refused_rate"].n) == (0.5, 6)
    counts = search_figures(tmp_path, [], [], [ACCURACY])[1]
    assert (counts["invalid_judgments"], counts["refused_judgments"]) == (1, 3)
    assert "refused_rate" not in figures(tmp_path, [], [], duels=duels[:1])


def test_coverage_is_left_out_where_a_run_trains_and_nothing_is_chosen(tmp_path: Path) -> None:
    pool = [candidate("p", "0", True), candidate("p", "1", False)]
    assert "pool_coverage" in figures(tmp_path, pool, [prediction("p", False)])
    (tmp_path / "training.jsonl").write_text("")
    assert not {"pool_coverage", "choice_given_coverage"} & figures(tmp_path, pool, [prediction("p", False)]).keys()


def test_coverage_is_left_out_where_prompts_are_compared_and_no_response_is_rated(tmp_path: Path) -> None:
    """A method that rates responses under several prompts, as GEPA does by public tests, chooses among them."""
    prompt = candidate("*", "prompt", None, 0.5, kind="system_prompt")
    for mean, shown in ((None, False), (1.0, True)):
        pool = [prompt, candidate("p", "0", True, mean), candidate("p", "1", False, mean)]
        found = figures(tmp_path, pool, [prediction("p", False)])
        assert [name in found for name in ("pool_coverage", "choice_given_coverage")] == [shown, shown]
