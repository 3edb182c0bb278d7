"""The ratings that a recorded run's candidates had after each step, computed again from its duels; no call is made."""

from collections.abc import Mapping
from pathlib import Path
from typing import Any

import msgspec

from evorun.errors import ConfigError, RunDirectoryError
from evorun.runner import registry
from evorun.runner.typed import read_name, typed
from evorun.runs.candidates import CandidateId
from evorun.runs.paths import display
from evorun.runs.reading import read_records_by_problem
from evorun.runs.schema import CandidateRecord, ComparisonRecord

_TOLERANCE = 1e-6
"""Maximum difference of a recorded rating and the same one computed again (ours): records have nine decimals."""


class RatingAtStep(msgspec.Struct, frozen=True):
    """A candidate's rating after a step."""

    step: int
    candidate: CandidateId
    mean: float
    sd: float | None
    """None where the method records none."""


def rate_by_step(run: Path, config: Mapping[str, Any], problem: str) -> list[RatingAtStep]:
    """Return the ratings of all candidates of a problem after each step from its first duel on that changed them.

    config: the run's. They are the method's own by the recorded duels (`Method.rate_by_duels`). Raises ConfigError
    where they do not follow from duels, RunDirectoryError for a problem without recorded candidates, and DataError.
    """
    (candidates,) = read_records_by_problem(run / "candidates.jsonl", CandidateRecord, [problem])
    (duels,) = read_records_by_problem(run / "comparisons.jsonl", ComparisonRecord, [problem])
    if not candidates:
        raise RunDirectoryError(
            f"{display(run)}: expected the id of a problem that has ended and has candidates, got '{problem}'"
        )
    name = read_name(config, "method")
    rated = [candidate for candidate in candidates if candidate.mean is not None]
    if not duels or not rated:
        raise ConfigError(
            f"{display(run)}: expected ratings that follow from duels, method={name} recorded none of '{problem}'"
        )
    method_class = registry.method_class(name)
    method = method_class(typed(method_class.Config, config["method"], "method"))
    has_sd = any(candidate.sd is not None for candidate in rated)
    steps = sorted({duel.step for duel in duels} | {candidate.generation for candidate in rated})
    found = list[RatingAtStep]()
    for step in (step for step in steps if step >= duels[0].step):
        members = [candidate for candidate in rated if candidate.generation <= step]
        ids = {candidate.id for candidate in members}
        held = [duel for duel in duels if duel.step <= step and {duel.first, duel.second} <= ids]
        ratings = method.rate_by_duels(members, held)
        # nine decimals, as in records
        means, sds = ratings.mean.round(9).tolist(), ratings.sd.round(9).tolist()
        last = [
            RatingAtStep(step, candidate.id, mean, sd if has_sd else None)
            for candidate, mean, sd in zip(members, means, sds, strict=True)
        ]
        found += last
    recorded = {candidate.id: candidate.mean or 0.0 for candidate in rated}
    if any(abs(rating.mean - recorded[rating.candidate]) > _TOLERANCE for rating in last):
        raise ConfigError(
            f"{display(run)}: expected ratings that follow from duels, those of method={name} are others; use "
            "run.duels() with a rating of your own"
        )
    return found
