"""V1-Infer: N responses, B comparisons with two ratings each, and the highest weighted win rate."""

from collections import Counter
from collections.abc import Sequence
from pathlib import Path

import numpy as np
import pytest
from msgspec import UNSET

from building import make_budget, make_method, simulated_run
from evorun.methods.duels.v1_infer import V1Infer
from evorun.ratings import bradley_terry
from evorun.runs.candidates import Comparison, Step
from evorun.simulation.skill import Skill
from method_fixture import Ask, Scripted, drive, solve


def v1_infer(**config: object) -> V1Infer:
    return make_method("v1_infer", **{"samples": 6, "comparisons": 15, **config})


def rate(answer: str) -> int:
    return 1 + int(answer.split()[1]) * 7 % 10


def rates(ask: Ask) -> str:
    if ask.role == "generate":
        return f"answer {ask.index}"
    first, second = (rate(ask.shown[side]["answer"]) for side in "ab")
    return f"{first} {second}:looked at both"


def compared(history: Sequence[Step]) -> list[Comparison]:
    return [comparison for step in history for comparison in step.comparisons]


async def test_it_takes_n_plus_b_calls_in_rounds_of_disjoint_pairs() -> None:
    model = Scripted(rates)
    history = await solve(v1_infer(), model)
    assert (len(model.of("generate")), len(model.of("judge"))) == (6, 15)
    assert [len(step.comparisons) for step in history] == [0, 3, 3, 3, 3, 3]
    for step in history[1:]:
        assert len({end for duel in step.comparisons for end in (duel.first, duel.second)}) == 6
    for duel in compared(history):
        ratings = tuple(float(rate(f"answer {end.split('.')[1]}")) for end in (duel.first, duel.second))
        assert duel.ratings == ratings
        assert duel.verdicts == ("A" if ratings[0] > ratings[1] else "B" if ratings[0] < ratings[1] else "T",)
        assert duel.outcome == {"A": "first", "B": "second", "T": None}[duel.verdicts[0]]
        assert duel.reasons == ("looked at both",)


async def test_a_round_is_cut_where_the_comparisons_end() -> None:
    history = await solve(v1_infer(comparisons=7), Scripted(rates))
    assert [len(step.comparisons) for step in history] == [0, 3, 3, 1]


@pytest.mark.parametrize("estimate", ["win_rate", "posterior"])
async def test_the_belief_is_the_share_of_the_weights_won_or_the_weighted_posterior(estimate: str) -> None:
    history = await solve(v1_infer(estimate=estimate), Scripted(rates))
    ids = [candidate.id for candidate in history[-1].candidates]
    first, second, ratings = zip(
        *((ids.index(duel.first), ids.index(duel.second), duel.ratings) for duel in compared(history)), strict=True
    )
    weights = [max(abs(a - b) / 9, 0.1) for a, b in ratings]
    scores = [float(np.sign(a - b) + 1) / 2 for a, b in ratings]
    if estimate == "posterior":
        expected = bradley_terry.fit(6, first, second, scores=scores, weights=weights).mean
    else:
        won = np.bincount(first, np.multiply(weights, scores), 6)
        won += np.bincount(second, np.multiply(weights, np.subtract(1, scores)), 6)
        expected = won / (np.bincount(first, weights, 6) + np.bincount(second, weights, 6))
    np.testing.assert_allclose([candidate.mean for candidate in history[-1].candidates], expected, atol=1e-8)
    assert history[-1].best is not None
    assert history[-1].best.id == ids[int(np.argmax(expected))]


async def test_both_orders_are_averaged() -> None:
    def favours_a(ask: Ask) -> str:
        if ask.role == "generate":
            return f"answer {ask.index}"
        first, second = (rate(ask.shown[side]["answer"]) for side in "ab")
        return f"{first + 1} {second}:"

    model = Scripted(favours_a)
    (duel,) = compared(await solve(v1_infer(samples=2, comparisons=5, orders=2), model))  # two meet once
    assert duel.ratings == tuple(rate(f"answer {end[-1]}") + 0.5 for end in (duel.first, duel.second))
    assert len(model.of("judge")) == 2
    first, second = model.of("judge")
    assert (first.shown["a"], first.shown["b"]) == (second.shown["b"], second.shown["a"])


@pytest.mark.parametrize("reply", [None, "eleven", "7:"])
async def test_ratings_that_are_refused_or_unreadable_are_no_evidence(reply: str | None) -> None:
    history = await solve(v1_infer(), Scripted(lambda ask: reply if ask.role == "judge" else rates(ask)))
    assert {duel.verdicts for duel in compared(history)} == {("invalid",)}
    assert {duel.ratings for duel in compared(history)} == {UNSET}
    assert {candidate.mean for candidate in history[-1].candidates} == {0.5}
    assert len(compared(history)) == 15  # each pair was asked for once


def test_a_panel_rates_together(tmp_path: Path) -> None:
    words = ("method.samples=4", "method.comparisons=4", "task=mathbench", "task.source=sample", "task.limit=2")
    run = simulated_run(
        tmp_path, "method=v1_infer", *words, "judge=[gemma3_4b,qwen2_5_7b]", "judge_engine=[simulated,simulated]"
    )
    assert run.json("results.json")["cost"]["total"]["calls"] == 2 * (4 + 2 * 4)


async def test_a_budget_chooses_n_and_b(tmp_path: Path) -> None:
    method = v1_infer(samples=None, comparisons=None)
    driven = await drive(method, tmp_path, rates, problems=2, budget=make_budget(calls_per_problem=48))
    assert driven.cost() == {"generate": 2 * 16, "judge": 2 * 32}
    assert method.warnings(3) == []
    assert v1_infer().warnings(6)[0].startswith("budget of 6 calls per problem: 6 initial responses")


def test_a_simulated_judge_rates_as_it_judges_and_errs_by_smaller_margins() -> None:
    skill, rng = Skill(judge_skill=0.7, position_bias=0.1), np.random.default_rng(0)
    margins: dict[bool, list[int]] = {True: [], False: []}
    for _ in range(4_000):
        luck, tie, persistence, *pair = rng.random(5).tolist()
        first, second = (share < 0.5 for share in pair)
        verdict = skill.verdict("p", first, second, luck, tie, persistence)
        lead = skill.lead("p", first, second, luck, tie, persistence)
        a, b = skill.rate(first + second, lead, rng.standard_normal())
        assert 1 <= min(a, b) <= max(a, b) <= 10
        assert verdict == ("A" if a > b else "B" if b > a else "T")
        if first != second:
            margins[(a > b) == first].append(abs(a - b))
    assert len(margins[True]) / sum(map(len, margins.values())) == pytest.approx(0.7 * 0.9 + 0.05, abs=0.03)
    assert np.mean(margins[True]) > np.mean(margins[False]) + 0.5


@pytest.mark.nightly
@pytest.mark.parametrize(
    ("skill", "judge_skill", "wins"),
    [(0.35, 0.9, True), (0.6, 0.4, False)],
    ids=["good judge", "bad judge"],
)
def test_it_wins_and_loses_with_the_judges_skill(tmp_path: Path, skill: float, judge_skill: float, wins: bool) -> None:
    """The other arm is a vote over as many calls."""
    words = ("task=mathbench", "task.source=sample", "task.limit=40", f"engine.skill={skill}", "method.retries=0")
    arms = {"v1_infer": (), "self_consistency": ("method.samples=48",)}
    right = Counter[str]()
    for name, sizes in arms.items():
        run = simulated_run(tmp_path / name, f"method={name}", *words, *sizes, f"engine.judge_skill={judge_skill}")
        results = run.json("results.json")
        assert results["cost"]["total"]["calls"] == 48 * 40
        right[name] = results["metrics"]["accuracy"]["value"]
    assert (right["v1_infer"] > right["self_consistency"] + 0.1) == wins
    assert (right["v1_infer"] < right["self_consistency"] - 0.1) != wins
