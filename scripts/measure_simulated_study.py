"""The truth about runs of a simulated study, which only the simulator knows.

    evorun experiment=espl/simulated_study seed=0,1,2
    python scripts/measure_simulated_study.py outputs/sweeps/TIME

A Markdown table, one row for all runs that differ by their seeds alone: means with Student's 95 % intervals, of the
final score over seeds and test problems (`crossed_interval`), of all else over seeds. The score on the test problems
(pass rate; of essays the gold judge's) before, at its peak and after, and the fall from peak to end.

Of E-SPL and its baselines: differences, seed by seed and problem by problem, from the fixed prompt with frozen weights
and from RL under it on as many rollouts; what the principles of the tested prompt truly add to the probability of a
right answer under the last weights, and what the updates do; Spearman's correlation with what each prompt truly adds,
of ratings within the last window and over the whole tree, and of birth order over the whole tree; the diversity of
principles in the window and of scores in the batch, means over steps.

MPO's study has a script of its own, measure_rubric_study.py.
"""

import argparse
import csv
from collections import defaultdict
from collections.abc import Mapping, Sequence
from dataclasses import fields
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np
from scipy.stats import spearmanr
from study_tables import (
    finished_runs,
    markdown,
    mean_over_seeds,
    mean_over_seeds_and_problems,
    paired_difference,
    read_arm,
)

from evorun.runs.candidates import SHARED
from evorun.runs.directory import RATINGS, load_manifest
from evorun.runs.reading import read_artifact, read_records, read_steps_without_texts, read_training
from evorun.runs.schema import CandidateRecord, RatingRecord
from evorun.runs.scores import mean_of_samples, primary_score
from evorun.simulation.principles import merit_when_trained
from evorun.simulation.skill import Skill
from evorun.training.simulated import LEARNED

FIXED = "method=espl_evolution method.evolve=False method.prompts=1"
RL = "method=grpo method.draws=3 method.task_instruction=True"
COLUMNS = (
    *("before", "peak", "after", "fall", "over fixed", "over RL"),
    *("principles", "updates", "in window", "in tree", "birth order", "genotypes", "phenotypes"),
)


class Prompt(NamedTuple):
    """A system prompt at the end of a run."""

    id: str
    rating: float
    sd: float
    in_window: bool
    truth: float
    """Added by its principles to the probability of a right answer."""


class Run(NamedTuple):
    """A run's arm of the study, its seed, its figures and its system prompts."""

    arm: str
    seed: int
    figures: Mapping[str, float]
    after: Mapping[str, float]
    """The score at the end, by test problem."""
    prompts: Sequence[Prompt]


def measured(folder: Path) -> Run:
    """Return what a finished run did, and the truth about it."""
    manifest, steps = load_manifest(folder), read_steps_without_texts(folder)
    name = mean_of_samples(primary_score(manifest.scores)).name
    by_step: dict[int, dict[str, float]] = defaultdict(dict)
    for record in steps:
        by_step[record.step][record.problem] = record.scores[name] or 0.0
    scores = [float(np.mean(list(by_step[step].values()))) for step in sorted(by_step)]
    figures = {"before": scores[0], "peak": max(scores), "after": scores[-1], "fall": max(scores) - scores[-1]}
    learned = read_artifact(folder, LEARNED, dict[str, Any]) or {}
    prompts = rated(folder, learned.get("learned", 0.0))
    best = max(
        (prompt for prompt in prompts if prompt.in_window), key=lambda prompt: (prompt.rating, -prompt.sd), default=None
    )
    figures |= {"updates": learned.get("learned", 0.0), "principles": best.truth if best else 0.0}
    window = [prompt for prompt in prompts if prompt.in_window]
    figures |= correlation("in window", [prompt.rating for prompt in window], window)
    figures |= correlation("in tree", [prompt.rating for prompt in prompts], prompts)
    figures |= correlation("birth order", range(len(prompts)), prompts)
    for column, figure in {"genotypes": "genotypic_diversity", "phenotypes": "phenotypic_diversity"}.items():
        values = [line.figures[figure] for line in read_training(folder) if figure in line.figures]
        figures |= {column: float(np.mean(values))} if values else {}
    return Run(read_arm(folder), manifest.seed, figures, by_step[max(by_step)], prompts)


def correlation(name: str, known: Sequence[float], prompts: Sequence[Prompt]) -> dict[str, float]:
    """Return Spearman's correlation of what is known of prompts with the truth; nothing where either is constant."""
    truths = [prompt.truth for prompt in prompts]
    several = len(set(known)) > 1 and len(set(truths)) > 1
    return {name: float(spearmanr(known, truths).statistic)} if several else {}


def rated(folder: Path, learned: float) -> list[Prompt]:
    """Return a run's system prompts with their last ratings, in the order of birth.

    learned: what the run's updates have added to skill, on which the worth of principles may depend.
    """
    manifest = load_manifest(folder)
    engine: Mapping[str, Any] = manifest.config["engine"]
    settings = Skill(**{field.name: engine[field.name] for field in fields(Skill) if field.name in engine})
    if settings.principle_seed is None:
        settings.principle_seed = manifest.seed
    records = read_records(folder / "candidates.jsonl", CandidateRecord)
    trained = settings.trained_share(learned)
    truths = {
        record.id: merit_when_trained(settings, record.text, trained) for record in records if record.problem == SHARED
    }
    # A line for each step that changed it: the last one stays
    ratings = {rating.candidate: rating for rating in read_records(folder / f"{RATINGS}.jsonl", RatingRecord)}
    return [
        Prompt(name, ratings[name].mean or 0.0, ratings[name].sd or 0.0, ratings[name].survivor, truth)
        for name, truth in truths.items()
        if name in ratings
    ]


def table(runs: Sequence[Run]) -> str:
    """Return the table, a row an arm."""
    arms: dict[str, dict[int, Run]] = defaultdict(dict)
    for run in runs:
        arms[run.arm][run.seed] = run
    rows: dict[str, dict[str, str]] = {}
    for arm, by_seed in arms.items():
        figures: dict[str, list[float]] = defaultdict(list)
        for run in by_seed.values():
            for name, value in run.figures.items():
                figures[name].append(value)
        rows[arm] = {name: mean_over_seeds(values) for name, values in figures.items()}
        after = {seed: run.after for seed, run in by_seed.items()}
        rows[arm] |= {"runs": str(len(by_seed)), "after": mean_over_seeds_and_problems(list(after.values()))}
        for name, reference in {"over fixed": FIXED, "over RL": RL}.items():
            if reference in arms and arm != reference:
                rows[arm][name] = paired_difference(after, {seed: run.after for seed, run in arms[reference].items()})
    names = ["runs", *(name for name in COLUMNS if any(name in row for row in rows.values()))]
    return markdown(names, {arm: [row.get(name, "-") for name in names] for arm, row in rows.items()})


if __name__ == "__main__":
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("folders", nargs="+", type=Path)
    parser.add_argument("--points", type=Path, help="a CSV file for the rating and the truth of every system prompt")
    options = parser.parse_args()
    runs = [measured(folder) for folder in finished_runs(options.folders)]
    print(table(runs))
    if options.points is not None:
        with options.points.open("w", newline="") as file:
            writer = csv.writer(file)
            writer.writerow(("arm", "seed", *Prompt._fields))
            writer.writerows((run.arm, run.seed, *prompt) for run in runs for prompt in run.prompts)
