"""Ends that `method.stop_probability` would have given to the problems of a recorded run; no call is made.

The recorded duels rate the candidates again, step by step. Up to its end, a search is the same with a stop and without.
"""

from collections import defaultdict
from collections.abc import Mapping, Sequence
from pathlib import Path

from evorun.errors import ConfigError
from evorun.methods.base import Method
from evorun.methods.duels.stopping import RatedStep, StopSettings, iterate_best_probabilities
from evorun.runs.candidates import Candidate
from evorun.runs.paths import display
from evorun.runs.reading import read_predictions, read_records
from evorun.runs.schema import ComparisonRecord, StepRecord
from evorun.runs.stopped import Course
from evorun.tasks.base import Problem, Task


def get_stop_settings(run: Path, method: Method, thresholds: Sequence[float]) -> StopSettings:
    """Return the settings by which a run's method ends a problem.

    Raises ConfigError where it has no such rule, or ended its own problems before a threshold.
    """
    settings = method.stop_settings
    if settings is None:
        raise ConfigError(
            f"stop_probability: expected a run of duel_evolve, best_of_n or v1_infer, {display(run)} has "
            f"method={method.name}"
        )
    own = settings.stop_probability
    if own is not None and max(thresholds) > own:
        raise ConfigError(
            f"stop_probability: expected at most {own:g}, at which {display(run)} ended its problems, got "
            f"{max(thresholds):g}"
        )
    return settings


def read_courses(
    run: Path,
    settings: StopSettings,
    task: Task,
    problems: Mapping[str, Problem],
    candidates: Mapping[str, Sequence[Candidate]],
) -> list[Course]:
    """Return the run's searches with the probability after each step that the answer is the best of the pool.

    candidates: by problem, in the recorded order. Raises ConfigError for a run without duels.
    """
    steps, duels = defaultdict[str, list[StepRecord]](list), defaultdict[tuple[str, int], list[ComparisonRecord]](list)
    for step in read_records(run / "steps.jsonl", StepRecord):
        steps[step.problem].append(step)
    for duel in read_records(run / "comparisons.jsonl", ComparisonRecord):
        duels[duel.problem, duel.step].append(duel)
    if not duels:
        raise ConfigError(f"stop_probability: expected a run with duels, {display(run)} recorded none")
    calls = {
        prediction.problem: sum(spent.calls for spent in prediction.cost.values())
        for prediction in read_predictions(run)
    }
    courses = []
    for name, taken in steps.items():
        added = defaultdict[int, list[Candidate]](list)
        for candidate in candidates.get(name, ()):
            if candidate.mean is not None:  # repeated ones are not rated
                added[candidate.generation].append(candidate)
        rated = [
            RatedStep(added[step.step], duels[name, step.step], step.best.id if step.best else None) for step in taken
        ]
        answers = [task.signature(problems[name], candidate) for step in rated for candidate in step.added]
        probabilities = list(iterate_best_probabilities(settings, rated, answers))
        courses.append(Course(taken, probabilities, calls[name]))
    return courses
