"""`evorun.replay`, `extend`, `fork` and `rejudge`: the verbs of the command line, which return what was made."""

from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from pathlib import Path

import pytest

import evorun
from building import simulated_run
from evorun.api import running
from evorun.api.process import Done
from evorun.cli import invocation
from evorun.cli.verbs import run_verb
from evorun.errors import ConfigError
from evorun.reports import html
from evorun.runner import experiment
from evorun.runs.journal_reader import read_journal
from evorun_process import evorun_here

RUN = (
    *("method=duel_evolve", "task=mathbench", "task.source=sample", "task.limit=1", "method.generations=1"),
    *("method.initial_candidates=3", "method.children=2", "method.duels=2"),
)


FOLLOWED: list[tuple[Path, list[str]]] = []
"""The runs that trackers have followed, and their names."""


@contextmanager
def follow(run: Path, trackers: Mapping[str, object]) -> Iterator[None]:
    FOLLOWED.append((run, list(trackers)))
    yield


@pytest.fixture(scope="module", name="run")
def _run(tmp_path_factory: pytest.TempPathFactory) -> evorun.Run:
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(experiment, "followed", follow)
        folder = tmp_path_factory.mktemp("run") / "run"
        return evorun.Run(simulated_run(folder, *RUN, "tracker=tensorboard").path)


@pytest.fixture(autouse=True)
def _in_this_process(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    """Carry out verbs here, which takes a tenth of the time; test_python_run.py has the process."""

    def carry_out(arguments: Sequence[str], *, quiet: bool) -> Done:
        this = invocation.begin(arguments)
        assert run_verb(arguments[0], arguments[1:]) == 0
        return Done([folder.absolute() for folder in this.folders], None, [], [])

    monkeypatch.chdir(tmp_path)
    monkeypatch.setattr(running, "carry_out", carry_out)
    monkeypatch.setattr(experiment, "followed", follow)
    monkeypatch.setattr(html, "write_report", lambda run: None)  # which takes seconds


def calls(run: evorun.Run) -> set[str]:
    return {effect.key for effect in read_journal(run.path / "journal.sqlite") if effect.usage is not None}


def test_a_replay_is_a_run_with_the_same_records_and_no_calls(run: evorun.Run) -> None:
    again = evorun.replay(run)
    assert isinstance(again, evorun.Run)
    assert again.path.parts[0] == "outputs"
    assert again.manifest.files["steps.jsonl"] == run.manifest.files["steps.jsonl"]
    assert calls(again) == set()
    assert FOLLOWED[-1] == (again.path, [])  # its points are sent


def test_the_jobs_of_a_sweep_are_replayed(tmp_path: Path) -> None:
    words = ("method=zero_shot", "task=mathbench", "task.source=sample", "task.limit=1", "engine=simulated")
    done = evorun_here("-m", *words, "seed=0,1", "hydra.sweep.dir=sweep", "evorun.progress=off", cwd=tmp_path)
    assert done.returncode == 0, done.stderr
    for results in tmp_path.glob("sweep/*/results.json"):
        results.with_name("report.html").touch()  # a job without its page is not done
    again = evorun.replay("sweep", output="again")
    assert isinstance(again, evorun.Runs)
    assert sorted(run.manifest.seed for run in again) == [0, 1]
    assert {run.path.parent for run in again} == {Path("again")}


def test_an_extension_goes_on_and_a_fork_goes_elsewhere(run: evorun.Run) -> None:
    longer = evorun.extend(run.path, "method.generations=2", output="longer", quiet=True)
    assert isinstance(longer, evorun.Run)
    assert longer.path == Path("longer")
    assert calls(run) < calls(longer)
    assert longer.steps()["step"].max() == 2
    other = evorun.fork(run, {"method.children": 1}, step=1, output=Path("other"))
    assert other.manifest.origin is not None
    assert (other.manifest.origin.verb, other.manifest.origin.at) == ("fork", 1)
    first = [(made.duels()["step"] == 0).sum() for made in (run, other)]
    assert first[0] == first[1] > 0
    assert (other.candidates()["generation"] == 1).sum() == 1

    # the tracker's points are a run's own: the new runs send theirs
    named = {run.name: trackers for run, trackers in FOLLOWED}
    assert named["longer"] == named["other"] == ["tensorboard"]


@pytest.mark.nightly
def test_a_run_that_trains_is_extended_again_and_forked(tmp_path: Path) -> None:
    """The first run has asked for an evaluation at its end, for which the longer ones do not ask."""
    words = (
        *("method=rloo", "task=arithmetic", "task.test_problems=1", "method.steps=2", "method.eval_samples=0"),
        *("method.problems_per_step=1", "method.group=2"),
    )
    trained = evorun.Run(simulated_run(tmp_path / "trained", *words).path)
    longer = evorun.extend(trained, {"method.steps": 3}, output="longer")
    assert list(longer.training()["step"]) == [1, 2, 3]
    longest = evorun.extend(longer, {"method.steps": 4}, output="longest")
    other = evorun.fork(longer, "training.learning_rate=1e-3", "method.steps=4", step=3, output="other")
    assert calls(trained) < calls(longer) < calls(longest)
    fresh = simulated_run(tmp_path / "fresh", *words, "method.steps=4")
    for name in ("training.jsonl", "steps.jsonl"):  # a simulated model learns at no other rate
        files = {(path / name).read_bytes() for path in (fresh.path, longest.path, other.path)}
        assert len(files) == 1
    with pytest.raises(ConfigError, match=r"training\.alpha: cannot change on a fork"):
        evorun.fork(longer, {"training.alpha": 1}, step=2)


def test_a_rejudging_is_a_frame_of_the_run(run: evorun.Run) -> None:
    assert len(run.rejudged()) == 0
    judged = evorun.rejudge(run, judge="oracle")
    assert judged.path == run.path
    frame = judged.rejudged().set_index("group")
    assert set(frame["asked"]) == {"judge=oracle"}
    assert frame.loc["all duels", "n"] == len(run.duels())
    assert 0 <= float(str(frame.loc["all duels", "now.value"])) <= 1


def test_a_verb_takes_one_run(run: evorun.Run) -> None:
    with pytest.raises(ConfigError, match="expected a run or a folder"):
        evorun.extend(evorun.load([run]), "method.generations=2")
