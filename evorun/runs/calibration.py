"""Estimates of a simulated model's settings from a recorded run, on the simulator's own scale.

Only responses from scratch tell of skill and mistakes; those made in view of others tell how much better or worse that
made them. A setting of which the run says nothing is left out. The estimates are of maximum likelihood under the
simulator's own model, so that they can be put in its place; their intervals draw problems again.
"""

from collections import Counter, defaultdict
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, NamedTuple

import msgspec
import numpy as np
from numpy.typing import NDArray

from evorun.errors import DataError
from evorun.runs.candidates import CandidateId, Kind, Verdict
from evorun.runs.directory import load_manifest
from evorun.runs.reading import read_records
from evorun.runs.schema import ComparisonRecord
from evorun.runs.scores import primary_score

RESAMPLES = 100
"""Of problems, for the intervals (ours): their ends are read to two figures."""
SCRATCH = "init"
"""The operator of responses from scratch."""

BRED = ("evolve", "refine", "crossover", "mutation")
"""The operators by which a model makes a response in view of others."""

# Values that a problem's own probability is taken to have (ours)
_NODES = 41
_EDGE = 1e-3
# Shares are estimated within these bounds, where their likelihoods are finite.
_SHARE = (_EDGE, 1 - _EDGE)


class Estimate(NamedTuple):
    """A setting of `engine=simulated`."""

    key: str
    value: float
    ci95: tuple[float, float] | None
    """None where a single problem says something of it."""
    n: int
    """What it was counted from: `unit`s, on so many `problems`."""
    unit: str
    problems: int


class Calibration(NamedTuple):
    """All that a run tells of its policy, and of the judge of its duels."""

    estimates: Sequence[Estimate]
    skills: Mapping[str, float]
    """By problem, the probability of a right answer from scratch: the posterior mean under the estimated Beta
    distribution, so nearer to the mean the fewer responses there are. Empty without a second response to any."""
    unknown: Mapping[str, str]
    """Settings of which the run says nothing, each with the reason."""


@dataclass
class _Problem:
    """The counts of one problem."""

    right: int = 0
    wrong: Counter[str] = field(default_factory=Counter)
    """By answer; what could not be read has none."""
    mixed: NDArray[np.float64] = field(default_factory=lambda: np.zeros((2, 2)))
    """Verdicts on a right and a wrong response. Rows: the right one shown first, shown second; columns: the right one
    named, the wrong one. A tie is half of each."""
    equal: NDArray[np.float64] = field(default_factory=lambda: np.zeros(3))
    """Verdicts A, B and tie on two right or two wrong responses."""
    bred: Counter[tuple[float, bool]] = field(default_factory=Counter)
    """Responses made in view of others, by the share of these that are right and whether they are right themselves."""
    own: NDArray[np.float64] | None = None
    """What its probability of a right answer from scratch may be, each value as likely; None where that is unknown."""
    easier: float = 0.0
    """The mean of that, less the mean over problems."""

    @property
    def responses(self) -> int:
        return self.right + self.wrong.total()

    @property
    def verdicts(self) -> float:
        return float(self.mixed.sum() + self.equal.sum())


class _Candidate(msgspec.Struct):
    """A candidate without its texts: those of a long run fill the memory."""

    problem: str
    id: CandidateId
    operator: str
    parents: tuple[CandidateId, ...] = ()
    kind: Kind = "response"
    answer: str | None = None
    correct: bool | None = None


def calibrate(run: Path) -> Calibration:
    """Estimate skill, spread, typical mistake, and the judge's skill, difficulty, persistence, bias and ties.

    Raises DataError where the run's task has no right and wrong, or the run neither graded responses nor duels.
    """
    if not primary_score(load_manifest(run).scores).is_correctness:
        raise DataError(f"{run}: expected a run of a task with right and wrong answers; this one has scores alone")
    problems = _read(run)
    if not any(one.responses or one.verdicts for one in problems.values()):
        raise DataError(f"{run}: expected graded responses from scratch, or duels of graded ones; found neither")
    members = list(problems.values())
    skill = _estimated(_skill, members, dict.fromkeys(("skill", "spread"), lambda one: one.responses), "responses")
    values = {one.key: one.value for one in skill}
    skills: dict[str, float] = {}
    if "spread" in values:
        weight = 1 / values["spread"] - 1
        skills = {
            name: (values["skill"] * weight + one.right) / (weight + one.responses)
            for name, one in problems.items()
            if one.responses
        }
        for name, chance in skills.items():
            problems[name].easier = chance - values["skill"]
            prior = values["skill"] * weight, (1 - values["skill"]) * weight
            problems[name].own = _quantiles(prior[0] + problems[name].right, prior[1] + problems[name].wrong.total())
    mistakes = _estimated(
        _typical_mistake, members, {"typical_mistake": lambda one: one.wrong.total()}, "wrong responses"
    )
    in_view = _estimated(
        _in_view,
        members,
        {
            "improvement": lambda one: _made(one, lambda share: share > 0),
            "misleading": lambda one: _made(one, lambda share: share < 1),
        },
        "responses in view of others",
    )
    judge = _estimated(
        _judge,
        members,
        {
            **dict.fromkeys(("judge_skill", "judge_difficulty", "judge_persistence"), lambda one: one.mixed.sum()),
            "position_bias": lambda one: one.verdicts,
            "tie_rate": lambda one: one.equal.sum(),
        },
        "verdicts",
    )
    estimates = [*skill, *mistakes, *in_view, *judge]
    known = {one.key for one in estimates}
    return Calibration(estimates, skills, {key: why for key, why in _LACKING.items() if key not in known})


_LACKING = {
    "skill": "no graded response from scratch",
    "spread": "no two problems with several responses from scratch",
    "typical_mistake": "no problem with two wrong answers from scratch",
    "improvement": "no response in view of right ones to a problem whose difficulty is known",
    "misleading": "no response in view of wrong ones to a problem whose difficulty is known",
    "judge_skill": "no duel of a right and a wrong response",
    "judge_difficulty": "no duels of right and wrong responses to problems whose difficulty is known",
    "judge_persistence": "no two problems with several verdicts on right and wrong responses",
    "position_bias": "no duel",
    "tie_rate": "no duel of two right or two wrong responses",
}
"""What a run lacks that does not tell a setting."""


def _read(run: Path) -> dict[str, _Problem]:
    """Return the counts by problem."""
    problems: dict[str, _Problem] = defaultdict(_Problem)
    correct: dict[tuple[str, CandidateId], bool] = {}
    children: list[_Candidate] = []
    for one in read_records(run / "candidates.jsonl", _Candidate):
        if one.kind != "response" or one.correct is None:
            continue
        correct[one.problem, one.id] = one.correct
        if one.answer is None:
            continue
        if one.operator == SCRATCH:
            problems[one.problem].right += one.correct
            if not one.correct:
                problems[one.problem].wrong[one.answer] += 1
        elif one.parents and one.operator in BRED:
            children.append(one)
    for child in children:
        seen = [correct.get((child.problem, parent), False) for parent in child.parents]
        problems[child.problem].bred[sum(seen) / len(seen), bool(child.correct)] += 1
    for duel in read_records(run / "comparisons.jsonl", ComparisonRecord):
        pair = [correct.get((duel.problem, name)) for name in (duel.first, duel.second)]
        if None not in pair:
            for verdict, shown in zip(duel.verdicts, (pair, pair[::-1]), strict=False):
                _count(problems[duel.problem], verdict, bool(shown[0]), bool(shown[1]))
    return dict(problems)


def _count(problem: _Problem, verdict: Verdict, first: bool, second: bool) -> None:
    """Add a verdict on two responses, given whether each is right, to a problem's counts."""
    if verdict == "invalid":
        return
    named = "ABT".index(verdict)
    if first == second:
        problem.equal[named] += 1
    else:
        right_named = 0.5 if verdict == "T" else float((verdict == "A") == first)
        problem.mixed[int(second)] += (right_named, 1 - right_named)


def _estimated(
    estimate: Callable[[Sequence[_Problem]], Mapping[str, float]],
    problems: Sequence[_Problem],
    counted: Mapping[str, Callable[[_Problem], Any]],
    unit: str,
) -> list[Estimate]:
    """Return the settings that `estimate` finds, with intervals. counted: how much a problem says of each setting."""
    telling = [one for one in problems if any(count(one) for count in counted.values())]
    if not telling:
        return []
    found = estimate(telling)
    rng = np.random.default_rng(0)
    draws = rng.integers(len(telling), size=(RESAMPLES if len(telling) > 1 else 0, len(telling))).tolist()
    again = [estimate([telling[index] for index in draw]) for draw in draws]
    estimates = []
    for key, value in found.items():
        drawn = [one[key] for one in again if key in one]
        counts = [counted[key](one) for one in telling]
        several = sum(map(bool, counts))
        interval = tuple(np.quantile(drawn, (0.025, 0.975)).tolist()) if drawn and several > 1 else None
        estimates.append(Estimate(key, value, interval, round(sum(counts)), unit, several))
    return estimates


def _skill(problems: Sequence[_Problem]) -> dict[str, float]:
    """Fit a Beta distribution of the problems' own probabilities: its mean, and its share of the largest variance."""
    right = np.array([one.right for one in problems], dtype=float)
    n = np.array([one.responses for one in problems], dtype=float)
    pooled = float(right.sum() / n.sum())
    if (n > 1).sum() < 2:  # of single responses any spread makes the same
        return {"skill": pooled}
    from scipy.special import betaln

    def loss(values: NDArray[np.float64]) -> float:
        mean, spread = values
        a, b = mean * (1 / spread - 1), (1 - mean) * (1 / spread - 1)
        return float(-(betaln(right + a, n - right + b) - betaln(a, b)).sum())

    mean, spread = _fitted(loss, [pooled, 0.3], [_SHARE, _SHARE])
    return {"skill": mean, "spread": spread}


def _typical_mistake(problems: Sequence[_Problem]) -> dict[str, float]:
    """Return the share of the most frequent wrong answer, from how often two wrong answers coincide.

    The share of the most frequent one in a sample is too large, and the more so the fewer there are; the share of pairs
    that coincide is not. With a share t of the typical mistake and m others alike it is t^2 + (1 - t)^2 / m; m comes
    from the problem with most wrong answers, and counts those that it has not shown (Chao 1984, "Nonparametric
    estimation of the number of classes in a population").
    """
    pairs = sum(one.wrong.total() * (one.wrong.total() - 1) for one in problems)
    if not pairs:
        return {}
    coinciding = sum(count * (count - 1) for one in problems for count in one.wrong.values()) / pairs
    counts = list(max(problems, key=lambda one: one.wrong.total()).wrong.values())
    once, twice = counts.count(1), counts.count(2)
    kinds = len(counts) + once * (once - 1) / (2 * (twice + 1))
    if kinds <= 1:
        return {"typical_mistake": 1.0}
    # The larger root of kinds t^2 - 2 t + 1 = coinciding (kinds - 1); none is real where all are equally frequent.
    root = max(0.0, 1 - kinds * (1 - coinciding * (kinds - 1)))
    return {"typical_mistake": min(1.0, (1 + root**0.5) / kinds)}


def _quantiles(a: float, b: float) -> NDArray[np.float64]:
    """Return equally likely values of a probability with a Beta distribution."""
    from scipy.special import betaincinv

    values: NDArray[np.float64] = betaincinv(a, b, (np.arange(_NODES) + 0.5) / _NODES)
    return values


def _made(problem: _Problem, of_share: Callable[[float], bool]) -> int:
    """Return how many responses were made in view of such a share of right ones; 0 where `own` is unknown."""
    return 0 if problem.own is None else sum(n for (share, _), n in problem.bred.items() if of_share(share))


def _in_view(problems: Sequence[_Problem]) -> dict[str, float]:
    """Fit what right responses in view add to a problem's own probability, and what wrong ones take, by their shares.

    The likelihood is a mean over what that probability may be: where all are taken for as likely as their mean, easier
    problems than they seem have right responses in view more often, and these would seem to help.
    """
    known = [one for one in problems if one.own is not None]
    shares = np.array(sorted({share for one in known for share, _ in one.bred}))
    own = np.array([one.own for one in known])[:, :, None]
    made = np.array([[[one.bred[share, right] for share in shares] for right in (True, False)] for one in known])

    def loss(values: NDArray[np.float64]) -> float:
        chance = np.clip(own + values[0] * shares - values[1] * (1 - shares), *_SHARE)
        told = (made[:, 0, None] * np.log(chance) + made[:, 1, None] * np.log(1 - chance)).sum(axis=2)
        return float(-np.logaddexp.reduce(told, axis=1).sum())

    improvement, misleading = _fitted(loss, [0.15, 0.05], [(0.0, 1.0), (0.0, 1.0)])
    found = {"improvement": ((shares > 0).any(), improvement), "misleading": ((shares < 1).any(), misleading)}
    return {key: value for key, (told, value) in found.items() if told}


def _judge(problems: Sequence[_Problem]) -> dict[str, float]:
    """Fit the simulated judge (`evorun.models.simulator.Skill.verdict`) to all verdicts at once.

    A problem's persistent verdicts are all right, with the probability of one verdict, or all wrong: a mixture of two.
    """
    mixed = np.array([one.mixed for one in problems])
    equal = np.sum([one.equal for one in problems], axis=0)
    easier = np.array([one.easier for one in problems])
    several = (mixed.sum(axis=(1, 2)) > 1).sum() > 1
    graded = bool(np.ptp(easier[mixed.sum(axis=(1, 2)) > 0])) if mixed.any() else False

    def loss(values: NDArray[np.float64]) -> float:
        skill, difficulty, persistence, bias, ties = values
        of_content, first, second = 1 - abs(bias), max(bias, 0.0), max(-bias, 0.0)
        own = np.clip(skill + difficulty * easier, *_SHARE)

        def of_verdicts(chance: NDArray[np.float64]) -> NDArray[np.float64]:
            named = np.clip(np.stack([first + of_content * chance, second + of_content * chance], axis=1), *_SHARE)
            likelihood: NDArray[np.float64] = (mixed * np.log(np.stack([named, 1 - named], axis=2))).sum(axis=(1, 2))
            return likelihood

        by_luck = (1 - persistence) * own
        told = np.logaddexp(np.log(own) + of_verdicts(persistence + by_luck), np.log(1 - own) + of_verdicts(by_luck))
        undecided = of_content * (1 - ties) / 2
        alike = np.log(np.clip([first + undecided, second + undecided, of_content * ties], *_SHARE))
        return float(-told.sum() - equal @ alike)

    fixed = (0.0, 0.0)
    bounds = [_SHARE, (0.0, 1.0) if graded else fixed, (0.0, 1.0) if several else fixed, (-0.99, 0.99), _SHARE]
    skill, difficulty, persistence, bias, ties = _fitted(loss, [0.7, 0.1, 0.2, 0.01, 0.2], bounds)
    found = {
        "judge_skill": (mixed.any(), skill),
        "judge_difficulty": (graded, difficulty),
        "judge_persistence": (several, persistence),
        "position_bias": (mixed.any() or equal.any(), bias),
        "tie_rate": (equal.any(), ties),
    }
    return {key: value for key, (told, value) in found.items() if told}


def _fitted(
    loss: Callable[[NDArray[np.float64]], float], start: Sequence[float], bounds: Sequence[tuple[float, float]]
) -> list[float]:
    """Return the values within bounds that make a loss least, in six figures: the last ones are the machine's."""
    from scipy.optimize import minimize

    inside = [min(high, max(low, value)) for value, (low, high) in zip(start, bounds, strict=True)]
    found = minimize(loss, inside, bounds=bounds, method="L-BFGS-B")
    return [round(float(value), 6) for value in found.x]
