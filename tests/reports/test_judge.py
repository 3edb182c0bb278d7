import pytest
from scipy.stats import binomtest

from evorun.reports.judge import JudgeDiagnostics, calibration, judge_warning
from evorun.runs.candidates import CandidateId, Outcome, Verdict
from evorun.runs.schema import ComparisonRecord
from evorun.runs.scores import ACCURACY, Score
from evorun.runs.statistics import Proportion

RIGHT, WRONG, ALSO_RIGHT, UNKNOWN = "right", "wrong", "also right", "unknown"
CORRECT = {("p", RIGHT): True, ("p", ALSO_RIGHT): True, ("p", WRONG): False, ("q", RIGHT): False}


def duel(
    step: int, first: CandidateId, second: CandidateId, *verdicts: Verdict, won: Outcome | None, problem: str = "p"
) -> ComparisonRecord:
    return ComparisonRecord(
        problem=problem, step=step, first=first, second=second, verdicts=verdicts, outcome=won, reasons=("", "")
    )


# Worked by hand: 7 duels, 5 of them decisive.
DUELS = [
    duel(1, RIGHT, WRONG, "A", "B", won="first"),  # right one wins
    duel(1, WRONG, RIGHT, "B", "A", won="second"),  # right one wins, shown second
    duel(1, RIGHT, WRONG, "B", "A", won="second"),  # wrong one wins
    duel(2, RIGHT, ALSO_RIGHT, "A", "B", won="first"),  # both right: says nothing on agreement
    duel(2, RIGHT, WRONG, "A", "A", won=None),  # follows the position
    duel(2, RIGHT, UNKNOWN, "A", "B", won="first"),  # not graded
    duel(3, RIGHT, WRONG, "T", "invalid", won=None),
]


@pytest.fixture(name="judge")
def _judge() -> JudgeDiagnostics:
    diagnostics = JudgeDiagnostics()
    for duel in DUELS:
        diagnostics.add(duel, CORRECT)
    return diagnostics


def test_decisive_rate(judge: JudgeDiagnostics) -> None:
    assert (judge.decisive.successes, judge.decisive.n) == (5, 7)
    assert {step: (s.successes, s.n) for step, s in judge.decisive_by_step.items()} == {1: (3, 3), 2: (2, 3), 3: (0, 1)}


def test_position_is_counted_over_verdicts_that_choose(judge: JudgeDiagnostics) -> None:
    assert (judge.position_a.successes, judge.position_a.n) == (7, 12)
    expected = binomtest(7, 12).proportion_ci(method="wilson")
    assert judge.position_a.ci95 == pytest.approx((expected.low, expected.high))


def test_agreement_is_counted_over_decisive_duels_of_right_against_wrong(judge: JudgeDiagnostics) -> None:
    assert (judge.agreement.successes, judge.agreement.n) == (2, 3)


def test_ties_and_unparsable_verdicts(judge: JudgeDiagnostics) -> None:
    assert (judge.tie.successes, judge.tie.n) == (1, 14)
    assert (judge.invalid.successes, judge.invalid.n) == (1, 14)


def test_correctness_belongs_to_the_problem() -> None:
    diagnostics = JudgeDiagnostics()
    diagnostics.add(duel(1, RIGHT, WRONG, "A", "B", won="first", problem="q"), CORRECT)
    assert diagnostics.agreement.n == 0


def test_a_proportion_of_nothing_has_no_value() -> None:
    assert Proportion().value is None
    assert Proportion().ci95 is None


def test_calibration_groups_are_of_about_equal_size_and_in_order() -> None:
    graded = [(i / 10, i >= 60) for i in range(100)]
    bins = calibration(graded[::-1], ACCURACY, bins=4)
    assert [(b.low, b.high) for b in bins] == [(0, 2.4), (2.5, 4.9), (5, 7.4), (7.5, 9.9)]
    assert [b.figure.value for b in bins] == [0, 0, 15 / 25, 1]


def test_calibration_keeps_equal_means_together() -> None:
    bins = calibration([(0.0, True)] * 50 + [(1.0, False)] * 3, ACCURACY, bins=8)
    assert [(b.figure.value, b.figure.n) for b in bins] == [(1, 50), (0, 3)]


def test_calibration_of_nothing() -> None:
    assert calibration([], ACCURACY) == []


def _warning(*duels: ComparisonRecord) -> str | None:
    diagnostics = JudgeDiagnostics()
    for record in duels:
        diagnostics.add(record, {})
    return judge_warning(diagnostics)


def test_a_judge_that_always_names_one_place_is_called_biased() -> None:
    always_a = [duel(1, RIGHT, WRONG, "A", "A", won=None), duel(1, RIGHT, WRONG, "A", "T", won=None)]
    warning = _warning(*always_a)
    assert warning is not None
    assert warning.startswith("Position bias 100 %: whenever the judge chose, it named A,")
    assert "the posterior stays the prior" in warning
    assert "named B" in str(_warning(duel(1, RIGHT, WRONG, "B", "B", won=None)))


def test_no_decisive_duel_is_explained_without_a_bias() -> None:
    undecided = [duel(1, RIGHT, WRONG, "A", "A", won=None), duel(1, RIGHT, WRONG, "B", "B", won=None)]
    assert str(_warning(*undecided)).startswith("None of the 2 duels was decisive")
    assert str(_warning(duel(1, RIGHT, WRONG, "invalid", "T", won=None))).startswith("None of the 1 duels was decisive")


def test_one_decisive_duel_needs_no_warning() -> None:
    assert _warning(duel(1, RIGHT, WRONG, "A", "A", won=None), duel(1, RIGHT, WRONG, "A", "B", won="first")) is None


def test_without_right_and_wrong_the_better_score_should_win() -> None:
    error = Score("error", 0, higher_is_better=False)
    worth = {("p", name): error.utility(value) for name, value in (("near", 1.0), ("far", 5.0), ("as far", 5.0))}
    diagnostics = JudgeDiagnostics()
    for won in (duel(1, "near", "far", "A", "B", won="first"), duel(1, "near", "far", "B", "A", won="second")):
        diagnostics.add(won, worth)
    diagnostics.add(duel(1, "far", "as far", "A", "B", won="first"), worth)
    assert (diagnostics.agreement.successes, diagnostics.agreement.n) == (1, 2)


def test_calibration_of_a_score_is_its_mean() -> None:
    low, high = calibration([(0.1, 2.0), (0.2, 4.0), (0.8, 7.0), (0.9, 9.5)], Score("quality", 0, 10), bins=2)
    assert [(one.figure.value, one.figure.n) for one in (low, high)] == [(3.0, 2), (8.25, 2)]
