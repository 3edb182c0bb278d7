"""A run as a user sees it: executed, summarised on the terminal, with its report on disk."""

import shlex
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any, NamedTuple

from evorun.cli import invocation
from evorun.cli.output import print_error
from evorun.cli.usage import Interrupted
from evorun.errors import ConfigError, DataError, EvorunError, HistoryError, JournalError, as_installation_error
from evorun.runs.directory import LOCK, MANIFEST, load_manifest
from evorun.runs.files import showing_work
from evorun.runs.manifest import Origin
from evorun.runs.paths import display
from evorun.runs.terminal import Terminal

if TYPE_CHECKING:
    from evorun.tasks.base import LoadedTask


def carry_out(
    config: Mapping[str, Any],
    path: Path,
    command: Sequence[str],
    console: Terminal,
    *,
    redo_calls: bool = False,
    of_sweep: bool = False,
    origin: Origin | None = None,
) -> str:
    """Check, run, and report; return the run's status. Raises EvorunError when the run cannot begin, and HistoryError.

    redo_calls, origin: see `run_experiment`. of_sweep: a line takes the place of the tables.
    """
    from evorun.reports.html import is_up_to_date
    from evorun.reports.summary import print_summary
    from evorun.runner.experiment import run_experiment
    from evorun.runner.registry import blaming_plugins, fault_of_plugin
    from evorun.runner.settings import check

    advice = f"continue with: evorun resume {shlex.quote(display(path))}"
    try:
        with blaming_plugins():
            checked = check(config)
            outcome = run_experiment(
                checked, path, command, console, redo_calls=redo_calls, of_sweep=of_sweep, origin=origin
            )
        if outcome.status == "completed":
            if outcome.already_complete and is_up_to_date(path):
                if of_sweep:
                    _print_complete(path, console)
                else:
                    print_summary(path, console)
            else:
                _report(path, config, console, transplants=checked.method.transplants, of_sweep=of_sweep)
            return outcome.status
    except KeyboardInterrupt:
        if not (path / MANIFEST).exists():
            raise
        if load_manifest(path).status == "completed":
            advice = f"the run is complete, its report is not: evorun report {shlex.quote(display(path))}"
        console.print(f"interrupted; {advice}", soft_wrap=True)
        raise Interrupted from None
    if outcome.status == "interrupted":
        console.print(f"interrupted; {advice}", soft_wrap=True)
        return outcome.status
    error = outcome.error
    if isinstance(error, HistoryError) or (checked.evorun.debug and error is not None):
        raise error
    message = str(error)
    if error is not None and not isinstance(error, EvorunError):
        foreign = fault_of_plugin(error) or as_installation_error(error)
        defect = foreign or f"evorun failed: {type(error).__name__}: {error}; this is a bug"
        message = f"{defect}: {display(path)}/evorun.log has the traceback (or add evorun.debug=true)"
    if not isinstance(error, ConfigError | DataError | JournalError):  # a resume would only repeat these
        message += f"; the records so far are kept, {advice}"
    print_error(message, error)
    return outcome.status


class Foreseen(NamedTuple):
    """A run, judged by its settings, and by the machine that carries it out and its data where these are here."""

    obstacle: str | None
    """The reason for which it cannot begin; None if none is known."""
    warnings: Sequence[str] = ()
    """Warnings that follow from its settings and its data alone."""


def foresee(config: Mapping[str, Any], loaded: "dict[str, LoadedTask] | None") -> Foreseen:
    """Return what is foreseen of a run.

    loaded: the data that has been read, by task, and is not read again; the run's own is added. None: another machine
    carries the run out, so that its settings alone are judged.
    """
    from evorun.runner.estimates import limit_calls
    from evorun.runner.foreseen import list_settings_warnings
    from evorun.runner.registry import blaming_plugins
    from evorun.runner.requirements import require_parts
    from evorun.runner.settings import check
    from evorun.runner.task_loading import load_task

    try:
        with blaming_plugins():
            checked = check(config)
            if loaded is None:
                return Foreseen(None, list_settings_warnings(checked, None, checked.budget.calls_per_problem))
            require_parts(checked)
            task = repr(config["task"])
            if task not in loaded:
                loaded[task] = load_task(checked.task)
            data = loaded[task]
            return Foreseen(
                None, list_settings_warnings(checked, data, limit_calls(checked.budget, len(data.problems)))
            )
    except EvorunError as error:
        return Foreseen(str(error))


def _report(path: Path, config: Mapping[str, Any], console: Terminal, *, transplants: bool, of_sweep: bool) -> None:
    from evorun.reports.facts import is_remark, list_origins
    from evorun.reports.summary import print_summary

    if transplants:
        from evorun.cli.studies import transplant

        table = transplant(path, config, console).to_rich()
        if not of_sweep:
            console.print_table(table)
    with showing_work(path / LOCK):
        from evorun.reports.html import write_report

        write_report(path)
    if not of_sweep:
        print_summary(path, console)
        return
    for line in list_origins(load_manifest(path)):
        if not invocation.current.is_said(line):
            console.print(line, style=None if is_remark(line) else "bold yellow")
    _print_complete(path, console)


def _print_complete(path: Path, console: Terminal) -> None:
    """Print a line on a complete job of a sweep, and how many of the sweep's jobs have ended with it."""
    from evorun.reports.summary import describe_complete

    ended = invocation.current.describe_ended([*invocation.current.statuses, "completed"])
    console.print(describe_complete(path) + ended, soft_wrap=True)
