"""Live progress of a run: a display on a terminal, plain lines elsewhere."""

import threading
import time
from collections import Counter
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager

from rich.console import RenderableType
from rich.live import Live
from rich.table import Table
from rich.text import Text

from evorun.runs.budget import Meter
from evorun.runs.effects import Traffic
from evorun.runs.scores import Score
from evorun.runs.terminal import Terminal
from evorun.runs.time_left import TimeLeft

SHOWN_FIGURES = ("reward", "loss", "held_out_loss", "grad_norm", "completion_tokens")
"""Figures of a training step that the displays show."""

PLAIN_INTERVAL_S = 10.0
"""Seconds between two plain lines."""

# Budgets are used between steps, too; summed up at every step, over all problems, they would be quadratic in these.
_RECOUNT_INTERVAL_S = 0.2
_PAUSE_OF_RECOUNTS = 100
"""Times that a recount took, until the next one at least (ours)."""


class Progress:
    """Counts since the start of this process and an estimate of the time left; `shown` puts them on a display."""

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
        clock: Callable[[], float] = time.monotonic,
    ) -> None:
        """about: what stays as it is (the model, ...). trains: `last_step` is a training step. clock: in seconds."""
        self.title = title
        self.problems = problems
        self.last_step = last_step
        self.primary = primary
        self.traffic = traffic
        self.about = dict(about or {})
        self.trains = trains
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
        self._step_of: dict[str, int] = {}
        self._ended: set[str] = set()
        self._values: dict[str, float | None] = {}
        self._training = ""
        self._training_step = 0
        self.write_line: Callable[[str], None] | None = None
        """Called with a plain line every `PLAIN_INTERVAL_S`, when something has happened; None: no lines."""
        self._next_line_s = 0.0
        self._counted: dict[str, float] = {}
        self._done = 0.0
        """The sum of what `_counted` has of each problem."""
        self._counting = threading.Lock()
        self._next_recount_s = 0.0

    def stepped(self, problem: str, step: int, value: float | None) -> None:
        """Count a problem's step; `value` is the primary score of its answer as of now."""
        self._step_of[problem] = step
        self._values[problem] = value
        self._count(problem)
        self._moved()

    def ended(self, problem: str) -> None:
        """Count a problem that is done."""
        self._ended.add(problem)
        self._count(problem)
        self._moved()

    def trained(self, step: int, figures: Mapping[str, float]) -> None:
        """Count a training step."""
        self._training_step = step
        shown = ", ".join(f"{name} {figures[name]:.4g}" for name in SHOWN_FIGURES if name in figures)
        position = str(step) if self.last_step is None else f"{step}/{self.last_step}"
        self._training = f"step {position}: {shown}" if shown else f"step {position}"
        self._moved()

    def _moved(self) -> None:
        self._note_pace()
        if self.write_line is not None and self.seconds >= self._next_line_s:
            self._next_line_s = self.seconds + PLAIN_INTERVAL_S
            self.write_line("; ".join(f"{label} {text}" for label, text in self.fields().items()))

    def _count(self, problem: str) -> None:
        with self._counting:  # the display's thread counts too
            share = self._share_of(problem)
            self._done += share - self._counted.get(problem, 0.0)
            self._counted[problem] = share

    def _note_pace(self) -> None:
        share = self.share
        if self.traffic.first_answer is None:
            self._replayed_share = share  # from the journal, in no time
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
        """The share of the run's work that is done, in [0, 1]: of its steps or of its budget, whichever is more.

        What problems use between their steps is counted now and then.
        """
        if (begun := self.seconds) >= self._next_recount_s:
            for problem in self._under_way():
                self._count(problem)
            # so that recounts take a small share of the time, however many problems there are
            self._next_recount_s = self.seconds + max(_RECOUNT_INTERVAL_S, _PAUSE_OF_RECOUNTS * (self.seconds - begun))
        of_budget = 0.0 if self.meter is None else self.meter.used
        if self.trains:
            # training works on all problems together, so its steps alone say how far the run is
            return max(of_budget, min(self._training_step / self.last_step, 1.0) if self.last_step else 0.0)
        # rounded: what is added up of shares ends beside 1
        return max(of_budget, round(self._done / self.problems, 9) if self.problems else 0.0)

    def _under_way(self) -> set[str]:
        return {*self.meters, *list(self._step_of)} - self._ended

    def _share_of(self, problem: str) -> float:
        if problem in self._ended:
            return 1.0
        # a budget mostly ends a search long before its last generation
        of_budget = self.meters[problem].used if problem in self.meters else 0.0
        steps = self._step_of.get(problem, -1) + 1
        return max(of_budget, 0.0 if self.last_step is None else min(steps / (self.last_step + 1), 1.0))

    def fields(self) -> dict[str, str]:
        """Return the texts to show, by label."""
        seconds, traffic, share = max(self.seconds, 1e-9), self.traffic, self.share
        # list(...): the display's thread reads while the event loop writes, and iterating a dict that grows fails
        scored = [value for value in list(self._values.values()) if value is not None]
        steps = Counter(list(self._step_of.values()))
        mean = sum(scored) / len(scored) if scored else 0.0
        primary = f"{100 * mean:.1f} %" if self.primary.rate else f"{mean:.4g}"
        tokens = traffic.prompt_tokens + traffic.completion_tokens
        left = 0.0 if share >= 1 else self._time_left.estimate(self.seconds)
        shown = {
            "phase": self._phase(),
            "done": f"{100 * share:.0f} %",
            "problems": f"{len(self._ended)}/{self.problems} done, {len(self._step_of)} begun",
            "evaluated at step" if self.trains else "generation": f"{min(steps)} to {max(steps)}" if steps else "-",
            self.primary.name: f"{primary} (n={len(scored)})" if scored else "-",
            "calls": f"{traffic.calls:,} ({traffic.calls / seconds:.1f}/s)",
            "tokens": f"{tokens:,}, prompts and completions ({tokens / seconds:,.0f}/s)",
            "elapsed": _clock(seconds),
            "left": "-" if left is None else _clock(left),
        }
        if self._training:
            shown["training"] = self._training
        if traffic.replayed:
            shown["from the journal"] = f"{traffic.replayed:,} calls"
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
        return "updating weights" if self.trains else "between calls"


@contextmanager
def shown(progress: Progress, console: Terminal, mode: str) -> Iterator[Progress]:
    """Show the progress of a run while it goes on; `mode` is auto, plain or off."""

    def table() -> RenderableType:
        rows = Table.grid(padding=(0, 2))
        rows.add_row(Text("evorun", style="bold"), progress.title)
        for label, text in {**progress.about, **progress.fields()}.items():
            rows.add_row(Text(label, style="dim"), text)
        return rows

    if mode == "auto" and console.is_terminal:
        # transient: the summary of the finished run takes the table's place on the screen
        with Live(get_renderable=table, console=console, refresh_per_second=4, transient=True):
            yield progress
        return
    if mode != "off":
        progress.write_line = lambda line: console.print(line, soft_wrap=True)
        progress.write_line("; ".join([progress.title, *(f"{name} {text}" for name, text in progress.about.items())]))
    yield progress


def _clock(seconds: float) -> str:
    minutes, rest = divmod(round(seconds), 60)
    hours, minutes = divmod(minutes, 60)
    return f"{hours}:{minutes:02}:{rest:02}" if hours else f"{minutes}:{rest:02}"
