"""The random model: uniform over the answers of a task's form, blind to the right one, scored as brute force says."""

import subprocess
import sys
from collections.abc import Sequence
from itertools import permutations, product
from typing import Any

import numpy as np
import pytest

from building import composed, load_task
from evorun.models.base import Request
from evorun.runner.settings import check
from evorun.runs.candidates import Response
from evorun.simulation.engine import SimulatedConfig
from evorun.tasks.base import LoadedTask, Problem, Prompt, Row
from evorun.tasks.capabilities import Attempt, Diagnosis, Individual, ScoredResponse
from evorun.tasks.graph_coloring.graph import format_coloring
from evorun.tasks.loading import load_rows
from evorun.tasks.math_contest.math_contest import MathContest
from evorun.tasks.puzzles.puzzle import PENALISED_SCORE
from evorun.tasks.random_simulator import RandomSimulator
from evorun.tasks.rubric_scores import read_scores
from evorun.tasks.rubrics import Rubric, read_rubric
from text_tasks import Essays, OwnSums, Sums, essays, sums

NO_TOOLS: Any = None
REFINING = Prompt(messages=(), hints={"role": "merging"})
SETTINGS: dict[str, dict[str, Any]] = {
    "mathbench": {"source": "sample"},
    "livecodebench": {"source": "sample"},
    "aime": {"source": "sample"},
    "hmmt": {"source": "sample"},
    "arithmetic": {},
    "sudoku": {"instances": 2, "validation_instances": 1, "training_instances": 1},
    "graph_coloring": {"instances": 2, "validation_instances": 1, "training_instances": 1},
    "tsp": {"instances": 2, "validation_instances": 1, "training_instances": 1},
    "essay": {"source": "sample"},
    "ethics": {"source": "sample"},
    "billsum": {"source": "sample", "max_words": 20},
}


def replies(simulator: Any, prompt: Prompt, draws: int = 20) -> list[str]:
    rng = np.random.default_rng(3)
    return [simulator.respond(Request(messages=(), hints=prompt.hints), rng) for _ in range(draws)]


def asking_for_answers(task: Any, problem: Problem, seen: Response) -> list[Prompt]:
    one = Individual(response=seen, fitness=50, errors=Diagnosis())
    return [
        task.generation_prompt(problem),
        task.few_shot_prompt(problem, ()),
        task.instructed_prompt(problem, "Be brief."),
        task.evolution_prompt(problem, [ScoredResponse(response=seen, score=0)]),
        task.refinement_prompt(problem, seen, [Attempt(response=seen, outcome="first")]),
        task.crossover_prompt(problem, one, one),
        task.mutation_prompt(problem, one),
    ]


@pytest.mark.parametrize("name", SETTINGS)
def test_all_replies_have_the_tasks_form_and_none_depends_on_the_right_answer(name: str) -> None:
    loaded = load_task(name, **SETTINGS[name])
    task: Any = loaded.task
    problem = loaded.problems[0]
    simulator = loaded.simulator.at_random()
    # The right answers gone: if one of them were looked at, the replies would differ.
    blind = RandomSimulator(task, [Row(one) for one in loaded.problems], simulator.no_errors)  # type: ignore[attr-defined]
    seen = task.parse(problem, replies(simulator, task.generation_prompt(problem), 1)[0])
    for prompt in asking_for_answers(task, problem, seen):
        said = replies(simulator, prompt)
        assert said == replies(blind, prompt)
        assert all(task.parse(problem, text).answer is not None for text in said)
        assert name == "livecodebench" or len(set(said)) > (1 if name == "ethics" else 3)
    said = replies(simulator, task.judge_prompt(problem, seen, seen))
    assert {task.parse_judgment(text).verdict for text in said} == {"A", "B"}
    scores = [task.parse_fitness(text) for text in replies(simulator, task.fitness_prompt(problem, seen), 200)]
    assert 0 <= min(scores) < 10 < 90 < max(scores) <= 100
    rubric = read_rubric(replies(simulator, REFINING, 1)[0])
    for by, item in ((rubric, None), (rubric, rubric.items[0]), (Rubric("Score it.", 5), None)):
        texts = replies(simulator, task.scoring_prompt(problem, seen, by, item), 100)
        shares = [read_scores(text, by, item).normalised for text in texts]
        assert 0 <= min(shares) < 0.1 < 0.9 < max(shares) <= 1
    [text] = replies(simulator, task.errors_prompt(problem, seen), 1)
    assert task.parse_errors(problem, text, 3) == Diagnosis()


def scores_of(loaded: LoadedTask, problem: Problem, answers: Sequence[str], score: str | None) -> list[float]:
    task: Any = loaded.task
    responses = [task.parse(problem, task.write(problem, answer)) for answer in answers]
    [gold] = [row.answer for row in loaded.simulator._rows.values() if row.problem.id == problem.id]  # type: ignore[attr-defined]
    grades = [task.score(problem, response, gold) for response in responses]
    return [float(grade.correct) if score is None else grade.scores[score] for grade in grades]


def all_answers(name: str, problem: Problem) -> list[str]:
    if name == "mathbench":
        return list("ABCD")
    if name == "sudoku":
        cells = problem.data["grid"].split()
        empty = [index for index, cell in enumerate(cells) if cell == "."]
        grids = []
        for numbers in product("1234", repeat=len(empty)):
            for index, number in zip(empty, numbers, strict=True):
                cells[index] = number
            grids.append("\n".join(" ".join(cells[row : row + 4]) for row in range(0, 16, 4)))
        return grids
    if name == "graph_coloring":
        return [format_coloring(colors) for colors in product(range(3), repeat=problem.data["vertices"])]
    return [format_coloring([0, *tour, 0]) for tour in permutations(range(1, problem.data["cities"]))]


@pytest.mark.sample(2)
@pytest.mark.parametrize(
    ("name", "settings", "score"),
    [
        ("mathbench", {"source": "sample"}, None),
        ("sudoku", {**SETTINGS["sudoku"], "box": 2, "empty_cells": 4}, PENALISED_SCORE),
        ("sudoku", {**SETTINGS["sudoku"], "box": 2, "empty_cells": 4}, None),
        ("graph_coloring", {**SETTINGS["graph_coloring"], "vertices": 6}, PENALISED_SCORE),
        ("graph_coloring", {**SETTINGS["graph_coloring"], "vertices": 6}, None),
        ("tsp", {**SETTINGS["tsp"], "cities": 6}, PENALISED_SCORE),
    ],
)
def test_its_mean_score_is_that_of_all_answers(name: str, settings: dict[str, Any], score: str | None) -> None:
    loaded = load_task(name, **settings)
    task: Any = loaded.task
    problem = loaded.problems[0]
    exact = scores_of(loaded, problem, all_answers(name, problem), score)
    said = replies(loaded.simulator.at_random(), task.generation_prompt(problem), 2000)
    found = scores_of(loaded, problem, [str(task.parse(problem, text).answer) for text in said], score)
    assert np.mean(found) == pytest.approx(np.mean(exact), abs=4 * np.std(exact) / 2000**0.5)


@pytest.mark.sample(1)
@pytest.mark.parametrize(("largest", "answers"), [(9, range(10)), (None, range(1000))])
def test_a_contests_integers_are_equally_likely_over_its_range(largest: int | None, answers: range) -> None:
    problem = Problem(id="p", stratum="all", data={"problem": "?"})
    loaded = load_rows(MathContest(largest=largest), [(problem, "7")])
    task: Any = loaded.task
    said = replies(loaded.simulator.at_random(), task.generation_prompt(problem), 20 * len(answers))
    counts = np.bincount([int(task.parse(problem, text).answer) for text in said], minlength=len(answers))
    assert len(counts) == len(answers)
    # Pearson's statistic, whose mean over uniform draws is n - 1 and whose variance is 2 (n - 1)
    free = len(answers) - 1
    assert ((counts - 20) ** 2 / 20).sum() == pytest.approx(free, abs=4 * (2 * free) ** 0.5)


def test_its_programs_print_the_output_of_a_public_test() -> None:
    loaded = load_task("livecodebench", source="sample")
    task: Any = loaded.task
    problem = next(one for one in loaded.problems if len(one.data["public_tests"]) > 1)
    programs = {
        task.parse(problem, text).answer
        for text in replies(loaded.simulator.at_random(), task.generation_prompt(problem))
    }
    printed = [
        subprocess.run([sys.executable, "-c", program], capture_output=True, text=True, check=True).stdout.strip()
        for program in programs
    ]
    assert sorted(printed) == sorted({test["output"].strip() for test in problem.data["public_tests"]})


def test_a_task_that_draws_no_answers_gets_those_of_other_problems() -> None:
    loaded = load_rows(Sums(), sums(5), validation=sums(1, 20))
    task: Any = loaded.task
    said = replies(loaded.simulator.at_random(), task.generation_prompt(loaded.problems[0]), 100)
    assert {task.parse(loaded.problems[0], text).answer for text in said} == {"6", "7", "8", "9", "25"}
    alone = load_rows(Sums(), sums(1))
    [text] = replies(alone.simulator.at_random(), task.generation_prompt(alone.problems[0]), 1)
    assert task.parse(alone.problems[0], text).answer is None
    free = load_rows(Essays(), essays(None))
    [text] = replies(free.simulator.at_random(), free.task.generation_prompt(free.problems[0]), 1)  # type: ignore[attr-defined]
    assert free.task.parse(free.problems[0], text).answer


@pytest.mark.sample(1)
@pytest.mark.parametrize("engine", ["vllm", "server", "auto", "simulated"])
def test_every_engine_leaves_it_to_the_simulated_one(engine: str) -> None:
    config = check(composed("model=random", f"engine={engine}"))
    assert isinstance(config.engine, SimulatedConfig)
    # a real judge keeps the engine that was asked for, and a random judge of a real model does not get it
    judged = check(composed("model=random", f"engine={engine}", "judge=smollm2_135m"))
    assert judged.others["judge"].engine.name == check(composed(f"engine={engine}")).engine.name
    tossed = check(composed(f"engine={engine}", "judge=random"))
    assert isinstance(tossed.others["judge"].engine, SimulatedConfig)
    assert tossed.engine == check(composed(f"engine={engine}")).engine


def test_another_problems_answer_is_one_that_the_task_reads() -> None:
    """Of eight sums, two have the last digit 5, and each reads only answers with its own last digit."""
    loaded = load_rows(OwnSums(), [*sums(8), (Problem(id="far", stratum="all", data={"question": "20 + 5"}), "25")])
    task: Any = loaded.task
    said = replies(loaded.simulator.at_random(), task.generation_prompt(loaded.problems[0]), 200)
    assert {task.parse(loaded.problems[0], text).answer for text in said} == {"25"}
