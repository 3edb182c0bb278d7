"""Methods that choose among responses, on a simulated model or a real one: Markdown tables, an arm a row.

    evorun experiment=duel_evolve/simulated_study budget=calls_300,calls_600 seed=0,1,2
    python scripts/measure_duels.py --against method=duel_evolve outputs/sweeps/TIME

One row for all runs that differ by their seeds alone, with Student's 95 % intervals. calls: of a problem. score:
the task's primary one (accuracy where there is right and wrong), over seeds and problems; in brackets over seeds alone,
on the very problems that ran. Shares have two decimals, other scores three. difference: from the arm that has the
overrides of `--against` in place of its own (and no settings of its own method, where that is a method), else from the
arm with the fewest overrides; seed by seed and problem by problem. auc: the chance that a right candidate is estimated
above a wrong one; agreement: the share of decisive duels of a right and a wrong candidate that the right one won; never
judged: the share of candidates without a duel; the last three over seeds. --columns budget: a shorter table, methods by
budgets, with scores and differences. Differences from any arm:

    python scripts/measure_duels.py --against "method=best_of_n method.choose=oracle method.budget_share=1" FOLDER
"""

import argparse
from collections import defaultdict
from collections.abc import Mapping
from pathlib import Path
from typing import NamedTuple

import numpy as np
from study_tables import (
    finished_runs,
    markdown,
    mean_over_seeds,
    mean_over_seeds_and_problems,
    name_arm,
    paired_difference,
    read_arm,
)

from evorun.runs.directory import load_manifest
from evorun.runs.reading import read_predictions, read_records, read_results
from evorun.runs.schema import CandidateRecord, ComparisonRecord
from evorun.runs.scores import primary_score

FIGURES = {"auc": "posterior_auc", "agreement": "judge_agreement"}
COLUMNS = ("seeds", "calls", "score", "(seeds alone)", "difference", *FIGURES, "never judged")


class Run(NamedTuple):
    """A finished run's figures."""

    score: Mapping[str, float]
    """The primary score, by problem; of right and wrong 1 or 0."""
    calls: float
    figures: Mapping[str, float]
    is_share: bool = True
    """True where a problem's score is right or wrong."""


def measure(run_dir: Path) -> Run:
    """Return a finished run's figures."""
    predictions, results = read_predictions(run_dir), read_results(run_dir)
    primary = primary_score(load_manifest(run_dir).scores)
    metrics = {} if results is None else results.metrics
    figures = {
        column: value
        for column, name in FIGURES.items()
        if name in metrics and (value := metrics[name].value) is not None
    }
    compared = {
        (duel.problem, name)
        for duel in read_records(run_dir / "comparisons.jsonl", ComparisonRecord)
        for name in (duel.first, duel.second)
    }
    if compared:
        candidates = [
            (candidate.problem, candidate.id)
            for candidate in read_records(run_dir / "candidates.jsonl", CandidateRecord)
        ]
        figures["never judged"] = float(np.mean([candidate not in compared for candidate in candidates]))
    return Run(
        {
            prediction.problem: value
            for prediction in predictions
            if (value := primary.value_in(prediction)) is not None
        },
        float(np.mean([sum(spent.calls for spent in prediction.cost.values()) for prediction in predictions])),
        figures,
        primary.rate,
    )


def table(arms: Mapping[str, Mapping[int, Run]], against: str | None = None) -> str:
    """Return the rows of arms, whose runs are given by seed. against: an override, see above."""
    common, digits = _find_common(arms), _count_digits(arms)
    plain = min(arms, key=lambda arm: len(arm.split()))
    rows = {}
    for arm, runs in arms.items():
        other = plain if against is None else _replaced(arm, against)
        scores = {seed: run.score for seed, run in runs.items()}
        by_seed = [float(np.mean(list(by_problem.values()))) for by_problem in scores.values()]
        cells = [
            str(len(runs)),
            f"{np.mean([run.calls for run in runs.values()]):.0f}",
            mean_over_seeds_and_problems(list(scores.values()), digits),
            f"({mean_over_seeds(by_seed, digits)})",
            paired_difference(scores, {seed: run.score for seed, run in arms[other].items()}, digits)
            if other in arms and other != arm
            else "-",
        ]
        cells += [
            mean_over_seeds([run.figures[name] for run in runs.values() if name in run.figures])
            for name in (*FIGURES, "never judged")
        ]
        rows[" ".join(word for word in arm.split() if word not in common) or "nothing changed"] = cells
    return markdown(COLUMNS, rows)


def table_by(key: str, arms: Mapping[str, Mapping[int, Run]], against: str) -> str:
    """Return the arms in the columns of a swept key's values: the score, or its difference from the arm of `against`.

    The arms of `against` have their score with its interval, the others theirs with the difference in brackets.
    """
    common, digits = _find_common(arms), _count_digits(arms)
    rows: dict[str, dict[str, str]] = defaultdict(dict)
    for arm, runs in arms.items():
        words = arm.split()
        value = next((word for word in words if word.startswith(f"{key}=")), "")
        scores, other = {seed: run.score for seed, run in runs.items()}, _replaced(arm, against)
        cell = mean_over_seeds_and_problems(list(scores.values()), digits)
        if other in arms and other != arm:
            difference = paired_difference(scores, {seed: run.score for seed, run in arms[other].items()}, digits)
            cell = f"{cell.split()[0]} ({difference})"
        name = " ".join(word for word in words if word != value and word not in common) or "nothing changed"
        rows[name][value] = cell
    columns = sorted({value for cells in rows.values() for value in cells}, key=lambda value: (len(value), value))
    return markdown(columns, {row: [cells.get(value, "-") for value in columns] for row, cells in rows.items()})


def _replaced(arm: str, overrides: str) -> str:
    """Return the name of the arm that has these overrides in the place of its own values.

    Another method has none of the settings of this one.
    """
    words = arm.split()
    for override in overrides.split():
        key = override.partition("=")[0]
        words = [*(word for word in words if not word.startswith((f"{key}.", f"{key}="))), override]
    return name_arm(words)


def _find_common(arms: Mapping[str, Mapping[int, Run]]) -> set[str]:
    return set.intersection(*(set(arm.split()) for arm in arms))


def _count_digits(arms: Mapping[str, Mapping[int, Run]]) -> int:
    """Return the decimals of scores: 2 of shares, 3 of others."""
    return 2 if all(run.is_share for runs in arms.values() for run in runs.values()) else 3


if __name__ == "__main__":
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("folders", nargs="+", type=Path)
    parser.add_argument("--against", help="overrides, such as method=duel_evolve, of the arms to compare with")
    parser.add_argument("--columns", help="a swept key, such as budget, whose values are columns; needs --against")
    options = parser.parse_args()
    found: dict[str, dict[int, Run]] = defaultdict(dict)
    for folder in finished_runs(options.folders):
        found[read_arm(folder)][load_manifest(folder).seed] = measure(folder)
    if options.columns is None:
        print(table(found, options.against))
    else:
        print(table_by(options.columns, found, options.against))
