"""The simulated model of constructions: a step up is rarer from a good program, and programs in view may mislead."""

from collections.abc import Iterator
from typing import Any

import numpy as np
import pytest
from scipy.stats import binom

from building import load_task
from evorun.models.base import Request
from evorun.simulation.skill import Skill
from evorun.tasks.constructions.ladder import PARTS, write_program

LOADED = load_task("circle_packing", circles=[8])
[PROBLEM] = LOADED.problems
LADDER = LOADED.task.make_ladder(PROBLEM)  # type: ignore[attr-defined]
DRAWS = 400


def draw_heights(*view: int, draws: int = DRAWS, seed: int = 0, **world: Any) -> Iterator[int]:
    """Yield rungs that a model reaches in view of programs on these rungs, of 100."""
    simulator = LOADED.simulator.with_skill(Skill(**{"malformed": 0, "mean_tokens": 1, **world}))
    shown = [write_program(LADDER[rung], 0) for rung in view]
    request = Request(messages=(), hints={"problem": PROBLEM.id, "role": "evolve", "answers": shown})
    rng = np.random.default_rng(seed)
    for _ in range(draws):
        answer = LOADED.task.parse(PROBLEM, simulator.respond(request, rng)).answer
        yield round(PARTS * simulator.degree(PROBLEM, answer))  # type: ignore[attr-defined]


def test_a_step_up_is_rarer_from_a_good_program() -> None:
    """The oracle is the sum of two binomials: of parts that are right in view, and of those that are wrong."""
    for rung in (30, 60, 80):
        reached = np.array([*draw_heights(rung, skill=0.5, improvement=0.6, misleading=0.1)])
        kept = binom.pmf(np.arange(PARTS + 1), rung, 0.6 + 0.4 * 0.5)
        gained = binom.pmf(np.arange(PARTS + 1), PARTS - rung, 0.4 * 0.5 * 0.9)
        chances = np.convolve(kept, gained)[: PARTS + 1]
        better = chances[rung + 1 :].sum()
        assert np.mean(reached > rung) == pytest.approx(better, abs=4 * np.sqrt(better * (1 - better) / DRAWS))
        assert reached.mean() == pytest.approx(chances @ np.arange(PARTS + 1), abs=0.9)
    assert np.mean([*draw_heights(skill=0.5)]) == pytest.approx(50, abs=1)  # from scratch


@pytest.mark.parametrize(
    ("world", "wins"), [({"improvement": 0.6}, True), ({"improvement": 0.6, "misleading": 0.9}, False)]
)
def test_evolution_wins_and_loses_against_independent_draws_and_neither_is_done_in_450_calls(
    world: dict[str, float], wins: bool
) -> None:
    drawn = max(draw_heights(draws=450, skill=0.6, **world))
    best = next(draw_heights(draws=1, skill=0.6, **world))
    for call in range(449):
        best = max(best, *draw_heights(best, draws=1, seed=call, skill=0.6, **world))
    assert (best > drawn) == wins
    assert max(best, drawn) < 90
