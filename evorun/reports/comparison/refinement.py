"""Rubrics of several runs side by side: lengths and strictness (MPO, figure 5), and what refining cost (table 8)."""

from collections import defaultdict
from collections.abc import Iterable, Mapping, Sequence
from contextlib import closing
from pathlib import Path
from statistics import fmean

from msgspec.structs import replace

from evorun.errors import JournalError, RunDirectoryError
from evorun.reports import text
from evorun.reports.comparison.comparison import Comparison
from evorun.reports.comparison.grids import Grid
from evorun.reports.comparison.runs import Run
from evorun.reports.drawing import Drawing
from evorun.reports.rubrics.lineage import Length, lengths, rubric_scores
from evorun.reports.rubrics.plots import lengths_plot, strictness_plot
from evorun.runs.journal_file import JOURNAL
from evorun.runs.journal_reader import open_journal
from evorun.runs.reading import read_records
from evorun.runs.schema import CandidateRecord, RubricScore

REFINEMENT = ("analyse", "refine", "merge", "calibrate", "rescore")
"""Call roles of refinement."""
BEYOND_UPDATE = "beyond_update"
"""Names, in a journal, the time that refinement took beyond the update beside it."""

NOTE = (
    "Refinement: the calls of analyses, refinements and mergers. They go by beside updates: beyond updates is the part "
    "that made the run longer. Beside fixed: the run's time, over that of the run with the same trainer under a rubric "
    "that stays (the paper has 1.11); times compare on equal machines only."
)


def rubric_drawings(runs: Sequence[Run], colours: Mapping[str, str]) -> Mapping[str, Drawing]:
    """Draw figures 5a and 5b, a line a run, by their captions; of several keys the mean. colours: by run."""
    found = {run.name: lengths(_rubrics(run)) for run in runs if run.outcome.hacking is not None}
    drawn = {
        "Length of the rubric": lengths_plot({name: _mean_lengths(of_run) for name, of_run in found.items()}, colours),
        "Strictness of the rubric": strictness_plot(
            {run.name: _mean_scores(run, found[run.name]) for run in runs if run.name in found}, colours
        ),
    }
    return {caption: drawing for caption, drawing in drawn.items() if drawing is not None}


def overhead_grid(comparison: Comparison) -> Grid:
    """Return what refinement added to each run that refined: calls, tokens and time, beside a run that did not."""
    columns = ["run", "calls", "of\nrefinement", "tokens", "of\nrefinement", "model time", "of\nrefinement"]
    grid = Grid([*columns, "beyond\nupdates", "run time", "beside\nfixed"], frozenset({0}))
    for run in comparison.runs:
        cost = run.outcome.cost
        added = [cost[role] for role in REFINEMENT if role in cost]
        if not added or "total" not in cost:
            continue
        total, seconds = cost["total"], run.manifest.seconds
        beside = _fixed(run, comparison.runs)
        ratio = seconds / beside if seconds is not None and beside else None
        beyond = seconds_beyond_updates(run.outcome.run_dir)
        grid.rows.append(
            [
                run.name,
                text.count(total.calls),
                _share(sum(one.calls for one in added), total.calls),
                text.compact(total.tokens),
                _share(sum(one.tokens for one in added), total.tokens),
                _time(total.seconds),
                _share(sum(one.seconds or 0 for one in added), total.seconds),
                _time(beyond),
                _time(seconds),
                text.MISSING if ratio is None else f"{ratio:.2f}",
            ]
        )
    return grid


def seconds_beyond_updates(run: Path) -> float | None:
    """Return for how long refinements went on when the updates beside them had ended; None where no journal says."""
    try:
        with closing(open_journal(run / JOURNAL)) as reader:
            numbers = [
                number for number, (key, _) in enumerate(reader.index()) if key.split("|")[-3:-2] == [BEYOND_UPDATE]
            ]
            return sum(reader.effect(number).seconds for number in numbers) if numbers else None
    except (JournalError, RunDirectoryError):
        return None


def _rubrics(run: Run) -> Iterable[CandidateRecord]:
    return read_records(run.outcome.run_dir / "candidates.jsonl", CandidateRecord)


def _mean_lengths(by_key: Mapping[str, Sequence[Length]]) -> list[Length]:
    by_number: dict[int, list[Length]] = defaultdict(list)
    for one in (one for of_key in by_key.values() for one in of_key):
        by_number[one.number].append(one)
    return [found[0]._replace(words=fmean(one.words for one in found)) for _, found in sorted(by_number.items())]


def _mean_scores(run: Run, versions: Mapping[str, Sequence[Length]]) -> list[tuple[int, RubricScore]]:
    """Return what the rubrics of each number gave the responses of the last evaluation."""
    number = {one.rubric: one.number for of_key in versions.values() for one in of_key}
    scores = [one for one in rubric_scores(run.outcome.run_dir) if one.rubric in number and one.score is not None]
    last = max((one.step for one in scores), default=0)
    by_number: dict[int, list[RubricScore]] = defaultdict(list)
    for one in scores:
        if one.step == last:
            by_number[number[one.rubric]].append(one)
    means = []
    for at, found in sorted(by_number.items()):
        mean = fmean(one.score for one in found if one.score is not None)
        # an interval over problems holds for one rubric, and for no mean of several
        means.append((at, found[0] if len(found) == 1 else replace(found[0], score=mean, low=None, high=None)))
    return means


def _fixed(run: Run, runs: Sequence[Run]) -> float | None:
    """Return the mean seconds of the runs with the same trainer, task and models under a rubric that stays."""
    method = run.manifest.config.get("method")
    trainer = method.get("trainer") if isinstance(method, Mapping) else None
    seconds = [
        one.manifest.seconds
        for one in runs
        if one.manifest.method == trainer
        and one.outcome.hacking is not None
        and one.manifest.task == run.manifest.task
        and one.manifest.models.get("policy") == run.manifest.models.get("policy")
        and one.manifest.seconds is not None
    ]
    return fmean(seconds) if seconds else None


def _share(part: float, whole: float | None) -> str:
    return text.percent(part / whole if whole else None)


def _time(seconds: float | None) -> str:
    return text.MISSING if seconds is None else text.duration(seconds)
