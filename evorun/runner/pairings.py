"""The pairings of a tournament: final responses of runs to common prompts, paired at random (MPO, section 3.2)."""

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import NamedTuple

from evorun.errors import ConfigError
from evorun.fields import Checked, NonNegativeFloat, NonNegativeInt, PositiveFloat, PositiveInt
from evorun.runs.candidates import Response
from evorun.runs.directory import PROBLEMS, load_manifest
from evorun.runs.paths import display
from evorun.runs.reading import read_predictions, read_records
from evorun.runs.schema import CandidateRecord, ProblemRecord
from evorun.runs.streams import stream


@dataclass
class TournamentSettings(Checked):
    """Settings of a tournament; `ours`: the paper leaves the value open."""

    matches_per_repetition: PositiveInt = 2000
    """MPO, table 1, left; 5,000 in its right half and in table 4."""
    repetitions: PositiveInt = 5
    """Table 1: "5 runs"."""
    k: PositiveFloat = 4
    """Section 3.2."""
    initial: float = 1000
    """Chatbot Arena's; the ratings of table 1 have this mean."""
    seed: NonNegativeInt = 0
    """Of the pairings, and of the judge's sampling."""
    judge_temperature: NonNegativeFloat = 0.0
    """Ours: the judge is asked once per judgment, so take its most likely one."""
    judge_max_tokens: PositiveInt | None = None
    """Null: the task's own (`task.sampling`), or 192: a letter and one sentence (ours)."""
    resamples: NonNegativeInt = 1000
    """Of the bootstrap (ours): the ends of an interval then vary by a few per cent of its width."""

    def __post_init__(self) -> None:
        super().__post_init__()
        if not math.isfinite(self.initial):
            raise ConfigError(f"initial: expected a number, got {self.initial}")


class Entrant(NamedTuple):
    """A run in a tournament."""

    name: str
    folder: Path
    responses: Mapping[str, Response]
    """The final response to each problem; problems without a response are missing."""


class Pairing(NamedTuple):
    """Two responses to a prompt, in the order shown to the judge."""

    problem: str
    first: int
    second: int


def read_entrants(names: Sequence[str], folders: Sequence[Path]) -> tuple[list[Entrant], list[str]]:
    """Read the final responses of completed runs; return the entrants and the ids of their common problems.

    Raises ConfigError for runs that have not completed, are of different tasks, or have no problem in common.
    """
    manifests = [load_manifest(folder) for folder in folders]
    for folder, manifest in zip(folders, manifests, strict=True):
        if manifest.status != "completed":
            raise ConfigError(f"{display(folder)}: expected a completed run, its status is {manifest.status}")
    tasks = {name: manifest.task for name, manifest in zip(names, manifests, strict=True)}
    if len(set(tasks.values())) > 1:
        listed = ", ".join(f"{name}: task={task}" for name, task in tasks.items())
        raise ConfigError(f"expected runs of one task, got {listed}")
    posed = [
        {record.problem: record.data for record in read_records(folder / PROBLEMS, ProblemRecord)} for folder in folders
    ]
    common = [problem for problem in posed[0] if all(problem in other for other in posed)]
    for name, other in zip(names[1:], posed[1:], strict=True):
        differing = next((problem for problem in common if other[problem] != posed[0][problem]), None)
        if differing is not None:
            raise ConfigError(
                f"expected runs on the same problems, but problem '{differing}' differs between {name} and {names[0]}; "
                "their task.data and task.draw_seed must agree"
            )
    if not common:
        raise ConfigError(
            f"expected runs with problems in common, got none in {', '.join(names)}; choose runs with equal task.data, "
            "task.draw_seed and task.limit"
        )
    responses = [_responses(folder, frozenset(common)) for folder in folders]
    return [Entrant(*fields) for fields in zip(names, folders, responses, strict=True)], common


def _responses(folder: Path, problems: frozenset[str]) -> dict[str, Response]:
    """Return a run's final response to each problem that has one."""
    predictions = (prediction for prediction in read_predictions(folder) if prediction.problem in problems)
    final = {prediction.problem: prediction.candidate for prediction in predictions}
    return {
        candidate.problem: Response(**{name: getattr(candidate, name) for name in Response.__struct_fields__})
        for candidate in read_records(folder / "candidates.jsonl", CandidateRecord)
        if final.get(candidate.problem) == candidate.id
    }


def draw_pairings(settings: TournamentSettings, n: int, problems: Sequence[str]) -> list[list[Pairing]]:
    """Draw each repetition's matches: two of `n` entrants in random order and a prompt, all equally likely."""
    count, drawn = settings.matches_per_repetition, []
    for repetition in range(1, settings.repetitions + 1):
        rng = stream(settings.seed, "tournament", repetition)
        first = rng.integers(n, size=count)
        second = (first + rng.integers(1, n, size=count)) % n
        problem = rng.integers(len(problems), size=count)
        rows = zip(problem.tolist(), first.tolist(), second.tolist(), strict=True)
        drawn.append([Pairing(problems[index], a, b) for index, a, b in rows])
    return drawn
