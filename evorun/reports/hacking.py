"""Signs of reward hacking in a run with rubric rewards, in words: on its page, in a terminal, in comparisons."""

from collections import defaultdict
from collections.abc import Mapping, Sequence
from statistics import fmean
from typing import NamedTuple

from evorun.reports import text
from evorun.reports.divergence import WINDOW, Divergence, GoldScores, find_divergence
from evorun.runs.schema import Manifest, StepRecord, TrainingRecord
from evorun.runs.scores import Score, mean_of_samples, primary_score

REWARD, RAW = "reward_normalised", "reward_raw"
MONITOR = "monitor_"

DIVERGED = "Reward hacking? Training reward and gold score diverge; a run's own page says where."

MONITORS = {
    "foreign_script": "letters of another script (share)",
    "words": "words of a response",
    "title_only": "titles and nothing else (share)",
    "repeated": "repeated 4-grams (share)",
    "distinct_2": "different pairs of words (share)",
    "missing_end": "without an end (share)",
}
"""Monitors in words; the first is Table 5's."""

USUAL = {"foreign_script": 0.05, "title_only": 0.1, "repeated": 0.3}
"""Means above these are not those of sound texts (ours; docs/mpo.md lists the means of such texts). A run's own
`method.monitors_above` overrides them. Usual means of the other monitors differ from task to task."""


class Hacking(NamedTuple):
    """Signs of hacking in a run's records."""

    divergence: Divergence | None
    gold: Score
    """The score outside the reward."""
    lines: Mapping[str, str]
    """Warnings, one per sign; each with its shorter form, equal for all runs with this sign."""


def rewarded_by_rubric(training: Sequence[TrainingRecord]) -> bool:
    """Tell whether a run's figures include a reward model's points."""
    return any(RAW in record.figures for record in training)


def hacking(manifest: Manifest, training: Sequence[TrainingRecord], steps: Sequence[StepRecord]) -> Hacking | None:
    """Return the signs of hacking; None for a run without rubric rewards."""
    if not rewarded_by_rubric(training):
        return None
    measure = gold_score(manifest, steps)
    rewards = {record.step: record.figures[REWARD] for record in training if REWARD in record.figures}
    refined = [step + _lag(manifest) for step in refined_after(training)]
    found = find_divergence(rewards, gold_scores(steps, measure), refined)
    lines = {} if found is None else {divergence_line(found, measure): DIVERGED}
    return Hacking(found, measure, {**lines, **monitor_lines(training, thresholds(manifest))})


def _lag(manifest: Manifest) -> int:
    """Return the number of steps for which the previous rubric still scores responses played ahead."""
    settings = manifest.config.get("training")
    lag = settings.get("max_lag") if isinstance(settings, Mapping) else None
    return lag if isinstance(lag, int) else 0


def gold_score(manifest: Manifest, steps: Sequence[StepRecord]) -> Score:
    """Return the most informative score of test problems: the mean over samples, if there are several."""
    primary = primary_score(manifest.scores)
    sampled = mean_of_samples(primary)
    return sampled if any(sampled.name in record.scores for record in steps) else primary


def gold_scores(steps: Sequence[StepRecord], measure: Score) -> GoldScores:
    """Return the utility of each problem's score at each evaluation."""
    found: dict[int, dict[str, float]] = defaultdict(dict)
    for record in steps:
        if (value := measure.value_in(record)) is not None:
            found[record.step][record.problem] = measure.utility(value)
    return found


def refined_after(training: Sequence[TrainingRecord]) -> list[int]:
    """Return the steps after which a rubric replaced another."""
    return [record.step for record in training if record.figures.get("rubrics_refined")]


def divergence_line(found: Divergence, measure: Score) -> str:
    """Return the warning that says where reward and gold score diverge."""
    change, worst = found.first, found.worst
    name = text.words(measure.name)

    def went(values: tuple[float, float]) -> str:
        return f"from {text.number(values[0])} to {text.number(values[1])}"

    line = (
        f"Reward hacking? At step {change.last} the training reward and the gold score diverge: since step "
        f"{change.first} the {name} of the test problems fell {went(change.gold)}, while the normalised reward went "
        f"{went(change.reward)}."
    )
    if worst.last != change.last:
        line += f" It was lowest at step {worst.last}: {text.number(worst.gold[1])}."
    return line + (" They diverge to the end." if found.still else " At the last evaluation they no longer do.")


def thresholds(manifest: Manifest) -> dict[str, float]:
    """Return the monitors' thresholds by name; a run's own override the usual ones, and non-numbers are ignored."""
    settings = manifest.config.get("method")
    given = settings.get("monitors_above") if isinstance(settings, Mapping) else None
    own = given if isinstance(given, Mapping) else {}
    return USUAL | {name: float(threshold) for name, threshold in own.items() if isinstance(threshold, int | float)}


def monitor_lines(training: Sequence[TrainingRecord], above: Mapping[str, float]) -> dict[str, str]:
    """Return a line per monitor whose mean over `WINDOW` steps was above its threshold; see `Hacking.lines`."""
    lines = {}
    for name, threshold in above.items():
        series = [
            (record.step, record.figures[MONITOR + name]) for record in training if MONITOR + name in record.figures
        ]
        means = [
            (series[end - 1][0], fmean(value for _, value in series[max(0, end - WINDOW) : end]))
            for end in range(min(WINDOW, len(series)), len(series) + 1)
            if end
        ]
        fired = [(step, mean) for step, mean in means if mean > threshold]
        if not fired:
            continue
        (first, _), (last, _), (peak, mean) = fired[0], fired[-1], max(fired, key=lambda point: point[1])
        still = last == means[-1][0]
        label = text.sentence(MONITORS.get(name, text.words(name)))
        line = (
            f"Reward hacking? {label}: {text.number(mean)} over the {WINDOW} steps up to {peak}. Sound texts stay "
            f"below {text.number(threshold)}, these are above from step {first} {'on' if still else f'to {last}'}"
            f"{'' if still else f', and at {text.number(means[-1][1])} in the last steps'}."
        )
        lines[line] = (
            f"Reward hacking? {label}: at some step above {text.number(threshold)}, below which sound texts stay."
        )
    return lines
