"""Studies of a completed run: the value of its system prompts, and the strictness of its rubrics.

`evorun transplant`, `evorun delete-one` and `evorun rescore`.
"""

import shlex
from collections.abc import Callable, Mapping, Sequence
from dataclasses import replace
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Any

from evorun.cli.overrides import read_key
from evorun.cli.usage import USAGES, Interrupted
from evorun.errors import ConfigError
from evorun.runs.directory import REPORT, load_manifest
from evorun.runs.folders import run_folders
from evorun.runs.paths import display
from evorun.runs.printable import printable
from evorun.runs.schema import RubricScore
from evorun.runs.scores import primary_score
from evorun.runs.terminal import Terminal

if TYPE_CHECKING:
    from evorun.reports.tables import Table

WINDOW = "--window"
SAMPLES = "method.eval_samples"
ANSWERS = "answers"
EVERY = "--every"
FLAGS = {"transplant": WINDOW, "rescore": EVERY}
"""The flag of each verb, beside `--trust`."""
NUMBERS = {"transplant": (SAMPLES,), "delete-one": (SAMPLES, ANSWERS), "rescore": (ANSWERS,)}
"""The numeric settings of each verb, beside those of the run."""


def study(verb: str, arguments: Sequence[str], console: Terminal) -> int:
    """Carry out a study of a run directory, print its table and write the run's report; return the exit code.

    Of a sweep's folder, `rescore` studies each run with a rubric, and leaves the pages to `evorun report`. Raises
    ConfigError for a wrong command line and for a run that has nothing to study.
    """
    from evorun.cli.plain import composed
    from evorun.cli.trust import TRUST, recorded_config, require_trust
    from evorun.reports.evolution.section import make_principles_table
    from evorun.reports.html import write_report

    words = [word for word in arguments if word not in (TRUST, FLAGS.get(verb))]
    answering = _take_answering(words) if verb == "transplant" else []
    own = [word for word in words[1:] if word.partition("=")[0] in (SAMPLES, ANSWERS)]
    if not words or not all("=" in word for word in words[1:]) or not all(_fits(verb, word) for word in own):
        raise ConfigError(f"expected: {USAGES[verb].synopsis}; got: {' '.join(arguments) or 'nothing'}")
    path, changes = Path(words[0]), [word for word in words[1:] if word not in own]
    numbers = {word.partition("=")[0]: _count(word) for word in own}

    def carry_out(run: Path) -> "Table":
        manifest, config = recorded_config(run, changes)
        if SAMPLES in numbers:
            config["method"] = {**config["method"], "eval_samples": numbers[SAMPLES]}
        require_trust(run, manifest, config, console, given=TRUST in arguments)
        if verb == "transplant":
            answers = None
            if answering:
                made = composed([*answering, f"task={manifest.task}"])
                answers = {group: made[group] for group in ("method", "budget")}
            return transplant(run, config, console, window=WINDOW in arguments, answers=answers)
        if verb == "rescore":
            command = ["evorun", "rescore", str(run), *(word for word in arguments if word != words[0])]
            count, every = numbers.get(ANSWERS), EVERY in arguments
            return _rescore(run, config, count, every=every, command=command, console=console)
        effects = _studies(run, config, console).delete_one(numbers.get(ANSWERS))
        return make_principles_table(effects, primary_score(manifest.scores))

    runs = run_folders([path]) if verb == "rescore" and path.is_dir() else [path]
    if len(runs) > 1:
        _study_each(runs, carry_out, console)
        console.print(f"Compare the runs: evorun report {shlex.quote(display(path))}", soft_wrap=True)
        return 0
    [run] = runs
    table = carry_out(run)
    write_report(run)
    console.print_table(table.to_rich())
    console.print(f"Report: {printable(display(run / REPORT))}", soft_wrap=True)
    return 0


def _study_each(runs: Sequence[Path], carry_out: Callable[[Path], "Table"], console: Terminal) -> None:
    """Study runs one after the other, without those that have nothing to study. Raises ConfigError where none has."""
    refused: list[ConfigError] = []
    for run in runs:
        try:
            table = carry_out(run)
        except ConfigError as error:
            refused.append(error)
            continue
        console.print_table(replace(table, title=f"{table.title}: {run.name}").to_rich())
    if len(refused) == len(runs):
        raise refused[0]
    for reason in refused:
        console.print(f"left out: {reason}", style="yellow")


transplant_run, delete_one, rescore = (partial(study, verb) for verb in NUMBERS)


def resume_rescore(folder: Path, changes: Sequence[str], console: Terminal, *, trust: bool) -> int:
    """Continue a study by rubrics, as `evorun resume` does with a run; return the exit code.

    changes, trust: see `resume_tournament`. Raises ConfigError and RunDirectoryError.
    """
    from evorun.cli.trust import require_trust, with_changes
    from evorun.reports.html import write_report
    from evorun.runs.studies import load_rescore

    manifest = load_rescore(folder)
    config = with_changes(folder, manifest, changes)
    require_trust(folder, manifest, config, console, given=trust)
    run, settings = folder.resolve().parents[1], manifest.settings
    table = _rescore(
        run,
        config,
        settings["answers"],
        every=settings["every"],
        command=[*manifest.command, *changes],
        console=console,
        resumed=folder,
    )
    write_report(run)
    console.print_table(table.to_rich())
    return 0


def report_rescore(folder: Path, console: Terminal) -> None:
    """Print the scores of a study by rubrics that has ended. Raises RunDirectoryError."""
    from evorun.runs.directory import RUBRIC_SCORES
    from evorun.runs.files import read_json

    scores = read_json(folder / RUBRIC_SCORES, list[RubricScore])
    console.print_table(_make_strictness_table(scores).to_rich())


def _rescore(
    run: Path,
    config: Mapping[str, Any],
    answers: int | None,
    *,
    every: bool,
    command: Sequence[str],
    console: Terminal,
    resumed: Path | None = None,
) -> "Table":
    from evorun.runner.rubric_study import RubricStudy

    scoring = RubricStudy(run, config, console)
    try:
        return _make_strictness_table(scoring.scores(answers, every=every, command=command, resumed=resumed))
    except KeyboardInterrupt:
        console.print(
            f"interrupted; continue with: evorun resume {shlex.quote(display(scoring.folder))}", soft_wrap=True
        )
        raise Interrupted from None


def transplant(
    run: Path,
    config: Mapping[str, Any],
    console: Terminal,
    *,
    window: bool = False,
    answers: Mapping[str, Any] | None = None,
) -> "Table":
    """Test a run's system prompts under its saved weights; return the matrix, which the run's report shows.

    answers: see `PromptStudies.transplant`.
    """
    from evorun.reports.evolution.section import make_transplant_table
    from evorun.reports.population import load_population, load_transplants

    _studies(run, config, console).transplant(window=window, answers=answers)
    by_method = {matrix.method: matrix for matrix in load_transplants(run, load_population(run))}
    matrix = by_method[None if answers is None else answers["method"]["name"]]
    return make_transplant_table(matrix, primary_score(load_manifest(run).scores))


def _take_answering(words: list[str]) -> list[str]:
    """Take the words that choose a method for the answers, and its budget, out of the words; empty without a method."""
    if not any(word.startswith("method=") for word in words[1:]):
        return []
    taken = [word for word in words[1:] if read_key(word).partition(".")[0] in ("method", "budget")]
    words[:] = [word for word in words if word not in taken]
    return taken


def _studies(run: Path, config: Mapping[str, Any], console: Terminal) -> Any:
    # Imported here: the command line's help needs no methods.
    from evorun.runner.experiment import run_experiment
    from evorun.runner.prompt_studies import PromptStudies

    return PromptStudies(run, config, console, run_experiment)


def _make_strictness_table(found: Sequence[RubricScore]) -> "Table":
    """Return the scores by each rubric (rows) of the responses of each evaluation (columns)."""
    from evorun.reports.tables import Table, figure_columns, word_columns

    steps = sorted({cell.step for cell in found})
    cells = {(cell.rubric, cell.step): cell for cell in found}
    unscored, sizes = sum(cell.unscored for cell in found), sorted({cell.n for cell in found})
    size = f"{sizes[0]:,} to {sizes[-1]:,}" if len(sizes) > 1 else f"{sum(sizes):,}"
    return Table(
        [*word_columns("rubric"), *figure_columns("made after step", *(f"responses of step {step}" for step in steps))],
        [
            [rubric, refined, *(_format_score(cells.get((rubric, step))) for step in steps)]
            for rubric, refined in {cell.rubric: cell.refined for cell in found}.items()
        ],
        title="share of points given",
        caption="; ".join(
            [
                f"of {size} responses each, in brackets a 95 % interval over them (BCa bootstrap)",
                *([f"without {unscored:,} unreadable scores"] if unscored else []),
            ]
        ),
    )


def _format_score(cell: RubricScore | None) -> str:
    if cell is None or cell.score is None:
        return ""
    interval = "" if cell.low is None or cell.high is None else f" ({cell.low:.3f} to {cell.high:.3f})"
    return f"{cell.score:.3f}{interval}"


def _fits(verb: str, word: str) -> bool:
    return word.partition("=")[0] in NUMBERS[verb]


def _count(word: str) -> int:
    key, _, value = word.partition("=")
    if not value.isdecimal() or len(value) > 9:
        raise ConfigError(f"{key}: expected a number, got {value}")
    return int(value)
