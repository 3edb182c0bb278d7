"""E-SPL on a simulated model of which the tests know the truth: it finds what helps, where anything does."""

import asyncio
from pathlib import Path
from types import SimpleNamespace
from typing import Any, NamedTuple

import numpy as np
import pytest
from scipy.stats import spearmanr

from building import composed, make_config, make_method, no_journal
from evorun.methods.context import RunContext, TrainingSplit
from evorun.models import Reply, Request
from evorun.models.base import Trained
from evorun.models.config import ModelConfig
from evorun.rollouts.calls import Calls
from evorun.runner.settings import check
from evorun.runs.budget import Meter
from evorun.simulation.principles import merit
from evorun.simulation.settings import World
from evorun.testing.runs import COMPLETED, Run, carry_out
from evorun.training.simulated import LEARNED, SimulatedPolicy
from virtual_time import run_virtually

SMALL = (
    *("task=arithmetic", "task.test_problems=8", "method.problems_per_step=5", "method.group=4"),
    *("method.eval_samples=1", "engine=simulated", "engine.mean_tokens=3", "evorun.progress=off"),
)
STRONG = (
    *("engine.principle_gain=0.1", "engine.reflection_skill=0.1", "engine.skill=0.2"),
    "engine.gradient_noise=0",  # so small batches would teach little
)
SEEDS = (1,)


def play(folder: Path, method: str, seed: int, *overrides: str) -> Run:
    run = carry_out(check(composed(f"method={method}", *SMALL, *overrides, f"seed={seed}")), folder)
    assert run.outcome == COMPLETED
    return run


class Truth(NamedTuple):
    """The simulator's own knowledge of a run at its end."""

    principles: float
    """Added to the probability of a right answer by the prompt with the highest rating."""
    learned: float
    """Added by updates."""
    agreement: float
    """Spearman's correlation between ratings and what prompts add."""


def truth(folder: Path, method: str, seed: int, *overrides: str) -> Truth:
    run = play(folder, method, seed, *STRONG, "method.steps=30", *overrides)
    engine: dict[str, Any] = run.json("manifest.json")["config"]["engine"]
    assert engine["principle_seed"] is None  # so that runs which differ by their seeds alone are one row of a table
    world = World(**{**{key: engine[key] for key in vars(World())}, "principle_seed": seed})
    merits = {one["id"]: merit(world, one["text"]) for one in run.records("candidates") if one["problem"] == "*"}
    ratings = {one["candidate"]: one for one in run.records("ratings")}  # the last line of each
    best = max((one for one in ratings.values() if one["survivor"]), key=lambda one: one["mean"])
    means = [ratings[name]["mean"] for name in merits]
    agreement = float(spearmanr(means, list(merits.values())).statistic) if method == "espl" else 0.0
    learned = run.json(f"artifacts/{LEARNED}")["learned"] if method == "espl" else 0.0
    return Truth(merits[best["candidate"]], learned, agreement)


@pytest.mark.nightly  # test_espl.py has each operator, and it loses by day
def test_evolution_finds_what_helps_beyond_self_reflection_and_beside_updates(tmp_path: Path) -> None:
    both = [truth(tmp_path / f"espl{seed}", "espl", seed) for seed in SEEDS]
    alone = [truth(tmp_path / f"self{seed}", "espl_self_reflection", seed) for seed in SEEDS]
    found, reflected = (np.mean([one.principles for one in ones]) for ones in (both, alone))
    assert found > max(reflected, 0.2)
    assert all(one.learned > 0.1 for one in both)
    assert np.mean([one.agreement for one in both]) > 0.5


@pytest.mark.nightly  # by day they lose where principles harm
def test_no_method_looks_better_than_the_fixed_prompt_where_principles_do_nothing(tmp_path: Path) -> None:
    def graded(name: str, method: str, *overrides: str) -> Any:
        short = ("method.steps=6", "method.eval_every=2", "engine.principle_gain=0", "task.test_problems=20")
        run = play(tmp_path / name, method, 0, *short, *overrides)
        prompts.append(sum(one["problem"] == "*" for one in run.records("candidates")))
        return [(one["problem"], one["step"], one["scores"]) for one in run.records("steps")]

    prompts: list[int] = []
    fixed = graded("fixed", "espl_evolution", "method.evolve=false", "method.prompts=1")
    # Exactly as good: sampling seeds do not depend on the prompt, so the same problems are answered right.
    assert graded("evolved", "espl_evolution") == fixed
    assert graded("reflected", "espl_self_reflection") == fixed
    assert prompts[0] == 1
    assert min(prompts[1:]) > 3


@pytest.mark.nightly
def test_it_loses_where_every_principle_and_every_update_harms(tmp_path: Path) -> None:
    harm = ("engine.helpful_principles=0", "engine.harmful_principles=1", "engine.training_gain=-0.2")
    lost = truth(tmp_path / "run", "espl", 0, *harm, "engine.skill=0.6", "method.steps=10")
    assert lost.principles < 0
    assert lost.learned < -0.05


class Unrecorded:
    """Answers without a journal."""

    def __init__(self, model: Any) -> None:
        self._model = model
        self.answered_at = 0.0
        """The time of the latest reply."""

    def recorded(self, key: str, request: Request, step: int) -> None:
        return None

    async def complete(self, key: str, request: Request, step: int) -> Reply:
        model = self._model.at(step) if isinstance(self._model, Trained) else self._model
        reply: Reply = await model.complete(request)
        self.answered_at = asyncio.get_running_loop().time()
        return reply


def seconds_after_rollouts(folder: Path, **latencies: float) -> float:
    """Return the time that steps of `espl` take in all once their rollouts have ended, in virtual time."""
    task = make_config("task", "arithmetic")
    split, method = task.load_training(), make_method("espl", steps=3, crossover_rate=1.0)
    engine = make_config("engine", "simulated", **latencies)
    base = engine.open_for(ModelConfig(name="m", id="m"), split.simulator)
    policy = SimulatedPolicy("m", base, engine, folder, SimpleNamespace(remember=no_journal))  # type: ignore[arg-type]
    models = {"policy": Unrecorded(policy.current), "reference": Unrecorded(base)}
    waits: list[float] = []

    def record(*step: Any) -> None:  # of the policy's calls a step has its rollouts alone, before all else
        waits.append(asyncio.get_running_loop().time() - models["policy"].answered_at)

    async def learn() -> None:
        calls = {"task": split.task, "meter": Meter(), "models": models, "roles": method.roles, "remember": no_journal}
        ctx = RunContext(
            contexts={},  # nothing is evaluated
            shared=Calls(name="*", seed=0, **calls),
            demonstrations=(),
            grade=split.grader.grade,
            artifacts=folder,
            record=record,
            record_rollouts=lambda records: None,
            policy=policy,
            training=TrainingSplit(
                split.task, split.problems, lambda one, said: split.grader.grade(one, said, None), {}
            ),
        )
        async for _ in method.learn(ctx):
            pass

    run_virtually(learn())
    assert len(waits) == 3
    return sum(waits)


@pytest.mark.nightly  # test_max_lag.py has the order of steps
def test_updates_and_reflections_on_devices_of_their_own_take_the_time_of_the_longer_ones(tmp_path: Path) -> None:
    reflections = seconds_after_rollouts(tmp_path, seconds_per_token=0.2)
    updates = seconds_after_rollouts(tmp_path, seconds_per_update=25.0)
    both = seconds_after_rollouts(tmp_path, seconds_per_token=0.2, seconds_per_update=25.0)
    assert updates == pytest.approx(75)
    assert reflections == pytest.approx(75, rel=0.5)  # neither is long beside the other, which would show nothing
    assert both < 1.1 * max(reflections, updates)
