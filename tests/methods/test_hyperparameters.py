"""Every hyperparameter of Duel-Evolve does what its name says: a value that is not the default, and its effect."""

import json
from collections.abc import Callable
from itertools import pairwise

import pytest
from scipy.optimize import brentq
from scipy.special import expit

from building import load_task, make_context, make_method
from evorun.methods.duels.arena import Arena
from evorun.models import Completion, Reply, Request, Sampling
from evorun.rollouts.calls import Caller
from evorun.runs.candidates import Candidate, Comparison, Step

LOADED = load_task("mathbench", source="sample")
PROBLEM, OTHER_PROBLEM = LOADED.problems[:2]
SMALL = {"generations": 2, "initial_candidates": 4, "children": 4, "parents": 3, "duels": 5}

Say = Callable[[int, str, int, Request], str]
"""A text for step, role and index of a call, and its request."""


class Model(Caller):
    """Answers with a script; keeps what it was asked as (step, role, index, attempt, request)."""

    def __init__(self, say: Say) -> None:
        self.say = say
        self.asked: list[tuple[int, str, int, int, Request]] = []

    async def complete(self, key: str, request: Request, step: int) -> Reply:
        _, step, role, index, attempt = key.rsplit("|", 4)
        self.asked.append((int(step), role, int(index), int(attempt), request))
        text = self.say(int(step), role, int(index), request)
        return Reply(completions=(Completion(text=text, finish_reason="stop", tokens=3),), prompt_tokens=5, seconds=0.0)

    def count(self, step: int, role: str) -> int:
        return sum((s, r) == (step, role) for s, r, *_ in self.asked)


def quality(step: int, index: int) -> str:
    return json.dumps({"reasoning": f"quality {(step * 7 + index * 5) % 23}", "solution": "A"})


def judged(verdict: str, reason: str = "") -> str:
    return json.dumps({"solution": verdict, "reasoning": reason})


def tie(step: int, role: str, index: int, request: Request) -> str:
    """Candidates, and a judge that prefers none of them."""
    return quality(step, index) if role == "generate" else judged("T")


def sharp(step: int, role: str, index: int, request: Request) -> str:
    """Candidates of different quality, and a judge that sees it."""
    if role == "generate":
        return quality(step, index)
    first, second = (int(part.split()[0]) for part in request.messages[-1]["content"].split("quality ")[1:])
    return judged("A" if first > second else "B" if second > first else "T")


async def solve(models: dict[str, Model], **config: object) -> list[Step]:
    method = make_method("duel_evolve", **{**SMALL, **config})
    ctx = make_context(LOADED.task, PROBLEM, **models)
    return [step async for step in method.solve(ctx)]


def survivors(step: Step) -> set[str]:
    return {rated.id for rated in step.candidates if rated.survivor}


def offspring(step: Step) -> list[Candidate]:
    return [rated for rated in step.candidates if rated.generation == step.step]


async def test_generations_initial_candidates_children_duels() -> None:
    model = Model(tie)
    steps = await solve({"policy": model}, generations=3, initial_candidates=7, children=3, duels=6)
    assert [step.step for step in steps] == [0, 1, 2, 3]
    assert [model.count(step, "generate") for step in range(4)] == [7, 3, 3, 3]
    assert [model.count(step, "judge") for step in range(4)] == [12] * 4


async def test_prior_sd_is_the_belief_without_evidence() -> None:
    steps = await solve({"policy": Model(tie)}, prior_sd=3.0)
    assert {(rated.mean, rated.sd) for rated in steps[-1].candidates} == {(0.0, 3.0)}
    arena = Arena(3.0)
    arena.add([Candidate(id="x", generation=0, operator="init", text="", answer="A")])
    assert arena.sd.tolist() == [3.0]


async def test_prior_sd_weighs_the_evidence() -> None:
    """One duel of two: by symmetry the winner's mean solves m / sigma_0^2 = P(loser beats winner)."""

    def first_wins(step: int, role: str, index: int, request: Request) -> str:
        return quality(step, index) if role == "generate" else judged("AB"[index % 2])

    for prior_sd in (0.5, 3.0):
        (step,) = await solve(
            {"policy": Model(first_wins)}, generations=0, initial_candidates=2, duels=1, prior_sd=prior_sd
        )
        expected = brentq(lambda m, s=prior_sd: m / s**2 - expit(-2 * m), 0, 20)
        assert step.best is not None
        assert step.best.mean == pytest.approx(expected, abs=1e-5)
        assert step.best.id == step.comparisons[0].first


@pytest.mark.parametrize("width", [0.1, 0.7])
async def test_bound_width_decides_who_survives(width: float) -> None:
    lost = 0
    for step in await solve({"policy": Model(sharp)}, generations=4, duels=12, bound_width=width):
        bounds = {r.id: (r.mean - width * r.sd, r.mean + width * r.sd) for r in step.candidates}  # type: ignore[operator]
        best_lower = max(lower for lower, _ in bounds.values())
        assert survivors(step) == {name for name, (_, upper) in bounds.items() if upper >= best_lower}
        lost += len(step.candidates) - len(survivors(step))
    assert lost > 0


async def test_max_pool_bounds_the_survivors() -> None:
    steps = await solve({"policy": Model(tie)}, generations=3, max_pool=5)
    assert [len(step.candidates) for step in steps] == [4, 8, 12, 16]
    assert [len(survivors(step)) for step in steps] == [4, 5, 5, 5]


@pytest.mark.parametrize("shared", [True, False])
async def test_only_survivors_duel_and_have_children(shared: bool) -> None:
    steps = await solve(
        {"policy": Model(sharp)}, generations=6, duels=12, bound_width=0.3, shared_parents=shared, parents=4
    )
    outlived = 0
    for before, step in pairwise(steps):
        newcomers = {candidate.id for candidate in offspring(step)}
        assert {parent for candidate in offspring(step) for parent in candidate.parents} <= survivors(before)
        assert {side for duel in step.comparisons for side in (duel.first, duel.second)} <= survivors(
            before
        ) | newcomers
        outlived += len(before.candidates) - len(survivors(before))
    assert outlived > 20


async def test_parents_and_shared_parents() -> None:
    for shared in (True, False):
        steps = await solve({"policy": Model(tie)}, initial_candidates=12, parents=5, shared_parents=shared)
        families = [candidate.parents for candidate in offspring(steps[1])]
        assert {len(set(family)) for family in families} == {5}
        assert (len({frozenset(family) for family in families}) == 1) is shared


async def test_recent_share_of_the_parents() -> None:
    """Of 4 parents, so many of the 4 last ones at least; 12 older ones compete for the rest."""
    for share, least in ((0.0, 0), (0.5, 2), (1.0, 4)):
        steps = await solve(
            {"policy": Model(tie)}, initial_candidates=12, parents=4, recent_share=share, shared_parents=False
        )
        recent = [sum(parent.startswith("1.") for parent in candidate.parents) for candidate in offspring(steps[2])]
        assert min(recent) >= least
        assert share == 1.0 or min(recent) < 4


@pytest.mark.parametrize("retries", [0, 3])
async def test_retries(retries: int) -> None:
    def one_fails(step: int, role: str, index: int, request: Request) -> str:
        return "no idea" if (role, index) == ("generate", 1) else tie(step, role, index, request)

    model = Model(one_fails)
    (step,) = await solve({"policy": model}, generations=0, retries=retries)
    asked = [attempt for _, role, index, attempt, _ in model.asked if (role, index) == ("generate", 1)]
    assert asked == list(range(retries + 1))
    assert {r.id: r.attempts for r in step.candidates} == {
        "0.0": 1, "0.1": retries + 1, "0.2": 1, "0.3": 1
    }  # fmt: skip


async def test_each_role_has_its_own_sampling() -> None:
    model = Model(tie)
    await solve(
        {"policy": model}, temperature=0.31, top_p=0.83, max_tokens=77, judge_temperature=0.23, judge_max_tokens=33
    )
    found = {role: {r.sampling for _, asked, _, _, r in model.asked if asked == role} for role in ("generate", "judge")}
    assert found == {
        "generate": {Sampling(temperature=0.31, top_p=0.83, max_tokens=77)},
        "judge": {Sampling(temperature=0.23, top_p=1.0, max_tokens=33)},
    }


async def test_each_role_has_its_own_model() -> None:
    policy, judge = Model(tie), Model(tie)
    await solve({"policy": policy, "judge": judge})
    assert {role for _, role, *_ in policy.asked} == {"generate"}
    assert {role for _, role, *_ in judge.asked} == {"judge"}


async def test_reasons_stand_in_the_order_of_their_verdicts() -> None:
    def explains(step: int, role: str, index: int, request: Request) -> str:
        return quality(step, index) if role == "generate" else judged("AT"[index % 2], f"call {index}")

    (step,) = await solve({"policy": Model(explains)}, generations=0)
    assert [(duel.verdicts, duel.reasons) for duel in step.comparisons] == [
        (("A", "T"), (f"call {2 * i}", f"call {2 * i + 1}")) for i in range(5)
    ]
    assert isinstance(step.comparisons[0], Comparison)


def test_random_streams_belong_to_seed_problem_and_name() -> None:
    def draw(problem: int, seed: int, *names: str | int) -> float:
        context = make_context(LOADED.task, (PROBLEM, OTHER_PROBLEM)[problem], seed=seed)
        return float(context.rng(*names).random())

    assert draw(0, 0, "duels", 1) == draw(0, 0, "duels", 1)
    assert len({draw(0, 0, "duels", 1), draw(1, 0, "duels", 1), draw(0, 1, "duels", 1), draw(0, 0, "duels", 2)}) == 4
