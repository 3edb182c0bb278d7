"""Warnings of what a run will not reach, from typed settings alone: the composed values are taken away."""

from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path

import pytest

from building import composed, simulated_run
from evorun.reports.facts import list_warnings
from evorun.reports.overview import load_outcome
from evorun.runner.foreseen import list_unreached
from evorun.runner.settings import check

DUELS = ("method=duel_evolve", "method.initial_candidates=12", "method.duels=24", "method.generations=1")
PANEL = "judge=[policy,policy,policy]"
TOOLS = ("task=search_qa", "task.source=sample", "task.max_turns=4")
RSA = ("method=rsa", "budget.calls_per_problem=120")
LYRIA = ("method=lyria", "method.population=20")
MPO = ("method=mpo", "task=essay", "task.source=sample")


@pytest.mark.parametrize(
    ("words", "calls", "said"),
    [
        (DUELS, 60, "generation 0, which takes up to 60 calls"),  # 12 responses, and 24 duels in both orders
        (DUELS, 61, "may never judge a child, so"),
        (DUELS, 73, "take up to 72 calls per problem, and a duel 2: the budget has 73"),  # 12 children
        (DUELS, 74, None),
        (DUELS, 59, "the budget has 59; raise it, or lower method.initial_candidates or method.duels."),
        ((*DUELS, *TOOLS), 96, "generation 0, which takes up to 96 calls"),  # 12 responses of 4 turns
        ((*DUELS, *TOOLS), 95, "raise it, or lower task.max_turns or method.initial_candidates or method.duels."),
        ((*DUELS, *TOOLS), 145, "up to 144 calls per problem, with 4 turns for each answer, and a duel 2"),
        ((*DUELS, *TOOLS), 146, None),
        ((*DUELS, PANEL), 156, "generation 0, which takes up to 156 calls"),  # 24 duels before three judges
        ((*DUELS, PANEL), 173, "take up to 168 calls per problem, and a duel 6: the budget has 173"),
        ((*DUELS, PANEL), 174, None),
        (DUELS, None, None),
        ((*DUELS, "budget.generations=0"), 60, None),  # nothing is to evolve
        (LYRIA, 20, "generation 0, which takes up to 20 calls"),
        (LYRIA, 19, "the budget has 19; raise it, or lower method.population."),
        (("method=rsa",), 16, None),  # has a population, and no generations
        (RSA, 35, None),  # a remainder of 3
        (RSA, 39, "rsa leaves 7 of 39 calls per problem: a step reserves 16; lower method.population."),
        ((*RSA, *TOOLS), 120, "up to 63 of 120 calls per problem: a step reserves 64, 4 for each of 16 responses;"),
        ((*RSA, *TOOLS, "method.population=2"), 120, None),
        ((*RSA, "method.steps=2", *TOOLS), 120, None),  # its size is its own
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


def list_lines(path: Path, *words: str) -> list[str]:
    return list_warnings(load_outcome(simulated_run(path, *words, "task.limit=2").path))


@pytest.mark.sample(1)
@pytest.mark.parametrize(
    ("method", "left"),
    [("rsa", True), ("pdr", True), ("self_consistency", False)],
)
def test_calls_that_a_method_has_left_are_told_with_their_reason(method: str, left: bool, tmp_path: Path) -> None:
    lines = list_lines(tmp_path / "run", f"method={method}", *TOOLS, "budget.calls_per_problem=120")
    reason = "a step reserves 64, 4 for each of 16 responses; lower task.max_turns or method.population."
    reason = reason if method == "rsa" else "each response reserves all its 4 turns; lower task.max_turns."
    found = [line for line in lines if "of 120 calls per problem were left on average" in line]
    assert len(found) == left
    assert all(line.endswith(f": {reason}") for line in found)


@pytest.mark.parametrize(("calls", "judged"), [(17, False), (18, True)])
def test_a_run_that_judged_no_child_says_so(calls: int, judged: bool, tmp_path: Path) -> None:
    small = ("method.initial_candidates=4", "method.duels=4", "method.children=4", "method.retries=0")
    words = ("method=duel_evolve", *small, "method.deduplicate=false", "engine.malformed=0")
    lines = list_lines(
        tmp_path / "run", *words, "task=mathbench", "task.source=sample", f"budget.calls_per_problem={calls}"
    )
    assert any(line.startswith("No child was judged: ") for line in lines) is not judged
