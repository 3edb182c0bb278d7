"""The verbs beside a run: list, doctor, resume, report, grade, traces."""

from collections.abc import Callable, Sequence
from pathlib import Path
from typing import NamedTuple

from rich.console import Console

from evorun.errors import ConfigError


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
    from evorun.reports.html import REPORT, render_report
    from evorun.reports.page import write_page
    from evorun.reports.summary import print_summary
    from evorun.runs.folders import run_folders

    asked = _report_request(arguments)
    folders = run_folders(asked.folders)
    if len(folders) == 1 and (asked.against or asked.output):
        raise ConfigError("expected several runs for --against and --output, got one")
    pages = [render_report(folder, asked.problems or None) for folder in folders]  # before the first is written
    if len(folders) > 1:
        _compare(folders, asked)
    for folder, page in zip(folders, pages, strict=True):
        write_page(folder / REPORT, page)
    if len(folders) == 1:
        print_summary(folders[0], Console())
    return 0


class _ReportRequest(NamedTuple):
    folders: list[Path]
    problems: list[str]
    against: Path | None
    output: Path | None


def _report_request(arguments: Sequence[str]) -> _ReportRequest:
    folders: list[Path] = []
    options: dict[str, list[str]] = {"--problem": [], "--against": [], "--output": []}
    rest = iter(arguments)
    for argument in rest:
        option, equals, value = argument.partition("=")
        if option in options:
            value = value if equals else next(rest, "")
            _expect(bool(value), "report", arguments)
            options[option].append(value)
        else:
            _expect(not argument.startswith("-"), "report", arguments)
            folders.append(Path(argument))
    against, output = options["--against"], options["--output"]
    _expect(bool(folders) and len(against) <= 1 and len(output) <= 1, "report", arguments)
    _expect(all(name.endswith(".html") for name in output), "report", arguments)
    return _ReportRequest(folders, options["--problem"], *(Path(one[0]) if one else None for one in (against, output)))


def _compare(folders: Sequence[Path], asked: _ReportRequest) -> None:
    from evorun.reports.comparison import COMPARISON, compare, comparison_folder, print_comparison, write_comparison

    comparison = compare(folders, asked.against)
    page = write_comparison(comparison, asked.output or comparison_folder(folders) / COMPARISON)
    print_comparison(comparison, page, Console())


def _grade(arguments: Sequence[str]) -> int:
    from evorun.cli.grading import grade_file

    return grade_file(arguments, Console())


def _traces(arguments: Sequence[str]) -> int:
    from evorun.cli.exporting import export_traces

    return export_traces(arguments, Console())


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
        "Continues a run that was stopped. Keys may change how it is carried out: engine.*, judge_engine.*,\n"
        "teacher_engine.*, sandbox.*, run.*, evorun.* and parts of training.*, nothing that decides its results.",
    ),
    "report": Verb(
        _report,
        "evorun report RUN_DIR... [--problem=ID ...] [--against=RUN_DIR] [--output=FILE.html]",
        "Prints the tables of a run and writes RUN_DIR/report.html; its browser shows the named problems or a spread.\n"
        "Several runs, or a sweep's folder, are compared on one page more: --output, else comparison.html in their\n"
        "folder. Each run meets the method of --against, else the best, on its own task, model and seed.",
    ),
    "grade": Verb(
        _grade,
        "evorun grade task=TASK responses=FILE.jsonl [output=FILE.jsonl] [task.KEY=VALUE ...] [seed=N]",
        'Grades given responses ({"id": ..., "response": ...} a line) with the task\'s parser and grader; no model.',
    ),
    "traces": Verb(
        _traces,
        "evorun traces RUN_DIR... kind=laft|dpft|dpft_full|dpft_top output=FILE.jsonl [top=0.2] [parsed_only=true] "
        "[overwrite=true]",
        "Writes fine-tuning data in chat format from completed runs, and FILE.counts.json: what was kept and dropped.\n"
        "laft: of lyria runs, the initial populations and the children that are fitter than all their parents.\n"
        "dpft: of zero_shot runs, one answer a question. dpft_full: of zero_shot and best_of_n runs, all answers.\n"
        "dpft_top: of these, each task's top share by penalised score.\n"
        "Never kept: what no model wrote, refused requests, texts that were cut short, repeats. parsed_only=true also\n"
        "drops texts without a readable answer.",
    ),
}
