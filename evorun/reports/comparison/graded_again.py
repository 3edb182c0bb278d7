"""The grades of several runs beside those of another grader, arm by arm."""

from collections import Counter
from collections.abc import Mapping
from pathlib import Path
from statistics import fmean
from typing import NamedTuple

from evorun.reports import text
from evorun.reports.comparison.arms import Arm, group_into_arms
from evorun.reports.comparison.paired import PairedScores, compare_pooled_scores, compare_scores
from evorun.reports.comparison.runs import Run, load_runs
from evorun.reports.rejudged import SIMULATED_NOTE, RejudgedSection, describe_grader
from evorun.reports.tables import Cell, make_table
from evorun.runs.reading import read_records
from evorun.runs.scores import Score
from evorun.runs.studies import RejudgedGrade

_NOTE = (
    "Recorded, now: means, of several seeds over the seeds; n is seeds x problems. Change: now less recorded, paired "
    "by problem and seed. Its interval is over seeds and problems, by Student's t for crossed random effects; of one "
    "seed over problems, by a bootstrap. There is none where all problems change by the same amount. Higher, lower: "
    "problems, counted for each seed. Changes are no test of the methods against each other."
)


class _BothGrades(NamedTuple):
    """One score of an arm by both graders, on the problems to which both gave it."""

    recorded: float
    now: float
    change: PairedScores


def compare_grades(studies: Mapping[Path, Path]) -> RejudgedSection:
    """Return the table of runs that were graded again, a row for each arm and score.

    studies: the folder of each run's rejudging, by the run's. Raises RunDirectoryError or DataError.
    """
    arms = group_into_arms(load_runs(studies))
    records: list[dict[str, Cell]] = []
    for arm in arms:
        grades = {run.name: _read_final_grades(studies[run.outcome.run_dir]) for run in arm.runs}
        scores = arm.runs[0].outcome.scores
        for score in scores:
            found = _measure(arm, score, grades)
            if found is None:  # the new grader no longer gives it
                continue
            change = found.change
            records.append(
                {
                    "run": arm.name,
                    "score": text.name_score(score) if len(scores) > 1 else None,
                    "n": text.trials(change.problems_per_seed or [change.n]),
                    "recorded": text.value(score, found.recorded),
                    "now": text.value(score, found.now),
                    "change": text.difference(score, change.difference),
                    "95 % interval": text.difference_interval(score, change.tested_ci95),
                    "higher": text.count(change.higher),
                    "lower": text.count(change.lower),
                }
            )
    titles = Counter(describe_grader(folder) for folder in studies.values())
    parts = [title if len(titles) == 1 else f"{title} ({n} of {len(studies)} runs)" for title, n in titles.items()]
    simulated = any(run.manifest.simulated for arm in arms for run in arm.runs)
    table = make_table(records, words=("run", "score"), grouped=1)
    return RejudgedSection("; ".join(parts), SIMULATED_NOTE if simulated else None, [table], _NOTE)


def _read_final_grades(study: Path) -> dict[str, RejudgedGrade]:
    grades = read_records(study / "grades.jsonl", RejudgedGrade)
    return {grade.problem: grade for grade in grades if grade.final}


def _measure(arm: Arm, score: Score, grades: Mapping[str, Mapping[str, RejudgedGrade]]) -> _BothGrades | None:
    """Return a score of an arm by both graders; None where no problem has it from both."""
    seeds = [pairs for run in arm.runs if (pairs := _pair(run, score, grades[run.name]))]
    if not seeds:
        return None
    recorded, now = (fmean(fmean(pair[side] for pair in seed.values()) for seed in seeds) for side in (0, 1))
    if len(seeds) == 1:
        before, after = zip(*seeds[0].values(), strict=True)
        return _BothGrades(recorded, now, compare_scores(after, before))
    changes = [{problem: after - before for problem, (before, after) in seed.items()} for seed in seeds]
    span = None if score.low is None or score.high is None else score.high - score.low
    return _BothGrades(recorded, now, compare_pooled_scores(changes, span))


def _pair(run: Run, score: Score, grades: Mapping[str, RejudgedGrade]) -> dict[str, tuple[float, float]]:
    """Return the recorded and the new value of each problem that has both."""
    pairs = {}
    for problem, before in run.values(score).items():
        now = score.value_in(grades[problem]) if problem in grades else None
        if now is not None:
            pairs[problem] = before, now
    return pairs
