"""The verbs beside a run: list, doctor, resume, report, grade, calibrate, traces, studies of a run, tournament."""

from collections.abc import Callable, Sequence
from pathlib import Path

from evorun.cli.usage import EXIT_FAILED, EXIT_INTERRUPTED, USAGES
from evorun.errors import ConfigError
from evorun.runs.terminal import Terminal


def _list(arguments: Sequence[str]) -> int:
    from evorun.cli.listing import print_listing

    print_listing(arguments, Terminal())
    return 0


def _doctor(arguments: Sequence[str]) -> int:
    from evorun.cli.doctor import print_findings

    _expect(len(arguments) == 0, "doctor", arguments)
    print_findings(Terminal())
    return 0


def _resume(arguments: Sequence[str]) -> int:
    from evorun.cli.running import carry_out
    from evorun.cli.sweep_end import refuse_sweep
    from evorun.cli.trust import TRUST, recorded_config, require_trust
    from evorun.runs.directory import REDO_CALLS, TOURNAMENT

    words, console = [word for word in arguments if word not in (TRUST, REDO_CALLS)], Terminal()
    _expect(bool(words) and all("=" in word for word in words[1:]), "resume", arguments)
    path, changes = Path(words[0]), words[1:]
    refuse_sweep(path)
    if (path / TOURNAMENT).exists():
        from evorun.cli.tournament import resume_tournament

        return resume_tournament(path, changes, console, trust=TRUST in arguments)
    manifest, config = recorded_config(path, changes)
    require_trust(path, manifest, config, console, given=TRUST in arguments)
    status = carry_out(config, path, [*manifest.command, *changes], console, redo_calls=REDO_CALLS in arguments)
    return {"completed": 0, "interrupted": EXIT_INTERRUPTED}.get(status, EXIT_FAILED)


def _report(arguments: Sequence[str]) -> int:
    from evorun.reports import comparison
    from evorun.reports.html import REPORT, export_report, render_report
    from evorun.reports.page import write_page
    from evorun.reports.summary import print_summary
    from evorun.runs.directory import TOURNAMENT
    from evorun.runs.folders import run_folders
    from evorun.runs.outputs import refuse_folder_of_records, refuse_replacing

    given: list[Path] = []
    options: dict[str, list[str]] = {"--problem": [], "--against": [], "--output": [], "--export": []}
    overwrite = "--overwrite" in arguments
    rest = iter(word for word in arguments if word != "--overwrite")
    for argument in rest:
        option, equals, value = argument.partition("=")
        if option in options:
            value = value if equals else next(rest, "")
            _expect(bool(value), "report", arguments)
            options[option].append(value)
        else:
            _expect(not argument.startswith("-"), "report", arguments)
            given.append(Path(argument))
    problems, against, output, exported = options.values()
    _expect(bool(given) and max(len(against), len(output), len(exported)) <= 1, "report", arguments)
    _expect(all(name.endswith(".html") for name in output), "report", arguments)
    if len(given) == 1 and (given[0] / TOURNAMENT).exists():
        from evorun.cli.tournament import report_tournament

        _expect(len(arguments) == 1, "report", arguments)
        report_tournament(given[0], Terminal())
        return 0
    folders = run_folders(given)
    if len(folders) == 1 and (against or output):
        raise ConfigError("expected several runs for --against and --output, got one")
    for name in exported:
        refuse_folder_of_records("--export", Path(name))
        if Path(name).exists() and not Path(name).is_dir():
            raise ConfigError(f"--export: expected a folder, found a file at {name}; choose another place")
    for name in output:
        refuse_folder_of_records("--output", Path(name).parent)
        refuse_replacing("--output", Path(name), overwrite=overwrite, how="--overwrite")
    # Render all pages before writing the first: an error then leaves every report unchanged.
    pages = [render_report(folder, problems or None) for folder in folders]
    if len(folders) == 1:
        for path in exported:
            export_report(folders[0], Path(path), overwrite=overwrite)
    if len(folders) > 1:
        compared = comparison.compare(folders, Path(against[0]) if against else None)
        file = Path(output[0]) if output else comparison.comparison_folder(folders) / comparison.COMPARISON
        for path in exported:
            comparison.export_comparison(compared, Path(path), overwrite=overwrite)
        comparison.print_comparison(compared, comparison.write_comparison(compared, file), Terminal())
    for folder, page in zip(folders, pages, strict=True):
        write_page(folder / REPORT, page)
    if len(folders) == 1:
        print_summary(folders[0], Terminal())
    return 0


def _grade(arguments: Sequence[str]) -> int:
    from evorun.cli.grading import grade_file

    return grade_file(arguments, Terminal())


def _traces(arguments: Sequence[str]) -> int:
    from evorun.cli.exporting import export_traces

    return export_traces(arguments, Terminal())


def _calibrate(arguments: Sequence[str]) -> int:
    from evorun.cli.calibrating import calibrate_run

    return calibrate_run(arguments, Terminal())


def _transplant(arguments: Sequence[str]) -> int:
    from evorun.cli.studies import study

    return study("transplant", arguments, Terminal())


def _delete_one(arguments: Sequence[str]) -> int:
    from evorun.cli.studies import study

    return study("delete-one", arguments, Terminal())


def _rescore(arguments: Sequence[str]) -> int:
    from evorun.cli.studies import study

    return study("rescore", arguments, Terminal())


def _tournament(arguments: Sequence[str]) -> int:
    from evorun.cli.tournament import tournament

    return tournament(arguments, Terminal())


def _expect(fits: bool, verb: str, arguments: Sequence[str]) -> None:
    if not fits:
        raise ConfigError(f"expected: {USAGES[verb].synopsis}; got: {' '.join(arguments) or 'nothing'}")


# Each takes the arguments after the verb and returns the exit code. Its imports are inside, so that no verb loads what
# only another needs.
VERBS: dict[str, Callable[[Sequence[str]], int]] = {
    "list": _list,
    "doctor": _doctor,
    "resume": _resume,
    "report": _report,
    "grade": _grade,
    "calibrate": _calibrate,
    "traces": _traces,
    "transplant": _transplant,
    "delete-one": _delete_one,
    "rescore": _rescore,
    "tournament": _tournament,
}
