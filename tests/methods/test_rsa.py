"""Recursive self-aggregation: subsets of the last population, N x T calls, and a vote at the end."""

from collections import Counter
from collections.abc import Sequence
from pathlib import Path

import pytest

from building import make_budget, make_method, simulated_run
from evorun.methods.search.rsa import Rsa
from evorun.runs.candidates import Step
from evorun.tasks.billsum.billsum import BillSum
from evorun.tasks.mathbench.mathbench import MathBench
from method_fixture import Ask, Scripted, drive, solve


def rsa(**config: object) -> Rsa:
    return make_method("rsa", **{"population": 6, "subset": 3, "steps": 4, **config})


def named(ask: Ask) -> str:
    return f"answer {ask.step}.{ask.index}"


def shown(ask: Ask) -> list[str]:
    return [candidate["answer"] for candidate in ask.shown["candidates"]]


async def test_every_step_replaces_the_population_by_aggregations_of_random_subsets() -> None:
    model = Scripted(named)
    history: list[Step] = await solve(rsa(), model)
    assert len(model.asked) == 6 * 4
    first, later = model.asked[:6], model.asked[6:]
    assert all(ask.shown["ask"] == "generate" for ask in first)
    subsets = [tuple(shown(ask)) for ask in later]
    for ask, subset in zip(later, subsets, strict=True):
        assert len(set(subset)) == 3
        assert set(subset) <= {f"answer {ask.step - 1}.{index}" for index in range(6)}
    assert len({(ask.step, frozenset(subset)) for ask, subset in zip(later, subsets, strict=True)}) > 9
    # Recorded parents are what was shown, and only the last population survives.
    last = history[-1]
    parents = {candidate.id: candidate.parents for candidate in last.candidates}
    for ask, subset in zip(later, subsets, strict=True):
        assert [f"answer {parent}" for parent in parents[f"{ask.step}.{ask.index}"]] == list(subset)
    assert [candidate.id for candidate in last.candidates if candidate.survivor] == [f"3.{index}" for index in range(6)]
    assert [len(step.candidates) for step in history] == [6, 12, 18, 24]


async def test_all_members_are_drawn_alike() -> None:
    model = Scripted(named)
    await solve(rsa(population=8, subset=2, steps=60), model)
    drawn = Counter(name.rpartition(".")[2] for ask in model.asked[8:] for name in shown(ask))
    expected = 59 * 8 * 2 / 8
    assert sum((count - expected) ** 2 / expected for count in drawn.values()) < 20.3  # chi-square, 7 degrees, 99.5 %


async def test_the_last_population_votes_or_one_of_it_is_drawn() -> None:
    def mostly(ask: Ask) -> str:
        return "rare" if ask.index == 0 else "Often" if ask.index % 2 else "often"

    voted = await solve(rsa(), Scripted(mostly))
    assert voted[-1].best is not None
    assert (voted[-1].best.answer, voted[-1].best.mean) == ("Often", pytest.approx(5 / 6))
    drawn = Counter[str]()
    for seed in range(60):
        history = await solve(rsa(choose="uniform", steps=1), Scripted(mostly), seed=seed)
        assert history[-1].best is not None
        drawn[str(history[-1].best.answer)] += 1
    assert 2 <= drawn["rare"] <= 22  # 10 of 60 are expected


async def test_what_does_not_parse_leaves_the_population_and_nothing_is_combined_with_nothing() -> None:
    def fails_at_first(ask: Ask) -> str:
        return "?" if ask.step == 0 or (ask.step == 1 and ask.index > 1) else named(ask)

    model = Scripted(fails_at_first)
    history = await solve(rsa(), model)
    assert [step.best is None for step in history] == [True, False, False, False]
    by_step = {step: [ask for ask in model.asked if ask.step == step] for step in range(4)}
    assert {ask.shown["ask"] for ask in by_step[1]} == {"generate"}
    assert {frozenset(shown(ask)) for ask in by_step[2]} == {
        frozenset({"answer 1.0", "answer 1.1"})
    }  # only two are left
    assert all(len(shown(ask)) == 3 for ask in by_step[3])


async def test_a_budget_buys_whole_steps(tmp_path: Path) -> None:
    driven = await drive(rsa(steps=None), tmp_path, named, problems=2, budget=make_budget(calls_per_problem=27))
    assert Counter(ask.name for ask in driven.model.asked) == {"p0": 24, "p1": 24}
    assert {record["step"] for record in driven.records("steps")} == {0, 1, 2, 3}


def test_a_budget_without_room_for_an_aggregation_is_said_beforehand() -> None:
    assert rsa().warnings(12) == []
    (line,) = rsa().warnings(11)
    assert line.startswith("method.population=6 leaves no step of aggregation within 11 calls per problem, expected at")


def test_where_no_two_texts_are_equal_it_draws_instead_of_voting() -> None:
    assert rsa().incompatibility(MathBench) is None
    assert "set method.choose=uniform" in str(rsa().incompatibility(BillSum))
    assert rsa(choose="uniform").incompatibility(BillSum) is None


ARMS = {"rsa": ("method.population=8", "method.steps=4"), "self_consistency": ("method.samples=32",)}


@pytest.mark.nightly
@pytest.mark.parametrize(
    ("world", "wins"),
    [(("engine.improvement=0.5",), True), (("engine.misleading=0.5",), False)],
)
def test_it_wins_and_loses_with_the_models_skill_at_aggregating(
    tmp_path: Path, world: Sequence[str], wins: bool
) -> None:
    """The arm without it is a vote over as many calls."""
    words = (
        "task=mathbench",
        "task.source=sample",
        "task.limit=30",
        "engine.skill=0.4",
        "engine.improvement=0",
        *world,
    )
    accuracy = {}
    for name, sizes in ARMS.items():
        run = simulated_run(tmp_path / name, f"method={name}", *words, *sizes, "method.retries=0")
        results = run.json("results.json")
        assert results["cost"]["total"]["calls"] == 32 * 30
        accuracy[name] = results["metrics"]["accuracy"]["value"]
    assert (accuracy["rsa"] > accuracy["self_consistency"] + 0.1) == wins
    assert (accuracy["rsa"] < accuracy["self_consistency"] - 0.1) != wins
