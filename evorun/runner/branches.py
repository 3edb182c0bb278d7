"""Extensions and forks of runs that train: which changes they may have, and the weights that they take over.

The journal tells which calls a change leaves as they are, but not the weights: an update's record says what it learned
from, not how. So a change is compared with what the recorded updates were made with, before anything is paid for.
"""

import shutil
from collections import Counter
from collections.abc import Collection, Mapping, Sequence
from pathlib import Path
from typing import Any, Literal, NamedTuple

import msgspec

from evorun.errors import ConfigError, RunDirectoryError
from evorun.methods.learning.scheduler import ROLLOUT
from evorun.methods.learning.sft import HELD_OUT, TRAIN
from evorun.runner.settings import RunConfig, check
from evorun.runner.student import teacher_composition, tuning_composition
from evorun.runs.call_keys import parse_call_key
from evorun.runs.candidates import SHARED
from evorun.runs.directory import TRAINING_EXECUTION_KEYS, identity, iterate_differences
from evorun.runs.journal_file import JOURNAL
from evorun.runs.journal_reader import JournalReader, decode_result, open_journal
from evorun.runs.manifest import Manifest
from evorun.runs.paths import display
from evorun.training.checkpoints import Checkpoints
from evorun.training.conversations import count_examples
from evorun.training.policy import CHECKPOINTS, KEPT
from evorun.training.updates import assess_key, find_updates
from evorun.training.wire import Figures

Verb = Literal["extend", "fork"]

LENGTHS = ("method.steps", "method.data_epochs", "method.epochs")
"""Keys that decide how long a method trains. PPO's `epochs` are not among them: it passes over each batch so often."""
CONSTANT = ("constant", "constant_with_warmup")
"""Schedules whose learning rates do not depend on the number of steps."""
SHAPES = (
    *("training.weights", "training.rank", "training.alpha", "training.target_modules"),
    *("training.quantise", "training.shard"),
    *("method.epochs", "method.minibatches", "method.critic", "method.popart"),
)
"""Settings that a checkpoint has for good: what is trained, and the optimiser's steps per update."""


class Weights(NamedTuple):
    """The weights that a run takes over."""

    checkpoint: int
    """The update whose checkpoint it starts from; 0: from none."""
    again: int
    """Number of updates that are made again, since their checkpoints are gone."""
    first_checkpoint: int
    """See `Origin`."""


class _Recorded(NamedTuple):
    """The training of a run, by its journal."""

    updates: dict[int, int]
    """Step by number."""
    episodes: Counter[int]
    """Number of episodes by step."""
    conversations: int | None
    """Number of conversations of a fine-tuning."""

    @property
    def last_step(self) -> int:
        """The last step that an update or an episode belongs to."""
        return max([*self.updates.values(), *self.episodes], default=0)


def trains(config: Mapping[str, Any]) -> bool:
    """Return whether a run trains weights itself: with a student, `training` describes a stage before it."""
    return "training" in config and config.get("student") is None


def refuse_other_student(recorded: Mapping[str, Any], config: Mapping[str, Any]) -> None:
    """Raise ConfigError for a change, naming it, that would give a run another student than the recorded one."""
    if recorded.get("student") is None:
        return
    before, now = (
        [identity(teacher_composition(given)), identity(tuning_composition(given, data=""))]
        for given in (recorded, config)
    )
    for stage in zip(before, now, strict=True):
        for key, _, _ in iterate_differences(*stage):
            raise ConfigError(
                f"{key}: cannot change here, since the student of the recorded run was made with it: start a new run"
            )


def plan_weights(run: Path, manifest: Manifest, config: Mapping[str, Any], at: int | None) -> Weights:
    """Return the weights that an extension (at: None) or a fork of a run that trains takes over.

    Raises ConfigError for a change that the recorded updates do not allow, naming its key, and for a fork whose weights
    are gone.
    """
    recorded = _read_training(run)
    changes = list(iterate_differences(identity(manifest.config), identity(dict(config))))
    checked = check(config)
    if checked.method.restarts:
        raise ConfigError(
            f"method={checked.method.name}: expected a method that trains the same weights from the first step to the "
            "last, got one that begins anew with each problem; start a new run"
        )
    before, now = _get_trainer_settings(check(manifest.config)), _get_trainer_settings(checked)
    changed = [key for key in {**before, **now} if before.get(key) != now.get(key)]
    if at is None:
        _refuse_other_updates(changes, changed, config)
        _refuse_fewer_steps(changes, recorded)
        _refuse_other_last_batch(manifest, [key for key, _, _ in changes if key in LENGTHS], recorded)
    else:
        _refuse_other_shapes(changed, config, at)
    number = sum(at is None or step < at for step in recorded.updates.values())
    least = 0 if manifest.origin is None else manifest.origin.first_checkpoint
    first = number if changed else min(number, least)
    if checked.engine.simulated:  # its skill follows from the journal
        return Weights(checkpoint=0, again=0, first_checkpoint=0)
    checkpoints = Checkpoints(run / CHECKPOINTS, keep=1)
    saved = [update for update in checkpoints.saved_updates() if update in recorded.updates]
    usable = [update for update in saved if update <= number]
    former = 1 if checked.training is None else checked.training.former_versions
    checkpoint = checkpoints.newest(usable, former)
    if checkpoint < first:
        raise ConfigError(_describe_lost_weights(run, recorded, saved, at, changed))
    return Weights(checkpoint, number - checkpoint, first)


def take_over_weights(run: Path, folder: Path, weights: Weights, config: Mapping[str, Any], at: int | None) -> None:
    """Copy into a new run's folder what its training goes on from. Raises RunDirectoryError when that fails."""
    artifacts = run / "artifacts"
    copied = [Path(CHECKPOINTS, f"update-{weights.checkpoint}")] if weights.checkpoint else []
    copied += [file.relative_to(run) for file in (artifacts / TRAIN, artifacts / HELD_OUT) if file.exists()]
    every = config["method"].get("eval_every")
    last = max((int(kept.name.rpartition("_")[2]) for kept in artifacts.glob(f"{KEPT}/step_*")), default=0)
    for kept in artifacts.glob(f"{KEPT}/step_*"):
        step = int(kept.name.rpartition("_")[2])
        # an extension evaluates no more where the run ended
        if step < at if at is not None else step < last or (every is not None and step % every == 0):
            copied.append(kept.relative_to(run))
    try:
        for path in copied:
            (folder / path).parent.mkdir(parents=True, exist_ok=True)
            if (run / path).is_dir():
                shutil.copytree(run / path, folder / path)
            else:
                shutil.copy2(run / path, folder / path)
    except (OSError, shutil.Error) as error:
        raise RunDirectoryError(f"cannot copy the weights of {display(run)} into {display(folder)}: {error}") from error


def _read_training(run: Path) -> _Recorded:
    journal = open_journal(run / JOURNAL)
    try:
        keys = [key for key, _ in journal.index()]
        conversations = _count_conversations(journal, keys)
    finally:
        journal.close()
    calls = (parse_call_key(key) for key in keys if f"|{ROLLOUT}|" in key)
    rollouts = {  # each once, whatever its attempts
        (call.step, call.index) for call in calls if call is not None and (call.problem, call.role) == (SHARED, ROLLOUT)
    }
    return _Recorded(find_updates(keys), Counter(step for step, _ in rollouts), conversations)


def _count_conversations(journal: JournalReader, keys: Sequence[str]) -> int | None:
    key = assess_key(0)
    if key not in keys:
        return None
    number = keys.index(key)
    return int(decode_result(journal.result(number), Figures, key, journal.path).figures["conversations"])


def _get_trainer_settings(config: RunConfig) -> dict[str, Any]:
    """Return all that decides an update beside what it learns from, by key."""
    method, training = config.raw["method"], config.raw["training"]
    kept = {key: value for key, value in training.items() if key not in (*TRAINING_EXECUTION_KEYS, "max_lag")}
    settings = {f"training.{key}": value for key, value in kept.items()}
    lengths: Collection[str] = LENGTHS
    if config.method.learns_from_rewards:
        objective = msgspec.to_builtins(config.method.make_objective(Path()))
        update = {**objective, **objective["settings"]}
        update = {key: value for key, value in update.items() if key not in ("type", "settings", "steps")}
        lengths = [key for key in LENGTHS if key.removeprefix("method.") not in update]
    else:
        update = {key: value for key, value in method.items() if f"method.{key}" not in LENGTHS}
        update = {key: value for key, value in update.items() if not key.startswith("eval_")}
    settings |= {f"method.{key}": value for key, value in update.items()}
    if training["schedule"] not in CONSTANT:
        settings |= {key: method.get(key.removeprefix("method.")) for key in lengths}
    return settings


def _refuse_other_updates(
    changes: Sequence[tuple[str, Any, Any]], changed: Sequence[str], config: Mapping[str, Any]
) -> None:
    schedule = config["training"]["schedule"]
    for key in changed:
        if key in LENGTHS and schedule not in CONSTANT:
            raise ConfigError(
                f"{key}: cannot change on an extension with training.schedule={schedule}, whose learning rates depend "
                "on the number of steps: start a new run, or fork this one at a step"
            )
        raise ConfigError(
            f"{key}: cannot change on an extension, since the recorded updates were made with it: fork the run at a "
            "step, or start a new run"
        )
    for key, _, _ in changes:
        if key.startswith("task."):
            raise ConfigError(
                f"{key}: cannot change on an extension of a run that trains: other problems would need the weights of "
                "earlier steps; start a new run"
            )


def _refuse_fewer_steps(changes: Sequence[tuple[str, Any, Any]], recorded: _Recorded) -> None:
    for key, before, now in changes:
        if not (key in LENGTHS or key.startswith("budget.")):
            continue
        least = recorded.last_step if before is None and key in LENGTHS else before
        if now is None and key.startswith("budget."):  # no limit any more
            continue
        if now is None or least is None or (isinstance(now, int | float) and now < least):
            had = (
                f"{least} or more, as the recorded run had,"
                if least is not None
                else "no limit, as in the recorded run,"
            )
            raise ConfigError(f"{key}: expected {had} got {'null' if now is None else now}")


def _refuse_other_last_batch(manifest: Manifest, lengths: Sequence[str], recorded: _Recorded) -> None:
    if not lengths or manifest.status != "completed":
        return
    episodes, last, method = recorded.episodes, recorded.last_step, manifest.config["method"]
    whole, had = episodes[1], episodes[last]
    if recorded.conversations is not None:
        whole = method["batch"]
        had = count_examples(recorded.conversations, method["epochs"]) % whole or whole
    if had < whole:
        raise ConfigError(
            f"{lengths[0]}: cannot change on an extension of this run, whose last batch has {had} of {whole} episodes "
            f"and would be filled up: fork the run at step={last}, or start a new run"
        )


def _refuse_other_shapes(changed: Sequence[str], config: Mapping[str, Any], at: int) -> None:
    fine_tuned = "data" in config["method"]
    optimiser = (
        "learning_rate",
        "beta1",
        "beta2",
        "epsilon",
        "weight_decay",
        "schedule",
        "schedule_by",
        "warmup_steps",
    )
    for key in changed:
        group, _, name = key.partition(".")
        if key in SHAPES or (fine_tuned and group == "method" and key not in LENGTHS):
            raise ConfigError(
                f"{key}: cannot change on a fork, since the weights of the shared steps were trained with it: start a "
                "new run"
            )
        training = config.get("training") or {}
        by_itself = training.get("accelerate_config") is not None or training.get("shard") == "zero3"
        if group == "training" and name in optimiser and by_itself:
            raise ConfigError(
                f"{key}: cannot change on a fork with training.accelerate_config or training.shard=zero3, which "
                "restore the optimiser by themselves: start a new run"
            )
    steps = config["method"].get("steps")
    if steps is not None and steps < at:
        raise ConfigError(f"method.steps: expected at least {at} on a fork at step={at}, got {steps}")


def _describe_lost_weights(
    run: Path, recorded: _Recorded, saved: Sequence[int], at: int | None, changed: Sequence[str]
) -> str:
    """Say that no checkpoint has the weights before a step, and which forks are possible."""
    first_by_number = dict(sorted(recorded.updates.items()))
    possible = [1] if first_by_number else []
    possible += [step + 1 for update, step in first_by_number.items() if update in saved and step < recorded.last_step]
    steps = " or ".join(map(str, dict.fromkeys(possible)))
    why = f"with another {changed[0]} " if changed else ""
    needed = "the last weights" if at is None else f"the weights before step {at}"
    return (
        f"{display(run)}: expected a checkpoint of {needed}, which cannot be trained again {why}: it kept those after "
        f"updates {', '.join(map(str, saved)) or 'none'}; fork at step={steps}; training.save_every=1 and a larger "
        "training.keep would have kept more"
    )
