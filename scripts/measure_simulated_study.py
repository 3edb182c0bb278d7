"""The truth about simulated runs of E-SPL and its baselines, which only the simulator knows.

    evorun experiment=espl/simulated_study seed=0,1,2
    python scripts/measure_simulated_study.py outputs/sweeps/TIME

One line for all runs that differ by their seeds alone: means with Student's 95 % intervals over seeds. Pass rate on the
test problems before and after; its paired differences, seed by seed, from the fixed prompt with frozen weights and from
RL under it; what the principles of the prompt that was tested truly add to the probability of a right answer, and what
the updates do; Spearman's correlation between ratings at the end and what each prompt truly adds.
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

from evorun.models.principles import PrincipleSettings
from evorun.runs.candidates import SHARED
from evorun.runs.directory import RATINGS, load_manifest
from evorun.runs.reading import read_artifact, read_records, read_steps
from evorun.runs.schema import CandidateRecord, RatingRecord
from evorun.runs.statistics import t_interval
from evorun.training.simulated import LEARNED

FIXED = "method=espl_evolution method.evolve=False method.prompts=1"
RL = "method=grpo method.problems_per_step=30"
COLUMNS = ("before", "after", "over fixed", "over RL", "principles", "updates", "spearman")


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
    manifest, steps, prompts = load_manifest(folder), read_steps(folder), rated(folder)
    first, last = (
        float(np.mean([one.scores["pass_rate"] for one in steps if one.step == step]))
        for step in (0, max(one.step for one in steps))
    )
    learned = (read_artifact(folder, LEARNED, dict[str, Any]) or {}).get("learned", 0.0)
    best = max((one for one in prompts if one.in_window), key=lambda one: (one.rating, -one.sd), default=None)
    figures = {"before": first, "after": last, "updates": learned, "principles": best.truth if best else 0.0}
    ratings, truths = [one.rating for one in prompts], [one.truth for one in prompts]
    if len(set(ratings)) > 1 and len(set(truths)) > 1:
        figures["spearman"] = float(spearmanr(ratings, truths).statistic)
    given = [str(one) for one in OmegaConf.load(folder / ".hydra" / "overrides.yaml")]
    swept = [one for one in given if not one.lstrip("+").startswith(("seed=", "experiment=", "evorun.", "hydra."))]
    arm = sorted(swept, key=lambda one: (not one.startswith("method="), one))
    return Run(" ".join(arm), manifest.seed, figures, prompts)


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
    lines = [f"{'arm':78}{'runs':>5}" + "".join(f"{name:>18}" for name in COLUMNS)]
    for arm, by_seed in arms.items():
        columns: dict[str, list[float]] = defaultdict(list)
        for seed, figures in by_seed.items():
            for name, value in figures.items():
                columns[name].append(value)
            for name, reference in (("over fixed", FIXED), ("over RL", RL)):
                if seed in arms.get(reference, {}):
                    columns[name].append(figures["after"] - arms[reference][seed]["after"])
        lines.append(f"{arm:78}{len(by_seed):>5}" + "".join(f"{shown(columns[name]):>18}" for name in COLUMNS))
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
