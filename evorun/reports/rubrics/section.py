"""The section of a run's page on its rewards: rubrics, a reward model's points, and signs of hacking."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from math import isclose

from msgspec.structs import astuple

from evorun.reports import text
from evorun.reports.drawing import Drawing, or_nan
from evorun.reports.hacking import MONITOR, RAW, find_refinement_steps, get_thresholds
from evorun.reports.overview import Curves, Outcome
from evorun.reports.population import Length, measure_rubrics, parse_key, read_rubric_scores
from evorun.reports.rubrics import plots
from evorun.reports.tables import Table, figure_columns, make_data_table, word_columns
from evorun.reports.training import make_refinements_table
from evorun.runs.reading import read_records, read_training
from evorun.runs.schema import CandidateRecord, RubricScore, TrainingRecord

UNSCORED = "reward_unscored_"


@dataclass(frozen=True)
class RubricSection:
    """The section's content; for a run that the task's own grade rewards, its monitors alone."""

    plots: Mapping[str, Drawing] = field(default_factory=dict)
    tables: Mapping[str, Table] = field(default_factory=dict)
    threshold_note: str = ""
    """Explains the thresholds of monitors; empty where none is drawn."""
    no_kl: str = ""
    """The reason why the figure of rewards has no KL divergence; empty where it has one."""

    @property
    def shown(self) -> bool:
        """True if there is anything to show."""
        return bool(self.plots)


def find_drawn_figures(series: plots.Series) -> set[str]:
    """Return the names of the figures that this section draws, so that the one on training need not."""
    shown = {name for name in series if name.startswith((MONITOR, UNSCORED))}
    if RAW not in series:
        return shown
    # Without a penalty, the reward learned from is the raw reward, summed in another order.
    learned_from, raw = ({p.step: or_nan(p.value) for p in series.get(name, ())} for name in ("reward", RAW))
    same = learned_from.keys() == raw.keys() and all(isclose(learned_from[step], raw[step]) for step in raw)
    return shown | {*plots.REWARDS, *(["reward"] if same else [])}


def load_rubric_section(outcome: Outcome, curves: Curves) -> RubricSection:
    """Read the section's content. Raises DataError."""
    training = read_training(outcome.run_dir)
    refined, series = find_refinement_steps(training), curves.training
    above = get_thresholds(outcome.manifest)
    drawn: dict[str, Drawing | None] = {"monitors": plots.draw_monitors(series, refined, above)}
    note = _describe_thresholds(outcome) if any(MONITOR + name in series for name in above) else ""
    hacking, unscored = outcome.hacking, compute_unscored_shares(training)
    if hacking is not None:
        drawn["gold"] = plots.draw_gold_score(
            series.get(hacking.reward, []),
            curves.series.get(hacking.gold.name) or curves.scores.get(hacking.gold.name) or [],
            hacking.gold,
            refined,
            hacking.divergence,
            reward="training reward, normalised" if hacking.by_rubric else "training reward",
        )
        drawn["unscored"] = plots.draw_unscored(unscored, refined)
    if hacking is None or not hacking.by_rubric:
        kept = {name: drawing for name, drawing in drawn.items() if drawing is not None}
        return RubricSection(kept, threshold_note=note)
    versions = measure_rubrics(read_records(outcome.run_dir / "candidates.jsonl", CandidateRecord))
    strict = read_rubric_scores(outcome.run_dir)
    drawn |= {
        "rewards": plots.draw_rewards(series, refined),
        "lengths": plots.draw_lengths(versions),
        "strictness": plots.draw_strictness(group_strictness(strict, versions)),
    }
    tables = [
        make_refinements_table(training),
        Table(
            figure_columns("after step", "replaced", "points", "words", "words per item"),
            list(_list_refinements(training)),
            name="rubrics",
            fields=("step", "replaced", "points", "words", "words_of_an_item"),
        ),
        Table(
            [
                *word_columns("without a score because", format=text.words),
                *figure_columns("mean share", "highest share", "at step"),
            ],
            list(_list_unscored(unscored)),
            name="unscored",
            fields=("reason", "mean_share", "highest_share", "at_step"),
        ),
        make_data_table(
            "rubric_lengths", ("key", "rubric", "number", "step", "words_of_an_item"), _list_lengths(versions)
        ),
        make_data_table("rubric_scores", RubricScore.__struct_fields__, list(map(astuple, strict))),
    ]
    kept = {name: drawing for name, drawing in drawn.items() if drawing is not None}
    shown = {table.name: table for table in tables if table.rows}
    return RubricSection(kept, shown, note, "" if series.get("kl") else plots.NO_KL)


def _describe_thresholds(outcome: Outcome) -> str:
    """Explain the dotted lines of the monitors, and when a run warns by them."""
    hacking = outcome.hacking
    if outcome.manifest.simulated and not (hacking and hacking.by_rubric):
        rule = "Nothing warns here: the reasoning of a simulated model is filler, which repeats one sentence"
    elif hacking is None:
        rule = "Nothing warns here, where the grade of the task is the reward"
    else:
        rule = "A warning goes by means over five steps, so that single steps may cross the line"
    return f"dotted: normal texts stay below. {rule}"


def group_strictness(
    scores: Sequence[RubricScore], versions: Mapping[str, Sequence[Length]]
) -> dict[str, list[tuple[int, RubricScore]]]:
    """Return the scores by line (a key, an evaluation's responses), each with the refinements before its rubric."""
    number = {version.rubric: version.number for lineage in versions.values() for version in lineage}
    keys, steps = {parse_key(score.rubric) for score in scores}, {score.step for score in scores}
    lines: dict[str, list[tuple[int, RubricScore]]] = {}
    for score in scores:
        if score.rubric in number:
            words = [parse_key(score.rubric)] if len(keys) > 1 else []
            words += [f"responses of step {score.step}"] if len(steps) > 1 or not words else []
            lines.setdefault(", ".join(words), []).append((number[score.rubric], score))
    return lines


def compute_unscored_shares(training: Sequence[TrainingRecord]) -> dict[str, dict[int, float]]:
    """Return the share of responses without a score at each step, by reason; steps without a figure count as 0."""
    reasons = dict.fromkeys(
        name for record in training for name in record.figures if name.startswith(UNSCORED) and record.figures[name]
    )
    return {
        name.removeprefix(UNSCORED): {record.step: record.figures.get(name, 0.0) for record in training}
        for name in reasons
    }


def _list_refinements(training: Sequence[TrainingRecord]) -> list[tuple[float | None, ...]]:
    """Return a row per step after which a refinement was due: means over keys."""
    names = ("rubric_total", "rubric_words", "rubric_item_words")
    return [
        (record.step, record.figures.get("rubrics_refined", 0), *(record.figures.get(name) for name in names))
        for record in training
        if names[0] in record.figures
    ]


def _list_unscored(shares: Mapping[str, Mapping[int, float]]) -> list[tuple[str, float, float, int]]:
    """Return, per reason, the mean share of responses, the highest share, and its step."""
    rows = []
    for name, by_step in shares.items():
        step = max(by_step, key=lambda step: by_step[step])
        rows.append((name, sum(by_step.values()) / len(by_step), by_step[step], step))
    return sorted(rows, key=lambda row: -row[1])


def _list_lengths(versions: Mapping[str, Sequence[Length]]) -> list[tuple[str, str, int, int, float]]:
    return [
        (key, version.rubric, version.number, version.refined, version.words)
        for key, lineage in versions.items()
        for version in lineage
    ]
