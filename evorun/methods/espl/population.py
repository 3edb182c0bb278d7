"""A population of system prompts: an evolutionary tree with ratings, from one root or several (E-SPL, section 3.2)."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from itertools import accumulate, combinations, pairwise
from math import sqrt
from typing import Annotated, Any, NamedTuple

import numpy as np
import numpy.typing as npt
from msgspec import Meta
from msgspec.structs import replace
from scipy.special import softmax

from evorun.errors import ConfigError
from evorun.fields import Checked, Fraction, NonNegativeFloat, OneOf, PositiveFloat, PositiveInt, require_at_least
from evorun.methods.espl.system_prompts import Limits, SystemPrompt, read_roots
from evorun.models.base import Sampling
from evorun.ratings import trueskill
from evorun.runs.candidates import Candidate

SELECTIONS = ("best_and_uniform", "softmax", "ucb", "uniform", "champion", "probability_of_best")
RANKINGS = ("batch_mean", "by_problem", "random")
DRIFTS = ("by_batch", "by_update")
MUTATION_SDS = ("sum", "root_of_squares")
SLACK = 1e-9
"""Added to the tie's width, so that a difference of 0.01 between mean rewards does not hinge on its last bit."""


@dataclass(kw_only=True)
class PopulationSettings(Checked):
    """Hyperparameters of a population: part of the configuration of every method that has one."""

    section = "method"

    prompts: PositiveInt
    """System prompts in a batch (M)."""
    window: PositiveInt
    """Number of latest system prompts from which batches are drawn (K)."""
    selection: Annotated[str, OneOf(SELECTIONS)]
    """best_and_uniform: the highest score, the others uniformly from the rest of the window (appendix A). softmax: each
    with a probability that grows with its score (eq. 4). ucb: the highest scores. uniform: any. champion: the highest
    mean - lambda sd, the newest, then the highest scores (the last two: the authors' released code).
    probability_of_best: one after another, each with its probability of being the best of those left (Thompson
    sampling: the highest of one draw from each N(mean, sd))."""
    optimism: NonNegativeFloat
    """Standard deviations by which a score exceeds the mean (lambda)."""
    selection_temperature: PositiveFloat
    """T of eq. 4, for `softmax`."""
    mu0: NonNegativeFloat
    sigma0: PositiveFloat
    beta: PositiveFloat
    tau: NonNegativeFloat
    draw_probability: Annotated[float, Meta(gt=0, le=0.999)]
    tie: NonNegativeFloat
    """Mean rewards that differ by no more count as equal."""
    ranking: Annotated[str, OneOf(RANKINGS)]
    """Rankings that update ratings and choose the parent. batch_mean: one per batch, by mean rewards. by_problem: one
    per problem, by the mean rewards on it, so that ratings rest on paired differences. random: one per batch, by mean
    rewards permuted among its system prompts, as a control."""
    drift: Annotated[str, OneOf(DRIFTS)]
    """When skills drift by tau. by_batch: those of a batch, before its ranking. by_update: those of the window, after
    each update of the weights, which changes them; never under frozen weights."""
    fitness_sharing: bool
    """Rank by shares of each problem's rewards instead of mean rewards (`shared_fitness`)."""
    islands: PositiveInt
    """Parts of the population that evolve separately, each with its own window; steps cycle through them."""
    migration_every: PositiveInt | None
    """Interval in steps at which the best of each island is copied to the next one; null: never."""
    mutation_sd: NonNegativeFloat
    """Delta sigma: the additional uncertainty of a child over its parent."""
    mutation_sd_by: Annotated[str, OneOf(MUTATION_SDS)]
    """sum: a mutant's sd is its parent's plus delta (Algorithm 1). root_of_squares: the root of the sum of squares
    (appendix B)."""

    def __post_init__(self) -> None:
        super().__post_init__()
        if self.fitness_sharing and self.ranking == "by_problem":
            raise ConfigError(
                "method.fitness_sharing: has no effect with ranking=by_problem; leave it false, or set another ranking"
            )
        if self.migration_every is not None and self.islands == 1:
            raise ConfigError("method.migration_every: expected null with one island; set method.islands, too")


REFLECTORS = ("reference", "policy")


@dataclass(kw_only=True)
class EvolutionSettings(PopulationSettings):
    """Hyperparameters of evolution; the methods' YAML files give each default and its source."""

    evolve: bool
    """False: the initial system prompts stay the only ones."""
    reflect_with: Annotated[str, OneOf(REFLECTORS)]
    """reference | policy: the weights that summarize, criticize and edit: the initial ones, or the trained ones."""
    crossover_rate: Fraction
    """Probability of a crossover in a step (p_crossover)."""
    crossover_alone_by: NonNegativeFloat | None
    """null: a crossover needs a second system prompt that was best at some problem. Else the best prompt and another
    must each have been the only best at some problem, by more than this margin."""
    lessons_first: bool
    """Ask for lessons and for edits in two calls per problem (equations 7 and 8); false: in one."""
    local_edits: PositiveInt
    """Maximum edits proposed by the critique of one problem (K_ops)."""
    principles_in: Annotated[str, OneOf(("system", "user"))]
    """system | user: principles stand in the system prompt, or after the problem in the user's message; then the system
    prompt is the task's own, and the root has no preamble either."""
    eval_prompt: Annotated[str, OneOf(("best", "latest"))]
    """best | latest: the system prompt under which the run's problems are answered."""
    partial_edits: bool
    """Skip edits that do not apply; otherwise a list of edits applies as a whole or not at all, like a patch."""
    most_edits: PositiveInt
    """Maximum edits that make a child."""
    most_principles: PositiveInt
    """Maximum principles of a system prompt."""
    principle_chars: PositiveInt
    """Maximum characters of a principle."""
    edit_preamble: bool
    """Edits may rewrite the text above the principles, too."""
    preamble_chars: PositiveInt
    """Maximum characters of a rewritten preamble."""
    root_principles: Any
    """Principles of the initial system prompt: a list of texts, or a file (`read_principles`); null: none."""
    rollout_chars: PositiveInt | None
    """Maximum characters of a rollout in the prompt of a summary; null: all of it."""
    other_roots: Any
    """Principles of further initial system prompts, with the same preamble: a list of lists or files; null: one root.
    With `evolve: false`, batches then use several prompts without evolution."""
    operator_prompts: str | None
    """Folder with your own files, which replace those of the same name in `evorun/methods/espl/prompts`; null: none."""
    reflection_temperature: NonNegativeFloat
    reflection_top_p: Annotated[float, Meta(gt=0, le=1)]
    reflection_max_tokens: PositiveInt

    def __post_init__(self) -> None:
        super().__post_init__()
        roots = read_roots(self.root_principles, self.other_roots)
        require_at_least("method.window", self.window, len(roots))

    @property
    def reflection(self) -> Sampling:
        """The sampling parameters of the operators' calls."""
        return Sampling(
            temperature=self.reflection_temperature, top_p=self.reflection_top_p, max_tokens=self.reflection_max_tokens
        )

    @property
    def limits(self) -> Limits:
        """The limits on what a model may write into a system prompt."""
        preamble_chars = self.preamble_chars if self.edit_preamble else None
        return Limits(self.most_principles, self.principle_chars, self.most_edits, preamble_chars)


class Rating(NamedTuple):
    """A belief in a system prompt's skill."""

    mean: float
    sd: float


class Member(NamedTuple):
    """A system prompt of a population: its candidate for the records, and its text for edits."""

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
        """Ids of each island's members, in the order in which they joined."""
        for root in roots:
            self._add(root, 0, "root", (), Rating(settings.mu0, settings.sigma0))

    def __getitem__(self, name: str) -> Member:
        return self._members[name]

    @property
    def candidates(self) -> list[Candidate]:
        """All system prompts, for the records; those in the window are marked as survivors."""
        window = {member.id for member in self.window}
        return [replace(member.candidate, survivor=member.id in window) for member in self._members.values()]

    @property
    def window(self) -> list[Member]:
        """The latest K system prompts of each island."""
        return self._window(*range(len(self._islands)))

    def _window(self, *islands: int) -> list[Member]:
        inside = {name for island in islands for name in self._islands[island][-self._settings.window :]}
        return [member for name, member in self._members.items() if name in inside]

    @property
    def best(self) -> Member:
        """The highest mean in the window; ties go to the lower sd, then to the older one."""
        return _best(self.window)

    @property
    def latest(self) -> Member:
        return self.window[-1]

    def select(self, rng: np.random.Generator, step: int) -> list[Member]:
        """Draw the M system prompts of a batch, with repeats where the window has fewer."""
        settings, window = self._settings, self._window(self._island_at(step))
        scores = [member.rating.mean + settings.optimism * member.rating.sd for member in window]
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
            means, sds = zip(*(member.rating for member in window), strict=True)
            order = []
            for draws in rng.normal(means, sds, (min(count, len(window)), len(window))):
                draws[order] = -np.inf  # exclude those already chosen
                order.append(int(draws.argmax()))
        else:
            order = by_score
        # A window of fewer than M repeats some of them, so that every batch has the same number of rollouts.
        return [window[order[number % len(order)]] for number in range(count)]

    def _island_at(self, step: int) -> int:
        """Return the index of a step's island."""
        return (step - 1) % len(self._islands)

    def migrate(self) -> None:
        """Copy the best of each island to the next one, simultaneously."""
        best = [_best(self._window(island)).id for island in range(len(self._islands))]
        for island, joining in enumerate(best, 1):
            members = self._islands[island % len(self._islands)]
            members[:] = [*(name for name in members if name != joining), joining]

    def follow_update(self) -> None:
        """Let skills drift after an update of the weights, if `drift` is by_update."""
        if self._settings.drift == "by_update":
            for member in self.window:
                sd = sqrt(member.rating.sd**2 + self._settings.tau**2)
                self._members[member.id] = member._replace(candidate=replace(member.candidate, sd=sd))

    def rate(self, rewards: Mapping[str, float], *, first_of_batch: bool = True) -> None:
        """Update the ratings by one ranking of a batch's system prompts, given their rewards by id.

        A single prompt is not rated. first_of_batch: whether this is the batch's first ranking, before which skills
        drift.
        Raises ValueError for a value that is not finite.
        """
        ranked = sorted(rewards, key=lambda name: -rewards[name])  # stable: equals stay in the order of the batch
        if len(ranked) < 2:
            return
        settings, ratings = self._settings, [self._members[name].rating for name in ranked]
        rated = trueskill.rate(
            [rating.mean for rating in ratings],
            [rating.sd for rating in ratings],
            tied_ranks([rewards[name] for name in ranked], settings.tie),
            beta=settings.beta,
            tau=settings.tau if first_of_batch and settings.drift == "by_batch" else 0.0,
            draw_probability=settings.draw_probability,
        )
        for name, mean, sd in zip(ranked, rated.mean.tolist(), rated.sd.tolist(), strict=True):
            candidate, prompt = self._members[name]
            self._members[name] = Member(replace(candidate, mean=mean, sd=sd), prompt)

    def add_mutant(self, prompt: SystemPrompt, parent: Member, step: int, **origin: Any) -> Member:
        """Add a child by mutation, with its parent's mean and a larger sd. origin: `call`, `reflection`, `blamed`."""
        mean, sd = self._members[parent.id].rating
        delta = self._settings.mutation_sd
        child_sd = sd + delta if self._settings.mutation_sd_by == "sum" else sqrt(sd**2 + delta**2)
        return self._add(prompt, step, "mutation", (parent.id,), Rating(mean, child_sd), **origin)

    def add_crossover(self, prompt: SystemPrompt, parents: Sequence[Member], step: int, **origin: Any) -> Member:
        """Add a child by crossover, with its parents' precision-weighted mean (Algorithm 2). origin: as for mutants."""
        ratings = [self._members[parent.id].rating for parent in parents]
        precision = sum(1 / rating.sd**2 for rating in ratings)
        mean = sum(rating.mean / rating.sd**2 for rating in ratings) / precision
        fused = Rating(mean, sqrt(1 / precision + self._settings.mutation_sd**2))
        return self._add(prompt, step, "crossover", tuple(parent.id for parent in parents), fused, **origin)

    def _add(
        self, prompt: SystemPrompt, step: int, operator: str, parents: tuple[str, ...], rating: Rating, **origin: Any
    ) -> Member:
        islands = self._islands if operator == "root" else [self._islands[self._island_at(step)]]
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
    """Return the highest mean; ties go to the lower sd, then to the older one."""
    return max(members, key=lambda member: (member.rating.mean, -member.rating.sd))


def tied_ranks(values: Sequence[float], tie: float) -> list[int]:
    """Return the ranks of values in descending order, from 0; neighbours at most `tie` apart share a rank.

    A chain of such neighbours shares one rank, however far apart its ends are.
    """
    apart = [higher - lower > tie + SLACK for higher, lower in pairwise(values)]
    return [0, *accumulate(map(int, apart))]


Floats = npt.NDArray[np.float64]


def shared_fitness(scores: Floats) -> Floats:
    """Return the fitness of each row of a score matrix [prompts, problems] under fitness sharing.

    All problems have equal weight. Each is divided among the system prompts in proportion to their scores on it, so a
    prompt that alone solves a problem gets all of it. If a problem has scores below 0, they count from its minimum.
    Source: Smith, Forrest and Perelson (1993), "Searching for diverse, cooperative populations with genetic
    algorithms", whose rule for matching antibodies this generalizes to graded scores.
    """
    above = scores - np.minimum(scores.min(axis=0), 0)
    total = above.sum(axis=0)
    shares = np.divide(above, total, out=np.zeros_like(above), where=total > 0)
    return np.asarray(shares.mean(axis=1), dtype=np.float64)


def genotypic_diversity(prompts: Sequence[SystemPrompt]) -> float | None:
    """Return the mean Jaccard distance between two prompts' sets of principles, in [0, 1]; None below two."""
    sets = [set(prompt.principles) for prompt in prompts]
    distances = [1 - len(a & b) / len(a | b) if a | b else 0.0 for a, b in combinations(sets, 2)]
    return float(np.mean(distances)) if distances else None


def phenotypic_diversity(scores: Floats) -> float | None:
    """Return the mean absolute difference between two rows of a score matrix [prompts, problems]; None below two."""
    distances = [np.abs(a - b).mean() for a, b in combinations(scores, 2)]
    return float(np.mean(distances)) if distances else None
