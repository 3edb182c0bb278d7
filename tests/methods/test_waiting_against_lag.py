"""The time that a run takes with rollouts ahead of its updates, in virtual time, beside a recursion of its own."""

import argparse
import random
from collections.abc import Callable
from pathlib import Path

import measure_lag
import pytest

STEPS, UPDATE = 6, 20.0


def expected_seconds(lag: int, rollouts: Callable[[int], float]) -> float:
    """Return the end of the last update: each begins after the one before, and after the step's slowest rollout."""
    ends = [0.0]  # of the update of each step; rollouts begin with those that they may see
    for step in range(1, STEPS + 1):
        played = ends[max(0, step - 1 - lag)] + rollouts(step)
        ends.append(max(ends[-1], played) + UPDATE)
    return ends[-1]


@pytest.mark.parametrize("lag", [0, 1, 3])
def test_a_run_waits_for_nothing_but_the_rollouts_that_it_must(
    lag: int, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Of each step one rollout is slow, another one in each."""
    slowest = {step: random.Random(step).uniform(10, 100) for step in range(1, STEPS + 1)}

    class Uneven(measure_lag.Slow):
        def seconds(self, key: str, seed: int) -> float:
            _, step, _, index, _ = key.split("|")
            return slowest[int(step)] if int(index) == int(step) % 4 else 1.0

    monkeypatch.setattr(measure_lag, "Slow", Uneven)
    options = argparse.Namespace(
        method="grpo", steps=STEPS, problems=2, group=4, slots=99, rollout=1.0, spread=0.0, update=UPDATE, noise=30.0
    )
    figures = measure_lag.measure(lag, 0, options, tmp_path)
    steps_without_update = STEPS - round((1 - figures.trainer_waits) * figures.seconds / UPDATE)
    assert steps_without_update == 0  # else the recursion would have to leave out its seconds
    assert figures.seconds == pytest.approx(expected_seconds(lag, slowest.__getitem__))
