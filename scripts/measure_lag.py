"""Print the share of waiting and the reward against `training.max_lag`, in virtual time and without weights.

    python scripts/measure_lag.py
    python scripts/measure_lag.py --method espl --lags 0 1 2 --steps 100 --update 20

A run's own scheduler plays simulated rollouts: nothing is kept and no time passes. An engine decodes `--slots` of
them at once, each for a lognormal time with mean `--rollout` seconds and `--spread` as the standard deviation of its
logarithm; an update takes `--update` seconds. `trainer waits` is the share of time without an update, `slots idle` the
mean share of slots without a rollout. Rewards are means over `--last` steps, at the beginning, in the middle and at the
end, and over the seeds. The simulator learns from what the rollouts' weights got right, and knows no other harm of old
weights.
"""

import argparse
import asyncio
import importlib
import logging
import sys
import tempfile
from collections.abc import Sequence
from pathlib import Path
from types import SimpleNamespace
from typing import Any, NamedTuple

import numpy as np
from rich.console import Console
from rich.table import Table

from evorun.methods.context import RunContext, TrainingSplit
from evorun.models.base import LanguageModel, Reply, Request, Trained
from evorun.models.config import ModelConfig
from evorun.rollouts.calls import Caller, Calls
from evorun.runs.budget import Meter
from evorun.training.simulated import SimulatedPolicy

TESTS = Path(__file__).resolve().parents[1] / "tests"


class Figures(NamedTuple):
    """The outcome of a run."""

    seconds: float
    trainer_waits: float
    slots_idle: float
    rewards: list[float]
    """Mean reward of each step."""


class Slow(Caller):
    """Answers from a number of slots, each request after a time that its seed decides."""

    def __init__(self, model: LanguageModel | Trained, slots: asyncio.Semaphore, mean: float, spread: float) -> None:
        self._model = model
        self._slots = slots
        self._mean, self._spread = mean, spread
        self.busy = 0.0
        """Seconds of all slots together."""

    async def complete(self, key: str, request: Request, step: int) -> Reply:
        model = self._model.at(step) if isinstance(self._model, Trained) else self._model
        seconds = self.seconds(key, request.seed)
        async with self._slots:
            await asyncio.sleep(seconds)
            self.busy += seconds
        return await model.complete(request)

    def seconds(self, key: str, seed: int) -> float:
        """Draw the seconds of a request."""
        median = self._mean * np.exp(-(self._spread**2) / 2)
        return float(np.random.default_rng(seed).lognormal(np.log(median), self._spread))


async def remember(key: str, about: bytes, compute: Any, kind: type, **_: Any) -> Any:
    """Execute an effect without a journal, which writes in a thread: virtual time does not pass there."""
    return await compute()


def measure(lag: int, seed: int, options: argparse.Namespace, folder: Path) -> Figures:
    """Carry out one run in virtual time. folder: for its artifacts."""
    building: Any = importlib.import_module("building")
    virtual_time: Any = importlib.import_module("virtual_time")
    method = building.make_method(
        options.method, steps=options.steps, problems_per_step=options.problems, group=options.group
    )
    split = building.make_config("task", "arithmetic").load_training()
    engine = building.make_config(
        "engine", "simulated", seconds_per_update=options.update, gradient_noise=options.noise
    )
    base = engine.open_for(ModelConfig(name="m", id="m"), split.simulator)
    policy = SimulatedPolicy("m", base, engine, folder, SimpleNamespace(remember=remember), lag)  # type: ignore[arg-type]
    rewards: list[float] = []

    async def run() -> Figures:
        slots = asyncio.Semaphore(options.slots)
        served = {"policy": policy.current, "reference": base}
        models = {role: Slow(model, slots, options.rollout, options.spread) for role, model in served.items()}
        roles = {**method.active_roles}
        roles[method.plays_ahead] = roles[method.plays_ahead]._replace(lag=1 + lag)
        calls: dict[str, Any] = {"meter": Meter(), "models": models, "roles": roles, "remember": remember}

        async def grade(problem: Any, response: Any) -> Any:
            return await split.grader.grade(problem, response, None)

        ctx = RunContext(
            contexts={},  # nothing is evaluated
            shared=Calls(name="*", task=split.task, seed=seed, **calls),
            demonstrations=(),
            grade=grade,
            artifacts=folder / "artifacts",
            record=lambda step, figures, candidates: rewards.append(figures["reward"]),
            record_rollouts=lambda records: None,
            policy=policy,
            training=TrainingSplit(split.task, split.problems, grade, {}),
        )
        async for _ in method.learn(ctx):
            pass
        seconds = asyncio.get_running_loop().time()
        trained = options.update * policy.issued.version(options.steps)
        idle = 1 - sum(model.busy for model in models.values()) / (options.slots * seconds)
        return Figures(seconds, 1 - trained / seconds, idle, rewards)

    figures: Figures = virtual_time.run_virtually(run())
    return figures


def main(arguments: Sequence[str] | None = None) -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--method", default="grpo", help="one whose rollouts may run ahead (%(default)s)")
    parser.add_argument("--lags", type=int, nargs="+", default=[0, 1, 2, 4, 8], metavar="K")
    parser.add_argument("--seeds", type=int, default=3, help="number of runs per lag (%(default)s)")
    parser.add_argument("--steps", type=int, default=60, help="of each run (%(default)s)")
    parser.add_argument("--problems", type=int, default=8, help="per step (%(default)s)")
    parser.add_argument("--group", type=int, default=8, help="rollouts per problem (%(default)s)")
    parser.add_argument("--slots", type=int, default=64, help="rollouts decoded at once (%(default)s)")
    parser.add_argument("--rollout", type=float, default=60.0, help="mean seconds (%(default)s)")
    parser.add_argument(
        "--spread", type=float, default=0.8, help="of the logarithm of a rollout's seconds (%(default)s)"
    )
    parser.add_argument("--update", type=float, default=60.0, help="seconds (%(default)s)")
    parser.add_argument("--noise", type=float, default=30.0, help="engine.gradient_noise (%(default)s)")
    parser.add_argument("--last", type=int, default=10, help="steps of a mean reward (%(default)s)")
    options = parser.parse_args(arguments)
    logging.getLogger("evorun").setLevel(logging.ERROR)  # a batch without a gradient is no news here
    sys.path.insert(0, str(TESTS))
    table = Table("max_lag", "hours", "trainer waits", "slots idle", "first reward", "middle", "last")
    last, half = options.last, options.steps // 2
    for lag in options.lags:
        with tempfile.TemporaryDirectory() as folder:
            runs = [measure(lag, seed, options, Path(folder)) for seed in range(options.seeds)]
        hours, waits, idle = (float(np.mean([run[at] for run in runs])) for at in range(3))
        rewards = np.mean([run.rewards for run in runs], axis=0)
        parts = (rewards[:last], rewards[half - last // 2 : half + last // 2], rewards[-last:])
        table.add_row(
            str(lag), f"{hours / 3600:.2f}", f"{waits:.0%}", f"{idle:.0%}", *(f"{part.mean():.3f}" for part in parts)
        )
    Console().print(table)


if __name__ == "__main__":
    main()
