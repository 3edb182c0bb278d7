"""The verbs beside a run: list, doctor, resume, report, grade."""

from collections.abc import Callable, Sequence
from pathlib import Path

from rich.console import Console

from evorun.errors import ConfigError, RunDirectoryError


def _list(arguments: Sequence[str]) -> int:
    from evorun.cli.listing import print_listing

    print_listing(arguments, Console())
    return 0


def _doctor(arguments: Sequence[str]) -> int:
    from evorun.cli.doctor import print_findings

    _expect(len(arguments) == 0, "evorun doctor", arguments)
    print_findings(Console())
    return 0


def _resume(arguments: Sequence[str]) -> int:
    from evorun.cli import EXIT_FAILED, EXIT_INTERRUPTED
    from evorun.cli.running import carry_out
    from evorun.runs.directory import load_manifest

    _expect(len(arguments) == 1, "evorun resume RUN_DIR", arguments)
    path = Path(arguments[0])
    manifest = load_manifest(path)
    status = carry_out(manifest.config, path, manifest.command, Console())
    return {"completed": 0, "interrupted": EXIT_INTERRUPTED}.get(status, EXIT_FAILED)


def _report(arguments: Sequence[str]) -> int:
    from evorun.reports.html import write_report
    from evorun.reports.summary import print_summary
    from evorun.runs.paths import display

    folders = [Path(argument) for argument in arguments if not argument.startswith("--problem=")]
    problems = [argument.partition("=")[2] for argument in arguments if argument.startswith("--problem=")]
    _expect(bool(folders), "evorun report RUN_DIR... [--problem=ID ...]", arguments)
    for folder in folders:
        if not folder.is_dir():
            raise RunDirectoryError(f"expected a run directory, found none at {display(folder)}")
        write_report(folder, problems or None)
        print_summary(folder, Console())
    return 0


def _grade(arguments: Sequence[str]) -> int:
    from evorun.cli.grading import grade_file

    return grade_file(arguments, Console())


def _expect(fits: bool, usage: str, arguments: Sequence[str]) -> None:
    if not fits:
        raise ConfigError(f"expected: {usage}; got: {' '.join(arguments) or 'nothing'}")


VERBS: dict[str, Callable[[Sequence[str]], int]] = {
    "list": _list,
    "doctor": _doctor,
    "resume": _resume,
    "report": _report,
    "grade": _grade,
}
