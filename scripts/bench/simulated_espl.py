"""E-SPL's time beside its models' own: steps of the paper's size with a simulated policy, whose calls take none."""

import tempfile
from pathlib import Path
from typing import Any

import dry_run
from evorun_bench import Row

SECONDS = 20
"""For 50 steps."""
STEP_SECONDS = 60
"""A short step with real models (ours): 150 rollouts, their update, and 61 reflections."""
TINY = {"steps": 1, "problems": 2}


def measure(steps: int = 50, problems: int = 10) -> list[Row]:
    """Measure a run of `espl` with so many problems a batch, and the same without evolution."""
    settings: dict[str, Any] = {
        **{"method": "espl", "task": "arithmetic", "engine.mean_tokens": 120, "method.steps": steps},
        **{"method.problems_per_step": problems, "method.eval_every": steps, "task.test_problems": 2},
    }
    with tempfile.TemporaryDirectory() as folder, dry_run.one_core():
        whole = dry_run.run(Path(folder) / "espl", settings)
        without = dry_run.run(Path(folder) / "fixed", {**settings, "method.evolve": False})
    evolution = max(0.0, whole.seconds - without.seconds) / steps
    target = SECONDS * steps * problems / 500
    return [
        Row(
            f"{steps} steps of espl, {15 * problems} rollouts each",
            whole.seconds,
            "s",
            f"<= {target:.3g}",
            whole.seconds <= target,
        ),
        Row("... calls", whole.calls / whole.seconds, "calls/s", "", None),
        Row(
            "... evolution, of a step that takes a minute",
            100 * evolution / STEP_SECONDS,
            "%",
            "<= 5",
            evolution <= 0.05 * STEP_SECONDS,
        ),
    ]
