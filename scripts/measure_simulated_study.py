"""The truth about simulated runs of E-SPL and its baselines, which only the simulator knows.

    evorun experiment=espl/simulated_study seed=0,1,2
    python scripts/measure_simulated_study.py outputs/sweeps/TIME

One line for all runs that differ by their seeds alone: means with Student's 95 % intervals over seeds. Pass rate on the
test problems before and after; its paired differences, seed by seed, from the fixed prompt with frozen weights and from
RL under it; what the principles of the prompt that was tested truly add to the probability of a right answer, and what
the updates do; Spearman's correlation between ratings at the end and what each prompt truly adds.
"""

import argparse
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


class Run(NamedTuple):
    """A run's arm of the study, its seed and its figures."""

    arm: str
    seed: int
    figures: Mapping[str, float]


def measured(folder: Path) -> Run:
    """Return a finished run's figures."""
    manifest = load_manifest(folder)
    engine: Mapping[str, Any] = manifest.config["engine"]
    settings = PrincipleSettings(**{one.name: engine[one.name] for one in fields(PrincipleSettings)})
    steps = read_steps(folder)
    first, last = (
        float(np.mean([one.scores["pass_rate"] for one in steps if one.step == step]))
        for step in (0, max(one.step for one in steps))
    )
    figures = {"before": first, "after": last, "principles": 0.0}
    figures["updates"] = (read_artifact(folder, LEARNED, dict[str, Any]) or {}).get("learned", 0.0)
    prompts = [one for one in read_records(folder / "candidates.jsonl", CandidateRecord) if one.problem == SHARED]
    if prompts:
        merits = {one.id: settings.merit(one.text) for one in prompts}
        ratings = {
            one.candidate: one for one in read_records(folder / f"{RATINGS}.jsonl", RatingRecord)
        }  # the last of each
        tested = max((one for one in ratings.values() if one.survivor), key=lambda one: one.mean or 0.0)
        figures["principles"] = merits[tested.candidate]
        means = [ratings[name].mean for name in merits]
        if len(set(merits.values())) > 1 and len(set(means)) > 1:
            figures["spearman"] = float(spearmanr(means, list(merits.values())).statistic)
    given = [str(one) for one in OmegaConf.load(folder / ".hydra" / "overrides.yaml")]
    swept = [one for one in given if not one.lstrip("+").startswith(("seed=", "experiment=", "evorun.", "hydra."))]
    arm = sorted(swept, key=lambda one: (not one.startswith("method="), one))
    return Run(" ".join(arm), manifest.seed, figures)


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
    finished = [file.parent for folder in parser.parse_args().folders for file in sorted(folder.rglob("results.json"))]
    print(table([measured(folder) for folder in finished]))
