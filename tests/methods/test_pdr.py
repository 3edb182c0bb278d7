"""Parallel-distill-refine: rounds of drafts, what each sees of the last one, and the calls."""

import json
from collections import Counter
from pathlib import Path

import pytest

from building import composed, make_budget, make_method, simulated_run
from evorun.errors import ConfigError
from evorun.methods.search.pdr import Pdr
from evorun.reports.comparison.comparison import compare
from evorun.reports.comparison.tables import make_main_table
from evorun.reports.overview import load_outcome
from evorun.reports.run_tables import make_cost_table
from evorun.runner.estimates import count_calls
from evorun.tasks.capabilities import SupportsFitnessScores
from method_fixture import Ask, Quiz, Scripted, drive, solve


def pdr(**config: object) -> Pdr:
    return make_method("pdr", **{"drafts": [4, 2, 1], "shown": 2, **config})


def says(ask: Ask) -> str:
    return f"notes {ask.step}" if ask.role == "distill" else f"answer {ask.step}.{ask.index}"


async def test_each_round_sees_the_notes_on_all_drafts_of_the_last_one_and_no_older_ones() -> None:
    model = Scripted(says)
    history = await solve(pdr(), model)
    by_role = Counter((ask.role, ask.step) for ask in model.asked)
    assert by_role == {("generate", 0): 4, ("distill", 0): 1, ("generate", 1): 2, ("distill", 1): 1, ("generate", 2): 1}
    notes = [ask for ask in model.asked if ask.role == "distill"]
    assert [[one["answer"] for one in ask.shown["candidates"]] for ask in notes] == [
        [f"answer 0.{index}" for index in range(4)], [f"answer 1.{index}" for index in range(2)]
    ]  # fmt: skip
    assert all(ask.request.sampling.max_tokens == 1000 for ask in notes)
    drafts = {(ask.step, ask.index): ask.shown for ask in model.asked if ask.role == "generate"}
    assert [drafts[place]["notes"] for place in ((1, 0), (1, 1), (2, 0))] == ["notes 0", "notes 0", "notes 1"]
    last = history[-1]
    assert last.best is not None
    assert (last.best.answer, last.best.parents) == ("answer 2.0", ("1.0", "1.1"))


async def test_the_best_drafts_by_their_ratings_are_shown_as_they_are(tmp_path: Path) -> None:
    class Rated(Quiz):
        def fitness_prompt(self, problem: object, response: object) -> object:
            return self.generation_prompt(problem)  # type: ignore[arg-type]

        def parse_fitness(self, text: str) -> float | None:
            return None if text == "?" else float(text)

    assert isinstance(Rated(), SupportsFitnessScores)
    ratings = ["20", "?", "90", "30"]
    model = Scripted(lambda ask: ratings[ask.index] if ask.role == "fitness" else says(ask))
    await solve(pdr(distiller="top_k"), model, task=Rated())
    assert Counter(ask.role for ask in model.asked) == {"generate": 7, "fitness": 6}
    shown = [[one["answer"] for one in ask.shown["candidates"]] for ask in model.of("generate")[4:]]
    assert shown == [["answer 0.2", "answer 0.3"]] * 2 + [["answer 1.0", "answer 1.1"]]
    assert "top_k" in str(pdr(distiller="top_k").incompatibility(Quiz))


async def test_each_draft_sees_its_own_random_ones_and_one_draft_a_round_refines_the_last() -> None:
    model = Scripted(says)
    await solve(pdr(drafts=[6, 5, 1], distiller="random_k"), model)
    second = [tuple(one["answer"] for one in ask.shown["candidates"]) for ask in model.asked if ask.step == 1]
    assert len(set(second)) > 2
    assert all(len(set(pair)) == 2 for pair in second)
    refined = Scripted(says)
    await solve(pdr(drafts=[1, 1, 1], distiller="random_k"), refined)
    assert [[one["answer"] for one in ask.shown.get("candidates", [])] for ask in refined.asked] == [
        [], ["answer 0.0"], ["answer 1.0"]
    ]  # fmt: skip


async def test_a_summary_without_text_leaves_the_drafts_and_a_last_draft_that_fails_the_earlier_vote() -> None:
    model = Scripted(lambda ask: None if ask.role == "distill" else "?" if ask.step == 2 else "usual")
    history = await solve(pdr(), model)
    assert [len(ask.shown["candidates"]) for ask in model.asked if ask.role == "generate" and ask.step] == [4, 4, 2]
    assert [step.extra["unread_notes"] for step in history[:2]] == [1, 1]
    assert history[-1].best is not None
    assert history[-1].best.answer == "usual"


@pytest.mark.parametrize("distiller", ["summary", "random_k"])
@pytest.mark.parametrize("calls", [1, 9, 50])
async def test_a_budget_sets_the_drafts(tmp_path: Path, distiller: str, calls: int) -> None:
    method = pdr(drafts=None, distiller=distiller)
    budget = make_budget(calls_per_problem=calls)
    driven = await drive(method, tmp_path, says, problems=1, budget=budget)
    made = Counter((ask.role, ask.step) for ask in driven.model.asked)
    assert calls - 3 < sum(made.values()) <= calls
    assert made["generate", max(step for _, step in made)] == 1
    first, second = made["generate", 0], made["generate", 1]
    assert calls == 1 or first == 2 * second


@pytest.mark.parametrize("distiller", ["summary", "top_k", "random_k"])
def test_the_calls_are_those_of_the_closed_form(tmp_path: Path, distiller: str) -> None:
    sizes = ("task=mathbench", "task.source=sample", "task.limit=3", "engine.malformed=0")
    words = ("method=pdr", *sizes, f"method.distiller={distiller}")
    run = simulated_run(tmp_path / "run", *words)
    counted = {part.role: part.calls for part in count_calls(composed("engine=simulated", *words), 3) if part.calls}
    assert Counter(key.split("|")[2] for key in run.calls()) == counted


@pytest.mark.parametrize("drafts", [[], [4, 2], [0, 1]])
def test_drafts_that_end_in_no_answer_are_refused(drafts: list[int]) -> None:
    with pytest.raises(ConfigError, match=r"^method.drafts: expected numbers >= 1 that end in 1, as \[8,4,1\], got"):
        pdr(drafts=drafts)


@pytest.mark.nightly
@pytest.mark.parametrize(
    ("world", "wins"),
    [(("engine.improvement=0.6",), True), (("engine.misleading=0.6",), False)],
)
def test_it_wins_and_loses_with_the_models_skill_at_refining(
    tmp_path: Path, world: tuple[str, ...], wins: bool
) -> None:
    words = (
        "task=mathbench",
        "task.source=sample",
        "task.limit=40",
        "engine.skill=0.4",
        "engine.improvement=0",
        *world,
    )
    ours = simulated_run(tmp_path / "pdr", "method=pdr", *words)
    vote = simulated_run(tmp_path / "vote", "method=self_consistency", "method.samples=15", "method.retries=0", *words)
    assert [run.json("results.json")["cost"]["total"]["calls"] for run in (ours, vote)] == [15 * 40] * 2
    accuracy = [run.json("results.json")["metrics"]["accuracy"]["value"] for run in (ours, vote)]
    assert (accuracy[0] > accuracy[1] + 0.05) == wins
    assert (accuracy[0] < accuracy[1] - 0.05) != wins


def test_tables_have_the_sequential_tokens_of_the_longest_calls_beside_those_of_all(tmp_path: Path) -> None:
    run = simulated_run(tmp_path / "run", "method=pdr", "task=mathbench", "task.source=sample", "task.limit=3")
    longest: dict[tuple[str, ...], int] = {}
    for key, _, _, usage, _ in run.effects():
        problem, step, role, _, attempt = key.rsplit("|", 4)
        batch = (problem, step, role, attempt)
        longest[batch] = max(longest.get(batch, 0), json.loads(usage or "{}")["completion_tokens"])
    outcome = load_outcome(run.path)
    assert outcome.sequential_tokens == pytest.approx(sum(longest.values()) / 3)
    assert outcome.sequential_tokens < outcome.cost["total"].completion_tokens / 3
    assert "sequential tokens per problem" in make_cost_table(outcome).title
    comparison = compare([run.path])
    assert "sequential\ntokens" in make_main_table(comparison, comparison.rows, [], []).headings
