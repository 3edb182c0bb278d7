"""A comparison of runs: one table, the pairs on the same problems, and the warnings that go with them."""

from collections import defaultdict
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path

from evorun.errors import ConfigError
from evorun.reports.banners import banners
from evorun.reports.comparison.groups import groups_of
from evorun.reports.comparison.pairs import Pairs, pair_all
from evorun.reports.comparison.reported import (
    ReportedFigures,
    lines_of_means,
    malformed,
    source_of,
    unlike_reported,
)
from evorun.reports.comparison.runs import SEED, Cost, Run, engine_of, load_runs, model_of
from evorun.reports.comparison.seeds import name_over_seeds, seed_groups
from evorun.reports.text import count
from evorun.runs.paths import display
from evorun.runs.schema import Metric
from evorun.runs.scores import Score
from evorun.runs.statistics import clustered_mean, wilson

MARKS = "marks"

_NOTHING = Metric(None, None, 0)


@dataclass(frozen=True)
class Row:
    """A line of the table: a run, or the mean over the seeds of one set-up."""

    name: str
    facts: Mapping[str, str]
    """Task, model, engine, seed and marks, by the heading that a column of them would have."""
    regime: str
    n: str
    scores: Sequence[Score]
    """The primary one first."""
    metrics: Mapping[str, Metric]
    """Means, by score name."""
    by_stratum: Mapping[str, Metric]
    """Of the primary score."""
    cost: Mapping[str, Cost]
    """A problem's, by role."""
    reported: ReportedFigures | None
    unlike_reported: str | None = None
    """The reason not to compare the figures with reported ones; None when they may be."""

    @property
    def primary(self) -> Score:
        """The score by which the run is ranked."""
        return self.scores[0]

    def figure(self, name: str) -> Metric:
        """Return the mean of the score of that name."""
        return self.metrics.get(name, _NOTHING)

    def reported_figure(self, name: str) -> float | None:
        """Return a paper's mean of the score of that name."""
        return None if self.reported is None else self.reported.metrics.get(name)

    def reported_of_stratum(self, stratum: str) -> float | None:
        """Return a paper's primary score in a stratum."""
        # papers break down accuracies only
        if self.reported is None or not self.primary.is_correctness:
            return None
        return self.reported.of_stratum(stratum)

    @property
    def above_reported(self) -> float | None:
        """Measured less reported primary score; None where one is missing or they do not compare."""
        return self.above(self.figure(self.primary.name).value, self.reported_figure(self.primary.name))

    def above(self, measured: float | None, reported: float | None) -> float | None:
        """Return measured less reported; None where one is missing or they do not compare."""
        return None if measured is None or reported is None or self.unlike_reported else measured - reported


@dataclass(frozen=True)
class Comparison:
    """Several runs side by side."""

    runs: Sequence[Run]
    """By task, the best first: by the primary score, among equals by the second one."""
    rows: Sequence[Row]
    """One for each run, in the same order."""
    means: Sequence[Row]
    """Means over the seeds of one set-up; empty when every set-up ran with one seed."""
    pairs: Pairs
    chosen: bool
    """The reference was named, not taken for its figures."""
    warnings: Sequence[str]
    remarks: Sequence[str]

    @property
    def shared_facts(self) -> dict[str, str]:
        """Facts that all runs share, by name: to be said once, not in a column."""
        first = self.rows[0].facts
        return {name: value for name, value in first.items() if all(row.facts[name] == value for row in self.rows)}

    @property
    def strata(self) -> list[str]:
        """The strata of all runs."""
        return sorted({stratum for row in self.rows for stratum in row.by_stratum})

    @property
    def primaries(self) -> list[Score]:
        """The primary scores of all tasks, mostly one."""
        return _distinct(row.primary for row in self.rows)

    @property
    def other_scores(self) -> list[Score]:
        """All other scores, those of the first runs first."""
        primaries = {score.name for score in self.primaries}
        return _distinct(score for row in self.rows for score in row.scores if score.name not in primaries)

    @property
    def second(self) -> Score | None:
        """The score that orders runs equal in the primary one, where all runs that have one have the same."""
        found = _distinct(run.outcome.second for run in self.runs if run.outcome.second is not None)
        return found[0] if len(found) == 1 and found[0] in self.other_scores else None

    @property
    def drawn_scores(self) -> list[Score]:
        """The other scores of which all runs have curves, the second one first."""
        common = [score for score in self.other_scores if all(run.curves.get(score.name) for run in self.runs)]
        return sorted(common, key=lambda score: score != self.second)

    @property
    def has_reported(self) -> bool:
        """True when any run's configuration carries a paper's figures."""
        return any(row.reported for row in self.rows)

    @property
    def sources(self) -> list[tuple[str, str]]:
        """Source and note of papers' figures, each once."""
        found = (source_of(run.manifest.config) for run in self.runs)
        return list(dict.fromkeys(source for source in found if source is not None))


def compare(run_dirs: Sequence[Path], against: Path | None = None) -> Comparison:
    """Compare two runs or more, each with the reference of its group.

    The reference is the run `against`, in other groups the same method with the same settings; by default it is
    chosen (see `groups_of`).

    Raises RunDirectoryError or DataError for a run that cannot be read, ConfigError when `against` is none of them.
    """
    loaded = load_runs(run_dirs)
    tasks = list(dict.fromkeys(run.manifest.task for run in loaded))
    best_first = sorted(loaded, key=lambda run: run.rank, reverse=True)
    runs = sorted(best_first, key=lambda run: tasks.index(run.manifest.task))
    reference = None
    if against is not None:
        reference = next((run for run in runs if run.outcome.run_dir.resolve() == against.resolve()), None)
        if reference is None:
            raise ConfigError(f"--against: expected one of the compared runs, got {display(against)}")
    seeds = seed_groups(runs)
    rows = [_row(run) for run in runs]
    unlike = dict.fromkeys(row.unlike_reported for row in rows if row.reported and row.unlike_reported)
    # a run's configuration may be hand-made or an older evorun's: it loses its reported figures, not the comparison
    unread = [
        f"{run.name}: reported figures are left out, for their configuration is malformed: {reason}"
        for run in runs
        if (reason := malformed(run.manifest.config)) is not None
    ]
    return Comparison(
        runs=runs,
        rows=rows,
        means=[_mean_row(members) for members in seeds],
        pairs=pair_all(groups_of(runs, reference), seeds),
        chosen=against is not None,
        warnings=_warnings(runs),
        remarks=[
            *unread,
            *(f"No difference to reported figures is shown where {reason}." for reason in unlike),
            *lines_of_means([(run.manifest, run.outcome.metrics) for run in runs]),
        ],
    )


def _row(run: Run) -> Row:
    manifest = run.manifest
    n = count(run.metric(run.primary.name).n)
    return Row(
        name=run.name,
        facts={
            "task": manifest.task,
            "model": model_of(manifest),
            "engine": engine_of(manifest),
            SEED: str(manifest.seed),
            MARKS: ", ".join(run.marks),
        },
        regime=manifest.regime,
        n=n if run.outcome.finished else f"{n} of {count(len(run.problems))}",
        scores=run.outcome.scores,
        metrics=run.outcome.metrics,
        by_stratum={
            stratum: metrics[run.primary.name]
            for stratum, metrics in run.outcome.by_stratum.items()
            if run.primary.name in metrics
        },
        cost=run.cost,
        reported=run.reported,
        unlike_reported=unlike_reported(manifest),
    )


def _mean_row(members: Sequence[Run]) -> Row:
    row = _row(members[0])
    seeds = sorted({run.manifest.seed for run in members})
    n = len(members)
    cost = {}
    for role in row.cost:
        spent = [run.cost.get(role, Cost(0, 0, 0)) for run in members]  # a role that a seed never called cost nothing
        cost[role] = Cost(
            sum(one.calls for one in spent) / n,
            sum(one.prompt_tokens for one in spent) / n,
            sum(one.completion_tokens for one in spent) / n,
        )
    sizes = [run.metric(run.primary.name).n for run in members]
    return Row(
        name=name_over_seeds(members),
        facts={**row.facts, SEED: ", ".join(map(str, seeds))},
        regime=row.regime,
        n=f"{len(members)} x {row.n}" if len(set(sizes)) == 1 else count(sum(sizes)),
        scores=row.scores,
        metrics={score.name: _clustered(members, score) for score in row.scores},
        by_stratum={stratum: _clustered(members, row.primary, stratum) for stratum in row.by_stratum},
        cost=cost,
        reported=row.reported,
        unlike_reported=row.unlike_reported,
    )


def _clustered(members: Sequence[Run], score: Score, stratum: str | None = None) -> Metric:
    """Return the mean of a score over all the runs' problems; a problem's seeds count as one draw in the interval."""
    by_problem: dict[str, list[float]] = defaultdict(list)
    for run in members:
        for prediction in run.outcome.predictions:
            value = score.value_in(prediction)
            if value is not None and stratum in (None, prediction.stratum):
                by_problem[prediction.problem].append(value)
    sums, counts = [sum(values) for values in by_problem.values()], [len(values) for values in by_problem.values()]
    if not counts:
        return _NOTHING
    mean = sum(sums) / sum(counts)
    alike = len({total / n for total, n in zip(sums, counts, strict=True)}) == 1
    # of nothing but right (or wrong) answers every draw is alike; Wilson's interval counts each problem as one trial
    if score.rate and mean in (0, 1):
        return Metric(mean, wilson(len(counts) if mean else 0, len(counts)), sum(counts))
    # where all problems are alike every draw of them is, which says nothing about the uncertainty
    return Metric(mean, None if alike and not score.rate else clustered_mean(sums, counts), sum(counts))


def _distinct(scores: Iterable[Score]) -> list[Score]:
    """Return the scores, of each name the first."""
    found: dict[str, Score] = {}
    for score in scores:
        found.setdefault(score.name, score)
    return list(found.values())


def _warnings(runs: Sequence[Run]) -> list[str]:
    """Return the runs' banners, each once, with the names of the runs that it holds for unless it holds for all."""
    holders: dict[str, list[str]] = defaultdict(list)
    # those of single runs by name: a sweep has one model for all, and repeating its line for each would hide the rest
    for run in runs:
        for line in banners(run.outcome):
            holders[line].append(run.name)
    return [line if len(named) == len(runs) else f"{'; '.join(named)}: {line}" for line, named in holders.items()]
