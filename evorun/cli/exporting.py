"""`evorun traces`: make fine-tuning data from recorded runs, without calling any model."""

from collections.abc import Sequence
from pathlib import Path
from typing import NamedTuple

from evorun.cli.options import split_runs, take_flag
from evorun.errors import ConfigError, DataError
from evorun.reports.tables import Table, figure_columns, word_columns
from evorun.runner import registry
from evorun.runs.folders import run_folders
from evorun.runs.outputs import refuse_folder_of_records
from evorun.runs.paths import display
from evorun.runs.terminal import Terminal
from evorun.traces import REASONS, Counts, Settings, collect, counts_file, write_traces
from evorun.traces.kinds import make_settings

_OPTIONS = ("kind", "output", "top", "parsed_only", "overwrite")


class _Request(NamedTuple):
    folders: list[Path]
    settings: Settings
    output: Path
    overwrite: bool


def export_traces(arguments: Sequence[str], console: Terminal) -> int:
    """Select examples from runs, print the numbers kept and dropped, write both files, and return the exit code.

    Raises ConfigError for a wrong command line, and the errors of `collect` and `write_traces`.
    """
    request = _request(arguments)
    traces = collect(request.folders, request.settings)
    console.print_table(_make_table(traces.counts).to_rich())
    for note in _notes(traces.counts):
        console.print(note, style="yellow", soft_wrap=True)
    if not traces.examples:
        raise DataError(f"none of {traces.counts.total.found} responses was kept, so nothing is written")
    write_traces(traces, request.output, overwrite=request.overwrite)
    written = f"written: {display(request.output)}, {display(counts_file(request.output))}"
    console.print(written, soft_wrap=True)
    return 0


def _request(arguments: Sequence[str]) -> _Request:
    runs, options = split_runs("traces", arguments, _OPTIONS, ("kind", "output"))
    settings = make_settings(options["kind"], options.get("top"), take_flag(options, "parsed_only"))
    folders, output = run_folders(runs), Path(options["output"])
    if output.suffix != ".jsonl":
        raise ConfigError(f"output: expected the name of a .jsonl file, got {output}")
    refuse_folder_of_records("output", output.parent)
    return _Request(folders, settings, output, take_flag(options, "overwrite"))


def _make_table(counts: Counts) -> Table:
    reasons = [reason for reason in REASONS if reason in counts.total.dropped]
    return Table(
        [*word_columns("operator"), *figure_columns("found", "kept", *(REASONS[reason] for reason in reasons))],
        [
            (name, tally.found, tally.kept, *(tally.dropped.get(reason, 0) for reason in reasons))
            for name, tally in [*counts.by_operator.items(), ("all", counts.total)]
        ],
        title=f"responses for kind={counts.kind}",
        total=len(counts.by_operator),
    )


def _notes(counts: Counts) -> list[str]:
    simulated = [run.run for run in counts.runs if run.simulated]
    training = sorted(set(registry.training_splits().values()))
    evaluated = [run.run for run in counts.runs if run.split not in (None, *training)]
    notes = []
    if simulated:
        notes.append(f"simulated, not written by a model: {', '.join(simulated)}")
    if evaluated:
        notes.append(
            "made from a test split, on which a model trained with this data must not be evaluated "
            f"(runs with task.split={' or '.join(training)} give training data): {', '.join(evaluated)}"
        )
    return notes
