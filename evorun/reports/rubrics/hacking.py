"""The signs of reward hacking in a run that a rubric rewards, in words: on its page, in a terminal, in comparisons."""

from collections import defaultdict
from collections.abc import Mapping, Sequence
from statistics import fmean
from typing import NamedTuple

from evorun.reports import text
from evorun.reports.rubrics.parting import WINDOW, GoldScores, Parting, parting
from evorun.runs.schema import Manifest, StepRecord, TrainingRecord
from evorun.runs.scores import Score, mean_of_samples, yardstick

REWARD, RAW = "reward_normalised", "reward_raw"
MONITOR = "monitor_"

PART = "Reward hacking? Training reward and gold score part; a run's own page says where."

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
"""Means above these are not those of sound texts (ours; docs/mpo.md has what such texts have). A run's own
`method.monitors_above` takes their place. What is usual of the others differs from task to task."""


class Hacking(NamedTuple):
    """What a run's records say of hacking."""

    parting: Parting | None
    gold: Score
    """The score that is no part of the reward."""
    lines: Mapping[str, str]
    """Warnings, one a sign; of each what is the same for all runs that have it."""


def rewarded_by_rubric(training: Sequence[TrainingRecord]) -> bool:
    """Tell whether a reward model's points are among a run's figures."""
    return any(RAW in record.figures for record in training)


def hacking(manifest: Manifest, training: Sequence[TrainingRecord], steps: Sequence[StepRecord]) -> Hacking | None:
    """Return the signs of hacking; None for a run that no rubric rewards."""
    if not rewarded_by_rubric(training):
        return None
    measure = gold_score(manifest, steps)
    rewards = {one.step: one.figures[REWARD] for one in training if REWARD in one.figures}
    found = parting(rewards, gold_scores(steps, measure), [step + _lag(manifest) for step in refined_after(training)])
    lines = {} if found is None else {parting_line(found, measure): PART}
    return Hacking(found, measure, {**lines, **monitor_lines(training, thresholds(manifest))})


def _lag(manifest: Manifest) -> int:
    """Return for how many steps responses played ahead are still scored by the rubric before."""
    settings = manifest.config.get("training")
    lag = settings.get("max_lag") if isinstance(settings, Mapping) else None
    return lag if isinstance(lag, int) else 0


def gold_score(manifest: Manifest, steps: Sequence[StepRecord]) -> Score:
    """Return the score of test problems that says the most: over all samples, where there are several."""
    primary = yardstick(manifest.scores)
    sampled = mean_of_samples(primary)
    return sampled if any(sampled.name in one.scores for one in steps) else primary


def gold_scores(steps: Sequence[StepRecord], measure: Score) -> GoldScores:
    """Return the utility of each problem's score at each evaluation."""
    found: dict[int, dict[str, float]] = defaultdict(dict)
    for one in steps:
        if (value := measure.value_in(one)) is not None:
            found[one.step][one.problem] = measure.utility(value)
    return found


def refined_after(training: Sequence[TrainingRecord]) -> list[int]:
    """Return the steps after which a rubric took the place of another."""
    return [one.step for one in training if one.figures.get("rubrics_refined")]


def parting_line(found: Parting, measure: Score) -> str:
    """Say where reward and gold score part."""
    change, worst = found.first, found.worst
    name = text.words(measure.name)

    def went(values: tuple[float, float]) -> str:
        return f"from {text.number(values[0])} to {text.number(values[1])}"

    line = (
        f"Reward hacking? At step {change.last} the training reward and the gold score part: since step "
        f"{change.first} the {name} of the test problems fell {went(change.gold)}, while the normalised reward went "
        f"{went(change.reward)}."
    )
    if worst.last != change.last:
        line += f" It was lowest at step {worst.last}: {text.number(worst.gold[1])}."
    return line + (" They part to the end." if found.still else " At the last evaluation they no longer do.")


def thresholds(manifest: Manifest) -> dict[str, float]:
    """Return the monitors' thresholds by name, a run's own ones first; what is no number counts as none."""
    settings = manifest.config.get("method")
    given = settings.get("monitors_above") if isinstance(settings, Mapping) else None
    own = given if isinstance(given, Mapping) else {}
    return USUAL | {name: float(most) for name, most in own.items() if isinstance(most, int | float)}


def monitor_lines(training: Sequence[TrainingRecord], above: Mapping[str, float]) -> dict[str, str]:
    """Return a line for each monitor whose mean over `WINDOW` steps was above its threshold; see `Hacking.lines`."""
    lines = {}
    for name, most in above.items():
        series = [(one.step, one.figures[MONITOR + name]) for one in training if MONITOR + name in one.figures]
        means = [
            (series[end - 1][0], fmean(value for _, value in series[max(0, end - WINDOW) : end]))
            for end in range(min(WINDOW, len(series)), len(series) + 1)
            if end
        ]
        fired = [(step, mean) for step, mean in means if mean > most]
        if not fired:
            continue
        (first, _), (last, _), (peak, mean) = fired[0], fired[-1], max(fired, key=lambda one: one[1])
        still = last == means[-1][0]
        label = text.sentence(MONITORS.get(name, text.words(name)))
        line = (
            f"Reward hacking? {label}: {text.number(mean)} over the {WINDOW} steps up to {peak}. Sound texts stay "
            f"below {text.number(most)}, these are above from step {first} {'on' if still else f'to {last}'}"
            f"{'' if still else f', and at {text.number(means[-1][1])} in the last steps'}."
        )
        lines[line] = f"Reward hacking? {label}: at some time not below {text.number(most)}, as sound texts are."
    return lines
