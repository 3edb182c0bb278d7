"""What the progress displays say of a run."""

from evorun.runs.effects import Traffic
from evorun.runs.progress import Tally


def test_generations_are_those_that_were_reached() -> None:
    tally = Tally("gepa on quiz", 2, 150, Traffic())
    assert tally.fields()["generation"] == "-"
    for problem, last in (("p0", 1), ("p1", 3)):
        for step in range(last + 1):
            tally.stepped(problem, step, None)
        tally.ended(problem)
    assert tally.fields()["generation"] == "1 to 3"


def test_no_time_is_left_when_all_have_ended_early() -> None:
    tally = Tally("gepa on quiz", 2, 150, Traffic())
    for problem in ("p0", "p1"):
        tally.stepped(problem, 0, True)
        tally.ended(problem)
    assert tally.fields()["left"] == "0:00"
    assert tally.fields()["problems"] == "2/2 done, 2 begun"
