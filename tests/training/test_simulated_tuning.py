"""The fine-tuning of a simulated model: it imitates what it is shown, good or bad, and as much after a kill."""

import json
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from building import composed, make_config
from evorun.errors import ConfigError, DataError, EngineError
from evorun.models.base import Message, Request
from evorun.models.config import ModelConfig
from evorun.runner.experiment import run_experiment
from evorun.runner.settings import check
from evorun.runs.journal import Journal
from evorun.runs.terminal import Terminal
from evorun.simulation.simulator import SKILLS
from evorun.simulation.skill import Skill
from evorun.testing.runs import COMPLETED, Run, carry_out
from evorun.training.simulated_tuning import SimulatedTuning, find_nearest_skill
from evorun.training.wire import FineTuning
from killed_runs import check_killed_run
from warm_process import no_figures


class Teacher:
    """Grades a response by its text, a number; one from scratch has the grade (1 + skill) / 2 on average."""

    respond: Any = None
    with_skill = at_random = lambda self, *_: self

    def can_grade(self, problem: str) -> bool:
        return problem.startswith("p")

    def grade_response(self, problem: str, text: str) -> float:
        return float(text)

    def grades_by_skill(self, problem: str) -> Sequence[float]:
        return [(1 + skill) / 2 for skill in SKILLS]


def tuning(
    folder: Path, answers: Sequence[tuple[str | None, str]], *, spread: float = 0.0, **engine: Any
) -> SimulatedTuning:
    """Return a model, skilled 0.35, that is tuned on answers to problems, in batches of 2."""
    folder.mkdir(exist_ok=True)
    lines = [
        {
            "line": number,
            "messages": [{"role": "user", "content": "?"}, {"role": "assistant", "content": text}],
            **({} if problem is None else {"problem": problem, "task": "t"}),
        }
        for number, (problem, text) in enumerate(answers, start=1)
    ]
    (folder / "train.jsonl").write_text("".join(json.dumps(line) + "\n" for line in lines))
    config = make_config("engine", "simulated", skill=0.35, spread=spread, **engine)
    base = config.open_for(ModelConfig(name="m", id="m"), Teacher())
    data = str(folder / "train.jsonl")
    objective = FineTuning(train=data, held_out=None, source=data, epochs=1.0, batch=2, max_length=9)
    journal = Journal(folder / "journal.sqlite")
    return SimulatedTuning("m", base, config, folder, journal, objective=objective, seed=0, task="t", grader=Teacher())


FAST = {"training_speed": 0.5, "gradient_noise": 6}
"""A full batch of 2 covers 0.5 * 2 / 8 of the distance."""


async def gains(model: SimulatedTuning, steps: int) -> list[float]:
    return [(await model.train_step(step))["skill_gain"] for step in range(1, steps + 1)]


async def test_a_step_covers_a_share_of_the_distance_to_the_skill_that_all_conversations_show(tmp_path: Path) -> None:
    good = tuning(
        tmp_path / "good", [("p1", "0.95"), ("p2", "0.9"), ("p3", "0.95"), ("p4", "0.9"), ("p5", "0.925")], **FAST
    )
    assert (await good.evaluate())["data_skill"] == pytest.approx(2 * 0.925 - 1)
    # the last batch has one: 0.5 * 1 / 7
    expected = [0.5 / 8, 0.5 / 8 + 0.5 * 7 / 64, 0.5 - 0.5 * 49 / 64 * 13 / 14]
    assert await gains(good, 3) == pytest.approx(expected)
    exported = json.loads(((await good.export()) / "simulated_policy.json").read_bytes())
    assert exported == {"simulated": True, "model": "m", "updates": 3, "learned": pytest.approx(expected[-1])}


async def test_bad_data_make_it_worse_equal_data_leave_it_and_a_speed_of_0_changes_nothing(tmp_path: Path) -> None:
    bad = [("p1", "0.55"), ("p2", "0.55"), ("p3", "0.55"), ("p4", "0.55")]
    expected = [-0.25 / 8, -0.25 / 8 - 0.25 * 7 / 64]
    assert await gains(tuning(tmp_path / "bad", bad, **FAST), 2) == pytest.approx(expected)
    equal = [("p1", "0.675"), ("p2", "0.675"), ("p3", "0.675"), ("p4", "0.675")]
    assert await gains(tuning(tmp_path / "equal", equal, **FAST), 2) == pytest.approx([0.0, 0.0])
    assert await gains(tuning(tmp_path / "off", bad, training_speed=0.0), 2) == [0.0, 0.0]


async def test_problems_of_a_given_difficulty_move_with_the_skill(tmp_path: Path) -> None:
    hard = tuning(tmp_path / "hard", [("p1", "0.575"), ("p2", "0.575")], skills={"p1": 0.1, "p2": 0.1}, **FAST)
    assert (await hard.evaluate())["data_skill"] == pytest.approx(0.4)  # where 0.1 has become 0.15
    assert await gains(hard, 1) == pytest.approx([0.05 / 8])
    learned = tuning(tmp_path / "learned", [("p1", "0.725"), ("p2", "0.725")], learned=0.1, **FAST)
    assert await gains(learned, 1) == pytest.approx([0.0])


ANSWERS = 1500
"""Their mean grade shows a skill to within 0.04: three standard errors."""


@pytest.mark.sample(3)
@pytest.mark.parametrize("skill", [0.2, 0.35, 0.6, 0.8])
@pytest.mark.parametrize("place", [2, 27, 52], ids=["hard", "average", "easy"])
async def test_a_student_ends_at_its_teachers_skill_however_hard_the_problems_are(
    tmp_path: Path, place: int, skill: float
) -> None:
    teacher, rng = Skill(skill=skill, spread=0.1), np.random.default_rng(0)
    by_difficulty = sorted((f"p{number}" for number in range(60)), key=lambda name: teacher.own_chance(name, 0.35))
    problems = by_difficulty[place : place + 6]
    # A right answer has the grade 1, a wrong one 0.5.
    answers: list[tuple[str | None, str]] = [
        (problem, "1" if rng.random() < teacher.own_chance(problem) else "0.5")
        for problem in problems
        for _ in range(ANSWERS // len(problems))
    ]
    student = tuning(tmp_path / "student", answers, spread=0.1, training_speed=1.0, gradient_noise=0.0)
    assert (await student.evaluate())["data_skill"] == pytest.approx(skill, abs=0.04)
    assert 0.35 + (await gains(student, 1))[0] == pytest.approx(skill, abs=0.04)  # one step goes the whole way


@pytest.mark.parametrize(("own", "shown"), [(0.2, 0.4), (0.6, 0.6), (1.0, 0.8)])
def test_of_several_skills_with_that_grade_the_nearest_to_its_own_is_shown(own: float, shown: float) -> None:
    skills = np.linspace(0, 1, 6)
    assert find_nearest_skill(0.9, skills, np.array([0.1, 0.3, 0.9, 0.9, 0.9, 1.0]), own) == pytest.approx(shown)


def test_a_mean_that_falls_at_a_higher_skill_takes_no_student_beyond_its_teacher() -> None:
    skills, grades = np.linspace(0, 1, 6), np.array([0.0, 0.3, 0.6, 0.5, 0.8, 1.0])
    assert find_nearest_skill(0.5, skills, grades, 0.2) < 0.4
    assert find_nearest_skill(0.7, skills, grades, 0.2) == pytest.approx(0.7)


async def test_what_nobody_can_grade_shows_the_skill_that_is_set(tmp_path: Path) -> None:
    mixed = [("p1", "0.75"), (None, "what"), ("other", "ever")]
    data = tuning(tmp_path / "mixed", mixed, data_skill=0.2)
    assert (await data.evaluate())["data_skill"] == pytest.approx((0.5 + 0.2 + 0.2) / 3)


@pytest.mark.nightly
@pytest.mark.parametrize("task", [pytest.param("sudoku", marks=pytest.mark.nightly), "graph_coloring", "tsp"])
def test_answers_from_scratch_show_their_skill(task: str) -> None:
    loaded = check(composed(f"task={task}", "method=zero_shot", "engine=simulated", "task.instances=12")).task.load()
    simulator: Any = loaded.simulator
    for skill in (0.1, 0.35, 0.8):
        model = simulator.with_skill(Skill(skill=skill, malformed=0.0, mean_tokens=5))
        rng, grades = np.random.default_rng(0), []
        for problem in loaded.problems:
            prompt = loaded.task.generation_prompt(problem)  # type: ignore[attr-defined]
            request = Request(messages=prompt.messages, hints=prompt.hints)
            grades += [simulator.grade_response(problem.id, model.respond(request, rng)) for _ in range(8)]
        by_skill = np.mean([simulator.grades_by_skill(problem.id) for problem in loaded.problems], axis=0)
        assert np.interp(np.mean(grades), by_skill, SKILLS) == pytest.approx(skill, abs=0.08)
    first = loaded.problems[0]
    solution = simulator.reply(first, loaded.answers[first.id], "")
    assert simulator.grade_response(first.id, solution) == 1
    assert simulator.grade_response(first.id, "It cannot be done.") == 0


SMALL = (
    *("method=sft", "engine=simulated", "task=arithmetic", "task.test_problems=3", "method.held_out=0.2"),
    *("method.epochs=1", "method.batch=4", "method.eval_every=2", "method.eval_samples=1", "evorun.progress=off"),
)


def write_data(file: Path, answer: str | None = None) -> Path:
    """Write a conversation with the right answer, or this one, about each of 20 training problems."""
    training = check(composed(*SMALL, "method.data=x")).task.load_training()
    lines = []
    for problem in training.problems[:20]:
        text = training.task.write(problem, answer or training.answers[problem.id])  # type: ignore[attr-defined]
        chat = [Message(role="user", content="?"), Message(role="assistant", content=text)]
        lines.append(json.dumps({"messages": chat, "problem": problem.id, "task": "arithmetic"}) + "\n")
    file.write_text("".join(lines))
    return file


def train(folder: Path, data: Path, *overrides: str, **stop: int) -> Run:
    return carry_out(check(composed(*SMALL, f"method.data={data}", *overrides)), folder, **stop)


def learned(run: Path) -> float:
    return float(json.loads((run / "artifacts" / "adapter" / "simulated_policy.json").read_bytes())["learned"])


@pytest.mark.nightly
def test_a_run_learns_from_a_file_and_leaves_the_same_after_a_stop_and_in_a_replay(tmp_path: Path) -> None:
    data = write_data(tmp_path / "data.jsonl")
    whole = train(tmp_path / "whole", data)
    assert whole.outcome == COMPLETED
    assert whole.json("manifest.json")["simulated"] is True
    figures = [record["figures"] for record in whole.records("training")]
    counts = {"steps": 4, "conversations": 16, "held_out": 4, "cut": 0, "dropped": 0}
    assert figures[0] == {**counts, "data_skill": pytest.approx(1)}
    assert {record["step"] for record in whole.records("steps")} == {0, 2, 4}
    assert learned(whole.path) > 0
    stopped = train(tmp_path / "stopped", data, breaks_after=6)
    assert stopped.outcome.status == "failed"
    assert stopped.records("training") != whole.records("training")
    again = train(tmp_path / "stopped", data)
    assert again.outcome == COMPLETED
    assert again.files() == whole.files()
    replayed = train(tmp_path / "replayed", data, "engine=replay", f"engine.run={whole.path}")
    assert replayed.outcome == COMPLETED
    assert replayed.files() == whole.files()


@pytest.mark.nightly
def test_a_killed_run_leaves_what_an_undisturbed_one_leaves(tmp_path: Path) -> None:
    data = write_data(tmp_path / "data.jsonl", "no idea")
    check_killed_run([*SMALL, f"method.data={data}", "engine.seconds_per_update=0.3"], tmp_path, "|update|2")
    assert learned(tmp_path / "killed") == learned(tmp_path / "whole") < 0


def test_conversations_that_it_cannot_grade_are_one_line(tmp_path: Path) -> None:
    data = tmp_path / "mine.jsonl"
    chat = [{"role": "user", "content": "?"}, {"role": "assistant", "content": "!"}]
    data.write_text((json.dumps({"messages": chat, "problem": "mine"}) + "\n") * 2)
    with pytest.raises(
        DataError, match=r"mine.jsonl, line 1: engine=simulated learns from .*engine.data_skill"
    ) as error:
        train(tmp_path / "run", data, "method.held_out=0")
    assert "\n" not in str(error.value)
    assert not (tmp_path / "run").exists()
    assert train(tmp_path / "run", data, "method.held_out=0", "engine.data_skill=0.1").outcome == COMPLETED
    assert learned(tmp_path / "run") < 0


LAFT = (
    *("experiment=laft/sudoku", "engine=simulated", "student=laft", "task.instances=20", "task.training_instances=3"),
    *("budget=lyria_5x5", "student.teaching.population=4", "student.teaching.generations=3", "evorun.progress=off"),
    *("student.tuning.batch=2", "engine.training_speed=0.5", "engine.gradient_noise=0"),
)


@pytest.mark.nightly  # test_stages.py makes students of stages, the tests above tune one
@pytest.mark.parametrize(("teacher", "better"), [("0.9", True), ("0.02", False)])
def test_a_student_becomes_better_or_worse_with_its_teacher(tmp_path: Path, teacher: str, better: bool) -> None:
    words = (*LAFT, "teacher_engine=simulated", f"teacher_engine.skill={teacher}", f"run.stages={tmp_path}/stages")
    config = check(composed("method=zero_shot", *words))
    with no_figures():
        outcome = run_experiment(config, tmp_path / "run", ["evorun"], Terminal(quiet=True))
    assert outcome == COMPLETED
    run = Run(tmp_path / "run", outcome, [])
    manifest = run.json("manifest.json")
    assert manifest["simulated"] is manifest["stages"]["teacher"]["simulated"] is True
    gain = learned(Path(manifest["stages"]["student"]["folder"]))
    assert (gain > 0.2) if better else (gain < -0.2)
    # The run is made with the skill that the file holds.
    alone = carry_out(
        check(composed(*LAFT[:2], "student=none", "method=zero_shot", "task.instances=20", f"engine.learned={gain}")),
        tmp_path / "alone",
    )
    answers = [[record["answer"] for record in one.records("predictions")] for one in (run, alone)]
    assert answers[0] == answers[1]


def test_a_teacher_without_an_engine_of_its_own_is_as_skilled_as_its_student() -> None:
    from evorun.runner.student import teacher_composition

    composition = teacher_composition(composed(*LAFT, "method=zero_shot", "engine.skill=0.6"))
    assert (composition["engine"]["name"], composition["engine"]["skill"]) == ("simulated", 0.6)


def test_an_adapter_that_cannot_be_is_one_line(tmp_path: Path) -> None:
    (tmp_path / "simulated_policy.json").write_text("{}")
    model = ModelConfig(name="m", id="m", adapter=str(tmp_path))
    with pytest.raises(EngineError, match=r"simulated_policy.json cannot be read: 'learned'; train it again$"):
        make_config("engine", "simulated").open_for(model, Teacher())
    with pytest.raises(ConfigError, match=r"^model.adapter: expected null where a simulated model is trained"):
        check(composed("method=sft", "engine=simulated", "method.data=x", f"model.adapter={tmp_path}"))
