"""`evorun extend` and `fork` of runs that train: recorded calls and updates stand, and only what is new is paid for."""

import io
import json
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from building import composed, simulated_run
from evorun.cli import branching, invocation
from evorun.cli.verbs import run_verb
from evorun.errors import ConfigError, EngineError, EvorunError, HistoryError
from evorun.models.base import Reply, Request
from evorun.reports import html
from evorun.runner.branches import Weights, plan_weights, refuse_other_student, take_over_weights
from evorun.runs.call_keys import parse_step
from evorun.runs.directory import load_manifest
from evorun.runs.journal_reader import read_journal
from evorun.runs.terminal import Terminal
from evorun.simulation.engine import SimulatedModel
from evorun.testing.runs import COMPLETED, Run

SMALL = (
    *("task=arithmetic", "task.test_problems=3", "method.problems_per_step=2", "method.group=2"),
    *("method.eval_every=2", "method.eval_samples=1", "engine.mean_tokens=5"),
)


@pytest.fixture(autouse=True, scope="module")
def _without_reports() -> Iterator[None]:
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(html, "write_report", lambda run: None)  # which takes seconds
        yield


def branch(verb: str, *words: object, code: int | None = 0) -> str:
    """Carry out a verb in this process; return what it prints."""
    printed = io.StringIO()
    invocation.begin([verb])
    returned = getattr(branching, verb)([str(word) for word in words], Terminal(file=printed, width=200))
    assert returned == code
    return printed.getvalue()


def small_run(folder: Path, settings: str) -> Run:
    chosen = settings.split()
    given = {word.partition("=")[0] for word in chosen}
    run = simulated_run(folder, *(word for word in SMALL if word.partition("=")[0] not in given), *chosen)
    assert run.outcome == COMPLETED
    return run


def files(run: Path) -> dict[str, bytes]:
    """Return the records of a run and what it leaves in artifacts/."""
    kept = [*run.glob("*.jsonl"), *(file for file in (run / "artifacts").rglob("*") if file.is_file())]
    return {file.relative_to(run).as_posix(): file.read_bytes() for file in kept}


def effects(run: Path) -> dict[str, tuple[bytes, bool]]:
    """Return the result of each effect in a run's journal by key, and whether it is a model call."""
    return {effect.key: (effect.result, effect.usage is not None) for effect in read_journal(run / "journal.sqlite")}


def count(keys: set[str], run: Path) -> tuple[int, int]:
    """Return how many of the keys are model calls and updates in a run."""
    of_run = effects(run)
    return sum(of_run[key][1] for key in keys), sum("|update|" in key for key in keys)


@pytest.mark.parametrize(
    ("settings", "before", "after"),
    [
        pytest.param(
            "method=grpo method.steps=null task.train_problems=4",
            *("method.data_epochs=1", "method.data_epochs=2"),
            marks=pytest.mark.nightly,
        ),
        ("method=espl training.max_lag=2", "method.steps=4", "method.steps=6"),
        pytest.param(
            "method=ppo method.eval_beside_rollouts=true method.steps=6",
            *("budget.calls=40", "budget.calls=60"),
            marks=pytest.mark.nightly,
        ),
        pytest.param(
            "method=mpo task=essay task.source=sample method.refine_every=1 training.max_lag=1 reward=qwen2_5_32b_awq",
            *("method.steps=2", "method.steps=4"),
            marks=pytest.mark.nightly,
        ),
    ],
    ids=["grpo", "espl", "ppo", "mpo"],
)
def test_an_extended_run_is_the_longer_run_at_the_price_of_the_difference(
    settings: str, before: str, after: str, tmp_path: Path
) -> None:
    """Also where the shorter run evaluated or evolved otherwise at its end than the longer one does there."""
    short = small_run(tmp_path / "short", f"{settings} {before}")
    left = {file: file.read_bytes() for file in short.path.rglob("*") if file.is_file()}
    said = branch("extend", short.path, after, f"output={tmp_path / 'extended'}")
    fresh = small_run(tmp_path / "fresh", f"{settings} {after}")
    assert files(tmp_path / "extended") == files(fresh.path)
    extended, had, wanted = effects(tmp_path / "extended"), effects(short.path), effects(fresh.path)
    assert extended.keys() == had.keys() | wanted.keys()
    assert {key: extended[key] for key in had} == had  # with its seconds: nothing was asked again
    calls, updates = count(wanted.keys() - had.keys(), fresh.path)
    assert updates >= 1
    assert f"paid for {calls:,} new calls and {updates} training step" in said
    unused, _ = count(had.keys() - wanted.keys(), short.path)
    note = f" ({unused} recorded ones had no use)" if unused else ""
    assert f", shared {count(set(had), short.path)[0] - unused}{note}\n" in said
    assert {file: file.read_bytes() for file in left} == left


@pytest.fixture(scope="module")
def parent(tmp_path_factory: pytest.TempPathFactory) -> Run:
    """A run of four steps; its tests only read it."""
    return small_run(tmp_path_factory.mktemp("parent") / "run", "method=grpo method.steps=4")


@pytest.mark.nightly
def test_a_stopped_extension_goes_on(parent: Run, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    fresh, folder = small_run(tmp_path / "fresh", "method=grpo method.steps=6"), tmp_path / "extended"
    complete = SimulatedModel.complete

    def break_after(calls: int) -> None:
        left = iter(range(calls))

        async def answer(self: SimulatedModel, request: Request) -> Reply:
            if next(left, None) is None:
                raise EngineError("broken down")
            return await complete(self, request)

        monkeypatch.setattr(SimulatedModel, "complete", answer)

    break_after(3)  # in the rollouts of the first new step
    branch("extend", parent.path, "method.steps=6", f"output={folder}", code=1)
    assert len(effects(folder)) == len(effects(parent.path)) + 3
    for calls, code in ((4, 1), (1000, 0)):
        break_after(calls)
        invocation.begin(["resume"])
        assert run_verb("resume", [str(folder)]) == code
    assert files(folder) == files(fresh.path)
    assert effects(folder).keys() == effects(parent.path).keys() | effects(fresh.path).keys()


def before_step(run: Path, name: str, step: int) -> list[str]:
    return [line for line in (run / f"{name}.jsonl").read_text().splitlines() if json.loads(line)["step"] < step]


def test_a_fork_has_the_steps_before_it_and_its_own_from_there_on(parent: Run, tmp_path: Path) -> None:
    """`method.max_tokens` cuts the simulated completions, so that its rewards and updates are other ones."""
    fork = tmp_path / "fork"
    said = branch("fork", parent.path, "--at", "step=3", "method.max_tokens=16", f"output={fork}")
    before, after = effects(parent.path), effects(fork)
    places = {key: parse_step(key) for key in {**before, **after}}
    shared = {key for key in before if (place := places[key]) is None or place[1] < 3}
    assert {key: after[key] for key in shared} == {key: before[key] for key in shared}
    assert {key for key in shared if "|update|" in key} == {"*|2|update|1|0"}  # a step without a gradient has none
    assert {key for key in after if "|update|" in key} == {"*|2|update|1|0", "*|3|update|2|0"}
    for name in ("training", "rollouts", "steps"):
        assert before_step(fork, name, 3) == before_step(parent.path, name, 3) != []
    assert after["*|3|rollout|0|0"] != before["*|3|rollout|0|0"]
    calls, _ = count(after.keys() - shared, fork)
    assert f"paid for {calls:,} new calls and " in said
    assert f"{count(shared, fork)[0]:,} recorded calls and 1 training step come from" in said
    # it is replayed, and extended, as any run
    assert "the records are the same to the byte" in branch("replay", fork, f"output={tmp_path / 'again'}")
    branch("extend", fork, "method.steps=5", f"output={tmp_path / 'longer'}")
    assert before_step(tmp_path / "longer", "rollouts", 5) == before_step(fork, "rollouts", 5)


def test_a_fork_by_a_setting_without_effect_is_the_run(parent: Run, tmp_path: Path) -> None:
    """No rate changes a simulated model: all that a fork asks and learns otherwise would show."""
    said = branch("fork", parent.path, "--at", "step=3", "training.learning_rate=1", f"output={tmp_path / 'fork'}")
    assert "the change has had no effect" in said
    assert files(tmp_path / "fork") == files(parent.path)
    origin = load_manifest(tmp_path / "fork").origin
    assert origin is not None
    assert (origin.updates, origin.first_checkpoint) == (1, 0)


@pytest.mark.nightly
def test_a_fork_of_a_run_that_plays_ahead(tmp_path: Path) -> None:
    """Its step's rollouts are played beside the shared reflections on the step before."""
    run = small_run(tmp_path / "run", "method=espl training.max_lag=1 method.steps=4")
    branch("fork", run.path, "--at", "step=3", "training.learning_rate=1", f"output={tmp_path / 'fork'}")
    assert files(tmp_path / "fork") == files(run.path)


@pytest.mark.parametrize(
    ("words", "said"),
    [
        ("extend method.steps=3", "method.steps: expected 4 or more, as the recorded run had, got 3"),
        ("extend method.kl=0.1 method.steps=5", "method.kl: cannot change on an extension, since the recorded updates"),
        ("extend method.temperature=0.5", "method.temperature: cannot change on an extension"),
        (
            "extend task.test_problems=4 method.steps=5",
            "task.test_problems: cannot change on an extension of a run that",
        ),
        ("extend training.learning_rate=1", "training.learning_rate: cannot change on an extension, which may set"),
        (
            "extend method.format_reward=1 method.steps=5",
            r"method.format_reward: 0.0 -> 1.*ask otherwise than recorded",
        ),
        ("fork --at step=3 training.rank=8", "training.rank: cannot change on a fork, since the weights of the shared"),
        ("fork --at step=3 method.minibatches=2", "method.minibatches: cannot change on a fork, since the weights"),
        ("fork --at step=3 model=local", "model: cannot change on a fork, which may set"),
        ("fork --at step=3 method.steps=2", "method.steps: expected at least 3 on a fork at step=3, got 2"),
        ("fork --at step=9 method.steps=9 method.kl=0.1", "no call of step 9 or later"),
        (
            "fork --at step=3 method.format_reward=1",
            r"first at 'reward.*' \d+ in step 1 of all problems: fork at step=1.*; no call was made, and .* is removed",
        ),
    ],
)
def test_a_change_that_the_recorded_weights_do_not_allow_is_refused_unpaid(
    words: str, said: str, parent: Run, tmp_path: Path
) -> None:
    verb, *changes = words.split()
    with pytest.raises(EvorunError, match=said) as refused:
        branch(verb, parent.path, *changes, f"output={tmp_path / 'new'}")
    assert isinstance(refused.value, ConfigError | HistoryError)
    assert len(str(refused.value).splitlines()) == 1
    assert list(tmp_path.iterdir()) == []


def planned(run: Path, at: int | None, *changes: tuple[str, Any], **recorded: Any) -> tuple[int, int, int]:
    """Return the weights that a changed run would take over. recorded: what its training settings were."""
    manifest = load_manifest(run)
    config: dict[str, Any] = json.loads(json.dumps(manifest.config))
    config["training"] |= recorded
    manifest.config = json.loads(json.dumps(config))
    for key, value in changes:
        group, _, name = key.partition(".")
        config[group][name] = value
    return plan_weights(run, manifest, config, at)


@pytest.mark.parametrize(
    ("at", "every", "kept"),
    [(None, 2, {"step_2", "step_4"}), (None, 5, {"step_2", "step_4", "step_5"}), (4, None, {"step_2"})],
)
def test_the_weights_of_evaluations_that_it_has_again_are_taken_over(
    at: int | None, every: int | None, kept: set[str], tmp_path: Path
) -> None:
    """An extension evaluates where the run did, but at the run's end only if an evaluation is due there."""
    run, new = tmp_path / "run", tmp_path / "new"
    for folder in (
        "checkpoints/update-3",
        "checkpoints/update-5",
        *(f"artifacts/adapters/step_{n}" for n in (2, 4, 5)),
    ):
        (run / folder).mkdir(parents=True)
        (run / folder / "file").write_text(folder)
    take_over_weights(run, new, Weights(3, 0, 0), {"method": {"eval_every": every}}, at)
    assert {folder.name for folder in new.glob("artifacts/adapters/*")} == kept
    assert [folder.name for folder in new.glob("checkpoints/*")] == ["update-3"]
    assert (new / "checkpoints/update-3/file").read_text() == "checkpoints/update-3"


@pytest.mark.parametrize("schedule", ["linear", "cosine"])
def test_rates_that_depend_on_the_number_of_steps_forbid_more(schedule: str, parent: Run) -> None:
    planned(parent.path, None, ("method.steps", 6), schedule="constant_with_warmup", warmup_steps=3)
    with pytest.raises(ConfigError, match=rf"method\.steps: .* training\.schedule={schedule}, whose learning rates"):
        planned(parent.path, None, ("method.steps", 6), schedule=schedule)
    planned(parent.path, 3, ("method.steps", 6), schedule=schedule)


def test_a_last_batch_that_would_be_filled_up_forbids_more(tmp_path: Path) -> None:
    run = small_run(tmp_path / "run", "method=grpo method.steps=null method.data_epochs=1 task.train_problems=3")
    with pytest.raises(ConfigError, match=r"method\.data_epochs: .* last batch has 2 of 4 episodes .* fork the run at"):
        branch("extend", run.path, "method.data_epochs=2", f"output={tmp_path / 'longer'}")
    with pytest.raises(ConfigError, match=r"method\.steps: .* last batch has 2 of 4 episodes"):
        branch("extend", run.path, "method.steps=5", f"output={tmp_path / 'longer'}")


def test_a_student_is_that_of_the_recorded_run() -> None:
    """Another one would be taught anew, and paid for, before any difference showed."""
    words = ("experiment=laft/tiny", "engine=simulated", "teacher_engine=simulated")
    recorded, longer = composed(*words), composed(*words, "method.generations=9", "budget.calls_per_problem=99")
    refuse_other_student(recorded, longer)
    for word in ("training.learning_rate=1", "task.training_instances=2", "student.tuning.epochs=7"):
        key = word.partition("=")[0].replace("student.tuning", "method")
        with pytest.raises(ConfigError, match=rf"^{key}: cannot change here, since the student"):
            refuse_other_student(recorded, composed(*words, word))
