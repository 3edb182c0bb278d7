"""The rows of a comparison's tables: the figures of an arm, or of one of its runs."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from functools import lru_cache
from statistics import fmean

from evorun.reports import text
from evorun.reports.comparison.arms import Arm, average_over_seeds
from evorun.reports.comparison.names import SEED, TASK, format_engine, format_model, join_parts
from evorun.reports.comparison.reported import BETWEEN_RUNS, ReportedFigures, explain_incomparable
from evorun.reports.comparison.runs import Cost, Run
from evorun.reports.figures import RATINGS
from evorun.runs.schema import Metric
from evorun.runs.scores import Score
from evorun.runs.spending import GOLD
from evorun.runs.statistics import Proportion, pooled_mean, pooled_share

AGREEMENT, CHOICE, AUC = "judge_agreement", "choice_given_coverage", "posterior_auc"
POOLED = (CHOICE, AGREEMENT, AUC)
"""Figures whose trials (duels, problems with a right candidate, problems with both kinds) differ in number between an
arm's runs, so that each trial counts alike."""

CAVEATS = "caveats"

_MISSING = Metric(None, None, 0)


@dataclass(frozen=True)
class Row:
    """A line of a table: an arm, whose figures are means over its seeds, or a single run."""

    parts: Mapping[str, str]
    """The parts of its name, by aspect."""
    is_baseline: bool
    """True when the model answered at random."""
    facts: Mapping[str, str]
    """Task, model, engine, seed and caveats, by the heading that a column of them would have."""
    method: str
    """The method's name in a configuration, whatever the row is called."""
    settings: Mapping[str, str]
    """The settings of its command, as typed."""
    information_regime: str
    n: str
    scores: Sequence[Score]
    """The primary one first."""
    seeds: int
    """Runs that the figures are means over."""
    metrics: Mapping[str, Metric]
    """Means by name: scores, and what results.json has of the search and the judge."""
    two_way_ci95: Mapping[str, tuple[float, float]]
    """Intervals over seeds and problems, by the score's name; of one seed none."""
    two_way_scores: frozenset[str]
    """Names of the scores that single problems have, and so such an interval, unless it would be the whole range."""
    seed_share: float | None
    """Share of the seeds in the variance of the primary score's interval over seeds and problems; None without it."""
    trials: Mapping[str, str]
    """The number of trials by the metric's name, of several runs as runs times trials."""
    by_stratum: Mapping[str, Metric]
    """Of the primary score, with intervals as `get_interval` gives; empty with a single stratum, which is all."""
    generation: float
    """The one that was reached."""
    planned: int | None
    """The one after which the method ends by itself, where that is known."""
    best_of_pool: float | None
    """Mean of each problem's best candidate by the primary score; None where a run has none."""
    crossovers: float | None
    """System prompts made by crossover, per run; None where a run's method has no such operator."""
    cost: Mapping[str, Cost]
    """A problem's, by role."""
    sequential_tokens: float | None
    """Completion tokens of a problem one after another; None where a run lacks them."""
    reported: ReportedFigures | None
    by_problem: Mapping[str, Mapping[tuple[int, str], float]]
    """`CHOICE` and `AUC` of each problem that counts, by seed and problem; empty where a run has not counted them."""
    incomparable_reason: str | None
    """The reason not to compare the figures with reported ones; None when they may be."""

    @property
    def name(self) -> str:
        """A name that no other row of the table has."""
        return join_parts(self.parts)

    @property
    def primary(self) -> Score:
        """The score by which the run is ranked."""
        return self.scores[0]

    def get_metric(self, name: str) -> Metric:
        """Return the mean of that name."""
        return self.metrics.get(name, _MISSING)

    def get_interval(self, name: str) -> tuple[float, float] | None:
        """Return the 95 % interval of a mean: of several seeds over seeds and problems, of one over problems.

        A figure that single problems lack has it over the seeds.
        """
        own = self.seeds == 1 or name not in self.two_way_scores
        return self.get_metric(name).ci95 if own else self.two_way_ci95.get(name)

    def interval_is_over(self, score: Score) -> str:
        """Return what `get_interval` is over, in lines of a heading."""
        if self.seeds == 1:
            return "over problems"
        return "over seeds\nand problems" if score.name in self.two_way_scores else "over seeds"

    @property
    def has_reported(self) -> bool:
        """True where a paper has a score that stands beside this row's own."""
        return self.reported is not None and bool(
            self.reported.by_stratum or self.reported.metrics.keys() - BETWEEN_RUNS
        )

    def get_reported(self, name: str) -> float | None:
        """Return a paper's mean of the score of that name."""
        return None if self.reported is None else self.reported.metrics.get(name)

    def get_reported_stratum(self, stratum: str) -> float | None:
        """Return a paper's primary score in a stratum."""
        # papers break down accuracies only
        if self.reported is None or not self.primary.is_correctness:
            return None
        return self.reported.get_stratum(stratum)

    def subtract_reported(self, measured: float | None, reported: float | None) -> float | None:
        """Return measured less reported; None where one is missing or they do not compare."""
        return None if measured is None or reported is None or self.incomparable_reason else measured - reported


def find_reported_model(rows: Sequence[Row]) -> str | None:
    """Return the model of which papers report the figures beside the rows.

    None where it is not the same for all, or is the rows' own, which they name anyway; simulated models have no names.
    """
    beside = [row for row in rows if row.reported is not None]
    models = {row.reported.model for row in beside if row.reported is not None}
    return models.pop() if len(models) == 1 and not any(row.facts["model"] in models for row in beside) else None


def make_row(arm: Arm) -> Row:
    """Return the row of an arm: of several runs their means over the seeds, each seed with the same weight."""
    first = arm.runs[0]
    manifest, outcome = first.manifest, first.outcome
    caveats = dict.fromkeys(caveat for run in arm.runs for caveat in run.caveats)
    metrics = _average(outcome.scores, [run.figures for run in arm.runs])
    if len(arm.runs) > 1:
        metrics |= {name: _pool(arm.runs, name) for name in POOLED if name in metrics}
    return Row(
        parts=arm.parts,
        is_baseline=arm.is_baseline,
        facts={
            TASK: manifest.task,
            "model": format_model(manifest),
            "engine": format_engine(manifest),
            SEED: ", ".join(str(run.manifest.seed) for run in arm.runs),
            CAVEATS: ", ".join(caveats),
        },
        method=manifest.method,
        settings=arm.settings,
        information_regime=manifest.regime,
        n=_format_problems(arm),
        scores=outcome.scores,
        seeds=len(arm.runs),
        metrics=metrics,
        two_way_ci95={
            score.name: ci95 for score in outcome.scores if (ci95 := arm.two_way_interval(score)) is not None
        },
        seed_share=arm.seed_share(arm.primary),
        two_way_scores=frozenset(score.name for score in outcome.scores if any(run.values(score) for run in arm.runs)),
        trials={
            name: text.trials([run.outcome.metrics[name].n for run in arm.runs if name in run.outcome.metrics])
            for name in dict.fromkeys(name for run in arm.runs for name in run.outcome.metrics)
        },
        by_stratum=_average_strata(arm) if len(outcome.by_stratum) > 1 else {},
        generation=fmean(run.generation for run in arm.runs),
        planned=outcome.planned_steps,
        best_of_pool=_average_known([run.best_of_pool for run in arm.runs]),
        crossovers=_average_known([run.outcome.crossovers for run in arm.runs]),
        cost=_average_cost([run.cost for run in arm.runs]),
        sequential_tokens=_average_known([run.outcome.sequential_tokens for run in arm.runs]),
        reported=first.reported,
        by_problem={name: _collect_by_problem(arm.runs, name) for name in (CHOICE, AUC) if name in metrics},
        incomparable_reason=explain_incomparable(manifest),
    )


def _format_problems(arm: Arm) -> str:
    """Return the number of problems, of several runs as runs times problems."""
    trials = text.trials([run.get_metric(run.primary.name).n for run in arm.runs])
    run = arm.runs[0]
    return trials if run.outcome.finished else f"{trials} of {text.count(len(run.problems))}"


def _average_strata(arm: Arm) -> dict[str, Metric]:
    """Return the primary score's mean in each stratum; of several seeds with the interval over seeds and problems."""
    name = arm.primary.name
    strata = dict.fromkeys(stratum for run in arm.runs for stratum in run.outcome.by_stratum)
    means = {
        stratum: _average([arm.primary], [run.outcome.by_stratum.get(stratum, {}) for run in arm.runs])
        for stratum in strata
    }
    known = {stratum: metrics[name] for stratum, metrics in means.items() if name in metrics}
    if len(arm.runs) == 1:
        return known
    return {
        stratum: Metric(mean.value, arm.restrict_to(stratum).two_way_interval(arm.primary), mean.n)
        for stratum, mean in known.items()
    }


def _average(scores: Sequence[Score], runs: Sequence[Mapping[str, Metric]]) -> dict[str, Metric]:
    """Return the mean over runs of each figure, by name; a single run's figures as they are."""
    if len(runs) == 1:
        return dict(runs[0])
    declared = {score.name: score for score in scores}
    means = {}
    for name in dict.fromkeys(name for metrics in runs for name in metrics):
        # what is no score is a rank correlation, or a share of candidates, duels or problems
        score = declared.get(name) or Score(name, -1.0 if name in RATINGS else 0.0, 1.0)
        means[name] = average_over_seeds([metrics[name] for metrics in runs if name in metrics], score)
    return means


def _count_by_problem(run: Run, name: str) -> dict[str, tuple[float, int]]:
    """Return the sum and the number of trials of each problem, for one of `POOLED`; empty where they are not known."""
    outcome = run.outcome
    if name == AGREEMENT:
        counts = {problem: (float(share.successes), share.n) for problem, share in outcome.agreement.items()}
    else:
        values: Mapping[str, float] = outcome.choices if name == CHOICE else outcome.areas
        counts = {problem: (float(value), 1) for problem, value in values.items()}
    return counts if sum(n for _, n in counts.values()) == run.get_metric(name).n else {}


def _pool(runs: Sequence[Run], name: str) -> Metric:
    """Return one of `POOLED` over all runs. Some have next to no trials, so each trial counts alike.

    The interval resamples problems, each with its trials in all runs; None where a run has not counted by problem.
    """
    known = [run for run in runs if run.get_metric(name).n]
    n = sum(run.get_metric(name).n for run in known)
    total = sum((run.get_metric(name).value or 0.0) * run.get_metric(name).n for run in known)
    clusters: dict[str, tuple[float, int]] = {}
    for run in known:
        if not (counts := _count_by_problem(run, name)):
            return Metric(total / n, None, n)
        for problem, (own, trials) in counts.items():
            before = clusters.get(problem, (0.0, 0))
            clusters[problem] = before[0] + own, before[1] + trials
    return Metric(total / n if n else None, _resample(tuple(clusters.values()), name == AUC), n)


@lru_cache(maxsize=256)  # a row is made for each figure of its arm
def _resample(clusters: tuple[tuple[float, int], ...], of_areas: bool) -> tuple[float, float] | None:
    if of_areas:
        return pooled_mean([total for total, _ in clusters], [n for _, n in clusters]).ci95
    return pooled_share([Proportion(round(total), n) for total, n in clusters]).ci95


def _collect_by_problem(runs: Sequence[Run], name: str) -> dict[tuple[int, str], float]:
    """Return a figure by seed and problem; empty where a run has not counted it by problem."""
    counted = {run.manifest.seed: _count_by_problem(run, name) for run in runs if run.get_metric(name).n}
    if not all(counted.values()):
        return {}
    return {(seed, problem): total for seed, counts in counted.items() for problem, (total, _) in counts.items()}


def _average_known(values: Sequence[float | None]) -> float | None:
    known = [value for value in values if value is not None]
    return fmean(known) if len(known) == len(values) else None


def _average_cost(costs: Sequence[Mapping[str, Cost]]) -> dict[str, Cost]:
    means = {}
    roles = dict.fromkeys(role for of_run in costs for role in of_run)
    for role in sorted(roles, key=lambda role: (role == GOLD, role == "total")):
        spent = [of_run.get(role, Cost(0, 0, 0)) for of_run in costs]  # a role that a seed never called cost nothing
        means[role] = Cost(
            fmean(cost.calls for cost in spent),
            fmean(cost.prompt_tokens for cost in spent),
            fmean(cost.completion_tokens for cost in spent),
            fmean(cost.tool_calls for cost in spent),
            _mean_price(spent),
        )
    return means


def _mean_price(spent: Sequence[Cost]) -> float | None:
    """Return the mean price; None where one is unknown."""
    known = [cost.price for cost in spent if cost.price is not None]
    return fmean(known) if len(known) == len(spent) else None
