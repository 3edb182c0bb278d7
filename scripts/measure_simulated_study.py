"""The truth about runs of a simulated study, which only the simulator knows.

    evorun experiment=espl/simulated_study seed=0,1,2
    python scripts/measure_simulated_study.py outputs/sweeps/TIME

One line for all runs that differ by their seeds alone: means with Student's 95 % intervals over seeds. The score on the
test problems (pass rate; of essays the gold judge's) before, at its peak and after, and the fall from peak to end.

Of E-SPL and its baselines: paired differences, seed by seed, from the fixed prompt with frozen weights and from RL
under it; what the principles of the prompt that was tested truly add to the probability of a right answer, and what
the updates do; Spearman's correlation between ratings at the end and what each prompt truly adds.

Of MPO and its baselines: the paired difference from the same run under the rubric that it began with; the share of
responses that use the loophole at the end; the share of runs whose last rubric has a criterion against it.
"""

import argparse
import csv
from collections import defaultdict
from collections.abc import Mapping, Sequence
from dataclasses import fields
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np
from omegaconf import OmegaConf
from scipy.stats import spearmanr

from evorun.methods.refinement_settings import RefinementSettings
from evorun.models.principles import PrincipleSettings
from evorun.models.reviewing import CLOSING
from evorun.runs.candidates import SHARED
from evorun.runs.directory import RATINGS, load_manifest
from evorun.runs.reading import read_artifact, read_records, read_steps
from evorun.runs.schema import CandidateRecord, RatingRecord
from evorun.runs.scores import mean_of_samples, yardstick
from evorun.runs.statistics import t_interval
from evorun.training.simulated import LEARNED

FIXED = "method=espl_evolution method.evolve=False method.prompts=1"
RL = "method=grpo method.problems_per_step=30"
OF_REFINEMENT = {f"method.{one.name}" for one in fields(RefinementSettings)} | {"method.scoring"}
"""Keys without effect under a rubric that stays, which is one text without items; those of the simulated meta reward
model begin so:"""
OF_META = "engine.meta_"
COLUMNS = (
    *("before", "peak", "after", "fall", "over fixed", "over RL", "over fixed rubric"),
    *("principles", "updates", "spearman", "loophole", "closed"),
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
    prompts: Sequence[Prompt]


def measured(folder: Path) -> Run:
    """Return what a finished run did, and the truth about it."""
    manifest, steps = load_manifest(folder), read_steps(folder)
    name = mean_of_samples(yardstick(manifest.scores)).name
    by_step: dict[int, list[float]] = defaultdict(list)
    for one in steps:
        by_step[one.step].append(one.scores[name] or 0.0)
    scores = [float(np.mean(by_step[step])) for step in sorted(by_step)]
    figures = {"before": scores[0], "peak": max(scores), "after": scores[-1], "fall": max(scores) - scores[-1]}
    learned = read_artifact(folder, LEARNED, dict[str, Any]) or {}
    rubrics = [one.text for one in read_records(folder / "candidates.jsonl", CandidateRecord) if one.kind == "rubric"]
    prompts = [] if rubrics else rated(folder)
    if rubrics:
        figures |= {"loophole": learned["loophole_rate"], "closed": float(CLOSING in rubrics[-1])}
    else:
        best = max((one for one in prompts if one.in_window), key=lambda one: (one.rating, -one.sd), default=None)
        figures |= {"updates": learned.get("learned", 0.0), "principles": best.truth if best else 0.0}
        ratings, truths = [one.rating for one in prompts], [one.truth for one in prompts]
        if len(set(ratings)) > 1 and len(set(truths)) > 1:
            figures["spearman"] = float(spearmanr(ratings, truths).statistic)
    given = [str(one) for one in OmegaConf.load(folder / ".hydra" / "overrides.yaml")]
    swept = [one for one in given if not one.lstrip("+").startswith(("seed=", "experiment=", "evorun.", "hydra."))]
    return Run(arm_of(swept), manifest.seed, figures, prompts)


def arm_of(overrides: Sequence[str]) -> str:
    """Return the name of an arm: its overrides, the method first."""
    return " ".join(sorted(overrides, key=lambda one: (not one.startswith("method="), one)))


def under_fixed_rubric(arm: str) -> str:
    """Return the arm that differs from one of MPO in that its rubric stays."""
    settings = dict(one.split("=", 1) for one in arm.split(" "))
    settings["method"] = settings.pop("method.trainer", "ppo")
    heeded = [key for key in settings if key not in OF_REFINEMENT and not key.startswith(OF_META)]
    return arm_of([f"{key}={settings[key]}" for key in heeded])


def rated(folder: Path) -> list[Prompt]:
    """Return a run's system prompts with their last ratings."""
    manifest = load_manifest(folder)
    engine: Mapping[str, Any] = manifest.config["engine"]
    settings = PrincipleSettings(**{one.name: engine[one.name] for one in fields(PrincipleSettings)})
    if settings.principle_seed is None:
        settings.principle_seed = manifest.seed
    records = read_records(folder / "candidates.jsonl", CandidateRecord)
    truths = {one.id: settings.merit(one.text) for one in records if one.problem == SHARED}
    # A line for each step that changed it: the last one stays
    ratings = {one.candidate: one for one in read_records(folder / f"{RATINGS}.jsonl", RatingRecord)}
    return [
        Prompt(one.candidate, one.mean or 0.0, one.sd or 0.0, one.survivor, truths[one.candidate])
        for one in ratings.values()
    ]


def shown(values: Sequence[float]) -> str:
    """Return a mean with its interval."""
    interval = t_interval(values)
    if not values:
        return "-"
    return f"{np.mean(values):.3f}" + ("" if interval is None else f" +- {(interval[1] - interval[0]) / 2:.3f}")


def table(runs: Sequence[Run]) -> str:
    """Return one line an arm."""
    arms: dict[str, dict[int, Mapping[str, float]]] = defaultdict(dict)
    for run in runs:
        arms[run.arm][run.seed] = run.figures
    rows: dict[str, dict[str, list[float]]] = defaultdict(lambda: defaultdict(list))
    for arm, by_seed in arms.items():
        columns = rows[arm]
        references = {"over fixed": FIXED, "over RL": RL}
        if arm.startswith("method=mpo"):
            references = {"over fixed rubric": under_fixed_rubric(arm)}
        for seed, figures in by_seed.items():
            for name, value in figures.items():
                columns[name].append(value)
            for name, reference in references.items():
                if seed in arms.get(reference, {}):
                    columns[name].append(figures["after"] - arms[reference][seed]["after"])
    names = [name for name in COLUMNS if any(columns[name] for columns in rows.values())]
    lines = [f"{'arm':78}{'runs':>5}" + "".join(f"{name:>19}" for name in names)]
    for arm, columns in rows.items():
        lines.append(f"{arm:78}{len(arms[arm]):>5}" + "".join(f"{shown(columns[name]):>19}" for name in names))
    return "\n".join(lines)


if __name__ == "__main__":
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("folders", nargs="+", type=Path)
    parser.add_argument("--points", type=Path, help="a CSV file for the rating and the truth of every system prompt")
    options = parser.parse_args()
    finished = [file.parent for folder in options.folders for file in sorted(folder.rglob("results.json"))]
    runs = [measured(folder) for folder in finished]
    print(table(runs))
    if options.points is not None:
        with options.points.open("w", newline="") as file:
            writer = csv.writer(file)
            writer.writerow(("arm", "seed", *Prompt._fields))
            writer.writerows((run.arm, run.seed, *prompt) for run in runs for prompt in run.prompts)
