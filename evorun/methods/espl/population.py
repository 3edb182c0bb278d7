"""A population of system prompts: an evolutionary tree with ratings, from one root or several (E-SPL, section 3.2)."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from itertools import accumulate, combinations, pairwise
from math import sqrt
from typing import Any, NamedTuple

import numpy as np
import numpy.typing as npt
from msgspec.structs import replace
from scipy.special import softmax

from evorun.errors import ConfigError, above, at_least, one_of, within
from evorun.methods.espl.system_prompts import Limits, SystemPrompt, read_roots
from evorun.models.base import Sampling
from evorun.ratings import trueskill
from evorun.runs.candidates import Candidate

SELECTIONS = ("best_and_uniform", "softmax", "ucb", "uniform", "champion", "probability_of_best")
RANKINGS = ("batch_mean", "by_problem", "random")
DRIFTS = ("by_batch", "by_update")
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
    mean - lambda sd, the newest, then the highest scores (the last two: the authors' released code).
    probability_of_best: one after another, each with its probability of being the best of those left (Thompson
    sampling: the highest of one draw from each N(mean, sd))."""
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
    ranking: str
    """What rates, and decides the parent. batch_mean: one ranking a batch, by mean rewards. by_problem: one of each
    problem, by the mean rewards on it, so that what rates are paired differences. random: one a batch, by mean rewards
    that are dealt to its system prompts at random, a control."""
    drift: str
    """When skills drift by tau. by_batch: those of a batch, before its ranking. by_update: those of the window, after
    each update of the weights, which is what moves them; under frozen weights never."""
    fitness_sharing: bool
    """Rank by shares of each problem's rewards in the place of mean rewards (`shared_fitness`)."""
    islands: int
    """Parts of the population that evolve apart, each with a window of its own; steps take turns between them."""
    migration_every: int | None
    """Steps after which the best of each island joins the next one, too; null: none ever does."""
    mutation_sd: float
    """Delta sigma: how much less is known of a child than of its parent."""
    mutation_sd_by: str
    """sum: a mutant's sd is its parent's plus delta (Algorithm 1). root_of_squares: of both (appendix B)."""

    def __post_init__(self) -> None:
        for key in ("prompts", "window", "islands", "migration_every"):
            at_least(f"method.{key}", getattr(self, key), 1)
        for key in ("mu0", "optimism", "tau", "tie", "mutation_sd"):
            at_least(f"method.{key}", getattr(self, key), 0)
        for key in ("selection_temperature", "sigma0", "beta", "draw_probability"):
            above(f"method.{key}", getattr(self, key), 0)
        within("method.draw_probability", self.draw_probability, 0, 0.999)
        one_of("method.selection", self.selection, SELECTIONS)
        one_of("method.ranking", self.ranking, RANKINGS)
        one_of("method.drift", self.drift, DRIFTS)
        if self.fitness_sharing and self.ranking == "by_problem":
            raise ConfigError(
                "method.fitness_sharing: changes no ranking of one problem; leave it false, or set ranking"
            )
        if self.migration_every is not None and self.islands == 1:
            raise ConfigError("method.migration_every: expected null beside one island; set method.islands, too")
        one_of("method.mutation_sd_by", self.mutation_sd_by, MUTATION_SDS)


REFLECTORS = ("reference", "policy")


@dataclass(kw_only=True)
class EvolutionSettings(PopulationSettings):
    """Hyperparameters of evolution; the methods' YAML files give each default and its source."""

    evolve: bool
    """False: the system prompts to start from stay the only ones."""
    reflect_with: str
    """reference | policy: the weights that summarise, criticise and edit, without or with what the run trains."""
    crossover_rate: float
    """Probability of a crossover in a step (p_crossover)."""
    crossover_alone_by: float | None
    """null: a crossover takes another system prompt that was best at a problem. Else the best one and another must
    each have been best at one alone, by more than this."""
    lessons_first: bool
    """The lessons of a problem's rollouts and the edits by them are two calls (equations 7 and 8); false: one."""
    local_edits: int
    """Edits that the critique of one problem proposes at most (K_ops)."""
    principles_in: str
    """system | user: principles stand in the system prompt, or after the problem in the user's message; then the system
    prompt is the task's own, and the root has no preamble either."""
    eval_prompt: str
    """best | latest: the system prompt that the run's problems are answered under."""
    partial_edits: bool
    """Leave out edits that do not apply; else a list of edits applies whole or not at all, as a patch does."""
    most_edits: int
    """Edits that make a child at most."""
    most_principles: int
    """Principles of a system prompt at most."""
    principle_chars: int
    """Characters of a principle at most."""
    edit_preamble: bool
    """Edits may rewrite the text above the principles, too."""
    preamble_chars: int
    """Characters of a rewritten preamble at most."""
    root_principles: Any
    """Principles of the system prompt to start from: a list of texts, or a file (`read_principles`); null: none."""
    rollout_chars: int | None
    """As much of a rollout as a summary is shown; null: all of it."""
    other_roots: Any
    """Principles of further system prompts to start from, under the first one's preamble: a list of lists or files;
    null: there is one root. With `evolve: false` a batch has different prompts without evolution."""
    operator_prompts: str | None
    """Folder with files of your own in the place of those in `evorun/methods/espl/prompts`; null: none."""
    reflection_temperature: float
    reflection_top_p: float
    reflection_max_tokens: int

    def __post_init__(self) -> None:
        super().__post_init__()
        one_of("method.reflect_with", self.reflect_with, REFLECTORS)
        one_of("method.principles_in", self.principles_in, ("system", "user"))
        one_of("method.eval_prompt", self.eval_prompt, ("best", "latest"))
        within("method.crossover_rate", self.crossover_rate, 0, 1)
        for key in (
            "local_edits",
            "most_edits",
            "most_principles",
            "principle_chars",
            "preamble_chars",
            "rollout_chars",
        ):
            at_least(f"method.{key}", getattr(self, key), 1)
        at_least("method.crossover_alone_by", self.crossover_alone_by, 0)
        at_least("method.reflection_temperature", self.reflection_temperature, 0)
        above("method.reflection_top_p", self.reflection_top_p, 0)
        within("method.reflection_top_p", self.reflection_top_p, 0, 1)
        at_least("method.reflection_max_tokens", self.reflection_max_tokens, 1)
        roots = read_roots(self.root_principles, self.other_roots)
        at_least("method.window", self.window, len(roots))

    @property
    def reflection(self) -> Sampling:
        """The sampling parameters of the operators' calls."""
        return Sampling(
            temperature=self.reflection_temperature, top_p=self.reflection_top_p, max_tokens=self.reflection_max_tokens
        )

    @property
    def limits(self) -> Limits:
        """The bounds of what a model may write into a system prompt."""
        preamble_chars = self.preamble_chars if self.edit_preamble else None
        return Limits(self.most_principles, self.principle_chars, self.most_edits, preamble_chars)


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

    def __init__(self, roots: Sequence[SystemPrompt], settings: PopulationSettings) -> None:
        self._settings = settings
        self._members: dict[str, Member] = {}
        self._islands: list[list[str]] = [[] for _ in range(settings.islands)]
        """Ids of the members of each, in the order in which they joined."""
        for root in roots:
            self._add(root, 0, "root", (), Rating(settings.mu0, settings.sigma0))

    def __getitem__(self, name: str) -> Member:
        return self._members[name]

    @property
    def candidates(self) -> list[Candidate]:
        """All system prompts, as records take them; those in the window are marked as survivors."""
        window = {member.id for member in self.window}
        return [replace(one.candidate, survivor=one.id in window) for one in self._members.values()]

    @property
    def window(self) -> list[Member]:
        """The latest K; of islands the latest K of each."""
        return self._window(*range(len(self._islands)))

    def _window(self, *islands: int) -> list[Member]:
        inside = {name for island in islands for name in self._islands[island][-self._settings.window :]}
        return [member for name, member in self._members.items() if name in inside]

    @property
    def best(self) -> Member:
        """The highest mean in the window; of equals the surer one, then the older one."""
        return _best(self.window)

    @property
    def latest(self) -> Member:
        return self.window[-1]

    def select(self, rng: np.random.Generator, step: int) -> list[Member]:
        """Draw the M system prompts of a batch; some stand there more than once where the window has fewer."""
        settings, window = self._settings, self._window(self._turn(step))
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
        elif settings.selection == "probability_of_best":
            means, sds = zip(*(one.rating for one in window), strict=True)
            order = []
            for drawn in rng.normal(means, sds, (min(count, len(window)), len(window))):
                drawn[order] = -np.inf  # those that were the best of the ones left before
                order.append(int(drawn.argmax()))
        else:
            order = by_score
        # A window of fewer than M gives some of them twice: a batch always has as many rollouts.
        return [window[order[number % len(order)]] for number in range(count)]

    def _turn(self, step: int) -> int:
        """Return the island of a step."""
        return (step - 1) % len(self._islands)

    def migrate(self) -> None:
        """Let the best of each island join the next one, all at once."""
        best = [_best(self._window(island)).id for island in range(len(self._islands))]
        for island, joining in enumerate(best, 1):
            members = self._islands[island % len(self._islands)]
            members[:] = [*(name for name in members if name != joining), joining]

    def follow_update(self) -> None:
        """Let skills drift after an update of the weights, where that is when they do."""
        if self._settings.drift == "by_update":
            for member in self.window:
                sd = sqrt(member.rating.sd**2 + self._settings.tau**2)
                self._members[member.id] = member._replace(candidate=replace(member.candidate, sd=sd))

    def rate(self, values: Mapping[str, float], *, first: bool = True) -> None:
        """Move the ratings by one ranking of a batch's system prompts: their rewards by id.

        One alone is not ranked. first: whether it is the first ranking of the batch, before which skills drift. Raises
        ValueError for a value that is not finite.
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
            tau=settings.tau if first and settings.drift == "by_batch" else 0.0,
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
        islands = self._islands if operator == "root" else [self._islands[self._turn(step)]]
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
        for island in islands:
            island.append(candidate.id)
        member = self._members[candidate.id] = Member(candidate, prompt)
        return member


def _best(members: Sequence[Member]) -> Member:
    """Return the one with the highest mean; of equals the surer one, then the older one."""
    return max(members, key=lambda member: (member.rating.mean, -member.rating.sd))


def tied_ranks(values: Sequence[float], tie: float) -> list[int]:
    """Return the ranks of values in descending order, from 0 on; neighbours at most `tie` apart share theirs.

    A chain of such neighbours shares one rank, however far apart its ends are.
    """
    apart = [one - other > tie + SLACK for one, other in pairwise(values)]
    return [0, *accumulate(map(int, apart))]


Floats = npt.NDArray[np.float64]


def shared_fitness(scores: Floats) -> Floats:
    """Return the fitness of each row of a score matrix [prompts, problems], where a problem's worth is shared.

    Each problem is worth the same, and is divided among the system prompts in proportion to their scores on it: one
    that alone solves a problem gets all of it. Scores below 0 count from the lowest of their problem on. Source: Smith,
    Forrest and Perelson (1993), "Searching for diverse, cooperative populations with genetic algorithms", whose rule
    for matching antibodies is this one, with degrees.
    """
    above = scores - np.minimum(scores.min(axis=0), 0)
    total = above.sum(axis=0)
    shares = np.divide(above, total, out=np.zeros_like(above), where=total > 0)
    return np.asarray(shares.mean(axis=1), dtype=np.float64)


def genotypic_diversity(prompts: Sequence[SystemPrompt]) -> float | None:
    """Return the mean Jaccard distance between the sets of principles of two prompts, in [0, 1]; None below two."""
    sets = [set(one.principles) for one in prompts]
    distances = [1 - len(a & b) / len(a | b) if a | b else 0.0 for a, b in combinations(sets, 2)]
    return float(np.mean(distances)) if distances else None


def phenotypic_diversity(scores: Floats) -> float | None:
    """Return the mean absolute difference between two rows of a score matrix [prompts, problems]; None below two."""
    distances = [np.abs(a - b).mean() for a, b in combinations(scores, 2)]
    return float(np.mean(distances)) if distances else None
