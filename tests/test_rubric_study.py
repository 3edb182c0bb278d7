"""`evorun rescore`: a run's test responses, scored by every rubric that it had."""

import asyncio
import json
import os
import shutil
import signal
from collections import defaultdict
from pathlib import Path
from statistics import fmean
from typing import Any

import pytest

from building import simulated_run
from evorun.cli.studies import study
from evorun.cli.verbs import run_verb
from evorun.errors import ConfigError, DataError, RunDirectoryError
from evorun.reports import html
from evorun.rollouts.calls import Calls
from evorun.runner import rubric_study
from evorun.runner.rubric_study import RubricStudy
from evorun.runs.checksums import changed_state
from evorun.runs.directory import load_manifest
from evorun.runs.journal_reader import read_journal
from evorun.runs.ownership import is_own
from evorun.runs.schema import RubricScore
from evorun.runs.studies import load_rescore
from evorun.runs.terminal import Terminal
from evorun.tasks.rubric_scores import read_scores
from evorun.tasks.rubrics import Rubric, read_rubric

RUN = (
    *("method=mpo", "task=arithmetic", "engine.mean_tokens=5", "task.test_problems=4", "method.steps=5"),
    *("method.problems_per_step=3", "method.group=1", "method.refine_every=2", "method.refine_samples=2"),
    *("method.eval_every=2", "method.eval_samples=0", "method.score_attempts=1"),
)


@pytest.fixture(scope="module")
def run(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return simulated_run(tmp_path_factory.mktemp("rescored") / "run", *RUN).path


def scores(run: Path, answers: int | None = None, **how: bool) -> list[RubricScore]:
    return RubricStudy(run, load_manifest(run).config, Terminal(quiet=True)).scores(answers, **how)


def replies(run: Path) -> dict[tuple[int, int], str]:
    """Return what the reward model said in all studies so far, by the rubric's number and the response's."""
    said = {}
    for journal in run.glob("rescore/*/journal.sqlite"):
        for effect in read_journal(journal):
            _, number, role, index, _ = effect.key.split("|")
            assert role == "rescore"
            reply: Any = json.loads(effect.result)
            said[int(number), int(index)] = reply["completions"][0]["text"]
    return said


def records(run: Path, name: str) -> list[dict[str, Any]]:
    return [json.loads(line) for line in (run / f"{name}.jsonl").read_text().splitlines()]


def test_each_mean_is_over_the_same_responses_as_a_share_of_the_rubrics_points(run: Path) -> None:
    found = scores(run)
    rubrics = [one for one in records(run, "candidates") if one["kind"] == "rubric"]
    assert [one["id"] for one in rubrics] == ["rubric#0", "rubric#1", "rubric#2"]
    assert [(one.rubric, one.refined, one.step) for one in found] == [
        ("rubric#0", 0, 5),
        ("rubric#1", 2, 5),
        ("rubric#2", 4, 5),
    ]
    answered = sum(one["step"] == 5 and one["best"] is not None for one in records(run, "steps"))
    by_rubric: dict[int, list[float]] = defaultdict(list)
    for (number, _), said in replies(run).items():
        text = rubrics[number]["text"]
        rubric = read_rubric(text) if number else Rubric(text, 5.0)
        by_rubric[number].append(read_scores(said, rubric).total / rubric.maximum)
    for number, one in enumerate(found):
        assert one.n + one.unscored == answered
        assert one.score == pytest.approx(fmean(by_rubric[number]))
        assert one.low is None or one.low <= one.score <= one.high
    assert json.loads((run / "artifacts" / "rubric_scores.json").read_text())[1]["rubric"] == "rubric#1"


def test_a_study_that_is_there_is_not_paid_for_again_and_a_sample_is_the_same_for_all_rubrics(run: Path) -> None:
    again = scores(run, 2, every=True)
    paid = {path: list(read_journal(path)) for path in run.glob("rescore/*/journal.sqlite")}
    assert scores(run, 2, every=True) == again
    # seconds and all
    assert {path: list(read_journal(path)) for path in run.glob("rescore/*/journal.sqlite")} == paid
    counts = {(one.rubric, one.step): one.n + one.unscored for one in again}
    assert {step for _, step in counts} == {0, 2, 4, 5}
    assert all(count <= 2 for count in counts.values())
    assert all(counts["rubric#0", step] == counts["rubric#2", step] for step in (0, 2, 4, 5))


def test_a_stopped_study_is_an_interrupt_and_goes_on_where_it_was(run: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    ask, asked = Calls.ask, []

    async def stop(self: Calls, *about: Any, **how: Any) -> Any:
        asked.append(how["index"])
        if len(asked) == 3:
            os.kill(os.getpid(), signal.SIGTERM)
            await asyncio.Event().wait()
        return await ask(self, *about, **how)

    before = set(run.glob("rescore/*"))
    monkeypatch.setattr(Calls, "ask", stop)
    with pytest.raises(KeyboardInterrupt, match="SIGTERM"):
        scores(run, 3)
    [folder] = set(run.glob("rescore/*")) - before
    paid = {effect.key for effect in read_journal(folder / "journal.sqlite")}
    monkeypatch.setattr(Calls, "ask", ask)
    assert sum(found.n + found.unscored for found in scores(run, 3)) == 3 * 3
    assert len(paid) == 2
    assert paid < {effect.key for effect in read_journal(folder / "journal.sqlite")}
    assert "stopped by SIGTERM" in (folder / "evorun.log").read_text()


def test_the_verb_prints_a_row_for_each_rubric(
    run: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    written: list[Path] = []
    monkeypatch.setattr(html, "write_report", written.append)  # which takes seconds
    assert study("rescore", [str(run), "answers=1"], Terminal()) == 0
    assert written == [run]
    said = capsys.readouterr().out
    assert all(f"rubric#{number}" in said for number in range(3))


def test_of_a_folder_each_run_with_rubrics_is_scored(
    run: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    for name in ("first", "second"):
        shutil.copytree(run, tmp_path / "sweep" / name)
    simulated_run(tmp_path / "sweep" / "other", "method=zero_shot", "task=arithmetic", "task.test_problems=1")
    assert study("rescore", ["sweep", "answers=2"], Terminal()) == 0
    said = capsys.readouterr().out
    for name in ("first", "second"):
        studies = map(load_rescore, (tmp_path / "sweep" / name).glob("rescore/*"))
        assert ["evorun", "rescore", f"sweep/{name}", "answers=2"] in [manifest.command for manifest in studies]
        assert f"share of points given: {name}" in said
    assert "of 2 responses each, in brackets a 95 % interval" in said.replace("\n", " ")
    assert "left out: sweep/other: expected a run that learned from a rubric" in said
    assert "evorun report sweep" in said
    with pytest.raises(ConfigError, match="learned from a rubric"):
        study("rescore", ["sweep/other"], Terminal())


@pytest.mark.parametrize("words", [["--window"], ["method.eval_samples=3"], ["answers=many"], ["answers=0"]])
def test_a_command_line_that_says_nothing_is_refused(run: Path, words: list[str]) -> None:
    with pytest.raises(ConfigError):
        study("rescore", [str(run), *words], Terminal())


def test_a_run_without_rubrics_is_refused(tmp_path: Path) -> None:
    other = simulated_run(tmp_path / "run", "method=zero_shot", "task=arithmetic", "task.test_problems=1").path
    with pytest.raises(ConfigError, match="learned from a rubric"):
        scores(other)


def test_a_first_rubric_that_has_changed_since_is_refused(tmp_path: Path) -> None:
    file = tmp_path / "mine.md"
    file.write_text("maximum: 4\nIs it right?")
    few = ("method.steps=1", "method.eval_every=1", "method.refine_every=9", f"method.rubric={file}")
    own = simulated_run(tmp_path / "run", *RUN, *few).path
    assert [one.rubric for one in scores(own)] == ["rubric#0"]
    file.write_text("maximum: 4\nIs it short?")
    with pytest.raises(DataError, match="has changed since the run"):
        scores(own)


def test_a_study_says_what_it_was_and_is_continued_and_reported_like_a_tournament(
    tmp_path: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(html, "write_report", lambda run: None)  # which takes seconds
    own = simulated_run(tmp_path / "run", *RUN, "method.steps=1", "method.eval_every=1").path
    assert study("rescore", [str(own), "answers=2", "--every"], Terminal()) == 0
    [folder] = own.glob("rescore/*")
    manifest = load_rescore(folder)
    assert (manifest.status, manifest.error) == ("completed", None)
    assert manifest.command == ["evorun", "rescore", str(own), "answers=2", "--every"]
    assert manifest.settings == {"answers": 2, "every": True, "max_calls": 4}  # of two problems, before and after
    assert manifest.simulated
    assert is_own(manifest)
    assert not changed_state(folder, manifest)
    printed = capsys.readouterr().out

    paid = list(read_journal(folder / "journal.sqlite"))
    assert run_verb("resume", [str(folder)]) == 0
    assert list(read_journal(folder / "journal.sqlite")) == paid
    assert load_rescore(folder).started == manifest.started
    assert run_verb("report", [str(folder)]) == 0
    table = "share of points given"
    resumed, reported = capsys.readouterr().out.split(table)[1:]
    assert printed.split(table)[1].split()[:8] == resumed.split()[:8] == reported.split()[:8]

    # What a resume would score must be what the folder holds.
    file = own / "steps.jsonl"
    steps = [json.loads(line) for line in file.read_text().splitlines()]
    for step in steps:
        step["best"]["text"] += " Another response."
    file.write_text("".join(json.dumps(step) + "\n" for step in steps))
    with pytest.raises(RunDirectoryError, match="holds another study"):
        run_verb("resume", [str(folder)])


@pytest.mark.sample(1)
@pytest.mark.parametrize("scoring", ["by_item", "whole"])
def test_the_rubric_in_force_gives_the_points_that_training_paid(tmp_path: Path, scoring: str) -> None:
    few = ("method=mpo", "task=essay", "task.source=sample", "method.steps=6", "method.refine_every=2")
    exact = ("engine.reward_noise=0", "engine.malformed=0", "engine.loophole_rate=0.5", "engine.meta_skill=1")
    sizes = ("method.problems_per_step=6", "method.group=1", "method.refine_samples=6", "method.eval_every=null")
    own = simulated_run(tmp_path / "run", *few, *exact, *sizes, f"method.scoring={scoring}").path
    last = [one for one in records(own, "rollouts") if one["step"] == 6]
    said = {effect.key: json.loads(effect.result) for effect in read_journal(own / "journal.sqlite")}

    class OnRollouts(RubricStudy):
        """Scores the last step's episodes in the place of test responses."""

        def _answers(self, count: int | None, *, every: bool) -> list[Any]:
            training = self._checked.task.load_training()
            problems = {problem.id: problem for problem in (*training.training, *training.problems)}
            return [
                rubric_study._Answer(
                    6,
                    problem := problems[one["problem"]],
                    training.task.parse(problem, said[one["call"]]["completions"][0]["text"]),
                )
                for one in last
            ]

    found = OnRollouts(own, load_manifest(own).config, Terminal(quiet=True)).scores()
    [in_force] = [one for one in found if one.rubric == last[0]["rubric"]]
    assert in_force.refined > 0
    assert in_force.score == pytest.approx(fmean(one["raw"] / one["maximum"] for one in last))
