"""Live progress of a run: a display on a terminal, plain lines elsewhere."""

import time
from collections import Counter
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager

from rich.console import Console, RenderableType
from rich.live import Live
from rich.table import Table

from evorun.runs.effects import Traffic
from evorun.runs.scores import Score

SHOWN_FIGURES = ("reward", "loss", "held_out_loss", "grad_norm", "completion_tokens")
"""Figures of a training step that the displays show."""

PLAIN_INTERVAL_S = 10.0
"""Seconds between two plain lines."""


class Progress:
    """Counts since the start of this process and an estimate of the time left; `shown` puts them on a display."""

    def __init__(self, title: str, problems: int, last_step: int | None, traffic: Traffic, primary: Score) -> None:
        self.title = title
        self.problems = problems
        self.last_step = last_step
        self.primary = primary
        self.traffic = traffic
        self._started = time.monotonic()
        self._step_of: dict[str, int] = {}
        self._ended: set[str] = set()
        self._values: dict[str, float | None] = {}
        self._training = ""
        self._training_step = 0
        self.write_line: Callable[[str], None] | None = None
        """Called with a plain line every `PLAIN_INTERVAL_S`, when something has happened; None: no lines."""
        self._next_line_s = 0.0

    def stepped(self, problem: str, step: int, value: float | None) -> None:
        """Count a problem's step; `value` is the primary score of its answer as of now."""
        self._step_of[problem] = step
        self._values[problem] = value
        self._write_when_due()

    def ended(self, problem: str) -> None:
        """Count a problem that is done."""
        self._ended.add(problem)

    def trained(self, step: int, figures: Mapping[str, float]) -> None:
        """Count a training step."""
        self._training_step = step
        shown = ", ".join(f"{name} {figures[name]:.4g}" for name in SHOWN_FIGURES if name in figures)
        position = str(step) if self.last_step is None else f"{step}/{self.last_step}"
        self._training = f"step {position}: {shown}" if shown else f"step {position}"
        self._write_when_due()

    def _write_when_due(self) -> None:
        if self.write_line is not None and self.seconds >= self._next_line_s:
            self._next_line_s = self.seconds + PLAIN_INTERVAL_S
            self.write_line("; ".join(f"{label} {text}" for label, text in self.fields().items()))

    @property
    def seconds(self) -> float:
        """Seconds since the start."""
        return time.monotonic() - self._started

    def fields(self) -> dict[str, str]:
        """Return the texts to show, by label."""
        seconds = max(self.seconds, 1e-9)
        # list(...): the display's thread reads while the event loop writes, and iterating a dict that grows fails
        scored = [value for value in list(self._values.values()) if value is not None]
        steps = Counter(list(self._step_of.values()))
        mean = sum(scored) / len(scored) if scored else 0.0
        primary = f"{mean:.1%}" if self.primary.rate else f"{mean:.4g}"
        shown = {
            "problems": f"{len(self._ended)}/{self.problems} done, {len(self._step_of)} begun",
            "generation": f"{min(steps)} to {max(steps)}" if steps else "-",
            self.primary.name: f"{primary} (n={len(scored)})" if scored else "-",
            "calls": f"{self.traffic.calls:,} ({self.traffic.calls / seconds:.1f}/s)",
            "tokens": f"{self.traffic.completion_tokens:,} ({self.traffic.completion_tokens / seconds:.0f}/s)",
            "elapsed": _clock(seconds),
            "left": self._left(seconds),
        }
        if self._training:
            shown["training"] = self._training
        if self.traffic.replayed:
            shown["from the journal"] = f"{self.traffic.replayed:,} calls"
        return shown

    def _left(self, seconds: float) -> str:
        if self.last_step is None or not self._step_of:
            return "-"
        if self._training_step:
            # training works on all problems together, so its steps alone say how far the run is
            share = min(self._training_step / max(self.last_step, 1), 1.0)
        else:
            whole = self.problems * (self.last_step + 1)
            under_way = [step + 1 for problem, step in list(self._step_of.items()) if problem not in self._ended]
            # a problem that stopped early has all its steps behind it
            share = (sum(under_way) + len(self._ended) * (self.last_step + 1)) / whole
        return _clock(seconds * (1 - share) / share)


@contextmanager
def shown(progress: Progress, console: Console, mode: str) -> Iterator[Progress]:
    """Show the progress of a run while it goes on; `mode` is auto, plain or off."""

    def table() -> RenderableType:
        rows = Table.grid(padding=(0, 2))
        rows.add_row("[bold]evorun[/bold]", progress.title)
        for label, text in progress.fields().items():
            rows.add_row(f"[dim]{label}[/dim]", text)
        return rows

    if mode == "auto" and console.is_terminal:
        # transient: the summary of the finished run takes the table's place on the screen
        with Live(get_renderable=table, console=console, refresh_per_second=4, transient=True):
            yield progress
        return
    if mode != "off":
        progress.write_line = lambda line: console.print(line, highlight=False, markup=False, soft_wrap=True)
    yield progress


def _clock(seconds: float) -> str:
    minutes, rest = divmod(round(seconds), 60)
    hours, minutes = divmod(minutes, 60)
    return f"{hours}:{minutes:02}:{rest:02}" if hours else f"{minutes}:{rest:02}"
