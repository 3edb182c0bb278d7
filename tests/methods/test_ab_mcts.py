"""AB-MCTS on a problem: who refines whom, sources of scores, calls by the closed form, and where it wins and loses."""

import json
from collections import Counter
from pathlib import Path
from typing import Any

import pytest

from building import make_budget, make_method, simulated_run
from evorun.methods.tree.ab_mcts import AbMcts
from evorun.models.base import Message
from evorun.runs.candidates import Response, Step
from evorun.tasks.base import Problem, Prompt, Tools
from evorun.tasks.capabilities import Diagnosis, Individual, Verification
from method_fixture import Ask, Quiz, Scripted, TestedQuiz, drive, solve


def ab_mcts(**config: object) -> AbMcts:
    method: AbMcts = make_method("ab_mcts", **{"nodes": 17, "fitness_threshold": None, **config})
    return method


def _prompt(**content: Any) -> Prompt:
    return Prompt(messages=(Message(role="user", content=json.dumps(content)),), hints=content)


class Refining(Quiz):
    """A quiz whose refinement prompts show everything; a model scores by its prompt's answer."""

    def mutation_prompt(self, problem: Problem, individual: Individual) -> Prompt:
        shown = {"answer": individual.response.answer, "fitness": individual.fitness, "errors": individual.errors.text}
        return _prompt(ask="refine", **shown)

    def crossover_prompt(self, problem: Problem, first: Individual, second: Individual) -> Prompt:
        raise AssertionError("nothing is crossed")

    def fitness_prompt(self, problem: Problem, response: Response) -> Prompt:
        return _prompt(ask="fitness", answer=response.answer)

    def parse_fitness(self, text: str) -> float | None:
        return float(text) if text.isdigit() else None

    def errors_prompt(self, problem: Problem, response: Response) -> Prompt:
        return _prompt(ask="errors", answer=response.answer)

    def parse_errors(self, problem: Problem, text: str, max_errors: int) -> Diagnosis | None:
        return Diagnosis(text=text)


class Verified(Refining):
    """Answers are numbers, and their fitness."""

    async def verify(self, problem: Problem, response: Response, max_errors: int, tools: Tools) -> Verification:
        errors = Diagnosis(text=f"errors of {response.text}" if max_errors else "")
        return Verification(fitness=float(response.answer or 0), errors=errors)


class TestedRefining(Refining, TestedQuiz):
    """Public tests, and no verifier."""

    __test__ = False


def better_each_time(ask: Ask) -> str:
    """Refinements gain five points, but some of them lose everything and some cannot be read."""
    if ask.shown["ask"] == "generate":
        return "?" if ask.index == 3 else str(10 + ask.index)
    return "?" if ask.index == 4 else "1" if ask.index == 2 else str(int(ask.shown["answer"] or 0) + 5)


async def test_refinements_see_their_parents_score_and_errors() -> None:
    model = Scripted(better_each_time)
    history: list[Step] = await solve(ab_mcts(), model, task=Verified())
    assert [len(step.candidates) for step in history] == [5, 10, 15, 17]
    assert len(model.asked) == 17
    candidates = {candidate.id: candidate for candidate in history[-1].candidates}
    for ask in model.asked:
        child = candidates[f"{ask.step}.{ask.index}"]
        assert (child.operator, len(child.parents)) == (
            ("init", 0) if ask.shown["ask"] == "generate" else ("refine", 1)
        )
        if child.parents:
            parent = candidates[child.parents[0]]
            assert parent.generation < child.generation
            assert ask.shown == {
                **{"ask": "refine", "answer": parent.answer, "fitness": parent.fitness},
                "errors": f"errors of {parent.text}",
            }
    # The first batch knows no score, so that all of it is from scratch; later batches go deeper.
    assert {len(candidate.parents) for candidate in history[0].candidates} == {0}
    assert history[-1].extra["depth"] >= 2
    parsed = [candidate for candidate in history[-1].candidates if candidate.answer is not None]
    assert history[-1].best == max(
        parsed, key=lambda candidate: candidate.fitness or 0
    )  # max keeps the first of equals
    assert history[-1].extra["best_fitness"] == history[-1].best.fitness


async def test_the_tree_is_a_function_of_the_seed() -> None:
    trees = []
    for seed in (0, 0, 1, 2):
        history = await solve(ab_mcts(), Scripted(better_each_time), task=Verified(), seed=seed)
        trees.append([candidate.parents for candidate in history[-1].candidates])
    assert trees[0] == trees[1]
    assert len({tuple(tree) for tree in trees}) > 1


@pytest.mark.parametrize(("max_errors", "calls"), [(2, 3), (0, 2)])
async def test_a_model_scores_each_new_answer_once(max_errors: int, calls: int) -> None:
    def script(ask: Ask) -> str:
        if ask.role in ("fitness", "errors"):
            return str(20 + int(ask.shown["answer"])) if ask.role == "fitness" else f"wrong: {ask.shown['answer']}"
        return "7" if ask.step == 1 else str(ask.step * 5 + ask.index)

    model = Scripted(script)
    history = await solve(ab_mcts(score="model", max_errors=max_errors), model, task=Verified())
    # Step 1 says the same five times, and step 2 has other answers.
    assert Counter(ask.role for ask in model.asked) == {
        **{"generate": 17, "fitness": 13},
        **({"errors": 13} if max_errors else {}),
    }
    assert {c.fitness for c in history[-1].candidates} == {20.0 + int(c.answer or 0) for c in history[-1].candidates}
    assert ab_mcts(score="model", max_errors=max_errors).calls_per_node(Verified) == calls


async def test_public_tests_give_the_score_where_there_is_no_verifier() -> None:
    def script(ask: Ask) -> str:
        return "good" if (ask.step, ask.index) == (2, 1) else "bad"

    model = Scripted(script)
    history = await solve(ab_mcts(fitness_threshold=100), model, task=TestedRefining())
    assert len(history) == 3  # it stops when all tests pass
    assert (history[-1].best and history[-1].best.answer, history[1].best and history[1].best.fitness) == ("good", 50)
    assert all(ask.shown["errors"] == "tests of bad" for ask in model.asked if ask.shown["ask"] == "refine")
    assert ab_mcts().information_regime(TestedRefining) == "public_tests"
    assert ab_mcts().information_regime(Verified) == "oracle"
    assert ab_mcts(score="model").information_regime(Verified) == "problem_only"


def test_a_task_without_scores_is_refused_in_a_line() -> None:
    assert "has no symbolic system" in str(ab_mcts(score="verifier").incompatibility(Refining))
    assert "has no public tests; set method.score=auto" in str(ab_mcts(score="tests").incompatibility(Verified))
    assert "has no scores" in str(ab_mcts().incompatibility(Quiz))
    assert ab_mcts().incompatibility(Refining) is None


async def test_a_budget_buys_whole_nodes(tmp_path: Path) -> None:
    def script(ask: Ask) -> str:
        return str(ask.step * 5 + ask.index)

    method = ab_mcts(nodes=None, score="model", max_errors=2)
    driven = await drive(
        method, tmp_path, script, task=Verified(), problems=2, budget=make_budget(calls_per_problem=26)
    )
    assert Counter((ask.name, ask.role) for ask in driven.model.asked) == Counter(
        {(name, role): 8 for name in ("p0", "p1") for role in ("generate", "fitness", "errors")}
    )


@pytest.mark.sample(1)
@pytest.mark.parametrize("rule", ["thompson", "ucb"])
def test_the_model_with_the_better_scores_writes_most_responses(tmp_path: Path, rule: str) -> None:
    models = ("generator=[{name:api,id:small},policy]", "generator_engine=[{name:simulated,skill:0.3},policy]")
    sizes = ("task=sudoku", "task.instances=3", "method.nodes=40", "method.fitness_threshold=null")
    run = simulated_run(tmp_path, "method=ab_mcts", f"method.model_choice={rule}", *sizes, "engine.skill=0.95", *models)
    asked = Counter(key.split("|")[2] for key in run.calls())
    assert asked.keys() == {"generate.0", "generate.1"}
    assert asked.total() == 3 * 40
    assert asked["generate.1"] > asked["generate.0"]


def solved(folder: Path, policy: str, *words: str) -> float:
    """Return the share of Sudokus that a policy solves, with a model that is right about nine in ten cells."""
    world = ("engine.judge_skill=0.9", "task=sudoku", "task.instances=20", "method=ab_mcts", f"method.policy={policy}")
    results = simulated_run(folder / policy, *world, *words).json("results.json")
    value: float = results["metrics"]["accuracy"]["value"]
    return value


@pytest.mark.nightly
@pytest.mark.parametrize("helps", [True, False])
def test_it_loses_to_best_first_search_where_refinements_help_and_wins_where_they_harm(
    tmp_path: Path, helps: bool
) -> None:
    """Best-first search only refines, whatever comes of it."""
    words = (f"engine.improvement={float(helps)}", "engine.skill=0.9", "method.nodes=40")
    adaptive, greedy = (solved(tmp_path, policy, *words) for policy in ("ab_mcts", "best_first"))
    assert (adaptive < greedy - 0.05) if helps else (adaptive > greedy + 0.2)


@pytest.mark.nightly
def test_it_wins_against_independent_responses_where_refinements_help(tmp_path: Path) -> None:
    words = ("engine.improvement=1", "engine.skill=0.85", "method.nodes=40")
    adaptive, independent = (solved(tmp_path, policy, *words) for policy in ("ab_mcts", "ucb"))
    assert adaptive > independent + 0.1
