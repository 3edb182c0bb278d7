"""`evorun replay`, `extend` and `fork`: recorded calls answer again, and only new ones are made."""

import json
import shutil
from pathlib import Path

import pytest

import evorun
from evorun.cli import branching
from evorun.cli.usage import EXIT_INTERRUPTED
from evorun.errors import HistoryError
from evorun.reports.comparison import compare
from evorun.reports.comparison.runs import load_runs
from evorun.runs.call_keys import parse_step
from evorun.runs.history import History
from evorun.runs.journal_reader import read_journal
from evorun.runs.manifest import Origin
from evorun_process import RECORDS, evorun_here, start
from journals import effects_in, wait_for_effects

SIMULATED = ("engine=simulated", "evorun.progress=off")
SMALL = ("task=mathbench", "task.source=sample", "task.limit=2")
DESCENT = ("method=feedback_descent", *SMALL, *SIMULATED, "engine.seconds_per_token=0.0003")


def run(*words: str, cwd: Path) -> str:
    done = evorun_here(*words, cwd=cwd)
    assert done.returncode == 0, done.stderr
    return done.stdout


def refused(*words: str, cwd: Path) -> str:
    done = evorun_here(*words, cwd=cwd)
    assert done.returncode == 1, done.stdout
    (line,) = done.stderr.splitlines()
    return line


def records(folder: Path) -> dict[str, bytes]:
    return {name: (folder / name).read_bytes() for name in RECORDS if (folder / name).exists()}


def calls(folder: Path) -> dict[str, object]:
    """Return the answers of a run's model calls by key."""
    effects = [effect for effect in read_journal(folder / "journal.sqlite") if effect.usage is not None]
    return {effect.key: json.loads(effect.result)["completions"] for effect in effects}


@pytest.fixture(scope="module")
def parent(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A run of three generations; its tests only read it."""
    folder = tmp_path_factory.mktemp("parent")
    run(*DESCENT, "method.generations=3", "hydra.run.dir=run", cwd=folder)
    return folder / "run"


@pytest.mark.sample(1)
@pytest.mark.parametrize(
    ("settings", "before", "after"),
    [
        ("method=duel_evolve method.duels=4 method.generations=20", "budget.calls=90", "budget.calls=150"),
        ("method=lyria method.population=4 task=sudoku task.limit=2", "method.generations=1", "method.generations=3"),
        ("method=feedback_descent", "method.generations=2", "method.generations=4"),
        ("method=espl_evolution task=arithmetic task.limit=2", "method.steps=1", "method.steps=2"),
        ("method=self_consistency", "method.samples=3", "method.samples=7"),
    ],
)
def test_an_extended_run_is_the_longer_run_at_the_price_of_the_difference(
    settings: str, before: str, after: str, tmp_path: Path
) -> None:
    words = [*settings.split(), *SIMULATED, *(SMALL if "task=" not in settings else ())]
    run(*words, before, "hydra.run.dir=short", cwd=tmp_path)
    short = {file: file.read_bytes() for file in (tmp_path / "short").rglob("*") if file.is_file()}
    said = run("extend", "short", after, "output=extended", cwd=tmp_path)
    run(*words, after, "hydra.run.dir=long", cwd=tmp_path)
    assert records(tmp_path / "extended") == records(tmp_path / "long")
    shared, wanted = calls(tmp_path / "short"), calls(tmp_path / "long")
    assert calls(tmp_path / "extended") == shared | wanted
    used = len(shared.keys() & wanted.keys())  # a last choice or test of the shorter run may have no place in it
    assert f"paid for {len(wanted.keys() - shared.keys()):,} new calls, shared {used:,}" in said
    assert json.loads((tmp_path / "extended" / "manifest.json").read_text())["origin"]["used_calls"] == used
    assert all(file.read_bytes() == content for file, content in short.items())


def test_an_extension_that_would_change_what_is_recorded_is_refused(tmp_path: Path) -> None:
    """More samples are more duels of the first ones, too."""
    words = ("method=best_of_n", *SMALL, *SIMULATED, "method.samples=3", "method.rounds=1")
    run(*words, "hydra.run.dir=run", cwd=tmp_path)
    line = refused("extend", "run", "method.samples=5", "output=more", cwd=tmp_path)
    assert "method.samples: 3 -> 5" in line
    assert "start a new run" in line
    assert not (tmp_path / "more").exists()  # refused before any call


@pytest.mark.nightly  # test_resume.py kills runs
def test_a_killed_extension_goes_on(parent: Path, tmp_path: Path) -> None:
    process = start("extend", parent, "method.generations=20", "output=extended", cwd=tmp_path)
    journal = tmp_path / "extended" / "journal.sqlite"
    shared = len(list(read_journal(parent / "journal.sqlite")))
    wait_for_effects(tmp_path / "extended", shared + 1, process)
    process.kill()
    process.wait()
    assert shared < effects_in(journal)
    run("resume", "extended", cwd=tmp_path)
    run(*DESCENT, "method.generations=20", "hydra.run.dir=long", cwd=tmp_path)
    assert records(tmp_path / "extended") == records(tmp_path / "long")


def test_a_fork_shares_the_steps_before_it_and_no_others(parent: Path, tmp_path: Path) -> None:
    said = run("fork", parent, "--at", "step=2", "method.temperature=0.3", "output=fork", cwd=tmp_path)
    before, after = calls(parent), calls(tmp_path / "fork")
    shared = {key for key in before if int(key.split("|")[1]) < 2}
    assert shared
    assert {key: after[key] for key in shared} == {key: before[key] for key in shared}
    assert f"paid for {len(after) - len(shared):,} new calls, shared {len(shared):,}" in said
    assert said.index("simulated models ignore temperature and top_p") < said.index("paid for")
    assert "the change has had no effect" in said
    assert "compare both: evorun report" in said
    asked = {
        parse_step(effect.key)[1]: json.loads(effect.request)["sampling"]["temperature"]
        for effect in read_journal(tmp_path / "fork" / "journal.sqlite")
        if "|generate|" in effect.key
    }
    assert asked[2] == asked[3] == 0.3
    assert asked[1] != 0.3
    steps = [line for line in (parent / "steps.jsonl").read_text().splitlines() if json.loads(line)["step"] < 2]
    assert steps
    assert set(steps) <= set((tmp_path / "fork" / "steps.jsonl").read_text().splitlines())
    origin = json.loads((tmp_path / "fork" / "manifest.json").read_text())["origin"]
    assert origin["changes"] == ["method.temperature: 0.7 -> 0.3"]
    assert origin["at"] == 2


def test_a_fork_that_cannot_be_paired_is_said_before_it_is_paid_for(parent: Path, tmp_path: Path) -> None:
    said = run("fork", parent, "--at", "step=3", "engine.skill=0.1", "output=fork", cwd=tmp_path)
    reason = "another simulated model: skill 0.1, not 0.35"
    assert said.index(f"cannot be paired with {parent} in a comparison: {reason}") < said.index("paid for")
    assert "compare both" not in said
    assert "ignore temperature" not in said
    (unpaired,) = compare([parent, tmp_path / "fork"]).pairs.unpaired
    assert unpaired.reason == reason


@pytest.mark.nightly  # other tests replay and extend runs
@pytest.mark.parametrize("change", ["method.temperature=0.3", "judge=oracle"])
def test_a_fork_is_replayed_and_extended(change: str, parent: Path, tmp_path: Path) -> None:
    """Its shared calls were made with the parent's settings."""
    run("fork", parent, "--at", "step=2", change, "output=fork", cwd=tmp_path)
    name = load_runs([parent, tmp_path / "fork"])[1].name
    assert name.endswith("from step 2")
    assert "the records are the same to the byte" in run("replay", "fork", "output=again", cwd=tmp_path)
    run("extend", "fork", "method.generations=4", "output=longer", cwd=tmp_path)
    before, after = calls(tmp_path / "fork"), calls(tmp_path / "longer")
    assert before.items() < after.items()
    assert "the records are the same to the byte" in run("replay", "longer", "output=longer_again", cwd=tmp_path)


def test_a_fork_whose_change_reaches_an_earlier_step_is_refused(parent: Path, tmp_path: Path) -> None:
    line = refused("fork", parent, "--at", "step=3", "method.window=1", "output=fork", cwd=tmp_path)
    assert "method.window: 15 -> 1" in line
    assert "fork at step=" in line
    assert list(tmp_path.rglob("*")) == []


@pytest.mark.parametrize(
    ("words", "said"),
    [
        (("extend", "RUN"), "expected a change"),
        (("extend", "RUN", "seed=1"), "seed: cannot change on an extension"),
        (("extend", "RUN", "method=lyria"), "method: cannot change on an extension"),
        (("extend", "RUN", "method.generations=many"), "method.generations"),
        (("fork", "RUN", "method.duels=2"), "expected: evorun fork"),
        (("fork", "RUN", "--at", "step=2"), "expected a change"),
        (("fork", "RUN", "--at", "step=2", "seed=1"), "seed: cannot change on a fork"),
        (("fork", "RUN", "--at=step=99", "method.temperature=0.3"), "no call of step 99"),
        (("fork", "RUN", "--at", "step=0", "method.duels=2"), "with N >= 1; got 0"),
        (("replay", "RUN", "method.duels=2"), "method.duels: cannot change on a replay"),
        (("replay",), "expected: evorun replay"),
        (("replay", "RUN", "output=RUN/inside"), "outside run directories"),
        (("replay", "RUN", "output=RUN"), "exists already; choose another"),
    ],
    ids=lambda value: " ".join(value) if isinstance(value, tuple) else "",
)
def test_wrong_command_lines_leave_no_folder(words: tuple[str, ...], said: str, parent: Path, tmp_path: Path) -> None:
    assert said in refused(*(word.replace("RUN", str(parent)) for word in words), cwd=tmp_path)
    assert list(tmp_path.rglob("*")) == []


def test_a_relative_path_of_a_fork_holds_wherever_it_is_resumed(parent: Path, tmp_path: Path) -> None:
    (tmp_path / "prompts").mkdir()
    shutil.copy(Path(evorun.__file__).parent / "tasks" / "prompts" / "fitness.md", tmp_path / "prompts")
    run("fork", parent, "--at", "step=2", "task.prompts=prompts", "output=fork", cwd=tmp_path)
    manifest = json.loads((tmp_path / "fork" / "manifest.json").read_text())
    assert manifest["config"]["task"]["prompts"] == str(tmp_path / "prompts")


def test_a_replay_says_whether_its_records_are_the_same(parent: Path, tmp_path: Path) -> None:
    assert "the records are the same to the byte" in run("replay", parent, "output=again", cwd=tmp_path)
    assert records(tmp_path / "again") == records(parent)
    assert calls(tmp_path / "again") == {}
    written = json.loads((tmp_path / "again" / "manifest.json").read_text())
    assert {model["replayed_engine"] for model in written["models"].values()} == {"simulated"}
    shutil.copytree(parent, tmp_path / "changed")
    manifest = json.loads((parent / "manifest.json").read_text())
    manifest["files"]["steps.jsonl"] = "0" * 32
    (tmp_path / "changed" / "manifest.json").write_text(json.dumps(manifest))
    assert "the records differ in steps.jsonl" in run("replay", "changed", "output=differs", cwd=tmp_path)


def test_somebody_elses_run_is_not_extended_unasked(parent: Path, tmp_path: Path) -> None:
    shutil.copytree(parent, tmp_path / "theirs")
    manifest = json.loads((parent / "manifest.json").read_text())
    manifest["config"]["engine"] = {"name": "server", "base_urls": ["http://127.0.0.1:9"]}
    (tmp_path / "theirs" / "manifest.json").write_text(json.dumps(manifest))
    assert "--trust" in refused("extend", "theirs", "method.generations=4", "output=new", cwd=tmp_path)
    assert not (tmp_path / "new").exists()


@pytest.mark.parametrize(
    ("key", "place"),
    [("p|3|judge|12|0", ("p", 3)), ("a|b|3|judge|1|0", ("a|b", 3)), ("*|0|gold|5f3a|0", None), ("program 5f", None)],
)
def test_keys_tell_the_step_of_a_call(key: str, place: tuple[str, int] | None) -> None:
    assert parse_step(key) == place


def test_a_recorded_step_is_not_left_half_asked() -> None:
    """A smaller population would leave recorded calls out and go on differently from there."""
    origin = Origin(verb="extend", run="r", at=None, changes=["method.population: 2 -> 1"], effects=4, calls=4)
    history = History(origin, iter(["p|0|generate|0|0", "p|0|generate|1|0", "p|1|generate|0|0", "q|0|generate|0|0"]))
    for _ in range(2):  # asked twice, it stands for no other call
        history.note_asked("p|0|generate|0|0", 0)
    with pytest.raises(HistoryError, match=r"method\.population: 2 -> 1"):
        history.refuse_new("p|2|generate|0|0")
    history.note_asked("p|0|generate|1|0", 1)
    history.refuse_new("p|2|generate|0|0")  # of its last step, calls may be left out
    history.refuse_new("q|1|generate|0|0")


def test_a_run_that_plays_ahead_asks_for_two_steps_in_any_order() -> None:
    """The rollouts of its first own step come beside the reflections on the step before."""
    origin = Origin(verb="fork", run="r", at=2, changes=["training.max_lag: 0 -> 1"], effects=2, calls=2)
    history = History(origin, iter(["*|0|rollout|0|0", "*|1|reflect|0|0"]), lag=1)
    with pytest.raises(HistoryError, match="recorded calls of step 0 unasked"):
        history.refuse_new("*|2|rollout|0|0")
    history.note_asked("*|0|rollout|0|0", 0)
    history.refuse_new("*|2|rollout|0|0")
    with pytest.raises(HistoryError, match="recorded calls of step 1 unasked"):
        history.refuse_new("*|3|rollout|0|0")


def test_a_fork_asks_all_of_its_shared_steps() -> None:
    """Fewer duels in step 0 would be another past than the recorded one."""
    origin = Origin(verb="fork", run="r", at=1, changes=["method.duels: 2 -> 1"], effects=3, calls=3)
    history = History(origin, iter(["p|0|judge|0|0", "p|0|judge|1|0", "q|0|judge|0|0"]))
    history.note_asked("p|0|judge|0|0", 0)
    with pytest.raises(
        HistoryError, match=r"leave 1 of the recorded calls of step 0 unasked, first on p: start a new run$"
    ):
        history.refuse_new("p|1|generate|0|0")
    history.note_asked("p|0|judge|1|0", 1)
    history.refuse_new("p|1|generate|0|0")


def test_a_sweep_is_extended_by_jobs_and_by_steps(tmp_path: Path) -> None:
    words = ("method=self_consistency", *SMALL, "method.samples=2", *SIMULATED)
    run("-m", *words, "seed=0", "hydra.sweep.dir=sweep", cwd=tmp_path)
    first = {file: file.read_bytes() for file in (tmp_path / "sweep").glob("*seed*/predictions.jsonl")}
    run("extend", "sweep", "seed=0,1", cwd=tmp_path)
    jobs = sorted(folder.parent for folder in (tmp_path / "sweep").glob("*/predictions.jsonl"))
    assert len(first) == 1
    assert len(jobs) == 2
    assert all(file.read_bytes() == content for file, content in first.items())
    said = run("extend", "sweep", "method.samples=4", "output=longer", cwd=tmp_path)
    assert "compare the extended jobs: evorun report longer" in said
    for job in jobs:
        seed = json.loads((job / "manifest.json").read_text())["seed"]
        run(*words, f"seed={seed}", "method.samples=4", f"hydra.run.dir=fresh{seed}", cwd=tmp_path)
        assert records(tmp_path / "longer" / job.name) == records(tmp_path / f"fresh{seed}")


@pytest.mark.nightly  # test_sweep_extension.py has the arms
def test_all_arms_of_a_sweep_of_several_commands_are_extended(tmp_path: Path) -> None:
    words = ("-m", *SMALL, *SIMULATED, "budget.calls_per_problem=4", "hydra.sweep.dir=sweep")
    run(*words, "method=zero_shot,best_of_n", cwd=tmp_path)  # without a seed, which is 0 by default
    run(*words, "method=zero_shot", "model=random", cwd=tmp_path)
    said = run("extend", "sweep", "seed=0,1", cwd=tmp_path)
    of_arms = "1 of method=zero_shot; 1 of method=best_of_n; 1 of method=zero_shot model=random"
    assert said.splitlines()[0] == f"adds 3 jobs to the 3 of sweep: {of_arms}"
    run("extend", "sweep", "method=self_consistency", cwd=tmp_path)
    jobs = [json.loads(file.read_text()) for file in (tmp_path / "sweep").glob("*/manifest.json")]
    arms = {(job["method"], job["config"]["model"]["name"] == "random", job["seed"]) for job in jobs}
    pairs = [("zero_shot", False), ("best_of_n", False), ("zero_shot", True)]
    added = [("self_consistency", False), ("self_consistency", True)]
    assert arms == {(*pair, seed) for pair in (*pairs, *added) for seed in (0, 1)}
    assert len(jobs) == len(arms)


def test_a_sweep_is_extended_in_one_way_at_a_time(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    run("-m", "method=zero_shot", *SMALL, *SIMULATED, "seed=0,1", "hydra.sweep.dir=sweep", cwd=tmp_path)
    begun: list[str] = []

    def interrupt(verb: str, words: list[str], console: object) -> int:
        begun.append(words[0])
        return EXIT_INTERRUPTED

    with monkeypatch.context() as patch:
        patch.setattr(branching, "_branch", interrupt)
        done = evorun_here("extend", "sweep", "budget.calls=9", cwd=tmp_path)
    assert (done.returncode, len(begun)) == (EXIT_INTERRUPTED, 1)  # Ctrl-C stops all jobs, not only the present one
    assert "extend twice" in refused("extend", "sweep", "seed=2", "budget.calls=9", cwd=tmp_path)
