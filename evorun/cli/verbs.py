"""The verbs beside a run: list, doctor, resume, report, grade."""

from collections.abc import Callable, Sequence
from pathlib import Path
from typing import NamedTuple

from rich.console import Console

from evorun.errors import ConfigError, RunDirectoryError


class Verb(NamedTuple):
    """A verb: what carries it out, given the arguments after it, and its help."""

    run: Callable[[Sequence[str]], int]
    usage: str
    about: str


def _list(arguments: Sequence[str]) -> int:
    from evorun.cli.listing import print_listing

    print_listing(arguments, Console())
    return 0


def _doctor(arguments: Sequence[str]) -> int:
    from evorun.cli.doctor import print_findings

    _expect(len(arguments) == 0, "doctor", arguments)
    print_findings(Console())
    return 0


def _resume(arguments: Sequence[str]) -> int:
    from evorun.cli import EXIT_FAILED, EXIT_INTERRUPTED
    from evorun.cli.overrides import change
    from evorun.cli.plain import with_absolute_runs
    from evorun.cli.running import carry_out
    from evorun.runs.directory import load_manifest, refuse_other_version

    _expect(bool(arguments) and all("=" in argument for argument in arguments[1:]), "resume", arguments)
    path, changes = Path(arguments[0]), arguments[1:]
    manifest = load_manifest(path)
    refuse_other_version(path, manifest.evorun_version)  # before its configuration is read, which may be unknown here
    config = with_absolute_runs(change(manifest.config, changes)) if changes else manifest.config
    status = carry_out(config, path, [*manifest.command, *changes], Console())
    return {"completed": 0, "interrupted": EXIT_INTERRUPTED}.get(status, EXIT_FAILED)


def _report(arguments: Sequence[str]) -> int:
    from evorun.reports.html import render_report, write_report
    from evorun.reports.summary import print_summary
    from evorun.runs.paths import display

    folders, problems = _folders_and_problems(arguments)
    for folder in folders:
        if not folder.is_dir():
            raise RunDirectoryError(f"expected a run directory, found none at {display(folder)}")
    if len(folders) > 1:  # all are found to be sound before the first is written
        for folder in folders:
            render_report(folder, problems or None)
    for folder in folders:
        write_report(folder, problems or None)
        print_summary(folder, Console())
    return 0


def _folders_and_problems(arguments: Sequence[str]) -> tuple[list[Path], list[str]]:
    folders, problems = [], []
    rest = iter(arguments)
    for argument in rest:
        option, equals, value = argument.partition("=")
        if option == "--problem":
            value = value if equals else next(rest, "")
            _expect(bool(value), "report", arguments)
            problems.append(value)
        else:
            _expect(not argument.startswith("-"), "report", arguments)
            folders.append(Path(argument))
    _expect(bool(folders), "report", arguments)
    return folders, problems


def _grade(arguments: Sequence[str]) -> int:
    from evorun.cli.grading import grade_file

    return grade_file(arguments, Console())


def _expect(fits: bool, verb: str, arguments: Sequence[str]) -> None:
    if not fits:
        raise ConfigError(f"expected: {VERBS[verb].usage}; got: {' '.join(arguments) or 'nothing'}")


VERBS = {
    "list": Verb(
        _list,
        "evorun list [methods|tasks|models|engines ...]",
        "Prints what there is, in a line each, and which methods fit which tasks.",
    ),
    "doctor": Verb(_doctor, "evorun doctor", "Prints what this machine can run, and how to get what is missing."),
    "resume": Verb(
        _resume,
        "evorun resume RUN_DIR [KEY=VALUE ...]",
        "Continues a run that was stopped. Keys may change how it is carried out: engine.*, judge_engine.*, run.* and\n"
        "evorun.*, nothing that decides its results.",
    ),
    "report": Verb(
        _report,
        "evorun report RUN_DIR... [--problem=ID ...]",
        "Prints the tables of runs and writes RUN_DIR/report.html; its browser shows the named problems, or a spread.",
    ),
    "grade": Verb(
        _grade,
        "evorun grade task=TASK responses=FILE.jsonl [output=FILE.jsonl] [task.KEY=VALUE ...] [seed=N]",
        'Grades given responses ({"id": ..., "response": ...} a line) with the task\'s parser and grader; no model.',
    ),
}
