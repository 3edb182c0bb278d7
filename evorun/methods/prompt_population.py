"""A population of system prompts: an evolutionary tree from one root, with ratings (E-SPL, section 3.2, appendix A)."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from itertools import accumulate, pairwise
from math import sqrt
from typing import Any, NamedTuple

import numpy as np
from msgspec.structs import replace
from scipy.special import softmax

from evorun.errors import above, at_least, one_of, within
from evorun.methods.system_prompts import SystemPrompt
from evorun.ratings import trueskill
from evorun.runs.candidates import Candidate

SELECTIONS = ("best_and_uniform", "softmax", "ucb", "uniform", "champion")
MUTATION_SDS = ("sum", "root_of_squares")
SLACK = 1e-9
"""Added to the tie's width: a difference of 0.01 between means of rewards must not hang on its last bit."""


@dataclass(kw_only=True)
class PopulationSettings:
    """Hyperparameters of a population, part of the configuration of every method that has one."""

    prompts: int
    """System prompts in a batch (M)."""
    window: int
    """The latest system prompts, of which batches are drawn (K)."""
    selection: str
    """best_and_uniform: the highest score, the others uniformly from the rest of the window (appendix A). softmax: each
    with a probability that grows with its score (eq. 4). ucb: the highest scores. uniform: any. champion: the highest
    mean - lambda sd, the newest, then the highest scores (the last two: the authors' released code)."""
    optimism: float
    """Standard deviations that a score lies above the mean (lambda)."""
    selection_temperature: float
    """T of eq. 4, for `softmax`."""
    mu0: float
    sigma0: float
    beta: float
    tau: float
    draw_probability: float
    tie: float
    """Mean rewards that differ by no more count as equal."""
    mutation_sd: float
    """Delta sigma: how much less is known of a child than of its parent."""
    mutation_sd_by: str
    """sum: a mutant's sd is its parent's plus delta (Algorithm 1). root_of_squares: of both (appendix B)."""

    def __post_init__(self) -> None:
        for key in ("prompts", "window"):
            at_least(f"method.{key}", getattr(self, key), 1)
        for key in ("mu0", "optimism", "tau", "tie", "mutation_sd"):
            at_least(f"method.{key}", getattr(self, key), 0)
        for key in ("selection_temperature", "sigma0", "beta", "draw_probability"):
            above(f"method.{key}", getattr(self, key), 0)
        within("method.draw_probability", self.draw_probability, 0, 0.999)
        one_of("method.selection", self.selection, SELECTIONS)
        one_of("method.mutation_sd_by", self.mutation_sd_by, MUTATION_SDS)


class Rating(NamedTuple):
    """A belief in a system prompt's skill."""

    mean: float
    sd: float


class Member(NamedTuple):
    """A system prompt of a population, as the records know it and as edits change it."""

    candidate: Candidate
    prompt: SystemPrompt

    @property
    def id(self) -> str:
        return self.candidate.id

    @property
    def rating(self) -> Rating:
        assert self.candidate.mean is not None and self.candidate.sd is not None  # noqa: S101, PT018 - `Population.add`
        return Rating(self.candidate.mean, self.candidate.sd)


class Population:
    """All system prompts so far, in the order of their birth."""

    def __init__(self, root: SystemPrompt, settings: PopulationSettings) -> None:
        self._settings = settings
        self._members: dict[str, Member] = {}
        self._add(root, 0, "root", (), Rating(settings.mu0, settings.sigma0))

    @property
    def candidates(self) -> list[Candidate]:
        """All system prompts, as records take them; those in the window are marked as survivors."""
        window = {member.id for member in self.window}
        return [replace(one.candidate, survivor=one.id in window) for one in self._members.values()]

    @property
    def window(self) -> list[Member]:
        """The latest K."""
        return list(self._members.values())[-self._settings.window :]

    @property
    def best(self) -> Member:
        """The highest mean in the window; of equals the surer one, then the older one."""
        return max(self.window, key=lambda member: (member.rating.mean, -member.rating.sd))

    @property
    def latest(self) -> Member:
        return self.window[-1]

    def select(self, rng: np.random.Generator) -> list[Member]:
        """Draw the M system prompts of a batch; some stand there more than once where the window has fewer."""
        settings, window = self._settings, self.window
        scores = [one.rating.mean + settings.optimism * one.rating.sd for one in window]
        by_score = sorted(range(len(window)), key=lambda index: -scores[index])
        count = settings.prompts
        if settings.selection == "softmax":
            weights = softmax(np.array(scores) / settings.selection_temperature)
            return [window[index] for index in rng.choice(len(window), count, p=weights)]
        if settings.selection == "uniform":
            return [window[index] for index in rng.choice(len(window), count)]
        if settings.selection == "best_and_uniform":
            order = [by_score[0], *rng.permutation(by_score[1:]).tolist()]
        elif settings.selection == "champion":
            surest = max(range(len(window)), key=lambda index: 2 * window[index].rating.mean - scores[index])
            order = list(dict.fromkeys([surest, len(window) - 1, *by_score]))
        else:
            order = by_score
        # A window of fewer than M gives some of them twice: a batch always has as many rollouts.
        return [window[order[number % len(order)]] for number in range(count)]

    def rate(self, values: Mapping[str, float]) -> None:
        """Move the ratings by the ranking of one batch's system prompts: their mean rewards by id.

        One alone is not ranked. Raises ValueError for a value that is not finite.
        """
        ranked = sorted(values, key=lambda name: -values[name])  # stable: equals stay in the order of the batch
        if len(ranked) < 2:
            return
        settings, ratings = self._settings, [self._members[name].rating for name in ranked]
        rated = trueskill.rate(
            [rating.mean for rating in ratings],
            [rating.sd for rating in ratings],
            tied_ranks([values[name] for name in ranked], settings.tie),
            beta=settings.beta,
            tau=settings.tau,
            draw_probability=settings.draw_probability,
        )
        for name, mean, sd in zip(ranked, rated.mean.tolist(), rated.sd.tolist(), strict=True):
            candidate, prompt = self._members[name]
            self._members[name] = Member(replace(candidate, mean=mean, sd=sd), prompt)

    def add_mutant(self, prompt: SystemPrompt, parent: Member, step: int, **origin: Any) -> Member:
        """Add a child by mutation: its parent's mean, less sure. origin: `call`, `reflection`, `blamed`."""
        mean, sd = self._members[parent.id].rating
        delta = self._settings.mutation_sd
        more = sd + delta if self._settings.mutation_sd_by == "sum" else sqrt(sd**2 + delta**2)
        return self._add(prompt, step, "mutation", (parent.id,), Rating(mean, more), **origin)

    def add_crossover(self, prompt: SystemPrompt, parents: Sequence[Member], step: int, **origin: Any) -> Member:
        """Add a child by crossover: its parents' mean weighted by precision (Algorithm 2). origin: as a mutant's."""
        ratings = [self._members[parent.id].rating for parent in parents]
        precision = sum(1 / rating.sd**2 for rating in ratings)
        mean = sum(rating.mean / rating.sd**2 for rating in ratings) / precision
        fused = Rating(mean, sqrt(1 / precision + self._settings.mutation_sd**2))
        return self._add(prompt, step, "crossover", tuple(parent.id for parent in parents), fused, **origin)

    def _add(
        self, prompt: SystemPrompt, step: int, operator: str, parents: tuple[str, ...], rating: Rating, **origin: Any
    ) -> Member:
        siblings = sum(member.candidate.generation == step for member in self._members.values())
        candidate = Candidate(
            id=f"{step}.{siblings}",
            kind="system_prompt",
            generation=step,
            parents=parents,
            operator=operator,
            text=prompt.text,
            answer=None,
            mean=rating.mean,
            sd=rating.sd,
            survivor=True,
            **origin,
        )
        member = self._members[candidate.id] = Member(candidate, prompt)
        return member


def tied_ranks(values: Sequence[float], tie: float) -> list[int]:
    """Return the ranks of values in descending order, from 0 on; neighbours at most `tie` apart share theirs.

    A chain of such neighbours shares one rank, however far apart its ends are.
    """
    apart = [one - other > tie + SLACK for one, other in pairwise(values)]
    return [0, *accumulate(map(int, apart))]
