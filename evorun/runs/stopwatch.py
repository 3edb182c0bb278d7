"""Measures what the wall time of a training step goes to, and the speed of sampling and training.

The figures differ on every repetition, unlike all records of a run. They have a file of their own, which a resume adds
to and a replay does not make.
"""

import resource
import time
from collections import Counter, defaultdict
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Literal

import msgspec

from evorun.models.memory import GIB, vllm_peak
from evorun.runs.schema import SpeedRecord

SPEED = "speed.jsonl"

Cause = Literal["training", "weight_sync", "generation", "judging"]
CAUSES: dict[Cause, str] = {
    "training": "training_seconds",
    "weight_sync": "weight_sync_seconds",
    "generation": "generation_seconds",
    "judging": "judging_seconds",
}
"""Causes of waiting, with the names of their figures; while a run waits for several, the first one counts."""
OTHER = "other_seconds"
SLEEP = ("sleep_seconds", "probes", "probe_reloads")
"""Figures of engines that slept during updates: sums since the last step."""


class Stopwatch:
    """Wall time by cause, tokens, and peaks of memory since the last step. Belongs to one event loop."""

    def __init__(self, clock: Callable[[], float] = time.monotonic) -> None:
        self._clock = clock
        self._at = clock()
        self._open: Counter[Cause] = Counter()
        self._begin()

    def _begin(self) -> None:
        self._spent: defaultdict[str, float] = defaultdict(float)
        """Seconds by figure, each counted once."""
        self._busy: defaultdict[Cause, float] = defaultdict(float)
        """Seconds in which a cause was open, beside others or not."""
        self._amounts: defaultdict[str, float] = defaultdict(float)
        self._largest: dict[str, float] = {}

    @contextmanager
    def during(self, cause: Cause) -> Iterator[None]:
        """Count the time in the block to a cause; many blocks may be open at once."""
        self._advance()
        self._open[cause] += 1
        try:
            yield
        finally:
            self._advance()
            self._open[cause] -= 1

    def add(self, **amounts: float) -> None:
        """Add to amounts: `prefilled` and `decoded` tokens of the policy, `trained` in `trained_seconds`; `SLEEP`."""
        for name, amount in amounts.items():
            self._amounts[name] += amount

    def note_largest(self, name: str, value: float) -> None:
        """Note a figure of the step of which the largest value counts."""
        self._largest[name] = max(value, self._largest.get(name, value))

    def take(self) -> dict[str, float]:
        """Return the figures since the last call; empty where no model worked, as in a step that a journal answers."""
        self._advance()
        spent, busy, amounts, largest = self._spent, self._busy, self._amounts, self._largest
        self._begin()
        if not any(busy[cause] for cause in ("training", "generation", "judging")):
            return {}
        figures = {"seconds": sum(spent.values())}
        figures |= {name: spent[name] for name in (*CAUSES.values(), OTHER) if spent[name]}
        rates = (
            ("prefill", amounts["prefilled"], busy["generation"]),
            ("decode", amounts["decoded"], busy["generation"]),
            ("train", amounts["trained"], amounts["trained_seconds"]),
        )
        figures |= {
            f"{name}_tokens_per_second": tokens / seconds for name, tokens, seconds in rates if tokens and seconds
        }
        figures |= {name: amounts[name] for name in SLEEP if name in amounts}
        peak = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss * 1024
        figures |= {**largest, "run_memory": peak / GIB}
        of_vllm = vllm_peak()
        return figures if of_vllm is None else {**figures, "vllm_memory": of_vllm / GIB}

    def _advance(self) -> None:
        now = self._clock()
        elapsed, self._at = now - self._at, now
        ongoing = [cause for cause in CAUSES if self._open[cause]]
        for cause in ongoing:
            self._busy[cause] += elapsed
        self._spent[CAUSES[ongoing[0]] if ongoing else OTHER] += elapsed


def append_speed(run: Path, step: int, figures: dict[str, float]) -> None:
    """Append a step's figures to speed.jsonl."""
    rounded = {name: float(f"{value:.4g}") for name, value in figures.items()}
    with (run / SPEED).open("ab") as file:
        file.write(msgspec.json.encode(SpeedRecord(step, rounded)) + b"\n")
