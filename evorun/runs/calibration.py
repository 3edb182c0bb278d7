"""Estimates of a simulated model's settings from a recorded run, on the simulator's own scale.

Responses from scratch show skill and mistakes. Responses made in view of others show how much seeing these helped or
harmed. A setting that the run does not identify is left out. The estimates are of maximum likelihood under the
simulator's own model, so that they can be its settings; their intervals resample problems.
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
"""Resamples of problems for an interval (ours): its ends are read to two figures."""
SCRATCH = "init"
"""The operator of responses from scratch."""

BRED = ("evolve", "aggregate", "refine", "crossover", "mutation", "diff", "full", "cross")
"""The operators by which a model makes a response in view of others."""

# Number of equally likely values that stand for the distribution of a problem's probability (ours)
_NODES = 41
_EDGE = 1e-3
# Shares are estimated within these bounds, where their likelihoods are finite.
_SHARE = (_EDGE, 1 - _EDGE)


class Estimate(NamedTuple):
    """A setting of `engine=simulated`."""

    key: str
    value: float
    ci95: tuple[float, float] | None
    """None where only one problem identifies it."""
    n: int
    """Number of observations, in `unit`s; they come from `problems` problems."""
    unit: str
    problems: int


class Calibration(NamedTuple):
    """Estimates for a run's policy and the judge of its duels."""

    estimates: Sequence[Estimate]
    skills: Mapping[str, float]
    """By problem, the probability of a right answer from scratch: its posterior mean under the estimated Beta
    distribution, which is nearer the overall mean for fewer responses. Empty unless a problem has two responses."""
    unknown: Mapping[str, str]
    """Settings that the run does not identify, with the reason."""


@dataclass
class _Problem:
    """The counts of one problem."""

    right: int = 0
    wrong: Counter[str] = field(default_factory=Counter)
    """By answer; unparsed responses have none."""
    mixed: NDArray[np.float64] = field(default_factory=lambda: np.zeros((2, 2)))
    """Verdicts on a right and a wrong response. Rows: the right one was shown first or second. Columns: the verdict
    names the right one or the wrong one; a tie counts half in each."""
    equal: NDArray[np.float64] = field(default_factory=lambda: np.zeros(3))
    """Verdicts A, B and tie on two right or two wrong responses."""
    bred: Counter[tuple[float, bool]] = field(default_factory=Counter)
    """Responses made in view of others, by the share of those that are right and by whether the response is right."""
    chances: NDArray[np.float64] | None = None
    """Equally likely values of its probability of a right answer from scratch; None where that is unknown."""
    ease: float = 0.0
    """The mean of that probability, less the mean over problems."""

    @property
    def responses(self) -> int:
        return self.right + self.wrong.total()

    @property
    def verdicts(self) -> float:
        return float(self.mixed.sum() + self.equal.sum())


class _Candidate(msgspec.Struct):
    """A candidate without its texts: those of a long run would fill the memory."""

    problem: str
    id: CandidateId
    operator: str
    parents: tuple[CandidateId, ...] = ()
    kind: Kind = "response"
    answer: str | None = None
    correct: bool | None = None


def calibrate(run: Path, judged: Path | None = None) -> Calibration:
    """Estimate skill, spread, typical mistake, and the judge's skill, difficulty, persistence, bias and ties.

    judged: the folder with the verdicts, by default the run's own; that of a rejudging has another judge's.
    Raises DataError where the run's task has no right and wrong, or the run neither graded responses nor duels.
    """
    if not primary_score(load_manifest(run).scores).is_correctness:
        raise DataError(f"{run}: expected a run of a task with right and wrong answers; this one has scores alone")
    problems = _read(run, judged or run)
    if not any(problem.responses or problem.verdicts for problem in problems.values()):
        raise DataError(f"{run}: expected graded responses from scratch, or duels of graded ones; found neither")
    members = list(problems.values())
    skill = _estimate(
        _fit_skill, members, dict.fromkeys(("skill", "spread"), lambda problem: problem.responses), "responses"
    )
    values = {estimate.key: estimate.value for estimate in skill}
    skills: dict[str, float] = {}
    if "spread" in values:
        weight = 1 / values["spread"] - 1
        skills = {
            name: (values["skill"] * weight + problem.right) / (weight + problem.responses)
            for name, problem in problems.items()
            if problem.responses
        }
        for name, chance in skills.items():
            problems[name].ease = chance - values["skill"]
            prior = values["skill"] * weight, (1 - values["skill"]) * weight
            problems[name].chances = _quantiles(
                prior[0] + problems[name].right, prior[1] + problems[name].wrong.total()
            )
    mistakes = _estimate(
        _fit_typical_mistake, members, {"typical_mistake": lambda problem: problem.wrong.total()}, "wrong responses"
    )
    in_view = _estimate(
        _fit_in_view,
        members,
        {
            "improvement": lambda problem: _count_bred(problem, lambda share: share > 0),
            "misleading": lambda problem: _count_bred(problem, lambda share: share < 1),
        },
        "responses in view of others",
    )
    judge = _estimate(
        _fit_judge,
        members,
        {
            **dict.fromkeys(
                ("judge_skill", "judge_difficulty", "judge_persistence"), lambda problem: problem.mixed.sum()
            ),
            "position_bias": lambda problem: problem.verdicts,
            "tie_rate": lambda problem: problem.equal.sum(),
        },
        "verdicts",
    )
    estimates = [*skill, *mistakes, *in_view, *judge]
    known = {estimate.key for estimate in estimates}
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
"""The data whose absence leaves a setting unidentified."""


def _read(run: Path, judged: Path) -> dict[str, _Problem]:
    """Return the counts by problem."""
    problems: dict[str, _Problem] = defaultdict(_Problem)
    correct: dict[tuple[str, CandidateId], bool] = {}
    children: list[_Candidate] = []
    for candidate in read_records(run / "candidates.jsonl", _Candidate):
        if candidate.kind != "response" or candidate.correct is None:
            continue
        correct[candidate.problem, candidate.id] = candidate.correct
        if candidate.answer is None:
            continue
        if candidate.operator == SCRATCH:
            problems[candidate.problem].right += candidate.correct
            if not candidate.correct:
                problems[candidate.problem].wrong[candidate.answer] += 1
        elif candidate.parents and candidate.operator in BRED:
            children.append(candidate)
    for child in children:
        seen = [correct.get((child.problem, parent), False) for parent in child.parents]
        problems[child.problem].bred[sum(seen) / len(seen), bool(child.correct)] += 1
    for duel in read_records(judged / "comparisons.jsonl", ComparisonRecord):
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


def _estimate(
    estimate: Callable[[Sequence[_Problem]], Mapping[str, float]],
    problems: Sequence[_Problem],
    counted: Mapping[str, Callable[[_Problem], Any]],
    unit: str,
) -> list[Estimate]:
    """Return the settings that `estimate` finds, with intervals. counted: a problem's observations for each setting."""
    informative = [problem for problem in problems if any(count(problem) for count in counted.values())]
    if not informative:
        return []
    fitted = estimate(informative)
    rng = np.random.default_rng(0)
    draws = rng.integers(len(informative), size=(RESAMPLES if len(informative) > 1 else 0, len(informative))).tolist()
    resampled = [estimate([informative[index] for index in draw]) for draw in draws]
    estimates = []
    for key, value in fitted.items():
        drawn = [settings[key] for settings in resampled if key in settings]
        counts = [counted[key](problem) for problem in informative]
        several = sum(map(bool, counts))
        interval = tuple(np.quantile(drawn, (0.025, 0.975)).tolist()) if drawn and several > 1 else None
        estimates.append(Estimate(key, value, interval, round(sum(counts)), unit, several))
    return estimates


def _fit_skill(problems: Sequence[_Problem]) -> dict[str, float]:
    """Fit a Beta distribution to the problems' probabilities: its mean, and its share of the maximum variance."""
    right = np.array([problem.right for problem in problems], dtype=float)
    n = np.array([problem.responses for problem in problems], dtype=float)
    pooled = float(right.sum() / n.sum())
    if (n > 1).sum() < 2:  # every spread explains single responses equally well
        return {"skill": pooled}
    from scipy.special import betaln

    def loss(values: NDArray[np.float64]) -> float:
        mean, spread = values
        a, b = mean * (1 / spread - 1), (1 - mean) * (1 / spread - 1)
        return float(-(betaln(right + a, n - right + b) - betaln(a, b)).sum())

    mean, spread = _fit(loss, [pooled, 0.3], [_SHARE, _SHARE])
    return {"skill": mean, "spread": spread}


def _fit_typical_mistake(problems: Sequence[_Problem]) -> dict[str, float]:
    """Return the share of the most frequent wrong answer, from how often two wrong answers coincide.

    In a small sample the share of the most frequent answer is biased upwards; the share of coinciding pairs is not. If
    the typical mistake has share t and m others are equally frequent, pairs coincide with probability
    t^2 + (1 - t)^2 / m. The problem with the most wrong answers gives m, unseen answers included (Chao 1984,
    "Nonparametric estimation of the number of classes in a population").
    """
    pairs = sum(problem.wrong.total() * (problem.wrong.total() - 1) for problem in problems)
    if not pairs:
        return {}
    coinciding = sum(count * (count - 1) for problem in problems for count in problem.wrong.values()) / pairs
    counts = list(max(problems, key=lambda problem: problem.wrong.total()).wrong.values())
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


def _count_bred(problem: _Problem, has_share: Callable[[float], bool]) -> int:
    """Count responses made in view of others whose share of right ones fits; 0 where `chances` is unknown."""
    return 0 if problem.chances is None else sum(n for (share, _), n in problem.bred.items() if has_share(share))


def _fit_in_view(problems: Sequence[_Problem]) -> dict[str, float]:
    """Fit how much right responses in view raise a problem's probability, and how much wrong ones lower it.

    The likelihood is averaged over the possible values of that probability. With the mean alone, a problem that is
    easier than it seems has right responses in view more often, and these would seem to help.
    """
    known = [problem for problem in problems if problem.chances is not None]
    shares = np.array(sorted({share for problem in known for share, _ in problem.bred}))
    chances = np.array([problem.chances for problem in known])[:, :, None]
    counts = np.array(
        [[[problem.bred[share, right] for share in shares] for right in (True, False)] for problem in known]
    )

    def loss(values: NDArray[np.float64]) -> float:
        chance = np.clip(chances + values[0] * shares - values[1] * (1 - shares), *_SHARE)
        likelihood = (counts[:, 0, None] * np.log(chance) + counts[:, 1, None] * np.log(1 - chance)).sum(axis=2)
        return float(-np.logaddexp.reduce(likelihood, axis=1).sum())

    improvement, misleading = _fit(loss, [0.15, 0.05], [(0.0, 1.0), (0.0, 1.0)])
    settings = {"improvement": ((shares > 0).any(), improvement), "misleading": ((shares < 1).any(), misleading)}
    return {key: value for key, (identified, value) in settings.items() if identified}


def _fit_judge(problems: Sequence[_Problem]) -> dict[str, float]:
    """Fit the simulated judge (`evorun.simulation.skill.Skill.verdict`) to all verdicts at once.

    A problem's persistent verdicts are all right, with the probability of a single verdict, or all wrong: a mixture.
    """
    mixed = np.array([problem.mixed for problem in problems])
    equal = np.sum([problem.equal for problem in problems], axis=0)
    ease = np.array([problem.ease for problem in problems])
    several = (mixed.sum(axis=(1, 2)) > 1).sum() > 1
    graded = bool(np.ptp(ease[mixed.sum(axis=(1, 2)) > 0])) if mixed.any() else False

    def loss(values: NDArray[np.float64]) -> float:
        skill, difficulty, persistence, bias, ties = values
        content_weight, first, second = 1 - abs(bias), max(bias, 0.0), max(-bias, 0.0)
        right_named = np.clip(skill + difficulty * ease, *_SHARE)

        def verdict_likelihood(chance: NDArray[np.float64]) -> NDArray[np.float64]:
            named = np.clip(
                np.stack([first + content_weight * chance, second + content_weight * chance], axis=1), *_SHARE
            )
            likelihood: NDArray[np.float64] = (mixed * np.log(np.stack([named, 1 - named], axis=2))).sum(axis=(1, 2))
            return likelihood

        by_luck = (1 - persistence) * right_named
        mixture = np.logaddexp(
            np.log(right_named) + verdict_likelihood(persistence + by_luck),
            np.log(1 - right_named) + verdict_likelihood(by_luck),
        )
        undecided = content_weight * (1 - ties) / 2
        alike = np.log(np.clip([first + undecided, second + undecided, content_weight * ties], *_SHARE))
        return float(-mixture.sum() - equal @ alike)

    fixed = (0.0, 0.0)
    bounds = [_SHARE, (0.0, 1.0) if graded else fixed, (0.0, 1.0) if several else fixed, (-0.99, 0.99), _SHARE]
    skill, difficulty, persistence, bias, ties = _fit(loss, [0.7, 0.1, 0.2, 0.01, 0.2], bounds)
    settings = {
        "judge_skill": (mixed.any(), skill),
        "judge_difficulty": (graded, difficulty),
        "judge_persistence": (several, persistence),
        "position_bias": (mixed.any() or equal.any(), bias),
        "tie_rate": (equal.any(), ties),
    }
    return {key: value for key, (identified, value) in settings.items() if identified}


def _fit(
    loss: Callable[[NDArray[np.float64]], float], start: Sequence[float], bounds: Sequence[tuple[float, float]]
) -> list[float]:
    """Return the values within bounds that minimize a loss, to six decimals: later ones differ between machines."""
    from scipy.optimize import minimize

    clipped = [min(high, max(low, value)) for value, (low, high) in zip(start, bounds, strict=True)]
    result = minimize(loss, clipped, bounds=bounds, method="L-BFGS-B")
    return [round(float(value), 6) for value in result.x]
