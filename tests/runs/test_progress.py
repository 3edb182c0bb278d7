"""The texts that the progress displays show, and the time left on a clock that is made up."""

import io
from collections.abc import Callable, Iterable
from pathlib import Path

import pytest

from evorun.models.base import Completion, Reply
from evorun.runs.budget import Meter
from evorun.runs.effects import Traffic
from evorun.runs.formats import MISSING
from evorun.runs.live import PROGRESS, read_progress
from evorun.runs.progress import Progress, TimeLeft, show_progress
from evorun.runs.schema import Spent
from evorun.runs.scores import ACCURACY, Score
from evorun.runs.terminal import Terminal


def test_generations_are_those_that_were_reached() -> None:
    progress = Progress("gepa on quiz", 2, 150, Traffic(), ACCURACY)
    assert progress.fields()["generation"] == MISSING
    for problem, last in (("p0", 1), ("p1", 3)):
        for step in range(last + 1):
            progress.count_step(problem, step, None)
        progress.count_finished_problem(problem)
    assert progress.fields()["generation"] == "1 to 3"


def test_no_time_is_left_when_all_have_ended_early() -> None:
    progress = Progress("gepa on quiz", 2, 150, Traffic(), ACCURACY)
    for problem in ("p0", "p1"):
        progress.count_step(problem, 0, True)
        progress.count_finished_problem(problem)
    assert progress.fields()["left"] == "0:00"
    assert progress.fields()["problems"] == "2/2 done, 2 begun"


def test_the_primary_score_is_shown_as_it_is_and_rates_as_percentages() -> None:
    of_score = Progress("best_of_n on aim", 3, 1, Traffic(), Score("error", 0, higher_is_better=False))
    of_right = Progress("best_of_n on quiz", 3, 1, Traffic(), ACCURACY)
    for progress in (of_score, of_right):
        for problem, value in (("p0", 1.0), ("p1", 0.0), ("p2", None)):
            progress.count_step(problem, 0, value)
        assert progress.fields()[progress.primary.name] == MISSING  # of two in their first step
        progress.count_finished_problem("p0")
    assert of_score.fields()["error"] == "0.500 (n=2)"
    assert "accuracy" not in of_score.fields()
    assert of_right.fields()["accuracy"] == "50.0 % (n=2)"


class Clock:
    """A clock that stands where a test puts it."""

    def __init__(self) -> None:
        self.now = 0.0

    def __call__(self) -> float:
        return self.now


def _reply() -> Reply:
    return Reply(completions=(Completion(text="", tokens=10, finish_reason="stop"),), prompt_tokens=90, seconds=1.0)


def _progress(problems: int, last_step: int | None, **options: bool) -> tuple[Progress, Clock]:
    clock = Clock()
    return Progress("a run", problems, last_step, Traffic(), ACCURACY, clock=clock, **options), clock


def test_a_training_that_learns_how_long_it_is_at_step_0_shows_its_share() -> None:
    progress, _ = _progress(3, None, trains=True)
    progress.count_training_step(0, {"steps": 9.0})
    progress.count_training_step(6, {"loss": 0.58})
    assert (progress.fields()["training"], progress.fields()["done"]) == ("step 6/9: loss 0.58", "67 %")


Event = tuple[float, Callable[[], None]]


def _left(progress: Progress, clock: Clock, events: Iterable[Event], total: float, first_answer: float) -> list[float]:
    """Play the events of a run; return by which factor each estimate errs, from a fifth of the run on."""
    errors, pending = [], sorted(events, key=lambda event: event[0])
    for percent in range(1, 100):
        clock.now = first_answer + (total - first_answer) * percent / 100
        if progress.traffic.first_answer is None:
            progress.traffic.first_answer = first_answer
        while pending and pending[0][0] <= clock.now:
            moment, event = pending.pop(0)
            now, clock.now = clock.now, moment
            event()
            clock.now = now
        if 20 <= percent <= 90:
            left = progress.fields()["left"]
            seconds = sum(60**i * int(part) for i, part in enumerate(reversed(left.split(":"))))
            errors.append(seconds / (total - clock.now))
    return errors


def test_a_budget_that_ends_a_search_early_bounds_the_time_left() -> None:
    # 780 s for 300 calls per problem; of the 150 generations that the method would go, ten happen
    progress, clock = _progress(8, 150)
    progress.meters = {f"p{i}": Meter(max_calls=300) for i in range(8)}

    def generation(problem: str, step: int) -> Callable[[], None]:
        def event() -> None:
            for _ in range(30):
                progress.meters[problem].charge("generate", _reply())
            progress.count_step(problem, step, None)

        return event

    events = [(78.0 * (step + 1), generation(f"p{i}", step)) for i in range(8) for step in range(10)]
    errors = _left(progress, clock, events, 780, 0.0)
    assert 0.8 < min(errors) <= max(errors) < 1.25


def test_problems_that_wait_for_a_place_count_and_an_engines_start_does_not() -> None:
    # ten minutes to load the weights; then 40 problems, 4 at a time, of five steps of 20 s each
    progress, clock = _progress(40, 4)
    events: list[Event] = []
    for i in range(40):
        begin = 600 + i // 4 * 100
        events += [(begin + 20 * (k + 1), lambda i=i, k=k: progress.count_step(f"p{i}", k, None)) for k in range(5)]
        events.append((begin + 100.0, lambda i=i: progress.count_finished_problem(f"p{i}")))
    errors = _left(progress, clock, events, 1600, 600)
    assert 0.9 < min(errors) <= max(errors) < 1.1


def test_problems_that_advance_together_are_one_event_of_the_pace() -> None:
    left = TimeLeft(0.0)
    for seconds, share in ((100.0, 0.1), (100.2, 0.2), (200.0, 0.3), (200.2, 0.4)):
        left.add(seconds, share)
    assert left.estimate(200.0) == pytest.approx(300.0)  # a fifth in each hundred seconds


def test_the_estimate_stands_still_while_the_next_event_is_late() -> None:
    left = TimeLeft(0.0)
    left.add(100.0, 0.1)
    left.add(200.0, 0.2)
    assert [left.estimate(seconds) for seconds in (200.0, 250.0, 300.0, 900.0)] == pytest.approx([800, 750, 700, 700])


def test_the_pace_is_that_of_the_latest_half() -> None:
    left = TimeLeft(0.0)
    left.add(120.0, 0.5)
    left.add(300.0, 0.6)
    assert left.estimate(300.0) == pytest.approx(720.0)  # a tenth took the last 180 seconds


def test_a_run_that_slows_down_is_followed() -> None:
    # each generation takes 2 % longer than the one before, the last one twice as long as the first
    progress, clock = _progress(3, 39)
    ends = [sum(10 * 1.02**k for k in range(step + 1)) for step in range(40)]
    events = [
        (ends[step], lambda i=i, s=step: progress.count_step(f"p{i}", s, None)) for i in range(3) for step in range(40)
    ]
    errors = _left(progress, clock, events, ends[-1], 0.0)
    assert 0.65 < min(errors) <= max(errors) < 1.1


class _SlowMeter(Meter):
    """One whose share takes a second to find."""

    def __init__(self, clock: "Clock") -> None:
        super().__init__(max_calls=10)
        self.clock = clock

    @property
    def used(self) -> float:
        self.clock.now += 1.0
        return super().used


@pytest.mark.parametrize("display", [False, True])
def test_counting_problems_anew_takes_little_of_the_time(*, display: bool) -> None:
    progress, clock = _progress(500, 4)
    progress.meters = {f"p{i}": _SlowMeter(clock) for i in range(500)}
    progress.count_step("p0", 0, None)
    begun, steps = clock.now, 0
    while clock.now < begun + 10_000:
        clock.now += 10
        if display:
            progress.fields()
        else:
            progress.count_step("p1", steps, None)
        steps += 1
    assert steps > 800  # a tenth of the time is the step's own count; all problems at each step leave 20 steps


def test_what_is_spent_between_steps_counts_within_a_second() -> None:
    progress, clock = _progress(1, 4)
    progress.meters = {"p0": Meter(max_calls=10)}
    clock.now = 1000.0
    assert progress.share == 0
    for _ in range(5):
        progress.meters["p0"].charge("generate", _reply())
    clock.now = 1001.0
    assert progress.share == 0.5


def test_shares_that_were_added_up_end_at_one() -> None:
    progress, _ = _progress(7, 9)
    for step in range(10):
        for i in range(7):
            progress.count_step(f"p{i}", step, None)
    assert progress.share == 1


def test_nothing_is_complete_before_its_last_evaluation(tmp_path: Path) -> None:
    clock = Clock()
    progress = Progress("espl on quiz", 2, 4, Traffic(), ACCURACY, trains=True, clock=clock)
    progress.traffic.first_answer = 0.0
    for step in range(1, 5):
        clock.now = 100.0 * step
        progress.count_training_step(step, {})
    assert (progress.fields()["done"], progress.fields()["left"]) == ("99 %", MISSING)
    assert (progress.record().share, progress.record().left_seconds) == (0.99, None)
    for problem in ("p0", "p1"):
        progress.count_step(problem, 4, 1.0)
        progress.count_finished_problem(problem)
    assert (progress.fields()["done"], progress.fields()["left"]) == ("100 %", "0:00")
    assert (progress.record().share, progress.record().left_seconds) == (0.99, None)  # results are still to be written


def test_no_time_left_is_named_before_enough_has_been_seen() -> None:
    left = TimeLeft(0.0)
    left.add(5.0, 0.002)
    assert left.estimate(6.0) is None
    left.add(10.0, 0.05)
    assert left.estimate(10.0) is not None
    slow = TimeLeft(0.0)
    slow.add(14.0, 0.01)
    assert slow.estimate(14.0) is None
    assert slow.estimate(15.0) == pytest.approx(0.99 / 0.01 * 14.0 - 1.0)


def test_what_the_journal_replays_says_nothing_about_the_pace() -> None:
    # a resumed run: nine of twenty generations in two seconds, the others in 50 s each
    progress, clock = _progress(2, 19)
    for step in range(9):
        clock.now = 0.2 * step
        for problem in ("p0", "p1"):
            progress.count_step(problem, step, None)
    assert progress.fields()["left"] == MISSING
    events = [
        (2 + 50.0 * (step - 8), lambda i=i, s=step: progress.count_step(f"p{i}", s, None))
        for i in range(2)
        for step in range(9, 20)
    ]
    errors = _left(progress, clock, events, 552, 2.0)
    assert 0.9 < min(errors) <= max(errors) < 1.1


def test_training_is_measured_by_its_steps_and_its_evaluations_are_none() -> None:
    progress, clock = _progress(50, 100, trains=True)
    evaluated = [
        (30.0 + 2400 * k, lambda k=k, i=i: progress.count_step(f"p{i}", 20 * k, 1.0))
        for k in range(6)
        for i in range(50)
    ]
    trained = [(30.0 + 120 * k, lambda k=k: progress.count_training_step(k, {"reward": 0.5})) for k in range(1, 101)]
    errors = _left(progress, clock, [*evaluated, *trained], 12030, 0.0)
    assert 0.95 < min(errors) <= max(errors) < 1.05
    assert progress.fields()["evaluated at step"] == "80 to 80"


def test_tokens_are_those_that_budgets_count_and_calls_in_flight_name_the_phase() -> None:
    progress, clock = _progress(2, 4)
    clock.now = 10.0
    assert progress.fields()["phase"] == "starting"
    progress.traffic.in_flight.update(generate=3, judge=0)
    assert progress.fields()["phase"] == "waiting for the first answer: 3 generate"
    progress.traffic.count("generate", _reply())
    progress.traffic.in_flight.update(judge=12)
    assert progress.fields()["phase"] == "in flight: 3 generate, 12 judge"
    assert progress.fields()["tokens"] == "100, prompts and completions (10/s)"
    progress.traffic.count_replayed("generate", _reply())
    shown = progress.fields()  # all that the run has cost, at the rate of this process
    assert (shown["calls"], shown["from the journal"]) == ("2 (0.1/s)", "1 of the calls")
    assert shown["tokens"] == "200, prompts and completions (10/s)"
    progress.traffic.in_flight.clear()
    assert progress.fields()["phase"] == MISSING
    progress.grading = 2
    assert progress.fields()["phase"] == "grading 2"
    progress.ending = "writing results"
    assert progress.fields()["phase"] == "writing results"


def test_a_plain_title_stands_before_the_first_line_where_many_runs_share_the_screen() -> None:
    progress, clock = _progress(2, 4)
    screen = io.StringIO()
    with show_progress(progress, Terminal(file=screen, width=100), "auto", title_first=False):
        progress.count_step("p0", 0, 1.0)
        assert not screen.getvalue()
        for clock.now in (11.0, 22.0):
            progress.count_step("p0", 1, 1.0)
    title, *lines = screen.getvalue().splitlines()
    assert title.startswith("a run")
    assert [line.partition(";")[0] for line in lines] == ["phase starting"] * 2


@pytest.mark.parametrize("terminal", [True, False])
def test_both_displays_name_model_engine_and_folder(*, terminal: bool) -> None:
    about = {"model": "tiny [bold]", "engine": "vllm", "run directory": "outputs/x"}
    progress = Progress("a run", 2, 4, Traffic(), ACCURACY, about=about)
    screen = io.StringIO()
    with show_progress(progress, Terminal(file=screen, force_terminal=terminal, width=100), "auto"):
        pass
    for text in ("a run", *about.values()):
        assert text in screen.getvalue()


def test_other_processes_read_what_an_interrupted_run_has_cost(tmp_path: Path) -> None:
    progress, file = _progress(2, 4)[0], tmp_path / PROGRESS

    def run(*, judged: bool) -> None:
        with show_progress(progress, Terminal(file=io.StringIO()), "off", file):
            progress.traffic.count_replayed("p0|0|generate|0|0", _reply())
            progress.traffic.count("p0|1|generate|0|0", _reply())
            if judged:
                progress.traffic.count("p0|1|judge|0|0", _reply())
            raise KeyboardInterrupt

    with pytest.raises(KeyboardInterrupt):
        run(judged=True)
    found = read_progress(tmp_path)
    assert found is not None
    one = (_reply().prompt_tokens, _reply().completion_tokens)
    assert found.cost == {"generate": Spent(2, 2 * one[0], 2 * one[1]), "judge": Spent(1, *one)}
    progress = _progress(2, 4)[0]  # a resume that is stopped in its replay
    with pytest.raises(KeyboardInterrupt):
        run(judged=False)
    assert (again := read_progress(tmp_path)) is not None
    assert again.cost == found.cost


def test_the_work_at_a_step_does_not_grow_with_the_problems() -> None:
    class Counted(Meter):
        looks = 0

        @property
        def used(self) -> float:
            Counted.looks += 1
            return super().used

    def looks_at(problems: int) -> float:
        progress, _ = _progress(problems, 4)
        progress.meters = {f"p{i}": Counted(max_calls=300) for i in range(problems)}
        Counted.looks = 0
        for step in range(5):
            for i in range(problems):
                progress.count_step(f"p{i}", step, None)
        return Counted.looks / problems

    assert looks_at(400) == looks_at(100)
