"""Families of Reasoning Gym as a task: problems without leaks, and verdicts of their own verifiers, in the sandbox."""

import ast
import asyncio
import json
import random
import re
import time
from pathlib import Path
from typing import Any

import pytest

from evorun.cli.compose import default_config
from evorun.errors import ConfigError
from evorun.runs.candidates import Response
from evorun.runs.journal_reader import read_journal
from evorun.sandbox.config import SandboxConfig
from evorun.tasks.base import Grade, LoadedTask, TaskConfig
from evorun.testing import check_task
from evorun.testing.task_cases import SimulatedTools
from evorun_process import evorun_here, records, start
from journals import wait_for_effects

reasoning_gym = pytest.importorskip("reasoning_gym.factory")  # this folder has the package's name
pytestmark = pytest.mark.bridges
SIZES = {"test_problems": 5, "train_problems": 6, "validation_problems": 4}
RUN = (
    *("method=best_of_n", "method.samples=3", "method.rounds=2", "task=reasoning_gym", "sandbox.slots=1"),
    *(f"task.{name}={size}" for name, size in SIZES.items()),
    *("engine=simulated", "engine.skill=0.6"),
    "run.concurrency=1",  # one problem is graded before the next is asked
)


def make_config(family: str, **settings: Any) -> TaskConfig:
    config: TaskConfig = default_config("task", "reasoning_gym", dataset=family, **{**SIZES, **settings})
    return config


def grade(config: TaskConfig, loaded: LoadedTask, answers: list[str]) -> list[Grade]:
    """Grade answers to the first problem, as a run does."""

    async def grade_all() -> list[Grade]:
        tools = SimulatedTools(loaded.simulator, config.add_to_sandbox(SandboxConfig(slots=1)))
        try:
            responses = [Response(text=answer, answer=answer) for answer in answers]
            return [await loaded.grade(loaded.problems[0], response, tools) for response in responses]
        finally:
            await tools.close()

    return asyncio.run(grade_all())


# Answers that a verifier evaluates: by SymPy, as a list, not at all.
@pytest.mark.parametrize("family", ["countdown", "n_queens", "list_functions"])
@pytest.mark.sample(1)
def test_a_family_is_a_task_like_any_other(family: str) -> None:
    check_task(make_config(family), problems=2)


def test_the_grade_is_that_of_the_familys_own_verifier() -> None:
    config = make_config("simple_integration")
    loaded = config.load()
    gold = loaded.answers[loaded.problems[0].id]
    # Equal in value: the constant has another name, the terms another order. An oracle without any process of ours:
    dataset = reasoning_gym.create_dataset("simple_integration", seed=0, size=1)
    entry = ast.literal_eval(loaded.grader._records[loaded.problems[0].id])  # type: ignore[attr-defined]
    answers = [gold, f"({gold}) * 2 / 2 + 3", f"{gold} + x**7", "no formula", "exp(" * 30]
    grades = grade(config, loaded, answers)
    expected = [float(dataset.score_answer(answer, entry)) for answer in answers]
    assert [found.scores["verifier_score"] for found in grades] == expected == [1.0, 1.0, 0.0, 0.0, 0.0]
    assert [found.correct for found in grades] == [True, True, False, False, False]


def test_no_answer_is_evaluated_that_could_set_its_score(tmp_path: Path) -> None:
    config = make_config("countdown")
    loaded = config.load()
    found = tmp_path / "found"
    attack = f"__import__('os').system('touch {found}')"
    (verdict,) = grade(config, loaded, [attack])
    assert (verdict.correct, verdict.scores) == (False, {"verifier_score": 0.0})
    assert verdict.detail.startswith("refused: ")
    assert not found.exists()


def test_a_verifier_that_fails_on_a_text_makes_it_wrong() -> None:
    config = make_config("prime_factorization")
    (verdict,) = grade(config, config.load(), ["two times three"])
    assert (verdict.correct, verdict.detail) == (False, "verifier_failed: ValueError")


@pytest.mark.parametrize("family", ["coin_flip", "list_functions"])  # few questions, and no seed of its own
def test_the_splits_share_no_question_and_come_back_the_same(family: str) -> None:
    config = make_config(family, test_problems=30, train_problems=30)
    random.random()  # global generators do not matter
    loaded, again, training = config.load(), config.load(), config.load_training()
    parts = [loaded.problems, [shown.problem for shown in loaded.validation], training.problems]
    questions = [problem.data["question"] for part in parts for problem in part]
    assert len(set(questions)) == len(questions) == 64
    assert loaded.problems == again.problems


def test_neighbouring_seeds_share_no_problems() -> None:
    first, second = (
        {problem.data["question"] for problem in make_config("countdown", draw_seed=seed).load().problems}
        for seed in (0, 1)
    )
    assert first.isdisjoint(second)


def test_a_level_makes_problems_harder_and_arguments_precede_it() -> None:
    def count(**settings: Any) -> list[int]:
        problems = make_config("leg_counting", **settings).load().problems
        return [len(re.findall(r"\d+ [a-z]", problem.data["question"])) for problem in problems]

    assert sum(count(level=0)) < sum(count(level=4))
    assert max(count(level=4, arguments={"min_animals": 1, "max_animals": 1})) < max(count(level=4))


@pytest.fixture(scope="module", name="finished")
def _finished(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("finished")
    done = evorun_here(*RUN, "hydra.run.dir=run", cwd=folder)
    assert done.returncode == 0, done.stderr
    return folder / "run"


def test_a_run_is_graded_by_the_verifier_and_replays_to_the_byte(finished: Path) -> None:
    metrics = json.loads((finished / "results.json").read_text())["metrics"]
    assert metrics["accuracy"]["value"] > 0
    # The verifier of countdown gives a hundredth to what does not reach the target.
    assert metrics["accuracy"]["value"] < metrics["verifier_score"]["value"] < 1
    replayed = evorun_here("replay", finished, cwd=finished.parent)
    assert "the records are the same to the byte" in replayed.stdout, replayed.stdout + replayed.stderr


def test_a_run_killed_after_a_grade_resumes_to_the_same_bytes(finished: Path, tmp_path: Path) -> None:
    run = tmp_path / "run"
    process = start(*RUN, f"hydra.run.dir={run}", cwd=tmp_path)
    try:
        wait_for_effects(run, 1, process)
        while not any(effect.key.startswith("sandbox|") for effect in read_journal(run / "journal.sqlite")):
            assert process.poll() is None
            time.sleep(0.05)
    finally:
        process.kill()
        process.wait()
    before, whole = (list(read_journal(folder / "journal.sqlite")) for folder in (run, finished))
    resumed = evorun_here("resume", run, cwd=tmp_path)
    assert resumed.returncode == 0, resumed.stderr
    after = list(read_journal(run / "journal.sqlite"))
    assert after[: len(before)] == before
    assert len(after) == len(whole)
    assert records(run) == records(finished)


@pytest.mark.parametrize(
    ("settings", "message"),
    [
        ({"family": "countdwn"}, "task.dataset: expected a family of Reasoning Gym, got 'countdwn'"),
        ({"family": "composite"}, "task.dataset: composite cannot be a task, since it mixes other families"),
        ({"family": "game_of_life_halting"}, "its verifier takes any text for right"),
        ({"arguments": {"numbers": 3}}, "task.arguments.numbers: countdown has min_numbers, max_numbers"),
        (
            {"arguments": {"min_numbers": 0}},
            "task.arguments: countdown refuses {'min_numbers': 0}: min_numbers must be",
        ),
        ({"level": 99}, "task.level: expected 0 to "),
        ({"family": "acre", "level": 1}, "task.level: acre has no levels"),
        (
            {"family": "coin_flip", "arguments": {"min_trials": 3, "max_trials": 3}, "test_problems": 5000},
            "expected 5000",
        ),
    ],
)
def test_a_wrong_setting_is_refused_in_a_line(settings: dict[str, Any], message: str) -> None:
    with pytest.raises(ConfigError, match=re.escape(message)):
        make_config(**{"family": "countdown", **settings}).load()
