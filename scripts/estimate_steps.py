"""Estimates seconds per step and each GPU's share of work for the papers' set-ups, from the plan's own closed forms.

    python scripts/estimate_steps.py            # eight H100s of 80 GiB, beside one GPU for each engine and the trainer
    python scripts/estimate_steps.py 2x8x80

Nothing runs. Seconds are those that the planner divides GPUs by (`evorun.runner.gpu_demands`): all completions at their
longest, at the shares of an H100's peak that docs/guides/costs.md states. Without a lag, the engines' work and the
update follow each other. With `training.max_lag` above 0 they are side by side, and the slowest decides. A step of
Lyria or Duel-Evolve is a generation, the mean of a run's. A step of fine-tuning is a batch; its engine answers only
before and after.
"""

import sys
from collections.abc import Mapping, Sequence
from dataclasses import replace
from math import ceil
from typing import Any, NamedTuple

from rich.console import Console
from rich.table import Table

from evorun.cli.plain import composed
from evorun.errors import ConfigError
from evorun.models.devices import Gpu, read_inventory
from evorun.runner.estimates import BILLIONS, TRAINING, count_problems, count_steps, hours, limit_calls
from evorun.runner.gpu_demands import list_demands
from evorun.runner.planner import Assignment, place
from evorun.runner.requirements import student_stages
from evorun.runner.settings import check
from evorun.runner.typed import typed
from evorun.runs.budget import BudgetConfig

LAFT = ("experiment=laft/tsp", "method=laft", "engine=vllm", "teacher_engine=vllm")

SET_UPS = {
    "E-SPL, 7B": ("experiment=espl/figure11", "method=espl", "model=qwen2_5_7b", "engine=vllm", "task=hmmt"),
    "MPO, 1.5B, 32B and 72B AWQ": (
        *("experiment=mpo/essay", "method=mpo", "reward_engine=vllm", "meta_engine=vllm"),
        "task.source=sample",
    ),
    "LAFT, teacher of 32B": LAFT,
    "LAFT, student of 3B, tuned": LAFT,
    "LAFT, student of 3B": LAFT,
    "Duel-Evolve, 4B": ("experiment=duel_evolve/figure2", "method=duel_evolve", "engine=vllm", "task.source=sample"),
}

STAGES = {"LAFT, teacher of 32B": "teacher", "LAFT, student of 3B, tuned": "student"}
"""Stages by set-up; all others are runs."""


class Load(NamedTuple):
    """The work of a set of GPUs in a step."""

    roles: str
    gpus: int
    seconds: float


class Estimate(NamedTuple):
    """A step on some GPUs."""

    loads: Sequence[Load]
    in_turn: float
    """Seconds where one follows the other."""
    side_by_side: float
    """Seconds where all work at the same time."""

    def shares(self, seconds: float) -> list[str]:
        """Return the share of a step of this length that each set of GPUs works."""
        return [f"{load.roles}: {load.seconds / seconds:.0%} of {load.gpus}" for load in self.loads]


def count_run_steps(config: Mapping[str, Any]) -> int:
    """Return the training steps of a run, or its generations: as many as it has calls for, where a budget ends it."""
    train, test = count_problems(config["task"])
    steps, limit = count_steps(config, test, train), limit_calls(typed(BudgetConfig, config["budget"], "budget"), test)
    if steps is None:
        raise ConfigError(f"method={config['method']['name']}: expected a method with steps or generations")
    planned = steps.planned if limit is None else steps.reach(limit)
    return max(1, ceil(planned or 1))


def estimate(assignments: Sequence[Assignment], steps: int) -> Estimate:
    """Return the seconds of a step; an engine's copies share its work equally."""
    loads = [
        Load(", ".join(engine.demand.roles), len(engine.devices), engine.demand.work / engine.copies / steps)
        for engine in assignments
    ]
    seconds = [load.seconds for load in loads]
    return Estimate(loads, sum(seconds), max(seconds))


def tune_a_batch(config: Mapping[str, Any], planned: Sequence[Assignment]) -> list[Assignment]:
    """Return the trainer alone, with the work of a batch whose examples are as long as they may be."""
    method = config["method"]
    billions = BILLIONS.get(config["model"]["name"], 0.0)
    seconds = 3600 * hours(6, billions, method["batch"] * method["max_length"], TRAINING)
    return [
        assignment._replace(demand=replace(assignment.demand, work=seconds))
        for assignment in planned
        if assignment.demand.trains
    ]


def estimate_set_up(words: Sequence[str], gpus: Sequence[Gpu], stage: str = "") -> tuple[Estimate, Estimate]:
    """Return a step with a GPU (or as many as hold it) for each engine and the trainer, and one by the plan.

    stage: of a student's making, `teacher` or `student`, instead of the run itself.
    """
    config = check(composed(words))
    if stage:
        config = student_stages(config)[stage]
    planned = place(list_demands(config, gpus), gpus)
    if stage == "student":
        planned, steps = tune_a_batch(config.raw, planned), 1
    else:
        steps = count_run_steps(config.raw)
    single = [assignment._replace(devices=assignment.devices[: assignment.width]) for assignment in planned]
    return estimate(single, steps), estimate(planned, steps)


def show(seconds: float) -> str:
    """Return seconds as a table has them."""
    return f"{seconds:,.0f}" if seconds >= 10 else f"{seconds:.1f}"


def main(inventory: str = "8x80") -> None:
    """Print the table."""
    gpus = read_inventory(inventory)
    table = Table("set-up", "GPUs", "seconds per step", "with a lag", "share of a step that each works, with a lag")
    for name, words in SET_UPS.items():
        try:
            steps = estimate_set_up(words, gpus, STAGES.get(name, ""))
        except ConfigError as error:  # these GPUs cannot hold its models
            table.add_row(name, inventory, "", "", f"refused: {error}")
            continue
        for how, step in zip(("one each", inventory), steps, strict=True):
            shares = "; ".join(step.shares(step.side_by_side))
            table.add_row(name, how, show(step.in_turn), show(step.side_by_side), shares)
    Console(width=150).print(table)


if __name__ == "__main__":
    main(*sys.argv[1:])
