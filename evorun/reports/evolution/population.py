"""The candidates that serve all problems, with the beliefs, rewards and test scores that a run has recorded of them."""

from collections import defaultdict
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import NamedTuple

import msgspec
from msgspec import UNSET

from evorun.runs.candidates import SHARED, CandidateId
from evorun.runs.directory import RATINGS
from evorun.runs.reading import read_prompt_scores, read_records, read_records_of
from evorun.runs.schema import CandidateRecord, Metric, PromptScore, RatingRecord, RolloutRecord
from evorun.runs.statistics import mean_interval


@dataclass(frozen=True)
class Population:
    """All that have been: system prompts, rubrics, or both."""

    members: Sequence[CandidateRecord]
    """In the order of their making, with the latest belief in each."""
    courses: dict[CandidateId, list[RatingRecord]]
    """The beliefs in each, in the order of steps; only those that a step changed."""
    scores: Sequence[PromptScore]
    """On the test problems, of those that were tested beside one another."""
    parents: Sequence[Sequence[int]]
    """Positions of the parents of each; first the one whose text it shares most lines with, which was edited."""

    @property
    def best(self) -> int | None:
        """Position of the one rated highest among those kept, of equals the surest; None while none is rated."""
        rated = [i for i, one in enumerate(self.members) if one.mean is not None]
        kept = [i for i in rated if self.members[i].survivor]
        return max(
            kept or rated, key=lambda i: (self.members[i].mean or 0.0, -(self.members[i].sd or 0.0)), default=None
        )

    @property
    def latest(self) -> int:
        """Position of the one made last."""
        return len(self.members) - 1

    def mark(self, index: int) -> str:
        """Return what a member stands out by, in brackets after a blank; nothing for most."""
        marks = {"root": 0, "best": self.best, "latest": self.latest}
        words = ", ".join(word for word, position in marks.items() if position == index)
        return f" ({words})" if words else ""

    @property
    def rated(self) -> bool:
        """True where any has a rating."""
        return any(one.mean is not None for one in self.members)

    @property
    def kinds(self) -> str:
        """The kinds of its members, in the plural."""
        return " and ".join(f"{kind.replace('_', ' ')}s" for kind in dict.fromkeys(one.kind for one in self.members))

    def rating_at(self, candidate: CandidateId, step: int) -> float | None:
        """Return the mean of the rating after a step; None for one that was not rated by then."""
        known = [rating for rating in self.courses.get(candidate, ()) if rating.step <= step]
        return known[-1].mean if known else None


def load_population(run_dir: Path) -> Population | None:
    """Read the candidates that serve all problems; None for a run without any. Raises DataError."""
    (members,) = read_records_of(run_dir / "candidates.jsonl", CandidateRecord, [SHARED])
    if not members:
        return None
    position = {one.id: index for index, one in enumerate(members)}
    courses: dict[CandidateId, list[RatingRecord]] = defaultdict(list)
    for rating in read_records(run_dir / f"{RATINGS}.jsonl", RatingRecord):
        if rating.candidate in position:
            courses[rating.candidate].append(rating)
    for ratings in courses.values():
        index, last = position[ratings[-1].candidate], ratings[-1]
        members[index] = msgspec.structs.replace(members[index], mean=last.mean, sd=last.sd, survivor=last.survivor)
    lines = [set(one.text.split("\n")) for one in members]
    parents = []
    for index, one in enumerate(members):
        # of a damaged or foreign record, a parent may come after its child or be missing
        known = {position[p] for p in one.parents if position.get(p, index) < index}
        parents.append(sorted(known, key=lambda parent: (-len(lines[parent] & lines[index]), parent)))
    scores = [score for score in read_prompt_scores(run_dir) if score.candidate in position]
    return Population(members, dict(courses), scores, parents)


class Played(NamedTuple):
    """The rollouts under one system prompt, or those that one rubric scored."""

    rollouts: int
    reward: Metric
    """Mean, with the interval of drawing its groups (a step and problem) again: their rollouts are not independent."""
    gain: float | None
    """Mean reward less that of all rollouts of the same steps: rewards of other steps have other weights."""


def played_under(rollouts: Sequence[RolloutRecord]) -> dict[CandidateId, Played]:
    """Return what was played under each system prompt and scored by each rubric; the latter's rewards are normalised.

    Rollouts without a reward count as played only.
    """
    of_step: dict[int, list[float]] = defaultdict(list)
    groups: dict[CandidateId, dict[tuple[int, str], list[float]]] = defaultdict(lambda: defaultdict(list))
    counts: dict[CandidateId, int] = defaultdict(int)
    rubrics = set()
    for one in rollouts:
        if one.candidate is not None:
            counts[one.candidate] += 1
            if one.reward is not None:
                of_step[one.step].append(one.reward)
                groups[one.candidate][one.step, one.problem].append(one.reward)
        if one.rubric is not UNSET:
            rubrics.add(one.rubric)
            counts[one.rubric] += 1
            if one.normalised is not UNSET:
                groups[one.rubric][one.step, one.problem].append(one.normalised)
    found = {}
    for candidate, count in counts.items():
        own = groups[candidate]
        rewards = [reward for group in own.values() for reward in group]
        interval = mean_interval([mean(group) for group in own.values()])
        gains = []
        if candidate not in rubrics:  # a rubric's rewards are a measure of its own
            gains = [reward - mean(of_step[step]) for (step, _), group in own.items() for reward in group]
        value = mean(rewards) if rewards else None
        found[candidate] = Played(count, Metric(value, interval, len(rewards)), mean(gains) if gains else None)
    return found


def mean(values: Sequence[float]) -> float:
    """Return the arithmetic mean of at least one value."""
    return sum(values) / len(values)


def reward_by_step(rollouts: Sequence[RolloutRecord]) -> dict[int, dict[CandidateId | None, float]]:
    """Return the mean reward of the rollouts of each step and candidate."""
    found: dict[int, dict[CandidateId | None, list[float]]] = defaultdict(lambda: defaultdict(list))
    for one in rollouts:
        if one.reward is not None:
            found[one.step][one.candidate].append(one.reward)
    return {step: {who: mean(own) for who, own in by_candidate.items()} for step, by_candidate in found.items()}
