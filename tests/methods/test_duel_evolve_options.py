"""Duel-Evolve's options for code: repeats discarded, memory, the judge's reasons and public tests shown (A.1, B.2)."""

from collections.abc import Sequence
from itertools import pairwise
from pathlib import Path
from typing import Any

import pytest

from building import make_meter, make_method
from evorun.methods.duels.duel_evolve import DuelEvolve
from evorun.runs.candidates import Step
from method_fixture import Ask, Quiz, Scripted, TestedQuiz, drive, solve


def evolve(**config: object) -> DuelEvolve:
    small = {"generations": 3, "initial_candidates": 4, "children": 4, "parents": 3, "duels": 6, "retries": 0}
    return make_method("duel_evolve", **{**small, **config})


def fresh(ask: Ask) -> str:
    """A model that never repeats itself and thinks the later response the better one."""
    if ask.role == "generate":
        return f"a{ask.step * 10 + ask.index};memory of {ask.step * 10 + ask.index}"
    first, second = (int(ask.shown[side]["answer"][1:]) for side in "ab")
    return f"{'A' if first > second else 'B'}:{first} against {second}"


def newcomers(step: Step) -> list[Any]:
    return [rated for rated in step.candidates if rated.generation == step.step]


def repeats(ask: Ask) -> str:
    """Places 0 and 1 of a generation say the same, index 2 repeats the first of all, in capitals; index 3 is new."""
    if ask.role == "judge":
        return "A:"
    return ("twin", "twin", "TWIN", f"new{ask.step}")[ask.index]


async def test_repeats_are_discarded_and_not_replaced() -> None:
    model = Scripted(repeats)
    history = await solve(evolve(deduplicate=True), model)
    in_pool: set[str] = set()
    for step in history:
        rated = {r.id: r for r in step.candidates}
        assert len(rated) == 4 * (step.step + 1)
        fresh_now = {f"{step.step}.{i}" for i in ((0, 3) if step.step == 0 else (3,))}
        in_pool |= fresh_now
        # those that were discarded are kept on record, without a belief, and meet nobody
        assert {name for name, r in rated.items() if r.mean is not None} == in_pool
        assert {name for name, r in rated.items() if r.survivor} <= in_pool
        assert {side for duel in step.comparisons for side in (duel.first, duel.second)} <= in_pool
        assert step.extra["repeated_children"] == 4 - len(fresh_now)
        assert step.extra["children"] == 4
        assert all(r.error is None for r in rated.values())
    assert len(model.of("generate")) == 16
    shown = [parent["answer"] for ask in model.of("generate") for parent in ask.shown.get("parents", [])]
    assert set(shown) <= {"twin", "new0", "new1", "new2"}


async def test_without_the_option_repeats_stay() -> None:
    history = await solve(evolve(), Scripted(repeats))
    assert all(r.mean is not None for r in history[-1].candidates)
    assert "repeated_children" not in history[0].extra


async def test_a_generation_of_repeats_only_goes_on_with_those_before(tmp_path: Path) -> None:
    def stuck(ask: Ask) -> str:
        return "same" if ask.role == "generate" else "A:"

    history = await solve(evolve(deduplicate=True), Scripted(stuck))
    assert [step.step for step in history] == [0, 1, 2, 3]
    assert all(step.best is not None and step.best.id == "0.0" for step in history)
    driven = await drive(evolve(deduplicate=True), tmp_path, stuck, problems=1)
    assert len(driven.records("candidates")) == 16
    assert driven.records("comparisons") == []


async def test_repeats_are_not_looked_at() -> None:
    looked: list[str | None] = []

    class Counting(TestedQuiz):
        async def observe(self, problem: Any, response: Any, tools: Any) -> Any:
            looked.append(response.answer)
            return await super().observe(problem, response, tools)

    await solve(evolve(deduplicate=True), Scripted(repeats), task=Counting())
    assert looked == ["twin", "new0", "new1", "new2", "new3"]


async def test_unparsed_texts_are_no_repeats() -> None:
    history = await solve(evolve(deduplicate=True, generations=0), Scripted(lambda ask: "?"))
    assert history[0].extra["repeated_children"] == 0
    assert len(history[0].candidates) == 4


def parents_of(model: Scripted) -> dict[int, list[dict[str, Any]]]:
    """Return the parents that each generation was shown."""
    return {ask.step: ask.shown["parents"] for ask in model.of("generate") if ask.shown["ask"] == "evolve"}


async def test_memory_scores_and_feedback_of_the_parents_are_shown() -> None:
    model = Scripted(fresh)
    history = await solve(evolve(), model, task=TestedQuiz())
    for before, step in pairwise(history):
        belief = {r.answer: r.mean for r in before.candidates}
        shown = parents_of(model)[step.step]
        assert len(shown) == 3
        for parent in shown:
            assert parent["memory"] == f"memory of {parent['answer'][1:]}"
            assert parent["feedback"] == f"tests of {parent['answer']}"
            assert parent["score"] == pytest.approx(belief[parent["answer"]], abs=1e-8)
    for ask in model.of("judge"):
        assert all(ask.shown[side]["feedback"] == f"tests of {ask.shown[side]['answer']}" for side in "ab")
    assert all(r.feedback is not None for r in history[-1].candidates)


async def test_without_public_tests_there_is_no_feedback() -> None:
    model = Scripted(fresh)
    await solve(evolve(), model, task=Quiz())
    assert {parent["feedback"] for parents in parents_of(model).values() for parent in parents} == {None}


def last_reasons(history: Sequence[Step], before: int) -> dict[str, tuple[str, str]]:
    """Return by answer what the judge last said when it won, and when it lost: of the call that showed it as A."""
    answer = {r.id: r.answer or "" for r in history[-1].candidates}
    told: dict[str, list[str]] = {name: ["", ""] for name in answer.values()}
    for step in history[:before]:
        for duel in step.comparisons:
            if duel.outcome is None:
                continue
            for side, reason in ((duel.first, duel.reasons[0]), (duel.second, duel.reasons[1])):
                won = (side == duel.first) is (duel.outcome == "first")
                told[answer[side]][0 if won else 1] = f"A: {reason}"
    return {name: (won, lost) for name, (won, lost) in told.items()}


async def test_the_last_win_and_the_last_loss_are_shown() -> None:
    def sometimes_undecided(ask: Ask) -> str:
        said = fresh(ask)
        if ask.role == "judge" and ask.index % 6 == 4:
            return "T:a tie says nothing"
        return said + f" in step {ask.step}" if ask.role == "judge" else said

    model = Scripted(sometimes_undecided)
    history = await solve(evolve(generations=6), model)
    seen = 0
    for number, parents in parents_of(model).items():
        told = last_reasons(history, number)
        for parent in parents:
            assert (parent["won"], parent["lost"]) == told[parent["answer"]]
            assert not parent["won"] or parent["won"].startswith(f"A: {parent['answer'][1:]} against")
            seen += bool(parent["won"]) + bool(parent["lost"])
    assert seen > 10


@pytest.mark.parametrize("calls", [1, 7, 13, 31, 49])
async def test_the_budget_with_all_options(calls: int) -> None:
    model, meter = Scripted(repeats), make_meter(calls)
    await solve(evolve(deduplicate=True), model, meter=meter, task=TestedQuiz())
    assert len(model.asked) <= calls


@pytest.mark.parametrize(("duels", "starves"), [(1, True), (4, False), (0, False)])
async def test_fewer_duels_than_children_leave_some_unjudged_and_the_start_says_so(duels: int, starves: bool) -> None:
    method = evolve(duels=duels, generations=6)
    assert [line.split(":")[0] for line in method.warnings(None)] == (
        [f"method.duels={duels} is below method.children=4"] if starves else []
    )
    solved = await solve(method, Scripted(fresh))
    judged = {name for step in solved for duel in step.comparisons for name in (duel.first, duel.second)}
    unjudged = {one.id for one in solved[-1].candidates} - judged
    assert bool(unjudged) is (duels < 4)
