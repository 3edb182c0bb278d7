"""The candidates that serve all problems: recorded ratings, rewards and test scores, and rubrics by refinement."""

from collections import defaultdict
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from statistics import fmean
from typing import NamedTuple

import msgspec
from msgspec import UNSET

from evorun.runs.candidates import GIVEN, SHARED, CandidateId
from evorun.runs.directory import RATINGS, RUBRIC_SCORES
from evorun.runs.printable import printable
from evorun.runs.reading import read_artifact, read_prompt_scores, read_records, read_records_by_problem
from evorun.runs.schema import CandidateRecord, Metric, PromptScore, RatingRecord, RolloutRecord, RubricScore
from evorun.runs.statistics import mean_interval


@dataclass(frozen=True)
class Population:
    """All candidates of a run, kept or dropped: system prompts, rubrics, or both."""

    members: Sequence[CandidateRecord]
    """In order of creation, with the latest rating of each."""
    courses: dict[CandidateId, list[RatingRecord]]
    """The ratings of each member, in the order of steps; only those that a step changed."""
    scores: Sequence[PromptScore]
    """On the test problems, of members tested side by side."""
    parents: Sequence[Sequence[int]]
    """Positions of each member's parents; the edited one, with which it shares most lines, comes first."""

    @property
    def best(self) -> int | None:
        """Position of the kept member with the highest rating (among equals the lowest sd); None if none is rated."""
        rated = [i for i, member in enumerate(self.members) if member.mean is not None]
        kept = [i for i in rated if self.members[i].survivor]
        return max(
            kept or rated, key=lambda i: (self.members[i].mean or 0.0, -(self.members[i].sd or 0.0)), default=None
        )

    @property
    def latest(self) -> int:
        """Position of the newest member."""
        return len(self.members) - 1

    def mark(self, index: int) -> str:
        """Return a member's distinctions (root, best, latest) in brackets after a space; empty for most members."""
        marks = {"root": 0, "best": self.best, "latest": self.latest}
        words = ", ".join(word for word, position in marks.items() if position == index)
        return f" ({words})" if words else ""

    @property
    def rated(self) -> bool:
        """True if any member has a rating."""
        return any(member.mean is not None for member in self.members)

    @property
    def kinds(self) -> str:
        """The kinds of its members, in the plural."""
        return " and ".join(
            f"{kind.replace('_', ' ')}s" for kind in dict.fromkeys(member.kind for member in self.members)
        )

    def rating_at(self, candidate: CandidateId, step: int) -> float | None:
        """Return the mean of a candidate's rating after a step; None if it was unrated then."""
        known = [rating for rating in self.courses.get(candidate, ()) if rating.step <= step]
        return known[-1].mean if known else None


def load_population(run_dir: Path) -> Population | None:
    """Read the candidates that serve all problems; None for a run without any. Raises DataError."""
    (members,) = read_records_by_problem(run_dir / "candidates.jsonl", CandidateRecord, [SHARED])
    if not members:
        return None
    position = {member.id: index for index, member in enumerate(members)}
    courses: dict[CandidateId, list[RatingRecord]] = defaultdict(list)
    for rating in read_records(run_dir / f"{RATINGS}.jsonl", RatingRecord):
        if rating.candidate in position:
            courses[rating.candidate].append(rating)
    for ratings in courses.values():
        index, last = position[ratings[-1].candidate], ratings[-1]
        members[index] = msgspec.structs.replace(members[index], mean=last.mean, sd=last.sd, survivor=last.survivor)
    lines = [set(member.text.split("\n")) for member in members]
    parents = []
    for index, member in enumerate(members):
        # In a damaged or foreign record, a parent may come after its child or be missing.
        known = {position[p] for p in member.parents if position.get(p, index) < index}
        parents.append(sorted(known, key=lambda parent: (-len(lines[parent] & lines[index]), parent)))
    scores = [score for score in read_prompt_scores(run_dir) if score.candidate in position]
    return Population(members, dict(courses), scores, parents)


def load_given_prompts(run_dir: Path) -> list[CandidateRecord]:
    """Read the given prompts that a run has tested, in order; none of other runs. Raises DataError."""
    # candidates.jsonl may be long, and without ratings no candidate in it serves all problems
    if next(read_records(run_dir / f"{RATINGS}.jsonl", RatingRecord), None) is None:
        return []
    (shared,) = read_records_by_problem(run_dir / "candidates.jsonl", CandidateRecord, [SHARED])
    return [prompt for prompt in shared if prompt.operator == GIVEN]


class _Made(msgspec.Struct):
    problem: str
    operator: str


def count_crossovers(run_dir: Path) -> int:
    """Count the candidates that serve all problems and were made by crossover. Raises DataError."""
    made = read_records(run_dir / "candidates.jsonl", _Made)
    return sum((one.problem, one.operator) == (SHARED, "crossover") for one in made)


class RolloutSummary(NamedTuple):
    """The rollouts under one system prompt, or those that one rubric scored."""

    rollouts: int
    reward: Metric
    """Mean, with an interval over its groups (step and problem): rollouts of a group are not independent."""
    gain: float | None
    """Mean reward minus that of all rollouts of the same steps: rewards of other steps have other weights."""


def summarise_rollouts(rollouts: Sequence[RolloutRecord]) -> dict[CandidateId, RolloutSummary]:
    """Summarise the rollouts under each system prompt, and those that each rubric scored, by normalised rewards.

    Rollouts without a reward only count as played.
    """
    step_rewards: dict[int, list[float]] = defaultdict(list)
    groups: dict[CandidateId, dict[tuple[int, str], list[float]]] = defaultdict(lambda: defaultdict(list))
    counts: dict[CandidateId, int] = defaultdict(int)
    rubrics = set()
    for rollout in rollouts:
        if rollout.candidate is not None:
            counts[rollout.candidate] += 1
            if rollout.reward is not None:
                step_rewards[rollout.step].append(rollout.reward)
                groups[rollout.candidate][rollout.step, rollout.problem].append(rollout.reward)
        if rollout.rubric is not UNSET:
            rubrics.add(rollout.rubric)
            counts[rollout.rubric] += 1
            if rollout.normalised is not UNSET:
                groups[rollout.rubric][rollout.step, rollout.problem].append(rollout.normalised)
    found = {}
    for candidate, count in counts.items():
        own = groups[candidate]
        rewards = [reward for group in own.values() for reward in group]
        interval = mean_interval([fmean(group) for group in own.values()])
        gains = []
        if candidate not in rubrics:  # rewards by different rubrics do not compare
            gains = [reward - fmean(step_rewards[step]) for (step, _), group in own.items() for reward in group]
        value = fmean(rewards) if rewards else None
        found[candidate] = RolloutSummary(count, Metric(value, interval, len(rewards)), fmean(gains) if gains else None)
    return found


def average_rewards(rollouts: Sequence[RolloutRecord]) -> dict[int, dict[CandidateId | None, float]]:
    """Return the mean reward of the rollouts of each step and candidate."""
    found: dict[int, dict[CandidateId | None, list[float]]] = defaultdict(lambda: defaultdict(list))
    for rollout in rollouts:
        if rollout.reward is not None:
            found[rollout.step][rollout.candidate].append(rollout.reward)
    return {
        step: {candidate: fmean(own) for candidate, own in by_candidate.items()} for step, by_candidate in found.items()
    }


class Length(NamedTuple):
    """A rubric's place in its lineage, and the length of its items."""

    rubric: CandidateId
    number: int
    """Number of refinements before it."""
    refined: int
    """The step after which it was made."""
    words: float
    """Mean words per item; for a rubric in free text, all its words."""


def measure_rubrics(candidates: Iterable[CandidateRecord]) -> dict[str, list[Length]]:
    """Return the rubrics of each key in order of creation; the key "" stands for a rubric of all problems."""
    by_key: dict[str, list[Length]] = {}
    for candidate in candidates:
        if candidate.kind == "rubric":
            versions = by_key.setdefault(parse_key(candidate.id), [])
            versions.append(Length(candidate.id, len(versions), candidate.generation, count_item_words(candidate.text)))
    return by_key


def average_shared(lines: Sequence[Mapping[int, float]]) -> dict[int, float]:
    """Return the mean over lines at each place that all of them have, such as a refinement."""
    shared = set[int].intersection(*map(set, lines)) if lines else set()
    return {place: fmean(line[place] for line in lines) for place in sorted(shared)}


def parse_key(rubric: CandidateId) -> str:
    """Return the key of a rubric by its id, `KEY#NUMBER`; "" for that of all problems."""
    name = rubric.rpartition("#")[0]
    return "" if name == "rubric" else name


def count_item_words(text: str) -> float:
    """Return the mean number of words per item of a rubric, without tags; for free text, all its words."""
    # Items stand side by side, each between its own tags: `evorun.tasks.rubrics` reads and writes them so.
    items = [item.partition("</item>")[0] for item in text.split("<item>")[1:]] or [text]
    return sum(len(item.split()) for item in items) / len(items)


def read_rubric_scores(run: Path) -> Sequence[RubricScore]:
    """Return each rubric's scores of the responses to the test problems; empty before `evorun rescore`."""
    return read_artifact(run, RUBRIC_SCORES, list[RubricScore]) or ()


@dataclass(frozen=True)
class Transplant:
    """Test scores of prompts with the weights of several steps."""

    cells: Mapping[tuple[CandidateId, int], PromptScore]
    """By prompt and step of the weights."""
    prompts: Sequence[CandidateId]
    steps: Sequence[int]
    names: Mapping[CandidateId, str]
    """By prompt: its id and its mark (root, best, latest) in the run."""

    chosen: CandidateId
    """The prompt whose gains are reported: the best one, if it was tested."""
    method: str | None = None
    """The method that gave the answers; None for single ones, as in the run's evaluations."""

    @property
    def name(self) -> str:
        """The name of its figure and its table."""
        return "transplant" if self.method is None else f"transplant_{self.method}"

    @property
    def gains(self) -> tuple[float, float, float] | None:
        """The gain by the chosen prompt alone, by the last weights alone, and by both, over the first of both.

        None if one of these four cells is missing, or there is only one prompt or step.
        """
        first, last, root = self.steps[0], self.steps[-1], self.prompts[0]
        corners = [self.cells.get((prompt, step)) for prompt in (root, self.chosen) for step in (first, last)]
        scores = [corner.score for corner in corners if corner is not None]
        if len(scores) < 4 or root == self.chosen or first == last:
            return None
        before, weights, prompt, both = scores
        return prompt - before, weights - before, both - before


def load_transplants(run_dir: Path, population: Population | None) -> list[Transplant]:
    """Read the matrices, that of single answers first. Prompts are in order of creation. Raises DataError."""
    files = sorted(
        run_dir.glob("artifacts/transplant*.json"), key=lambda file: (len(file.stem.split("_")) > 1, file.stem)
    )
    found = []
    for file in files:
        cells = read_artifact(run_dir, file.name, list[PromptScore])
        if cells:
            method = file.stem.removeprefix("transplant").removeprefix("_") or None
            found.append(_make_transplant(cells, method, population))
    return found


def _make_transplant(found: Sequence[PromptScore], method: str | None, population: Population | None) -> Transplant:
    members = population.members if population is not None else []
    order = {member.id: index for index, member in enumerate(members)}
    prompts = sorted({cell.candidate for cell in found}, key=lambda prompt: (order.get(prompt, len(order)), prompt))
    marks = (
        {member.id: population.mark(index) for index, member in enumerate(members)} if population is not None else {}
    )
    best = None if population is None else population.best
    chosen = next(
        (member.id for index, member in enumerate(members) if index == best and member.id in prompts), prompts[-1]
    )
    return Transplant(
        cells={(cell.candidate, cell.step): cell for cell in found},
        prompts=prompts,
        steps=sorted({cell.step for cell in found}),
        names={prompt: printable(prompt + marks.get(prompt, "")) for prompt in prompts},
        chosen=chosen,
        method=method,
    )
