"""`evorun replay`, `extend` and `fork`: new runs out of a recorded one, which stays as it is."""

import shlex
import shutil
import time
from collections.abc import Callable, Mapping, Sequence
from functools import partial
from pathlib import Path
from typing import Any, NamedTuple

from msgspec import structs

from evorun.cli import invocation
from evorun.cli.naming import free_folder, remove_unused_run_dir
from evorun.cli.output import print_error
from evorun.cli.overrides import read_key
from evorun.cli.trust import TRUST, require_trust, with_changes, with_choices
from evorun.cli.usage import EXIT_FAILED, EXIT_INTERRUPTED, USAGES, exit_code
from evorun.errors import ConfigError, EvorunError, HistoryError, RunDirectoryError
from evorun.runs.directory import (
    ENGINES,
    MANIFEST,
    REPLAY,
    SIMULATED,
    find_recording,
    identity,
    iterate_differences,
    load_manifest,
)
from evorun.runs.formats import counted
from evorun.runs.history import find_ends, iterate_history
from evorun.runs.journal import create_journal
from evorun.runs.journal_file import JOURNAL
from evorun.runs.journal_reader import open_journal
from evorun.runs.manifest import Manifest, Origin
from evorun.runs.outputs import refuse_folder_of_records
from evorun.runs.paths import display
from evorun.runs.stopwatch import SPEED
from evorun.runs.sweeps import read_sweep
from evorun.runs.terminal import Terminal
from evorun.training.updates import find_updates

EXTENDABLE = ("method", "budget", "task")
"""Groups of settings whose change may leave what is recorded as it is."""
ADDABLE = ("seed", "method", "task", "model", "judge")
"""Keys whose new values are new jobs of a sweep."""
FORKABLE_ROLES = ("model", "judge", "reward", "meta", "reflection", "generator", "gold")
"""Roles whose model a fork may choose anew."""

_IGNORED_BY_SIMULATED = ("temperature", "top_p")
"""Ends of keys that set a model's sampling."""


class _Request(NamedTuple):
    """A command line of these verbs."""

    run: Path
    folder: Path | None
    """The new run's folder; None for a folder of the usual name."""
    at: int | None
    changes: list[str]
    trust: bool


def replay(arguments: Sequence[str], console: Terminal) -> int:
    """Repeat a finished run, or the jobs of a sweep, from the journal, and say whether the records are the same."""
    from evorun.cli.sweep_resume import is_sweep_folder

    request = _parse("replay", arguments)
    if is_sweep_folder(request.run):
        return _carry_out_jobs("replay", "replayed", request, partial(_replay, of_sweep=True), console)
    return _replay(arguments, console)


def _replay(arguments: Sequence[str], console: Terminal, *, of_sweep: bool = False) -> int:
    from evorun.cli.running import carry_out

    request = _parse("replay", arguments)
    manifest = _load_ended(request.run)
    config = with_changes(request.run, manifest, request.changes, purpose="a replay")
    config.pop("tracker", None)  # its points are sent
    recorded = {"name": REPLAY, "run": str(request.run.absolute())}
    for key in ENGINES:
        if isinstance(config.get(key), Mapping) and config[key].get("name") != "policy":
            config[key] = recorded
    folder = _choose_folder(request, manifest)
    invocation.current.folders.append(folder)
    status = carry_out(config, folder, ["evorun", "replay", *arguments], console, of_sweep=of_sweep)
    if status == "completed":
        console.print(_describe_equality(manifest, load_manifest(folder)), soft_wrap=True)
    return exit_code(status)


def _describe_equality(recorded: Manifest, again: Manifest) -> str:
    """Return a line that says whether a replay has the records of the run that it repeats."""
    records = _get_records(recorded)
    differing = [name for name, digest in records.items() if digest != again.files.get(name)]
    if differing:
        return f"the records differ in {', '.join(differing)}: the code or the data have changed since the run"
    return f"the records are the same to the byte: {', '.join(records)}"


def _get_records(manifest: Manifest) -> dict[str, str]:
    """Return the digests of a run's record files by name, without its timings."""
    return {name: digest for name, digest in manifest.files.items() if name.endswith(".jsonl") and name != SPEED}


def extend(arguments: Sequence[str], console: Terminal) -> int:
    """Continue a finished run or the jobs of a sweep; only what is new is paid for."""
    from evorun.cli.sweep_resume import is_sweep_folder

    words = [word for word in arguments if word != TRUST]
    if words and is_sweep_folder(Path(words[0])):
        return _extend_sweep(Path(words[0]), words[1:], console, trust=TRUST in arguments)
    return _branch("extend", arguments, console)


def _extend_sweep(folder: Path, changes: Sequence[str], console: Terminal, *, trust: bool) -> int:
    """Add jobs to a sweep, in its folder, or extend each of its finished jobs, in a new one."""
    from evorun.cli.sweep_resume import add_jobs

    added = [word for word in changes if read_key(word) in ADDABLE]
    if added and len(added) < len(changes):
        raise ConfigError(
            f"expected new jobs ({', '.join(f'{key}=...' for key in ADDABLE)}) or other settings of the finished ones, "
            f"got both: {' '.join(changes)}; extend twice"
        )
    if added:
        return add_jobs(folder, added, console, trust=trust)
    request = _parse("extend", [str(folder), *changes])
    return _carry_out_jobs("extend", "extended", request._replace(trust=trust), partial(_branch, "extend"), console)


def _carry_out_jobs(
    verb: str,
    past: str,
    request: _Request,
    carry_out_job: Callable[[Sequence[str], Terminal], int],
    console: Terminal,
) -> int:
    """Carry out a verb on each finished job of a sweep, into folders of the jobs' names; return the exit code.

    carry_out_job: takes the arguments of the verb for one job.
    """
    from evorun.cli.sweep_resume import read_finished_jobs

    folder = request.run
    jobs = read_finished_jobs(folder)
    if not jobs:
        raise ConfigError(f"{display(folder)}: expected finished jobs to {verb}, found none; resume the sweep first")
    left = len(read_sweep(folder).jobs) - len(jobs)
    if left:
        how = f"to finish them first: evorun resume {shlex.quote(display(folder))}"
        console.print(f"{counted(left, 'job')} not done, left out; {how}", style="yellow", soft_wrap=True)
    target = request.folder or Path(free_folder(f"{folder.absolute()}_{past}"))
    codes: list[int] = []
    for job in jobs:
        words = [str(folder / job), *request.changes, f"output={target / job}", *([TRUST] if request.trust else [])]
        try:
            codes.append(carry_out_job(words, console))
        except EvorunError as error:  # the other jobs may succeed
            print_error(str(error), error)
            codes.append(EXIT_FAILED)
        if codes[-1] == EXIT_INTERRUPTED:
            return EXIT_INTERRUPTED
    failed = [job for job, code in zip(jobs, codes, strict=True) if code]
    if failed:
        line = f"{len(failed)} of {counted(len(jobs), 'job')} failed: {', '.join(failed)}"
        console.print(line, style="bold yellow", soft_wrap=True)
    console.print(f"compare the {past} jobs: evorun report {shlex.quote(display(target))}", soft_wrap=True)
    return max(codes)


def fork(arguments: Sequence[str], console: Terminal) -> int:
    """Begin a run with other settings whose first steps are those of a recorded run."""
    return _branch("fork", arguments, console)


def _branch(verb: str, arguments: Sequence[str], console: Terminal) -> int:
    from evorun.cli.running import carry_out
    from evorun.reports.comparison.names import explain_other_model
    from evorun.runner.branches import plan_weights, refuse_other_student, take_over_weights, trains

    request = _parse(verb, arguments)
    manifest = _load_ended(request.run)
    if find_recording(manifest.config) is not None:
        raise ConfigError(f"{display(request.run)}: a replay has no calls of its own: {verb} the run that it replays")
    training = trains(manifest.config)
    config = _change(verb, request, manifest, training=training)
    differences = list(iterate_differences(identity(manifest.config), identity(config)))
    changes = [f"{key}: {before!r} -> {now!r}" for key, before, now in differences]
    if not changes:
        raise ConfigError(f"expected a change of what the run does: {USAGES[verb].synopsis}; got none")
    require_trust(request.run, manifest, config, console, given=request.trust)
    refuse_other_student(manifest.config, config)
    weights = plan_weights(request.run, manifest, config, request.at) if training else None
    folder = _choose_folder(request, manifest)
    try:
        origin = _share(request, folder, verb, changes, manifest.origin)
        if origin.calls == _count(request.run).calls and verb == "fork":
            raise ConfigError(f"--at: {display(request.run)} has no call of step {request.at} or later; fork earlier")
        again = 0
        if weights is not None:
            take_over_weights(request.run, folder, weights, config, request.at)
            origin = structs.replace(origin, first_checkpoint=weights.first_checkpoint)
            again = weights.again
        _print_shared(request.run, folder, origin, again, console)
        foreseen = _foresee(manifest, config)
        unpaired = explain_other_model(foreseen, manifest)
        if unpaired is not None:
            kind = "fork" if verb == "fork" else "extension"
            line = f"this {kind} cannot be paired with {display(request.run)} in a comparison: {unpaired}"
            console.print(line, style="yellow", soft_wrap=True)
        ignored = all(key.endswith(_IGNORED_BY_SIMULATED) for key, _, _ in differences)
        if not training and ignored and all(model.engine == SIMULATED for model in foreseen.models.values()):
            line = f"simulated models ignore temperature and top_p: expect the records of {display(request.run)}"
            console.print(line, style="yellow", soft_wrap=True)
        invocation.current.folders.append(folder)
        status = carry_out(config, folder, ["evorun", verb, *arguments], console, origin=origin)
    except BaseException as error:
        unpaid = isinstance(error, HistoryError) and _count(folder).calls == origin.calls  # refused in time
        if unpaid or not (folder / MANIFEST).exists():  # or the run could not begin
            shutil.rmtree(folder)
            folder.mkdir()
            remove_unused_run_dir(folder.absolute())
        if unpaid:
            raise HistoryError(f"{error}; no call was made, and {display(folder)} is removed again") from None
        raise
    if status != "completed":
        return exit_code(status)
    paid, branch = _count(folder), load_manifest(folder)
    steps = f" and {counted(paid.updates - origin.updates + again, 'training step')}" if training else ""
    used = origin.calls if branch.origin is None or branch.origin.used_calls is None else branch.origin.used_calls
    unused = f" ({origin.calls - used:,} recorded ones had no use)" if used < origin.calls else ""
    console.print(f"paid for {paid.calls - origin.calls:,} new calls{steps}, shared {used:,}{unused}", soft_wrap=True)
    if _get_records(manifest) == _get_records(branch):
        line = f"the records are the same as those of {display(request.run)}: the change has had no effect"
        console.print(line, style="yellow", soft_wrap=True)
    report = f"evorun report {shlex.join([display(request.run), display(folder)])}"
    if unpaired is None and branch.provenance.digest != manifest.provenance.digest:
        unpaired = "other problems"
    how = "compare both" if unpaired is None else f"see both, without a pair ({unpaired})"
    console.print(f"{how}: {report}", soft_wrap=True)
    return 0


def _foresee(manifest: Manifest, config: Mapping[str, Any]) -> Manifest:
    """Return the recorded manifest as it would be with this configuration, as to its policy."""
    from evorun.models.config import ServedModel
    from evorun.runner.served import in_manifest
    from evorun.runner.settings import check

    checked = check(config)
    policy = in_manifest(ServedModel(checked.model, checked.engine))
    models = {**manifest.models, "policy": policy} if "policy" in manifest.models else manifest.models
    return structs.replace(manifest, config=dict(config), models=models)


def _change(verb: str, request: _Request, manifest: Manifest, *, training: bool) -> dict[str, Any]:
    """Return the configuration of the new run."""
    if verb == "extend":
        return with_choices(request.run, manifest, request.changes, (), EXTENDABLE, "an extension")
    roles = [role for role in FORKABLE_ROLES if role != "model" or not training]  # trained weights are of one model
    groups = (*EXTENDABLE, *roles, *(["training"] if training else []))
    return with_choices(request.run, manifest, request.changes, roles, groups, "a fork")


def _share(request: _Request, folder: Path, verb: str, changes: list[str], earlier: Origin | None) -> Origin:
    """Write the shared effects into the new run's journal. earlier: the origin of the recorded run."""
    journal = open_journal(request.run / JOURNAL)
    try:
        journal.check()
        effects = create_journal(folder / JOURNAL, iterate_history(journal, request.at))
        ends = find_ends(journal, earlier)
    finally:
        journal.close()
    shared = _count(folder)
    return Origin(
        verb="fork" if verb == "fork" else "extend",
        run=str(request.run.absolute()),
        at=request.at,
        changes=changes,
        effects=len(effects),
        calls=shared.calls,
        updates=shared.updates,
        ends=ends,
        forked_at=None if earlier is None or verb == "fork" else earlier.first_own_step,
    )


def _print_shared(run: Path, folder: Path, origin: Origin, again: int, console: Terminal) -> None:
    """Say what the new run does not pay for. again: training steps whose weights are gone."""
    steps = f" and {counted(origin.updates, 'training step')}" if origin.updates else ""
    shared = f"{origin.calls:,} recorded calls{steps} come from {display(run)}"
    console.print(f"{display(folder)}: {shared}; only other calls are made", soft_wrap=True)
    if again:
        console.print(
            f"{counted(again, 'training step')} of these must be made again, without calls, since no checkpoint after "
            "them was kept (training.save_every, training.keep)",
            soft_wrap=True,
        )


class _Counts(NamedTuple):
    """Numbers of effects in a journal."""

    calls: int
    updates: int


def _count(run: Path) -> _Counts:
    """Count the model calls and the updates in a run's journal."""
    journal = open_journal(run / JOURNAL)
    try:
        calls = sum(journal.spent(number)[0] is not None for number, _ in enumerate(journal.index()))
        return _Counts(calls, len(find_updates(key for key, _ in journal.index())))
    finally:
        journal.close()


def _load_ended(run: Path) -> Manifest:
    manifest = load_manifest(run)
    if manifest.status == "running":
        raise RunDirectoryError(f"{display(run)} has not ended: wait for it, or resume it first")
    return manifest


def _choose_folder(request: _Request, manifest: Manifest) -> Path:
    """Return a new folder for the run."""
    if request.folder is None:
        return Path(free_folder(f"outputs/{manifest.method}/{manifest.task}/{time.strftime('%Y-%m-%d_%H-%M-%S')}"))
    if request.folder.exists() and (not request.folder.is_dir() or any(request.folder.iterdir())):
        raise ConfigError(
            f"output: expected a new or empty folder, but {display(request.folder)} exists already; choose another"
        )
    refuse_folder_of_records("output", request.folder)
    request.folder.mkdir(parents=True, exist_ok=True)
    return request.folder


def _parse(verb: str, arguments: Sequence[str]) -> _Request:
    usage = f"expected: {USAGES[verb].synopsis}; got: {' '.join(arguments) or 'nothing'}"
    joined = [word.split("=", 1) if word.startswith("--at=") else [word] for word in arguments]
    words = [word for parts in joined for word in parts if word != TRUST]
    at: int | None = None
    if verb == "fork":
        given = [index for index, word in enumerate(words) if word == "--at"]
        if len(given) != 1 or given[0] + 1 >= len(words):
            raise ConfigError(usage)
        step = words[given[0] + 1].removeprefix("step=")
        if not (step.isascii() and step.isdecimal() and int(step) >= 1):
            raise ConfigError(f"--at: expected step=N, the first step that differs, with N >= 1; got {step}")
        at = int(step)
        del words[given[0] : given[0] + 2]
    if not words or "=" in words[0] or not all("=" in word for word in words[1:]):
        raise ConfigError(usage)
    output = [word.partition("=")[2] for word in words[1:] if word.startswith("output=")]
    if len(output) > 1 or "" in output:
        raise ConfigError(usage)
    changes = [word for word in words[1:] if not word.startswith("output=")]
    return _Request(Path(words[0]), Path(output[0]) if output else None, at, changes, TRUST in arguments)
