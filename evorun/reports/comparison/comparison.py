"""A comparison of runs: one table, the pairs on the same problems, and what must be said beside them."""

from collections import defaultdict
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path

from evorun.errors import ConfigError
from evorun.reports.banners import banners
from evorun.reports.comparison.groups import groups_of
from evorun.reports.comparison.pairs import Pairs, pair_all
from evorun.reports.comparison.reported import ReportedFigures, malformed, source_of, unlike_reported
from evorun.reports.comparison.runs import SEED, Cost, Run, engine_of, load_runs, model_of
from evorun.reports.comparison.seeds import name_over_seeds, seed_groups
from evorun.reports.text import count
from evorun.runs.paths import display
from evorun.runs.results import ACCURACY, MAIN_SCORE
from evorun.runs.schema import Metric
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
    accuracy: Metric
    scores: Mapping[str, Metric]
    """Means, by score name."""
    by_stratum: Mapping[str, Metric]
    cost: Mapping[str, Cost]
    """A problem's, by role."""
    reported: ReportedFigures | None
    unlike_reported: str | None = None
    """Why the figures must not be held against reported ones; None when they may."""

    def figure(self, name: str) -> Metric:
        """Return the accuracy, or the score of that name."""
        return self.accuracy if name == ACCURACY else self.scores.get(name, _NOTHING)

    def reported_figure(self, name: str) -> float | None:
        """Return what a paper reports of the accuracy, or of the score of that name."""
        if self.reported is None:
            return None
        return self.reported.accuracy if name == ACCURACY else self.reported.metrics.get(name)

    @property
    def above_reported(self) -> float | None:
        """Measured less reported accuracy, a fraction; None where one is missing or they do not compare."""
        return self.above(self.accuracy.value, self.reported_figure(ACCURACY))

    def above(self, measured: float | None, reported: float | None) -> float | None:
        """Return measured less reported; None where one is missing or they do not compare."""
        return None if measured is None or reported is None or self.unlike_reported else measured - reported


@dataclass(frozen=True)
class Comparison:
    """Several runs side by side."""

    runs: Sequence[Run]
    """By task, the most accurate first; among equals, the one with the highest main score."""
    rows: Sequence[Row]
    """One for each run, in the same order."""
    means: Sequence[Row]
    """Means over the seeds of one set-up; empty when every set-up ran with one seed."""
    pairs: Pairs
    chosen: bool
    """The reference was named, not taken for its accuracy."""
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
    def scores(self) -> list[str]:
        """The names of all scores, those of the first runs first."""
        return list(dict.fromkeys(name for row in self.rows for name in row.scores))

    @property
    def drawn_scores(self) -> list[str]:
        """The scores that all runs have along their course, the main one first."""
        common = [name for name in self.scores if all(run.curves.get(name) for run in self.runs)]
        return sorted(common, key=lambda name: name != MAIN_SCORE)

    @property
    def has_reported(self) -> bool:
        """Whether any run's configuration carries a paper's figures."""
        return any(row.reported for row in self.rows)

    @property
    def sources(self) -> list[tuple[str, str]]:
        """Source and note of what papers report, each once."""
        found = (source_of(run.manifest.config) for run in self.runs)
        return list(dict.fromkeys(source for source in found if source is not None))


def compare(run_dirs: Sequence[Path], against: Path | None = None) -> Comparison:
    """Compare two runs or more, each with the reference of its group.

    The reference is the run `against`, in other groups the same method with the same settings; by default it is
    chosen (see `groups_of`).

    Raises RunDirectoryError or DataError for a run that cannot be read, ConfigError when `against` is none of them.
    """
    runs = _ordered(load_runs(run_dirs))
    groups = groups_of(runs, None if against is None else _named(runs, against))
    seeds = seed_groups(runs)
    rows = [_row(run) for run in runs]
    return Comparison(
        runs=runs,
        rows=rows,
        means=[_mean_row(members) for members in seeds],
        pairs=pair_all(groups, seeds),
        chosen=against is not None,
        warnings=_warnings(runs),
        remarks=[*_malformed(runs), *_incomparable(rows)],
    )


def _ordered(runs: Sequence[Run]) -> list[Run]:
    tasks = list(dict.fromkeys(run.manifest.task for run in runs))
    best_first = sorted(runs, key=lambda run: run.rank, reverse=True)
    return sorted(best_first, key=lambda run: tasks.index(run.manifest.task))


def _named(runs: Sequence[Run], against: Path) -> Run:
    for run in runs:
        if run.outcome.run_dir.resolve() == against.resolve():
            return run
    raise ConfigError(f"--against: expected one of the compared runs, got {display(against)}")


def _row(run: Run) -> Row:
    manifest = run.manifest
    n = count(run.accuracy.n)
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
        accuracy=run.accuracy,
        scores=run.outcome.scores,
        by_stratum={
            stratum: metrics[ACCURACY] for stratum, metrics in run.outcome.by_stratum.items() if ACCURACY in metrics
        },
        cost=run.cost,
        reported=run.reported,
        unlike_reported=unlike_reported(manifest),
    )


def _mean_row(members: Sequence[Run]) -> Row:
    row = _row(members[0])
    seeds = sorted({run.manifest.seed for run in members})
    sizes = [run.accuracy.n for run in members]
    return Row(
        name=name_over_seeds(members),
        facts={**row.facts, SEED: ", ".join(map(str, seeds))},
        regime=row.regime,
        n=f"{len(members)} x {row.n}" if len(set(sizes)) == 1 else count(sum(sizes)),
        accuracy=_clustered(members, None),
        scores={name: _clustered_score(members, name) for name in row.scores},
        by_stratum={stratum: _clustered(members, stratum) for stratum in row.by_stratum},
        cost={role: _mean_cost([run.cost.get(role, Cost(0, 0, 0)) for run in members]) for role in row.cost},
        reported=row.reported,
        unlike_reported=row.unlike_reported,
    )


def _clustered(members: Sequence[Run], stratum: str | None) -> Metric:
    """Return the accuracy over all the runs' problems; a problem's seeds count as one draw in the interval."""
    hits: dict[str, int] = defaultdict(int)
    trials: dict[str, int] = defaultdict(int)
    for run in members:
        for prediction in run.outcome.predictions:
            if stratum in (None, prediction.stratum):
                hits[prediction.problem] += prediction.correct
                trials[prediction.problem] += 1
    n, right = sum(trials.values()), sum(hits.values())
    if not n:
        return _NOTHING
    # All right or all wrong: every draw of problems is alike, and each problem is one trial.
    uniform = right in (0, n)
    interval = (
        wilson(len(trials) if right else 0, len(trials))
        if uniform
        else clustered_mean([hits[problem] for problem in trials], list(trials.values()))
    )
    return Metric(right / n, interval, n)


def _clustered_score(members: Sequence[Run], name: str) -> Metric:
    """Return the mean of a score over all the runs' problems; a problem's seeds count as one draw in the interval."""
    by_problem: dict[str, list[float]] = defaultdict(list)
    for run in members:
        for problem, value in run.score(name).items():
            by_problem[problem].append(value)
    sums, counts = [sum(values) for values in by_problem.values()], [len(values) for values in by_problem.values()]
    if not counts:
        return _NOTHING
    # where all problems are alike every draw of them is, which says nothing about the uncertainty
    alike = len({total / n for total, n in zip(sums, counts, strict=True)}) == 1
    return Metric(sum(sums) / sum(counts), None if alike else clustered_mean(sums, counts), sum(counts))


def _mean_cost(costs: Sequence[Cost]) -> Cost:
    n = len(costs)
    return Cost(
        sum(cost.calls for cost in costs) / n,
        sum(cost.prompt_tokens for cost in costs) / n,
        sum(cost.completion_tokens for cost in costs) / n,
    )


def _malformed(runs: Sequence[Run]) -> list[str]:
    return [
        f"{run.name}: reported figures are left out, for their configuration is malformed: {reason}"
        for run in runs
        if (reason := malformed(run.manifest.config)) is not None
    ]


def _incomparable(rows: Sequence[Row]) -> list[str]:
    """Say once for each reason why measured and reported figures stand beside each other without a difference."""
    reasons = dict.fromkeys(row.unlike_reported for row in rows if row.reported and row.unlike_reported)
    return [f"No difference to reported figures is shown where {reason}." for reason in reasons]


def _warnings(runs: Sequence[Run]) -> list[str]:
    """Return the runs' banners, each once, with the names of the runs that it holds for unless it holds for all."""
    holders: dict[str, list[str]] = defaultdict(list)
    for run in runs:
        for line in banners(run.outcome):
            holders[line].append(run.name)
    return [line if len(named) == len(runs) else f"{'; '.join(named)}: {line}" for line, named in holders.items()]
