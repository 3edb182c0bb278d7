"""One run as a user sees it: carried out, summed up on the terminal, with its report on disk."""

import shlex
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

from rich.console import Console

from evorun.cli.output import complain
from evorun.errors import ConfigError, EvorunError, JournalError
from evorun.runs.paths import display


def carry_out(config: Mapping[str, Any], path: Path, command: Sequence[str], console: Console) -> str:
    """Check, run, and report; return the run's status. Raises EvorunError when the run cannot begin."""
    from evorun.runner.experiment import run_experiment
    from evorun.runner.settings import check

    checked = check(config)
    outcome = run_experiment(checked, path, command, console)
    if outcome.status == "completed":
        _sum_up(path, console)
    elif outcome.status == "interrupted":
        advice = f"interrupted; continue with: evorun resume {shlex.quote(display(path))}"
        console.print(advice, markup=False, soft_wrap=True)
    else:
        _tell_failure(outcome.error, path, checked.evorun.debug)
    return outcome.status


def _sum_up(path: Path, console: Console) -> None:
    from evorun.reports.html import write_report
    from evorun.reports.summary import print_summary

    write_report(path)
    print_summary(path, console)


def _tell_failure(error: BaseException | None, path: Path, debug: bool) -> None:
    if debug and error is not None:
        raise error
    if isinstance(error, EvorunError):
        message = str(error)
    else:
        message = (
            f"evorun failed: {type(error).__name__}: {error}; this is a defect: {display(path)}/evorun.log has the "
            "traceback (or add evorun.debug=true)"
        )
    if not isinstance(error, ConfigError | JournalError):  # these would only come again
        message += f"; what was recorded is kept, continue with: evorun resume {shlex.quote(display(path))}"
    complain(message)
