"""References that only the grader has, apart from an answer to show: graded, simulated, reflected on and remembered."""

import json
from dataclasses import dataclass
from pathlib import Path
from typing import Any, ClassVar

import msgspec
import numpy as np
import pytest

from building import NoTools, make_method, make_run_config
from evorun.errors import ConfigError
from evorun.models.base import Request
from evorun.models.config import EngineConfig
from evorun.runner.experiment import run_experiment
from evorun.runner.training_runs import training_problems
from evorun.runs.budget import BudgetConfig
from evorun.runs.candidates import Response
from evorun.runs.replay import ReplayConfig
from evorun.runs.scores import Score
from evorun.runs.terminal import Terminal
from evorun.simulation.skill import Skill
from evorun.tasks.base import Grade, GradingTools, LoadedTask, Problem, Row, TaskConfig
from evorun.tasks.loading import load_rows
from saying_engine import SayingConfig
from text_tasks import Sums

SECRET = "a secret record"


class Multiples(Sums):
    """Any multiple of a divisor that the problem does not name is right, so there is no one answer to show."""

    name = "multiples"

    def score(self, problem: Problem, response: Response, reference: Any) -> Grade:
        return Grade(correct=response.answer is not None and int(response.answer) % reference["divisor"] == 0)


class Near(Multiples):
    """The nearer to the target, the better; nobody knows the best of all answers."""

    scores = (Score("closeness", 0, 1),)

    def random_answer(self, problem: Problem, rng: np.random.Generator) -> str:
        return str(rng.integers(0, 101))

    def score(self, problem: Problem, response: Response, reference: Any) -> Grade:
        far = 100 if response.answer is None else abs(int(response.answer) - reference["target"])
        return Grade(scores={"closeness": max(0.0, 1 - far / 100)})


def rows(count: int, **reference: Any) -> list[Row]:
    data = {"question": "Name a multiple."}
    known = {**reference, "note": SECRET}
    return [Row(Problem(id=f"m{n}", stratum="all", data={**data, "n": n}), reference=known) for n in range(count)]


class Slow:
    """Grades as the task does, slowly: once for each answer to a problem; counts how often it works."""

    worked: ClassVar[list[object]] = []

    def __init__(self, task: Multiples) -> None:
        self._task = task

    async def grade(self, problem: Problem, response: Response, tools: GradingTools) -> Grade:
        about = ["slow", problem.id, response.answer]

        async def work() -> Grade:
            Slow.worked.append(about)
            return self._task.score(problem, response, {"divisor": 7})

        return await tools.remember(about, work, Grade)


@dataclass
class MultiplesConfig(TaskConfig):
    task_class = Multiples
    name: str = "multiples"
    slow: bool = False

    def load(self) -> LoadedTask:
        task = Multiples()
        known = rows(14, divisor=2)
        return load_rows(task, known[:2], validation=known[2:], grader=Slow(task) if self.slow else None)


@dataclass
class CountingConfig(SayingConfig):
    """Says a number below ten, by the request's seed."""

    def say(self, request: Request) -> str:
        return f"#### {request.seed % 10}"


async def test_the_reference_grades_and_nobody_else_sees_it() -> None:
    loaded = MultiplesConfig().load()
    problem = loaded.problems[0]
    said = {answer: Response(text="", answer=answer) for answer in ("14", "15", None)}
    tools: Any = NoTools()
    grades = {answer: await loaded.grade(problem, response, tools) for answer, response in said.items()}
    assert {answer: grade.correct for answer, grade in grades.items()} == {"14": True, "15": False, None: False}
    seen = msgspec.json.encode([loaded.problems, loaded.validation, loaded.answers, loaded.solutions]).decode()
    assert SECRET not in seen
    assert loaded.answers == {}
    assert {shot.answer for shot in loaded.validation} == {""}
    # The problems of a run are the same only if their references are.
    assert load_rows(Multiples(), rows(2, divisor=8)).provenance.digest != loaded.provenance.digest


def test_a_simulated_model_without_an_answer_to_give_is_refused_in_a_line() -> None:
    with pytest.raises(ConfigError, match="task=multiples: engine=simulated has no right answer to give to 14 of 14"):
        MultiplesConfig().load().simulator.with_skill(Skill())


@pytest.mark.parametrize("skill", [0.0, 0.5, 1.0])
def test_where_a_task_scores_by_degrees_a_simulated_model_is_as_good_as_its_skill(skill: float) -> None:
    task = Near()
    loaded = load_rows(task, rows(1, target=100))
    prompt = task.generation_prompt(loaded.problems[0])
    simulator, rng = loaded.simulator.with_skill(Skill(skill=skill, malformed=0, spread=0)), np.random.default_rng(0)
    request = Request(messages=prompt.messages, hints=prompt.hints)
    said = [task.parse(loaded.problems[0], simulator.respond(request, rng)) for _ in range(400)]
    closeness = [task.score(loaded.problems[0], response, {"target": 100}).scores["closeness"] for response in said]
    assert np.mean(closeness) == pytest.approx(skill, abs=0.05)


def run(folder: Path, engine: EngineConfig, method: Any, **task: Any) -> str:
    folder.mkdir(exist_ok=True)
    config = make_run_config(method, MultiplesConfig(**task), engine, engine, budget=BudgetConfig(calls=60))
    return run_experiment(config, folder, ["evorun"], Terminal()).status


def test_slow_grading_is_done_once_also_in_a_resumed_run_and_never_in_a_replay(tmp_path: Path) -> None:
    def drawn() -> Any:
        return make_method("best_of_n", samples=8, rounds=0, retries=0)

    Slow.worked.clear()
    engine = CountingConfig()
    assert run(tmp_path / "undisturbed", engine, drawn(), slow=True) == "completed"
    once = list(Slow.worked)
    assert len(once) == len({json.dumps(about) for about in once}) < len(engine.asked)
    Slow.worked.clear()
    assert run(tmp_path / "resumed", CountingConfig(breaks_after=10), drawn(), slow=True) == "failed"
    assert run(tmp_path / "resumed", CountingConfig(), drawn(), slow=True) == "completed"
    assert sorted(map(json.dumps, Slow.worked)) == sorted(map(json.dumps, once))
    Slow.worked.clear()
    replay = ReplayConfig(name="replay", run=str(tmp_path / "undisturbed"))
    assert run(tmp_path / "replayed", replay, drawn(), slow=True) == "completed"
    assert Slow.worked == []
    for name in ("candidates.jsonl", "predictions.jsonl", "results.json"):
        records = {(tmp_path / kind / name).read_bytes() for kind in ("undisturbed", "resumed", "replayed")}
        assert len(records) == 1, name


def test_reflections_have_the_graders_verdict(tmp_path: Path) -> None:
    """Compared with the reference as texts, every answer would be wrong."""
    engine = CountingConfig()
    assert run(tmp_path / "run", engine, make_method("gepa", generations=2, minibatch=4)) == "completed"
    shown = "\n".join(message["content"] for request in engine.asked for message in request.messages)
    assert "Its grade: right" in shown
    assert "Its grade: wrong" in shown
    assert SECRET not in shown


def test_what_shows_right_answers_is_refused_where_there_are_none() -> None:
    method = make_method("ppo", rubric="initial", scoring="plan", plan_reference=True, steps=1)
    task = MultiplesConfig()
    config = make_run_config(method, task, CountingConfig(), CountingConfig())
    with pytest.raises(ConfigError, match=r"method\.plan_reference: expected right answers"):
        training_problems(config, task.load())
