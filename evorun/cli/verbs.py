"""The verbs that need more than one room: doctor, resume and report; `run_verb` carries out any."""

import pkgutil
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path

from evorun.cli.usage import USAGES, exit_code
from evorun.errors import ConfigError
from evorun.runs.terminal import Terminal


def run_verb(verb: str, arguments: Sequence[str]) -> int:
    """Carry out a verb of `USAGES` with the arguments after it; return the exit code."""
    # resolved only now, so that no verb loads what only another needs
    function = pkgutil.resolve_name(f"evorun.cli.{USAGES[verb].function}")
    return int(function(arguments, Terminal()) or 0)


def doctor(arguments: Sequence[str], console: Terminal) -> int:
    """Print what this machine can run."""
    from evorun.cli.doctor import findings, print_findings
    from evorun.cli.output import JSON, print_json

    _expect(list(arguments) in ([], [JSON]), "doctor", arguments)
    if arguments:
        print_json({"findings": [finding._asdict() for finding in findings()]})
        return 0
    print_findings(console)
    return 0


def resume(arguments: Sequence[str], console: Terminal) -> int:
    """Continue a run, a sweep, a tournament or a study of a run. Raises ConfigError for a wrong command line."""
    from evorun.cli.running import carry_out
    from evorun.cli.sweep_resume import is_sweep_folder, resume_sweep
    from evorun.cli.trust import TRUST, recorded_config, require_trust
    from evorun.runs.directory import REDO_CALLS, TOURNAMENT
    from evorun.runs.studies import REJUDGED, RESCORED

    words = [word for word in arguments if word not in (TRUST, REDO_CALLS)]
    _expect(bool(words) and all("=" in word for word in words[1:]), "resume", arguments)
    path, changes = Path(words[0]), words[1:]
    if is_sweep_folder(path):
        _expect(REDO_CALLS not in arguments, "resume", arguments)
        return resume_sweep(path, changes, console, trust=TRUST in arguments)
    if (path / TOURNAMENT).exists():
        from evorun.cli.tournament import resume_tournament

        return resume_tournament(path, changes, console, trust=TRUST in arguments)
    if (path / RESCORED).exists():
        from evorun.cli.studies import resume_rescore

        return resume_rescore(path, changes, console, trust=TRUST in arguments)
    if (path / REJUDGED).exists():
        from evorun.cli.rejudging import resume_rejudge

        return resume_rejudge(path, changes, console, trust=TRUST in arguments)
    manifest, config = recorded_config(path, changes)
    require_trust(path, manifest, config, console, given=TRUST in arguments)
    status = carry_out(config, path, [*manifest.command, *changes], console, redo_calls=REDO_CALLS in arguments)
    return exit_code(status)


def report(arguments: Sequence[str], console: Terminal) -> int:
    """Print the tables of runs and write their pages. Raises ConfigError for a wrong command line."""
    from evorun.cli.output import JSON, print_json, say_without_terminal, showing_progress
    from evorun.exports.documents import comparison_document, run_document
    from evorun.reports import comparison
    from evorun.reports.comparison import read_names
    from evorun.reports.drawing import drawings_of_width
    from evorun.reports.html import is_up_to_date, make_report, render_report
    from evorun.reports.page import write_page
    from evorun.reports.summary import print_summary
    from evorun.runs.directory import REPORT, TOURNAMENT
    from evorun.runs.folders import run_folders
    from evorun.runs.outputs import refuse_folder_of_records, refuse_replacing
    from evorun.runs.paths import display
    from evorun.runs.studies import REJUDGED, RESCORED
    from evorun.runs.sweeps import describe_unfinished

    given: list[Path] = []
    valued = ("--problem", "--against", "--score", "--output", "--export", "--width", "--name")
    options: dict[str, list[str]] = {name: [] for name in valued}
    overwrite, as_json = "--overwrite" in arguments, JSON in arguments
    rest = iter(word for word in arguments if word not in ("--overwrite", JSON))
    for argument in rest:
        option, equals, value = argument.partition("=")
        if option in options:
            value = value if equals else next(rest, "")
            _expect(bool(value), "report", arguments)
            options[option].append(value)
        else:
            _expect(not argument.startswith("-"), "report", arguments)
            given.append(Path(argument))
    problems, against, scores, output, exported, widths, renamed = options.values()
    _expect(bool(given) and max(map(len, (against, scores, output, exported, widths))) <= 1, "report", arguments)
    width = _read_width(widths[0]) if widths else None
    if widths and not exported:
        raise ConfigError("--width: expected --export=FOLDER beside it, whose figures have that width; got none")
    _expect(all(name.endswith(".html") for name in output), "report", arguments)
    if len(given) == 1 and (given[0] / TOURNAMENT).exists():
        from evorun.cli.tournament import report_tournament

        _expect(len(arguments) == 1, "report", arguments)
        report_tournament(given[0], console)
        return 0
    if len(given) == 1 and (given[0] / RESCORED).exists():
        from evorun.cli.studies import report_rescore

        _expect(len(arguments) == 1, "report", arguments)
        report_rescore(given[0], console)
        return 0
    if len(given) == 1 and (given[0] / REJUDGED).exists():
        from evorun.cli.rejudging import report_rejudge

        _expect(len(arguments) == 1, "report", arguments)
        report_rejudge(given[0], console)
        return 0
    folders = run_folders(given)
    if len(folders) == 1 and (against or scores or output or renamed):
        raise ConfigError("expected several runs for --against, --score, --name and --output, got one")
    for name in exported:
        refuse_folder_of_records("--export", Path(name))
        if Path(name).exists() and not Path(name).is_dir():
            raise ConfigError(f"--export: expected a folder, found a file at {name}; choose another place")
    for name in output:
        refuse_folder_of_records("--output", Path(name).parent)
        refuse_replacing("--output", Path(name), overwrite=overwrite, how="--overwrite")
    files: list[Path] = []
    if len(folders) == 1:
        report = make_report(folders[0], problems or None)
        for path in exported:
            with drawings_of_width(width):  # drawn again: the page's figures keep their width
                drawn = report if width is None else make_report(folders[0], problems or None)
            files = drawn.export(Path(path), overwrite=overwrite)
        write_page(folders[0] / REPORT, report.page)
        if as_json:
            print_json({"runs": [run_document(folders[0])], "comparison": None})
            return 0
        for line in describe_unfinished(folders):
            console.print(line, style="bold yellow", soft_wrap=True)
        print_summary(folders[0], console)
        for table in report.problems:
            console.print_table(table.to_rich())
        if report.problems:
            page = display(folders[0] / REPORT)
            console.print(f"Whole answers, and the judge's reasons: {page}#candidates", soft_wrap=True)
        _print_exported(files, exported, console)
        return 0
    for path in exported:  # long before the other files are known: a comparison always has this one
        refuse_replacing("--export", Path(path) / f"{comparison.ARMS}.csv", overwrite=overwrite, how="--overwrite")
    file = Path(output[0]) if output else comparison.choose_folder(folders) / comparison.COMPARISON
    if not overwrite:
        comparison.refuse_losing_runs(file, folders)
    outdated = [folder for folder in folders if problems or not is_up_to_date(folder)]
    extra = f" and drawing the pages of {len(outdated)}" if outdated else ""
    say_without_terminal(f"comparing {len(folders)} runs{extra}")
    # Render all pages before writing the first: an error then leaves every report unchanged.
    with showing_progress() as progress:  # the comparison first, as a wrong reference is found by then
        comparing = progress.add_task("comparing the runs", total=None)
        reading = progress.track(folders, description="reading the runs")
        with _with_dashes("against", "score", "name"):
            compared = comparison.compare(
                reading, next(iter(against), None), next(iter(scores), None), read_names(renamed)
            )
        progress.update(comparing, total=1, completed=1)
        drawing = progress.track(outdated, description="drawing the page of each run")
        pages = [render_report(folder, problems or None) for folder in drawing]
        drawing_comparison = progress.add_task("drawing the comparison", total=None)
        for path in exported:
            files = comparison.export_comparison(compared, Path(path), width=width, overwrite=overwrite)
        written = comparison.write_comparison(compared, file)
        progress.update(drawing_comparison, total=1, completed=1)
    if not as_json:
        comparison.print_comparison(compared, written, console)
        _print_exported(files, exported, console)
    for folder, page in zip(outdated, pages, strict=True):
        write_page(folder / REPORT, page)
    if as_json:
        runs = [run_document(folder) for folder in folders]
        print_json({"runs": runs, "comparison": comparison_document(compared, written)})
    return 0


def _read_width(given: str) -> float:
    """Return a width in inches. Raises ConfigError for anything else."""
    from evorun.reports.drawing import drawings_of_width

    try:
        width = float(given)
    except ValueError:
        raise ConfigError(f"--width: expected inches, such as 3.3, got {given}") from None
    with _with_dashes("width"), drawings_of_width(width):  # refused before anything is read
        return width


@contextmanager
def _with_dashes(*options: str) -> Iterator[None]:
    """Name options in errors as this verb does, with dashes, which `evorun export` and Python leave out."""
    try:
        yield
    except ConfigError as error:
        dashes = "--" if str(error).startswith(tuple(f"{option}:" for option in options)) else ""
        raise ConfigError(f"{dashes}{error}") from error


def _print_exported(files: Sequence[Path], folders: Sequence[str], console: Terminal) -> None:
    for folder in folders:
        console.print(f"Exported: {len(files)} files (figures and tables) in {folder}", soft_wrap=True)


def _expect(fits: bool, verb: str, arguments: Sequence[str]) -> None:
    if not fits:
        raise ConfigError(f"expected: {USAGES[verb].synopsis}; got: {' '.join(arguments) or 'nothing'}")
