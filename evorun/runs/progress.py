"""Live progress of a run: a display on a terminal, plain lines elsewhere."""

import time
from collections import Counter
from collections.abc import Callable, Mapping
from types import TracebackType
from typing import Protocol, Self

from rich.console import Console, RenderableType
from rich.live import Live
from rich.table import Table

from evorun.runs.effects import Traffic
from evorun.runs.scores import Score

SHOWN_FIGURES = ("reward", "loss", "held_out_loss", "grad_norm", "completion_tokens")
"""What the display shows of a training step."""

PLAIN_INTERVAL_S = 10.0
"""Seconds between two plain lines."""


class Progress(Protocol):
    """Told of every step and of every problem that ends."""

    def __enter__(self) -> Self: ...

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, traceback: TracebackType | None
    ) -> None: ...

    def stepped(self, problem: str, step: int, value: float | None) -> None:
        """A problem has taken a step; `value` is the primary score of its answer as of now."""
        ...

    def ended(self, problem: str) -> None:
        """A problem is done."""
        ...

    def trained(self, step: int, figures: Mapping[str, float]) -> None:
        """A training step has been made."""
        ...


class Tally:
    """What the displays show: counts since the start and an estimate of the time left."""

    def __init__(self, title: str, problems: int, last_step: int | None, traffic: Traffic, primary: Score) -> None:
        self.title = title
        self.problems = problems
        self.last_step = last_step
        self._primary = primary
        self.done = 0
        self._traffic = traffic
        self._started = time.monotonic()
        self._step_of: dict[str, int] = {}
        self._ended: set[str] = set()
        self._values: dict[str, float | None] = {}
        self._training = ""
        self.training_step = 0

    def stepped(self, problem: str, step: int, value: float | None) -> None:
        """Note a step."""
        self._step_of[problem] = step
        self._values[problem] = value

    def ended(self, problem: str) -> None:
        """Note that a problem is done."""
        self.done += 1
        self._ended.add(problem)

    def trained(self, step: int, figures: Mapping[str, float]) -> None:
        """Note a training step."""
        self.training_step = step
        shown = ", ".join(f"{name} {figures[name]:.4g}" for name in SHOWN_FIGURES if name in figures)
        place = str(step) if self.last_step is None else f"{step}/{self.last_step}"
        self._training = f"step {place}: {shown}" if shown else f"step {place}"

    @property
    def seconds(self) -> float:
        """Seconds since the start."""
        return time.monotonic() - self._started

    def fields(self) -> dict[str, str]:
        """Return what is worth showing, label to text. Called from the display's thread: works on copies."""
        seconds = max(self.seconds, 1e-9)
        scored = [value for value in list(self._values.values()) if value is not None]
        steps = Counter(list(self._step_of.values()))
        shown = {
            "problems": f"{self.done}/{self.problems} done, {len(self._step_of)} begun",
            "generation": f"{min(steps)} to {max(steps)}" if steps else "-",
            self._primary.name: f"{self._shown(sum(scored) / len(scored))} (n={len(scored)})" if scored else "-",
            "calls": f"{self._traffic.calls:,} ({self._traffic.calls / seconds:.1f}/s)",
            "tokens": f"{self._traffic.completion_tokens:,} ({self._traffic.completion_tokens / seconds:.0f}/s)",
            "elapsed": _clock(seconds),
            "left": self._left(seconds),
        }
        if self._training:
            shown["training"] = self._training
        if self._traffic.replayed:
            shown["from the journal"] = f"{self._traffic.replayed:,} calls"
        return shown

    def _shown(self, value: float) -> str:
        return f"{value:.1%}" if self._primary.rate else f"{value:.4g}"

    def _left(self, seconds: float) -> str:
        if self.last_step is None or not self._step_of:
            return "-"
        if self.training_step:
            share = min(self.training_step / max(self.last_step, 1), 1.0)
            return _clock(seconds * (1 - share) / share)
        whole = self.problems * (self.last_step + 1)
        under_way = [step + 1 for problem, step in list(self._step_of.items()) if problem not in self._ended]
        share = (sum(under_way) + self.done * (self.last_step + 1)) / whole
        return _clock(seconds * (1 - share) / share)


class LiveProgress:
    """A table that is redrawn on a terminal."""

    def __init__(self, tally: Tally, console: Console) -> None:
        self._tally = tally
        self._live = Live(get_renderable=self._render, console=console, refresh_per_second=4, transient=True)

    def __enter__(self) -> Self:
        self._live.start()
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, traceback: TracebackType | None
    ) -> None:
        self._live.stop()

    def stepped(self, problem: str, step: int, value: float | None) -> None:
        """Note a step."""
        self._tally.stepped(problem, step, value)

    def ended(self, problem: str) -> None:
        """Note that a problem is done."""
        self._tally.ended(problem)

    def trained(self, step: int, figures: Mapping[str, float]) -> None:
        """Note a training step."""
        self._tally.trained(step, figures)

    def _render(self) -> RenderableType:
        table = Table.grid(padding=(0, 2))
        table.add_row("[bold]evorun[/bold]", self._tally.title)
        for label, text in self._tally.fields().items():
            table.add_row(f"[dim]{label}[/dim]", text)
        return table


class PlainProgress:
    """A line every few seconds, when something has happened."""

    def __init__(self, tally: Tally, write: Callable[[str], None], interval: float = PLAIN_INTERVAL_S) -> None:
        self._tally = tally
        self._write = write
        self._interval = interval
        self._next = 0.0

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, traceback: TracebackType | None
    ) -> None:
        return

    def stepped(self, problem: str, step: int, value: float | None) -> None:
        """Note a step, and say so when the last line is old enough."""
        self._tally.stepped(problem, step, value)
        self._say_so()

    def ended(self, problem: str) -> None:
        """Note that a problem is done."""
        self._tally.ended(problem)

    def trained(self, step: int, figures: Mapping[str, float]) -> None:
        """Note a training step, and say so in the same way."""
        self._tally.trained(step, figures)
        self._say_so()

    def _say_so(self) -> None:
        if self._tally.seconds >= self._next:
            self._next = self._tally.seconds + self._interval
            self._write("; ".join(f"{label} {text}" for label, text in self._tally.fields().items()))


def make_progress(tally: Tally, console: Console, mode: str) -> Progress:
    """Return the display for this console; `mode` is auto, plain or off."""
    if mode == "off":
        return PlainProgress(tally, lambda line: None)
    if mode == "auto" and console.is_terminal:
        return LiveProgress(tally, console)
    return PlainProgress(tally, lambda line: console.print(line, highlight=False, markup=False, soft_wrap=True))


def _clock(seconds: float) -> str:
    minutes, rest = divmod(round(seconds), 60)
    hours, minutes = divmod(minutes, 60)
    return f"{hours}:{minutes:02}:{rest:02}" if hours else f"{minutes}:{rest:02}"
