"""Prompts tell models no more than the papers' printed ones do: docs/prompts.md lists what differs."""

import re
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

import evorun
from building import load_task
from evorun.runs.candidates import Response
from evorun.tasks.capabilities import ScoredResponse

TASKS = {
    "mathbench": {"source": "sample"},
    "livecodebench": {"source": "sample"},
    "sudoku": {"instances": 1, "validation_instances": 1},
    "graph_coloring": {"instances": 1, "validation_instances": 1},
    "tsp": {"instances": 1, "validation_instances": 1},
    "aime": {"source": "sample"},
    "essay": {"source": "sample"},
    "ethics": {"source": "sample"},
    "billsum": {"source": "sample"},
}


def asked(name: str) -> Iterator[tuple[str, str]]:
    """Yield the role and the text of each prompt of a task."""
    loaded = load_task(name, **TASKS[name])
    task: Any = loaded.task
    problem, answer = loaded.problems[0], loaded.validation[0].answer
    response = Response(text="text", answer=answer, reasoning="reasoning")
    for prompt in (
        task.generation_prompt(problem),
        task.evolution_prompt(problem, [ScoredResponse(response=response, score=0.5)]),
        task.judge_prompt(problem, response, response),
        task.errors_prompt(problem, response),
        task.fitness_prompt(problem, response),
    ):
        yield prompt.hints["role"], prompt.messages[-1]["content"]


@pytest.mark.parametrize("name", TASKS)
def test_no_judge_is_warned_of_the_bias_that_the_methods_are_to_cope_with(name: str) -> None:
    judge = dict(asked(name))["judge"]
    assert not re.search(r"order (in which|of the)|position|no meaning|length|shorter", judge.split("# Limits")[-1])


def test_parents_scores_are_shown_without_a_word_on_what_they_mean() -> None:
    evolve = dict(asked("mathbench"))["evolve"]
    assert "Score: 0.500" in evolve
    assert not re.search(r"higher|quality|estimate|short(er)? ", evolve.split("Reply with")[0])


def test_puzzles_promise_nothing_for_what_falls_short() -> None:
    for name in ("sudoku", "graph_coloring", "tsp"):
        generate = dict(asked(name))["generate"]
        assert not re.search(r"as few|impossible|the better|stay as they are", generate)
        assert "repeated" not in dict(asked(name))["errors"]


def test_every_prompt_file_of_a_papers_task_is_compared_with_the_papers() -> None:
    listed = (Path(evorun.__file__).parent.parent / "docs" / "prompts.md").read_text()
    tasks = ("mathbench", "livecodebench", "puzzles", "sudoku", "graph_coloring", "tsp")
    in_prose = ("prose", "essay", "ethics", "billsum")
    for room in (*(f"tasks/{family}" for family in (*tasks, *in_prose)), "methods/espl", "methods/mpo"):
        files = list((Path(evorun.__file__).parent / room / "prompts").glob("*.md"))
        assert files
        for file in files:
            assert f"`{file.stem}`" in listed, f"{room}: {file.stem}"
