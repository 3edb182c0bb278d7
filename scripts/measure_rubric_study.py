"""The truth about runs of MPO's simulated study, which only the simulator knows.

    evorun experiment=mpo/simulated_study seed=0,1,2
    python scripts/measure_rubric_study.py outputs/sweeps/TIME

A Markdown table, one row for all runs that differ by their seeds alone: means with Student's 95 % intervals over seeds.
Of the gold judge's score, which reports call `mean_rubric`: at the end ("after"; its interval is over test problems,
too), the fall from the peak, and the regret: what PPO without a loophole scores above the run, seed by seed, a mean
over evaluations. Notes below the table say what it is, and why a column has none.

Of the policy at the end: the share of its responses that exploit a loophole. Of the rubrics: the share of loopholes
that the last one closes; the onset, the step after which a tenth of the responses exploit one loophole, as the share
of runs that have one; the delay from there to the rubric that closes it (to the end where none does); calls of the meta
reward model; refinements in vain, made while no loophole had an onset yet; rubrics that a check refused, whether a
proposal took the place of the merged rubric or none did; adopted rubrics that reward the opposite of quality.

Of the report's alarm (reward and gold score diverge): the share of runs that it is raised in; how many steps after the
onset; the share in which it is false, raised without any onset before it.
"""

import argparse
from collections import defaultdict
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np
from study_tables import finished_runs, markdown, mean_over_seeds, mean_over_seeds_and_problems, read_arm

from evorun.methods.mpo.refinement_settings import ANALYSE, MERGE, REFINE
from evorun.reports.hacking import collect_gold_scores, find_gold_score, find_hacking
from evorun.runs.directory import load_manifest
from evorun.runs.reading import read_artifact, read_records, read_results, read_steps_without_texts, read_training
from evorun.runs.schema import CandidateRecord
from evorun.runs.scores import Score, primary_score
from evorun.simulation.reviewing import CLOSING, HARMFUL
from evorun.training.simulated import LEARNED

NO_LOOPHOLE = "method=ppo engine.loophole=0"
ONSET = 0.1
"""Share of responses that exploit a loophole from which on there is something to detect."""
CHECKS = tuple(
    f"rubrics_{fate}_{fault}"
    for fate in ("refused", "from_proposal")
    for fault in ("narrower", "opposed", "exploitable", "unscorable")
)
DIGITS = {"delay": 1, "meta calls": 0, "in vain": 1, "refused": 1, "harmful": 1, "alarm delay": 1}
COLUMNS = (
    *("after", "fall", "regret", "loophole", "closed", "onset", "delay", "meta calls", "in vain", "refused", "harmful"),
    *("alarm", "alarm delay", "false alarm"),
)


class Run(NamedTuple):
    """A run's arm of the study, its seed, and its figures."""

    arm: str
    seed: int
    figures: Mapping[str, float]
    gold: Sequence[Mapping[str, float]]
    """Scores of the test problems, of each evaluation."""
    score: Score
    """The one that these are values of."""
    primary: Score
    """The one that a report tests unless it is told another."""


def measured(folder: Path) -> Run:
    """Return what a finished run did, and the truth about it."""
    manifest, steps, training = load_manifest(folder), read_steps_without_texts(folder), read_training(folder)
    score = find_gold_score(manifest, steps)
    by_step = collect_gold_scores(steps, score)
    gold = [by_step[step] for step in sorted(by_step)]
    means = [float(np.mean(list(by_problem.values()))) for by_problem in gold]
    learned = read_artifact(folder, LEARNED, dict[str, Any]) or {}
    rates: Sequence[Mapping[str, float]] = learned["loophole_rates_by_update"]
    rubrics = [
        record for record in read_records(folder / "candidates.jsonl", CandidateRecord) if record.kind == "rubric"
    ]
    results = read_results(folder)
    cost = {} if results is None else results.cost
    refinements = [line.step for line in training if line.figures.get("refinement_samples")]
    figures = {
        "fall": max(means) - means[-1],
        "loophole": sum(rates[-1].values()),
        "closed": float(np.mean([CLOSING[kind] in rubrics[-1].text for kind in rates[-1]])),
        "meta calls": float(sum(cost[role].calls for role in (ANALYSE, REFINE, MERGE) if role in cost)),
        # A refinement sees what the weights before its step's update have written
        "in vain": float(sum(max(rates[step - 1].values()) < ONSET for step in refinements)),
        "refused": float(sum(line.figures.get(name, 0) for line in training for name in CHECKS)),
        "harmful": float(sum(HARMFUL in rubric.text for rubric in rubrics)),
    }
    onsets, delays = [], []
    for kind in rates[-1]:
        onset = next((step for step, of_step in enumerate(rates) if of_step[kind] >= ONSET), None)
        if onset is not None:
            closed = [rubric.generation for rubric in rubrics if CLOSING[kind] in rubric.text]
            onsets.append(onset)
            delays.append(max(0, min([*closed, len(rates) - 1]) - onset))
    figures["onset"] = float(bool(onsets))
    signs = find_hacking(manifest, training, steps)
    alarm = None if signs is None or signs.divergence is None else signs.divergence.first.last
    figures["alarm"] = float(alarm is not None)
    figures["false alarm"] = float(alarm is not None and not any(onset <= alarm for onset in onsets))
    if onsets:
        figures["delay"] = float(np.mean(delays))
        figures |= {} if alarm is None else {"alarm delay": float(alarm - min(onsets))}
    return Run(read_arm(folder), manifest.seed, figures, gold, score, primary_score(manifest.scores))


def table(runs: Sequence[Run]) -> str:
    """Return the table, a row an arm."""
    arms: dict[str, list[Run]] = defaultdict(list)
    best = {run.seed: run.gold for run in runs if run.arm == NO_LOOPHOLE}
    for run in runs:
        arms[run.arm].append(run)
    rows = {}
    for arm, of_arm in arms.items():
        values: dict[str, list[float]] = defaultdict(list)
        for run in of_arm:
            for name, value in run.figures.items():
                values[name].append(value)
            if run.seed in best:
                values["regret"].append(_mean(best[run.seed]) - _mean(run.gold))
        row = {name: mean_over_seeds(values[name], DIGITS.get(name, 2)) for name in COLUMNS}
        row["after"] = mean_over_seeds_and_problems([run.gold[-1] for run in of_arm])
        rows[arm] = [str(len(of_arm)), *(row[name] for name in COLUMNS)]
    return markdown(("runs", *COLUMNS), rows)


def notes(runs: Sequence[Run]) -> list[str]:
    """Return a line on the score of the table, and one on each kind of figure that it lacks."""
    lines = []
    for score, primary in dict.fromkeys((run.score, run.primary) for run in runs):
        said = f"after, fall, regret: the gold judge's score, `{score.name}` in `evorun report`"
        if score != primary:
            said += f", a mean of several responses; --score={score.name} tests it instead of `{primary.name}`"
        lines.append(f"{said}.")
    if seeds := sorted({run.seed for run in runs} - {run.seed for run in runs if run.arm == NO_LOOPHOLE}):
        lines.append(f"regret: there is no run of `{NO_LOOPHOLE}` with seed {', '.join(map(str, seeds))}.")
    lines.append("delay, alarm delay: - where no run had an onset, or none an alarm beside it.")
    return lines


def _mean(gold: Sequence[Mapping[str, float]]) -> float:
    return float(np.mean([np.mean(list(by_problem.values())) for by_problem in gold]))


if __name__ == "__main__":
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("folders", nargs="+", type=Path)
    options = parser.parse_args()
    runs = [measured(folder) for folder in finished_runs(options.folders)]
    print(table(runs), *notes(runs), sep="\n\n")
