"""Live progress of a run: a display on a terminal, plain lines elsewhere."""

import contextlib
import platform
import threading
import time
from collections import Counter, deque
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from pathlib import Path

import msgspec
from rich.live import Live
from rich.table import Table
from rich.text import Text

from evorun.runs.budget import Meter
from evorun.runs.effects import Traffic
from evorun.runs.formats import MISSING, value
from evorun.runs.live import WRITE_INTERVAL_S, ProgressRecord, read_progress, write_progress
from evorun.runs.schema import STEPS, Spent
from evorun.runs.scores import Score
from evorun.runs.terminal import Terminal

_SAME_EVENT_SHARE = 0.005
"""Share of the elapsed time within which progress counts as one event: problems often advance together (ours)."""
_WAIT_DECAY = 0.9
"""Factor by which each shorter wait between events reduces the expected wait (ours)."""
_SEEN_SHARE, _SEEN_SECONDS = 0.03, 15.0
"""Share of the work, or seconds, that a pace is measured over before it says anything (ours)."""
_ALMOST = 0.99
"""Largest share that is shown before the end: evaluations, results and the report may lie ahead (ours)."""


class TimeLeft:
    """Time left at the pace of the latest half of the elapsed time.

    That pace follows a run that slows down because later generations have longer prompts. It is steadier than the last
    event's.
    """

    def __init__(self, seconds: float) -> None:
        self.restart(seconds, 0.0)

    def restart(self, seconds: float, share: float) -> None:
        """Measure the pace from here: an engine's start or a replay of the journal says nothing about it."""
        self._start, self._start_share = seconds, share
        self._events = deque([(seconds, share)])
        self._wait = 0.0
        self._left: tuple[float, float] | None = None
        """The moment of the latest event and the seconds left then; a single tuple, since another thread reads it."""

    def add(self, seconds: float, share: float) -> None:
        """Record the share of the work, in [0, 1], that is completed at a moment."""
        before, done = self._events[-1]
        if share <= done:
            return
        if len(self._events) > 1 and seconds - before <= _SAME_EVENT_SHARE * (seconds - self._start):
            self._events[-1] = (before, share)
        else:
            self._wait = max(seconds - before, _WAIT_DECAY * self._wait)
            self._events.append((seconds, share))
        while len(self._events) > 2 and self._events[1][0] <= (self._start + seconds) / 2:
            self._events.popleft()
        (start, start_share), (end, end_share) = self._events[0], self._events[-1]
        self._left = (end, (1 - end_share) * (end - start) / (end_share - start_share))

    def estimate(self, seconds: float) -> float | None:
        """Return the seconds left at a moment; None before enough has been seen to tell.

        The estimate counts down until the next event is due, then stays constant until it.
        """
        if self._left is None:
            return None
        seen = self._events[-1][1] - self._start_share
        if seen < _SEEN_SHARE and seconds - self._start < _SEEN_SECONDS:
            return None
        moment, left = self._left
        return max(left - min(seconds - moment, self._wait), 0.0)


SHOWN_FIGURES = ("reward", "loss", "held_out_loss", "grad_norm", "completion_tokens")
"""Figures of a training step that the display shows."""

PLAIN_INTERVAL_S = 10.0
"""Minimum seconds between two plain lines."""

_FIRST_INTERVAL_S = 0.5
"""Seconds until the first record of progress (ours); each later interval is twice as long."""

# Budgets are spent between steps, too; summing them over all problems at every step would be quadratic in problems.
_RECOUNT_INTERVAL_S = 0.2
_RECOUNT_PAUSE_FACTOR = 100
"""Minimum pause until the next recount, as a multiple of the last one's duration (ours)."""


class Progress:
    """Counts since the start of this process and an estimate of the time left, which `show_progress` displays."""

    def __init__(
        self,
        title: str,
        problems: int,
        last_step: int | None,
        traffic: Traffic,
        primary: Score,
        *,
        about: Mapping[str, str] | None = None,
        trains: bool = False,
        step_name: str = "generation",
        clock: Callable[[], float] = time.monotonic,
    ) -> None:
        """about: constant fields (the model, ...). trains: `last_step` is a training step.

        step_name: the word for a problem's steps. clock: returns seconds.
        """
        self.title = title
        self.problems = problems
        self.last_step = last_step
        self.primary = primary
        self.traffic = traffic
        self.about = dict(about or {})
        self.trains = trains
        self.step_name = step_name
        self.meters: Mapping[str, Meter] = {}
        """The budget of each problem, by its id, where problems have budgets of their own."""
        self.meter: Meter | None = None
        """The budget of the run, where problems have none of their own."""
        self.grading = 0
        """Responses that are being graded."""
        self.ending = ""
        """The work that remains after the last problem."""
        self._clock = clock
        self._started = clock()
        self._time_left = TimeLeft(0.0)
        self._replayed_share = 0.0
        self._live = False
        self._last_steps: dict[str, int] = {}
        self._ended: set[str] = set()
        self._values: dict[str, float | None] = {}
        self._training = ""
        self._training_step = 0
        self.write_line: Callable[[str], None] | None = None
        """Called with a plain line after progress, every `PLAIN_INTERVAL_S` at most; None: no lines."""
        self._next_line_s = PLAIN_INTERVAL_S
        self._counted_shares: dict[str, float] = {}
        self._done = 0.0
        """The sum of `_counted_shares`."""
        self._counting = threading.Lock()
        self._next_recount_s = 0.0

    def count_step(self, problem: str, step: int, value: float | None) -> None:
        """Count a problem's step; `value` is the primary score of its present answer."""
        self._last_steps[problem] = step
        self._values[problem] = value
        self._count(problem)
        self._report_progress()

    def count_finished_problem(self, problem: str) -> None:
        """Count a finished problem."""
        self._ended.add(problem)
        self._count(problem)
        self._report_progress()

    def count_training_step(self, step: int, figures: Mapping[str, float]) -> None:
        """Count a training step."""
        self._training_step = step
        if self.last_step is None and STEPS in figures:
            self.last_step = int(figures[STEPS])
        shown = ", ".join(f"{name} {figures[name]:.4g}" for name in SHOWN_FIGURES if name in figures)
        position = str(step) if self.last_step is None else f"{step}/{self.last_step}"
        self._training = f"step {position}: {shown}" if shown else f"step {position}"
        self._report_progress()

    def _report_progress(self) -> None:
        self._note_pace()
        if self.write_line is not None and self.seconds >= self._next_line_s:
            self._next_line_s = self.seconds + PLAIN_INTERVAL_S
            self.write_line(describe_progress(self.fields()))

    def record(self) -> ProgressRecord:
        """Return the progress as other processes read it."""
        share = self.share
        return ProgressRecord(
            share=round(min(share, _ALMOST), 6),
            ended=len(self._ended),
            problems=self.problems,
            cost={role: Spent(**usage.counts()) for role, usage in sorted(dict(self.traffic.cost).items())},
            seconds=round(self.seconds, 1),
            left_seconds=self._time_left.estimate(self.seconds) if share < 1 else None,
            host=platform.node(),
        )

    def _count(self, problem: str) -> None:
        with self._counting:  # the display's thread counts too
            share = self._compute_share(problem)
            self._done += share - self._counted_shares.get(problem, 0.0)
            self._counted_shares[problem] = share

    def _note_pace(self) -> None:
        share = self.share
        if self.traffic.first_answer is None:
            self._replayed_share = share  # replayed from the journal in no time
            return
        if not self._live:
            self._live = True
            self._time_left.restart(self.traffic.first_answer - self._started, self._replayed_share)
        self._time_left.add(self.seconds, share)

    @property
    def seconds(self) -> float:
        """Seconds since the start."""
        return self._clock() - self._started

    @property
    def share(self) -> float:
        """The completed share of the run, in [0, 1]: of its steps or of its budget, whichever is larger.

        Spending between steps is recounted now and then.
        """
        if (started := self.seconds) >= self._next_recount_s:
            for problem in self._unfinished():
                self._count(problem)
            # recounts take a small share of the time, however many problems there are
            self._next_recount_s = self.seconds + max(
                _RECOUNT_INTERVAL_S, _RECOUNT_PAUSE_FACTOR * (self.seconds - started)
            )
        spent_share = 0.0 if self.meter is None else self.meter.used
        if self.trains:
            # training works on all problems together, so its steps alone say how far the run is
            return max(spent_share, min(self._training_step / self.last_step, 1.0) if self.last_step else 0.0)
        # rounded: the sum of shares may end just beside 1
        return max(spent_share, round(self._done / self.problems, 9) if self.problems else 0.0)

    def _unfinished(self) -> set[str]:
        return {*self.meters, *list(self._last_steps)} - self._ended

    def _compute_share(self, problem: str) -> float:
        if problem in self._ended:
            return 1.0
        # a budget usually ends a search long before its last generation
        spent_share = self.meters[problem].used if problem in self.meters else 0.0
        steps = self._last_steps.get(problem, -1) + 1
        return max(spent_share, 0.0 if self.last_step is None else min(steps / (self.last_step + 1), 1.0))

    def fields(self) -> dict[str, str]:
        """Return the texts to show, by label."""
        seconds, traffic, share = max(self.seconds, 1e-9), self.traffic, self.share
        # list(...): the display's thread reads while the event loop writes, and iterating over a growing dict fails
        scored = [value for value in list(self._values.values()) if value is not None]
        steps = Counter(list(self._last_steps.values()))
        mean = sum(scored) / len(scored) if scored else 0.0
        primary = value(self.primary, mean)
        # of a problem or two in their first steps it would say nothing
        shows_score = bool(scored) and (bool(self._ended) or len(scored) == self.problems)
        costs = list(traffic.cost.values())
        calls = sum(cost.calls for cost in costs)
        tokens = sum(cost.prompt_tokens + cost.completion_tokens for cost in costs)
        new_tokens = traffic.prompt_tokens + traffic.completion_tokens
        ended = len(self._ended) >= self.problems
        left = 0.0 if ended else None if share >= 1 else self._time_left.estimate(self.seconds)
        shown = {
            "phase": self._phase(),
            "done": f"{100 * (share if ended else min(share, _ALMOST)):.0f} %",
            "problems": f"{len(self._ended)}/{self.problems} done, {len(self._last_steps)} begun",
            "evaluated at step" if self.trains else self.step_name: f"{min(steps)} to {max(steps)}"
            if steps
            else MISSING,
            self.primary.shown_name: f"{primary} (n={len(scored)})" if shows_score else MISSING,
            "calls": f"{calls:,} ({traffic.calls / seconds:.1f}/s)",
            "tokens": f"{tokens:,}, prompts and completions ({new_tokens / seconds:,.0f}/s)",
            "elapsed": format_clock(seconds),
            "left": MISSING if left is None else format_clock(left),
        }
        if tool_calls := sum(cost.tool_calls for cost in costs):
            shown["tool calls"] = f"{tool_calls:,}"
        if self._training:
            shown["training"] = self._training
        if traffic.replayed:
            shown["from the journal"] = f"{traffic.replayed:,} of the calls"
        return shown

    def _phase(self) -> str:
        if self.ending:
            return self.ending
        in_flight = ", ".join(f"{n:,} {role}" for role, n in sorted(dict(self.traffic.in_flight).items()) if n)
        if in_flight:
            return f"{'in flight' if self.traffic.calls else 'waiting for the first answer'}: {in_flight}"
        if not self.traffic.calls:
            return "replaying the journal" if self.traffic.replayed else "starting"
        if self.grading:
            return f"grading {self.grading:,}"
        return "updating weights" if self.trains else MISSING


Follower = Callable[[Mapping[str, str]], None]
"""Takes the texts to show, by label; the first is the run's title."""

_followers: list[Follower] = []

FOLLOWED_INTERVAL_S = 0.25
"""Seconds between two calls of a follower, as often as a display is refreshed."""


def follow_progress(follower: Follower) -> None:
    """Have the progress of this process's runs reported instead of shown, in a process that another one displays."""
    _followers.append(follower)


def render_progress(shown: Mapping[str, str]) -> Table:
    """Return the display of the texts to show, by label."""
    (title, about), *fields = shown.items()
    rows = Table.grid(padding=(0, 2))
    rows.add_row(Text(title, style="bold"), about)
    for label, text in fields:
        rows.add_row(Text(label, style="dim"), text)
    return rows


def describe_progress(shown: Mapping[str, str]) -> str:
    """Return the texts to show as one line, without those that are missing."""
    return "; ".join(f"{label} {text}" for label, text in shown.items() if text != MISSING)


@contextmanager
def show_progress(
    progress: Progress, console: Terminal, mode: str, file: Path | None = None, *, title_first: bool = True
) -> Iterator[Progress]:
    """Show the progress of a run while it goes on; `mode` is auto, plain or off.

    file: others may read it there, whatever the mode; a run that has not ended in order leaves it there. title_first:
    print the title at once, and not only before the first plain line.
    """
    earlier = None if file is None else read_progress(file.parent)

    def write() -> None:
        if file is None:
            return
        record = progress.record()
        if earlier is not None and record.calls < earlier.calls:  # a resume has all that it does not replay yet
            record = msgspec.structs.replace(record, share=earlier.share, ended=earlier.ended, cost=earlier.cost)
        with contextlib.suppress(OSError):  # a full disk ends the run elsewhere, in order
            write_progress(file, record)

    with _repeatedly(write, WRITE_INTERVAL_S), _displayed(progress, console, mode, title_first=title_first):
        yield progress
    if file is not None:
        file.unlink(missing_ok=True)  # results.json says it all


@contextmanager
def _displayed(progress: Progress, console: Terminal, mode: str, *, title_first: bool) -> Iterator[None]:
    def shown() -> dict[str, str]:
        return {"evorun": progress.title, **progress.about, **progress.fields()}

    def report() -> None:
        for follower in _followers:
            follower(shown())

    if mode != "off" and _followers:
        with _repeatedly(report, FOLLOWED_INTERVAL_S):
            yield
        return
    if mode == "auto" and console.is_terminal:
        # transient: the summary of the finished run replaces the table on the screen
        table = Live(
            get_renderable=lambda: render_progress(shown()), console=console, refresh_per_second=4, transient=True
        )
        with table:
            yield
        return
    if mode != "off":
        ahead = ["; ".join([progress.title, describe_progress(progress.about)])]

        def write_line(*lines: str) -> None:
            for line in (*ahead, *lines):
                console.print(line, soft_wrap=True)
            ahead.clear()

        progress.write_line = write_line
        if title_first:
            write_line()
    yield


@contextmanager
def _repeatedly(action: Callable[[], None], seconds: float) -> Iterator[None]:
    """Call a function at this interval while the block runs, and once at its end, however it ends.

    The first intervals are shorter: a process that is killed early leaves something, too.
    """
    ended = threading.Event()

    def repeat() -> None:
        pause = min(_FIRST_INTERVAL_S, seconds)
        while not ended.wait(pause):
            action()
            pause = min(2 * pause, seconds)

    repeating = threading.Thread(target=repeat, daemon=True)
    repeating.start()
    try:
        yield
    finally:
        ended.set()
        repeating.join()
        action()


def format_clock(seconds: float) -> str:
    """Return a duration as a clock shows it: 1:02:03, 2:03."""
    minutes, rest = divmod(round(seconds), 60)
    hours, minutes = divmod(minutes, 60)
    return f"{hours}:{minutes:02}:{rest:02}" if hours else f"{minutes}:{rest:02}"
