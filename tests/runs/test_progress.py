"""The texts that the progress displays show."""

from evorun.runs.effects import Traffic
from evorun.runs.progress import Progress
from evorun.runs.scores import ACCURACY, Score


def test_generations_are_those_that_were_reached() -> None:
    progress = Progress("gepa on quiz", 2, 150, Traffic(), ACCURACY)
    assert progress.fields()["generation"] == "-"
    for problem, last in (("p0", 1), ("p1", 3)):
        for step in range(last + 1):
            progress.stepped(problem, step, None)
        progress.ended(problem)
    assert progress.fields()["generation"] == "1 to 3"


def test_no_time_is_left_when_all_have_ended_early() -> None:
    progress = Progress("gepa on quiz", 2, 150, Traffic(), ACCURACY)
    for problem in ("p0", "p1"):
        progress.stepped(problem, 0, True)
        progress.ended(problem)
    assert progress.fields()["left"] == "0:00"
    assert progress.fields()["problems"] == "2/2 done, 2 begun"


def test_the_primary_score_is_shown_as_it_is_and_rates_as_percentages() -> None:
    of_score = Progress("best_of_n on aim", 3, 1, Traffic(), Score("error", 0, higher_is_better=False))
    of_right = Progress("best_of_n on quiz", 3, 1, Traffic(), ACCURACY)
    for progress in (of_score, of_right):
        for problem, value in (("p0", 1.0), ("p1", 0.0), ("p2", None)):
            progress.stepped(problem, 0, value)
    assert of_score.fields()["error"] == "0.5 (n=2)"
    assert "accuracy" not in of_score.fields()
    assert of_right.fields()["accuracy"] == "50.0% (n=2)"
