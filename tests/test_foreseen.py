"""Warnings of what a run will not reach, from typed settings alone: the composed values are taken away."""

from collections.abc import Sequence
from dataclasses import replace

import pytest

from building import composed
from evorun.runner.foreseen import list_unreached
from evorun.runner.settings import check

DUELS = ("method=duel_evolve", "method.initial_candidates=12", "method.duels=24", "method.generations=1")
LYRIA = ("method=lyria", "method.population=20")
MPO = ("method=mpo", "task=essay", "task.source=sample")


@pytest.mark.parametrize(
    ("words", "calls", "said"),
    [
        (DUELS, 60, "generation 0, which takes up to 60 calls"),  # 12 responses, and 24 duels in both orders
        (DUELS, 61, None),
        (DUELS, None, None),
        ((*DUELS, "budget.generations=0"), 60, None),  # nothing is to evolve
        (LYRIA, 20, "generation 0, which takes up to 20 calls"),
        (("method=rsa",), 16, None),  # has a population, and no generations
        (("method=zero_shot", "task.limit=8"), None, "task.limit=8: task=mathbench has 7 problems"),
        (("method=zero_shot", "task.limit=7"), None, None),
        ((*MPO, "method.steps=10"), None, "the first refinement follows step 10 and rewards from step 11 on"),
        ((*MPO, "method.steps=11"), None, None),
        ((*MPO, "method.steps=11", "training.max_lag=1"), None, "step 10 and rewards from step 12 on"),
        ((*MPO, "method.steps=10", "method.refine_every=9"), None, None),
        ((*MPO, "method.steps=10", "method.refine_schedule=before"), None, None),
        (("method=ppo", "method.rubric=initial", "method.steps=10", *MPO[1:]), None, None),
    ],
)
def test_a_run_says_what_it_will_not_reach(words: Sequence[str], calls: int | None, said: str | None) -> None:
    given = (*(() if any(word.startswith("task=") for word in words) else ("task=mathbench",)), *words)
    config = replace(check(composed("engine=simulated", "task.limit=null", *given)), raw={})
    lines = list_unreached(config, 7, calls)
    assert len(lines) == (said is not None)
    assert said is None or said in lines[0]
