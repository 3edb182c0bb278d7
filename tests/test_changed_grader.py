"""A grader's code changes after the runs: their recorded texts are graded by the new one, without a call."""

import json
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

import building
from evorun.runner import registry
from evorun_process import evorun_here

CODE = """
from dataclasses import dataclass

from evorun.runs.scores import Score
from evorun.tasks.base import Grade, LoadedTask, Problem, TaskConfig
from evorun.tasks.loading import load_rows
from evorun.tasks.text_task import TextTask

WEIGHT = 1.0


class Letters(TextTask):
    name = "letters"
    scores = (Score("letters", 0, 1),)
    answer_format = "End with a line that has the word alone."

    def question(self, problem):
        return f"Write this word backwards: {problem.data['word']}"

    def read(self, problem, text):
        return text.strip().splitlines()[-1]

    def write(self, problem, answer, reasoning=""):
        return f"{reasoning}\\n{answer}".strip()

    def score(self, problem, response, reference):
        same = sum(a == b for a, b in zip(response.answer or "", reference))
        return Grade(scores={"letters": WEIGHT * same / 4})


@dataclass
class LettersConfig(TaskConfig):
    task_class = Letters
    name: str = "letters"

    def load(self) -> LoadedTask:
        words = ["abcd", "efgh", "ijkl", "mnop", "qrst", "uvwx", "bcde", "fghi"]
        rows = [(Problem(id=word, stratum="all", data={"word": word}), word[::-1]) for word in words]
        return load_rows(Letters(), rows[:4], validation=rows[4:])
"""
METHODS = ("method=zero_shot,self_consistency", "method.samples=3")
RUN = ("task=letters", "engine=simulated", "engine.skill=0.5", "engine.improvement=0", "evorun.progress=off")
Edit = Callable[[str], None]


@pytest.fixture(autouse=True, scope="module")
def _site(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Path]:
    """Install the task."""
    site = tmp_path_factory.mktemp("site")
    info = site / "letters-1.0.dist-info"
    info.mkdir()
    (info / "METADATA").write_text("Metadata-Version: 2.1\nName: letters\nVersion: 1.0\n")
    (info / "entry_points.txt").write_text("[evorun.tasks]\nletters = letters_task:LettersConfig\n")
    (site / "letters_task.py").write_text(CODE)
    with pytest.MonkeyPatch.context() as patch:
        patch.syspath_prepend(site)
        _forget_plugins()
        yield site
    _forget_plugins()


@pytest.fixture(name="edit")
def _edit(_site: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Edit]:
    """Return what edits the grader's code, as another process would find it."""
    file = _site / "letters_task.py"

    def edit(weight: str) -> None:
        file.write_text(CODE.replace("WEIGHT = 1.0", f"WEIGHT = {weight}"))
        monkeypatch.setattr("letters_task.WEIGHT", float(weight))

    yield edit
    file.write_text(CODE)


def _forget_plugins() -> None:
    registry.plugins.cache_clear()
    building._register_once.cache_clear()


def run(*words: str, cwd: Path) -> str:
    done = evorun_here(*words, cwd=cwd)
    assert done.returncode == 0, done.stderr
    return done.stdout


def score(folder: Path) -> float:
    value: float = json.loads((folder / "results.json").read_text())["metrics"]["letters"]["value"]
    return value


def test_a_run_is_graded_by_each_version_of_the_code_in_a_folder_of_its_own(tmp_path: Path, edit: Edit) -> None:
    run("method=zero_shot", *RUN, "hydra.run.dir=run", cwd=tmp_path)
    assert "letters 1.0 (digest " in (said := run("rejudge", "run", cwd=tmp_path))
    assert ", as in the run\n" in said
    edit("0.5")
    said = run("rejudge", "run", cwd=tmp_path)
    assert ", changed since the run\n" in said
    edit("0.25")
    assert run("rejudge", "run", cwd=tmp_path).splitlines()[2] != said.splitlines()[2]  # the heading has the digest
    means = [
        json.loads((folder / "figures.json").read_text())[0]["now"]["value"] / score(tmp_path / "run")
        for folder in (tmp_path / "run" / "rejudge").iterdir()
    ]
    assert sorted(means) == pytest.approx([0.25, 0.5, 1])


def test_code_of_evorun_grades_again_and_a_model_does_not_unasked(tmp_path: Path) -> None:
    small = ("method=zero_shot", "task.source=sample", "task.limit=1", "engine=simulated", "evorun.progress=off")
    run("task=mathbench", *small, "hydra.run.dir=math", cwd=tmp_path)
    assert "grades again: code of evorun " in run("rejudge", "math", cwd=tmp_path)
    run("task=essay", *small, "hydra.run.dir=essay", cwd=tmp_path)
    done = evorun_here("rejudge", "essay", cwd=tmp_path)
    assert "name the model: gold=MODEL" in done.stderr
    assert not (tmp_path / "essay" / "rejudge").exists()


@pytest.mark.nightly
def test_a_sweep_is_replayed_by_the_new_code_and_one_bad_job_stops_no_other(tmp_path: Path, edit: Edit) -> None:
    run("-m", *METHODS, *RUN, "hydra.sweep.dir=sweep", cwd=tmp_path)
    edit("0.5")
    said = run("replay", "sweep", "output=again", cwd=tmp_path)
    assert "compare the replayed jobs: evorun report again" in said
    jobs = sorted(folder.parent for folder in (tmp_path / "sweep").glob("*/results.json"))
    assert len(jobs) == 2
    for job in jobs:
        assert score(tmp_path / "again" / job.name) == pytest.approx(score(job) / 2)
    assert "self_consistency" in run("report", "again", cwd=tmp_path)
    (jobs[0] / "journal.sqlite").unlink()
    done = evorun_here("replay", "sweep", "output=other", cwd=tmp_path)
    assert done.returncode == 1
    assert f"1 of 2 jobs failed: {jobs[0].name}" in done.stdout
    assert score(tmp_path / "other" / jobs[1].name) == score(tmp_path / "again" / jobs[1].name)
    (jobs[0] / "manifest.json").unlink()
    assert "1 job not done, left out" in run("replay", "sweep", "output=third", cwd=tmp_path)


def test_a_sweep_is_graded_again_into_one_table_of_its_arms(tmp_path: Path, edit: Edit) -> None:
    run("-m", *METHODS, "seed=0,1", *RUN, "hydra.sweep.dir=sweep", cwd=tmp_path)
    jobs = sorted(folder.parent for folder in (tmp_path / "sweep").glob("*/results.json"))
    before = {job.name.partition("_letters")[0]: [] for job in jobs}
    for job in jobs:
        before[job.name.partition("_letters")[0]].append(score(job))
    edit("0.5")
    said = run("rejudge", "sweep", cwd=tmp_path)
    assert said.count("changed since the run") == 1
    rows = {line.split()[0]: line.split() for line in said.splitlines() if line.startswith("  ")}
    for method, scores in before.items():
        mean = sum(scores) / 2
        assert rows[method][1:6] == ["2", "x", "4", f"{mean:.3f}", f"{mean / 2:.3f}"]
        assert rows[method][6].endswith(f"{mean / 2:.3f}")
    assert said.endswith("compare the methods by these grades: evorun replay sweep\n")


@pytest.mark.nightly
def test_a_job_that_cannot_be_graded_again_is_left_out(tmp_path: Path) -> None:
    run("-m", "method=zero_shot", "seed=0,1", *RUN, "hydra.sweep.dir=sweep", cwd=tmp_path)
    (job, _) = sorted(folder.parent for folder in (tmp_path / "sweep").glob("*/results.json"))
    done = evorun_here("rejudge", "sweep", "gold=oracle", cwd=tmp_path)
    assert "sweep: expected one run; of a sweep, code alone grades again" in done.stderr
    (job / "problems.jsonl").write_text("{}\n")
    done = evorun_here("rejudge", "sweep", cwd=tmp_path)
    assert done.returncode == 1
    assert "left out: " in done.stderr
    [row] = [line.split() for line in done.stdout.splitlines() if line.startswith("  zero_shot ")]
    assert row[1] == "4"  # of the other job alone


def test_a_resume_of_a_complete_run_says_that_the_code_has_changed(tmp_path: Path, edit: Edit) -> None:
    run("method=zero_shot", *RUN, "hydra.run.dir=run", cwd=tmp_path)
    assert "nothing to do\n" in run("resume", "run", cwd=tmp_path)
    edit("0.5")
    said = run("resume", "run", cwd=tmp_path)
    assert "nothing to do; the code of task=letters has changed since: " in said
    assert "evorun rejudge run; or repeat the run by it: evorun replay run\n" in said


@pytest.mark.nightly
def test_a_resume_of_a_complete_sweep_says_it_too(tmp_path: Path, edit: Edit) -> None:
    edit("0.5")
    again = evorun_here("method=zero_shot", "seed=0,1", "-m", *RUN, "hydra.sweep.dir=sweep", cwd=tmp_path)
    assert "has changed" not in again.stderr
    assert "has changed" not in run("resume", "sweep", cwd=tmp_path)
    edit("0.25")
    said = run("resume", "sweep", cwd=tmp_path)
    assert "the code of task=letters has changed since 2 of them: grade their texts by it: evorun rejudge sweep" in said
    again = evorun_here("method=zero_shot", "seed=0,1", "-m", *RUN, "hydra.sweep.dir=sweep", cwd=tmp_path)
    assert "the code of task=letters has changed since this run, which is complete" in again.stderr
