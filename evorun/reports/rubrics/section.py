"""The section of a run's page on what rewards it: rubrics, a reward model's points, and whether they are hacked."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from math import isclose

from evorun.reports.drawing import Drawing, number
from evorun.reports.overview import Curves, Outcome
from evorun.reports.rubrics import plots
from evorun.reports.rubrics.hacking import MONITOR, RAW, REWARD, refined_after, thresholds
from evorun.reports.rubrics.lineage import Length, key_of, lengths, rubric_scores
from evorun.reports.tables import DataTable
from evorun.reports.training import count_refinements
from evorun.runs.reading import read_records, read_training
from evorun.runs.schema import CandidateRecord, MetricPoint, RubricScore, TrainingRecord

UNSCORED = "reward_unscored_"


@dataclass(frozen=True)
class RubricSection:
    """Empty for a run that no rubric rewards, but for its monitors."""

    plots: Mapping[str, Drawing] = field(default_factory=dict)
    tables: Mapping[str, DataTable] = field(default_factory=dict)
    thresholds: bool = False
    """True where a monitor is drawn with what sound texts stay below."""

    @property
    def shown(self) -> bool:
        """True where there is anything to see."""
        return bool(self.plots)


def shown_figures(series: plots.Series) -> set[str]:
    """Return the names of the figures that this section draws, and the one on training need not."""
    shown = {name for name in series if name.startswith((MONITOR, UNSCORED))}
    if RAW not in series:
        return shown
    # without a penalty, what is learned from is the raw reward, summed in another order
    learned_from, raw = ({p.step: number(p.value) for p in series.get(name, ())} for name in ("reward", RAW))
    same = learned_from.keys() == raw.keys() and all(isclose(learned_from[step], raw[step]) for step in raw)
    return shown | {*plots.REWARDS, *(["reward"] if same else [])}


def load_rubric_section(outcome: Outcome, curves: Curves) -> RubricSection:
    """Read what the section shows. Raises DataError."""
    training = read_training(outcome.run_dir)
    refined, series = refined_after(training), curves.training
    above = thresholds(outcome.manifest)
    drawn: dict[str, Drawing | None] = {"monitors": plots.monitors_plot(series, refined, above)}
    with_thresholds = any(MONITOR + name in series for name in above)
    if outcome.hacking is None:
        kept = {name: one for name, one in drawn.items() if one is not None}
        return RubricSection(kept, thresholds=with_thresholds)
    measure = outcome.hacking.gold
    versions = lengths(read_records(outcome.run_dir / "candidates.jsonl", CandidateRecord))
    strict = rubric_scores(outcome.run_dir)
    unscored = unscored_shares(training)
    drawn |= {
        "gold": plots.gold_plot(
            series.get(REWARD, []), _gold(curves, measure.name), measure, refined, outcome.hacking.parting
        ),
        "rewards": plots.rewards_plot(series, refined),
        "unscored": plots.unscored_plot(unscored, refined),
        "lengths": plots.lengths_plot(versions),
        "strictness": plots.strictness_plot(strict_lines(strict, versions)),
    }
    tables = [
        DataTable("refinements", ("fate", "reason", "count"), count_refinements(training)),
        DataTable("rubrics", ("step", "replaced", "points", "words", "words_of_an_item"), _by_step(training)),
        DataTable("unscored", ("reason", "mean_share", "highest_share", "at_step"), _unscored(unscored)),
        DataTable("rubric_lengths", ("key", "rubric", "number", "step", "words_of_an_item"), _lengths(versions)),
        DataTable("rubric_scores", RubricScore.__struct_fields__, [_cells(one) for one in strict]),
    ]
    kept = {name: one for name, one in drawn.items() if one is not None}
    shown = {table.name: table for table in tables if table.rows}
    return RubricSection(kept, shown, with_thresholds)


def strict_lines(
    scores: Sequence[RubricScore], versions: Mapping[str, Sequence[Length]]
) -> dict[str, list[tuple[int, RubricScore]]]:
    """Return the scores of each key's rubrics and each evaluation's responses, with the refinements before each."""
    number = {one.rubric: one.number for of_key in versions.values() for one in of_key}
    keys, steps = {key_of(one.rubric) for one in scores}, {one.step for one in scores}
    lines: dict[str, list[tuple[int, RubricScore]]] = {}
    for one in scores:
        if one.rubric in number:
            words = [key_of(one.rubric)] if len(keys) > 1 else []
            words += [f"responses of step {one.step}"] if len(steps) > 1 or not words else []
            lines.setdefault(", ".join(words), []).append((number[one.rubric], one))
    return lines


def unscored_shares(training: Sequence[TrainingRecord]) -> dict[str, dict[int, float]]:
    """Return the share of responses without a score at each step, by reason; steps without figures have none."""
    reasons = dict.fromkeys(
        name for one in training for name in one.figures if name.startswith(UNSCORED) and one.figures[name]
    )
    return {name.removeprefix(UNSCORED): {one.step: one.figures.get(name, 0.0) for one in training} for name in reasons}


def _gold(curves: Curves, name: str) -> Sequence[MetricPoint]:
    return curves.series.get(name) or curves.scores.get(name) or []


def _by_step(training: Sequence[TrainingRecord]) -> list[tuple[float | None, ...]]:
    """Return a row for each step after which rubrics were to be refined: means over keys."""
    names = ("rubric_total", "rubric_words", "rubric_item_words")
    return [
        (one.step, one.figures.get("rubrics_refined", 0), *(one.figures.get(name) for name in names))
        for one in training
        if names[0] in one.figures
    ]


def _unscored(shares: Mapping[str, Mapping[int, float]]) -> list[tuple[str, float, float, int]]:
    """Return of each reason the mean share of responses, the highest, and the step at which that was."""
    rows = []
    for name, by_step in shares.items():
        step = max(by_step, key=lambda one: by_step[one])
        rows.append((name, sum(by_step.values()) / len(by_step), by_step[step], step))
    return sorted(rows, key=lambda row: -row[1])


def _lengths(versions: Mapping[str, Sequence[Length]]) -> list[tuple[str, str, int, int, float]]:
    return [(key, one.rubric, one.number, one.refined, one.words) for key, of_key in versions.items() for one in of_key]


def _cells(one: RubricScore) -> list[str | float | None]:
    return [getattr(one, name) for name in RubricScore.__struct_fields__]
