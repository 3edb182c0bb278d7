"""Consent to resume a run that somebody else may have configured: resuming a folder runs what it says."""

import shlex
import sys
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

from evorun.cli.groups import CHOSEN_GROUPS, UNTYPED, choices
from evorun.cli.overrides import change, read_key, words
from evorun.cli.plain import composed, with_absolute_paths, with_absolute_runs
from evorun.cli.secrets import refuse_typed_secrets
from evorun.errors import ConfigError
from evorun.runs.checksums import changed_state, check_journal
from evorun.runs.configs import iterate_leaves, refuse_interpolations
from evorun.runs.directory import EXECUTION_KEYS, MANIFEST, TOURNAMENT, load_manifest, refuse_other_version
from evorun.runs.files import reject_links
from evorun.runs.journal_file import JOURNAL
from evorun.runs.manifest import Manifest, Signed
from evorun.runs.ownership import is_own
from evorun.runs.paths import display
from evorun.runs.studies import REJUDGED, RESCORED
from evorun.runs.sweeps import SWEEP_MANIFEST, SweepManifest, is_own_sweep
from evorun.runs.terminal import Terminal

TRUST = "--trust"
_NOT_SIGNED = "a run that you started, its manifest is not signed with your key"


def recorded_config(path: Path, changes: Sequence[str]) -> tuple[Manifest, dict[str, Any]]:
    """Return a run directory's manifest and its configuration, with changes (KEY=VALUE) of how it executes.

    Raises ConfigError or RunDirectoryError for a run of another version of evorun, or a change that is not allowed.
    """
    manifest = load_manifest(path)
    return manifest, with_changes(path, manifest, changes)


def with_changes(
    path: Path, manifest: Signed, changes: Sequence[str], also: Sequence[str] = (), purpose: str = "a resume"
) -> dict[str, Any]:
    """Return the configuration of a folder's manifest with changes of how it executes. Raises as `recorded_config`.

    also, purpose: see `change`.
    """
    refuse_other_version(path, manifest.evorun_version)  # before reading its config, whose keys may differ
    refuse_interpolations(manifest.config)
    return with_absolute_runs(change(manifest.config, changes, also, purpose)) if changes else dict(manifest.config)


def with_choices(
    path: Path, manifest: Signed, changes: Sequence[str], roles: Sequence[str], also: Sequence[str], purpose: str
) -> dict[str, Any]:
    """Return a folder's configuration as `with_changes`, in which roles may be chosen anew (`judge=NAME`), too.

    A model that is chosen anew keeps the recorded engine of its role, unless that is chosen anew (`judge_engine=NAME`).
    """
    from evorun.runner.served import is_judge_by_code

    refuse_typed_secrets(changes)
    offered = {*roles, *(f"{role}_engine" for role in roles if role != "model")}
    chosen = {read_key(word) for word in changes} & offered
    new = [word for word in changes if read_key(word).partition(".")[0] in chosen]
    others = [word for word in changes if word not in new]
    config = with_changes(path, manifest, others, also, purpose)
    given = {read_key(word).partition(".")[0] for word in others}
    # only where something is given here: recorded names must not be taken for folders of this place
    config |= {group: values for group, values in with_absolute_paths(config).items() if group in given}
    if new:
        made = with_absolute_paths(composed([part for word in new for part in words(word)]))
        config |= {group: made[group] for group in chosen}
        for role in chosen & set(roles):
            if is_judge_by_code(role, made[role]["name"]) and f"{role}_engine" not in chosen:
                config.pop(f"{role}_engine", None)
    return config


def require_trust(path: Path, manifest: Signed, config: Mapping[str, Any], console: Terminal, *, given: bool) -> None:
    """Return if the run is as the user left it, or once the user has seen its settings and agrees.

    config: what would be run, with the command line's changes. given: the command line already agrees. Raises
    ConfigError if the user disagrees or, without a terminal, cannot be asked. Raises RunDirectoryError for a folder
    with links out of it.
    """
    reject_links(path)  # before anything is read through a link
    own = is_own(manifest)
    changed = changed_state(path, manifest) if own else []
    if own and not changed:
        return
    if any(line.startswith(f"{JOURNAL} ") for line in changed):
        check_journal(path)  # consent does not repair a damaged journal
    if not (given or _can_ask()):
        name = next((file for file in (TOURNAMENT, RESCORED, REJUDGED) if (path / file).exists()), MANIFEST)
        why = f"a run as you left it, but {changed[0]}" if own else _NOT_SIGNED
        raise ConfigError(
            f"{display(path)}: expected {why}; resuming a folder runs what it says: read config in its {name}, "
            f"then add {TRUST}, and KEY=VALUE to replace servers, key variables and isolation"
        )
    console.print(
        f"{display(path)} is not a run that you started, or it was changed since. Resuming it runs what it says, on "
        "its journal and its checkpoints, with your rights and your keys:",
    )
    for line in changed:
        console.print(f"  {line}", soft_wrap=True)
    for line in _settings(config):
        console.print(line, soft_wrap=True)
    if not given and not _user_agrees():
        raise ConfigError(f"{display(path)}: not resumed")


def require_sweep_trust(path: Path, sweep: SweepManifest, console: Terminal, *, given: bool) -> None:
    """Return if the user started the sweep, or has seen its jobs and agrees. Raises as `require_trust`."""
    if is_own_sweep(sweep):
        return
    if not (given or _can_ask()):
        raise ConfigError(
            f"{display(path)}: expected a sweep that you started, its {SWEEP_MANIFEST} is not signed with your key; "
            f"resuming it runs what it says: read command and jobs there, then add {TRUST}"
        )
    console.print(
        f"{display(path)} is not a sweep that you started, or it was changed since. Resuming it runs this command's "
        "jobs, with your rights and your keys:"
    )
    commands = map(shlex.join, (*sweep.earlier_commands, sweep.command))
    for line in (f"in {sweep.working_folder}", *commands, *(" ".join(job.overrides) for job in sweep.jobs)):
        console.print(f"  {' '.join(line.split())}", soft_wrap=True)
    if not given and not _user_agrees():
        raise ConfigError(f"{display(path)}: not resumed")


def _can_ask() -> bool:
    return sys.stdin is not None and sys.stdin.isatty() and sys.stdout.isatty()


def _settings(config: Mapping[str, Any]) -> list[str]:
    """Return a line per text, switch and unusual number; those of servers, engines and the sandbox come last."""
    groups = sorted(config, key=lambda group: group in EXECUTION_KEYS)
    usual = _usual(config)
    shown = [
        f"{key} = {value!r}" + (f" (by default {usual[key]!r})" if usual.get(key, value) != value else "")
        for key, value in iterate_leaves({group: config[group] for group in groups})
        if not key.startswith("reported.") and (isinstance(value, str | bool) or value != usual.get(key))
    ]
    return ["  " + " ".join(line.split()) for line in shown]  # keys may contain line feeds


def _usual(config: Mapping[str, Any]) -> dict[str, Any]:
    """Return the default values for the same method, task, models and budget; {} if they do not compose."""
    names = {
        group: config[group].get("name")
        for group in CHOSEN_GROUPS
        if group not in UNTYPED and isinstance(config.get(group), Mapping)
    }
    try:
        return dict(
            iterate_leaves(
                composed([f"{group}={name}" for group, name in names.items() if str(name) in choices(group)])
            )
        )
    except ConfigError:
        return {}


def _user_agrees() -> bool:
    try:
        return input("Resume it? [y/N] ").strip().lower() in ("y", "yes")
    except EOFError:
        return False
