"""Best-of-N: independent responses without evolution; duels, rewards and votes, or an oracle choose the best.

The duels are those of Duel-Evolve (its paper's appendix D). With the oracle, a task's symbolic system, it is the
baseline of the Lyria paper (section 4.2.1), which redraws a repeated answer. Votes that rewards weigh cost no call
beyond those of the rewards: majority of the bests (arXiv 2511.18630), weighted voting and best of majority (arXiv
2510.03199).
"""

from collections.abc import AsyncIterator, Mapping, Sequence
from dataclasses import dataclass
from itertools import count
from math import inf, isqrt
from typing import Annotated, ClassVar

from msgspec.structs import replace

from evorun.errors import ConfigError
from evorun.fields import Fraction, NonNegativeInt, OneOf, PositiveInt
from evorun.methods.base import PerProblem, Regime
from evorun.methods.context import Context
from evorun.methods.duels.duels import DuelSettings, hold_duels, rate_in_arena, warn_if_no_duels
from evorun.methods.duels.stopping import StoppingRule, StopSettings
from evorun.methods.lyria.population import Plan, breed, explain_missing_verifier, regime_with_verifier
from evorun.methods.search.proposals import SampleSettings, add_feedback, draw
from evorun.models.base import Sampling
from evorun.ratings import selection
from evorun.ratings.bradley_terry import Posterior, win_probability
from evorun.rollouts.calls import Role
from evorun.runs.archive import ArchivedCandidates, Snapshot
from evorun.runs.candidates import Candidate, Comparison, Step
from evorun.tasks.base import Task
from evorun.tasks.capabilities import HasPublicTests, SupportsGeneration, SupportsJudging

VOTES = ("majority_of_bests", "weighted", "best_of_majority")
"""Choices of an answer by votes that rewards weigh."""


@dataclass(kw_only=True)
class BestOfNConfig(DuelSettings, StopSettings, SampleSettings):
    """Hyperparameters; `conf/method/best_of_n.yaml` gives each default and its source."""

    name: str
    rounds: NonNegativeInt | None
    """Rounds of duels among the responses; None: until the budget ends."""
    choose: Annotated[str, OneOf(("duels", "oracle", *VOTES))]
    """duels: by the judge's duels. oracle: by the fitness from the task's symbolic system. majority_of_bests: the
    answer that best-of-m gives most often. weighted: the answer with the largest sum of rewards. best_of_majority: of
    the frequent answers, the one with the highest mean reward."""
    reward: Annotated[str, OneOf(("duels", "public_tests", "verifier"))]
    """The rewards in [0, 1] that weigh votes. duels: by the posterior mean, the probability of winning against an
    average response. public_tests: the share that a response passes. verifier: the symbolic system's fitness."""
    draws: Annotated[str, OneOf(("sqrt", "adaptive"))]
    """m of majority_of_bests. sqrt: floor(sqrt(N)). adaptive: where its distribution of answers changes least."""
    min_share: Fraction
    """Least share of the responses that an answer needs with best_of_majority."""
    dedup_attempts: NonNegativeInt
    """Maximum redraws of a response that repeats an earlier one; only with the oracle."""
    batches: PositiveInt
    """With the oracle: number of steps over which the responses are drawn, so that there is a curve; approximate where
    only a token budget limits them."""

    def __post_init__(self) -> None:
        super().__post_init__()
        if self.reward != "duels" and self.choose not in VOTES:
            raise ConfigError(
                f"method.reward: expected duels with method.choose={self.choose}, got {self.reward}; set method.choose "
                f"to one of {', '.join(VOTES)}"
            )

    @property
    def holds_duels(self) -> bool:
        """True where the judge is asked."""
        return self.choose != "oracle" and self.reward == "duels"

    def choose_by_vote(self, answers: Sequence[str], rewards: Sequence[float]) -> int | None:
        """Return the chosen response by answers that are equal where they count as the same, and rewards."""
        if self.choose == "weighted":
            return selection.weighted_vote(answers, rewards)
        if self.choose == "best_of_majority":
            return selection.best_of_majority(answers, rewards, self.min_share)
        m = selection.choose_draws(answers, rewards) if self.draws == "adaptive" else isqrt(len(answers))
        return selection.majority_of_bests(answers, rewards, m)


class BestOfN(PerProblem):
    """Draws responses once; duels, votes or an oracle then choose the answer."""

    name = "best_of_n"
    description = "N independent responses, the best by duels and the posterior of Duel-Evolve, by votes or an oracle"
    regime = "problem_only"
    needs = (SupportsGeneration, SupportsJudging)
    roles: ClassVar = {"judge": Role("judge")}
    observes = True
    Config = BestOfNConfig
    config: BestOfNConfig

    @property
    def optional_limits(self) -> Mapping[str, int | None]:
        return {"samples": self.config.samples, "rounds": self.config.rounds}

    @property
    def last_step(self) -> int | None:
        if self.config.holds_duels:
            return self.config.rounds
        if self.config.choose != "oracle":
            return 0
        samples = self.config.samples
        return None if samples is None else len(range(0, samples, self._batch(samples))) - 1

    @property
    def judge_sampling(self) -> Sampling | None:
        return self.config.judge_sampling

    def rate_by_duels(self, candidates: Sequence[Candidate], duels: Sequence[Comparison]) -> Posterior:
        return rate_in_arena(self.config, candidates, duels)

    def warnings(self, calls: int | None) -> list[str]:
        if calls is None or not self.config.holds_duels or self.config.rounds == 0 or not self.config.duels:
            return []
        return warn_if_no_duels(calls, self.config.samples_within(calls), "samples", self.config.orders)

    def information_regime(self, task: type[Task]) -> Regime:
        verified = self.config.choose == "oracle" or self.config.reward == "verifier"
        return regime_with_verifier(task) if verified else super().information_regime(task)

    def incompatibility(self, task: type[Task]) -> str | None:
        config = self.config
        if config.choose == "oracle":
            return explain_missing_verifier(task, "method.choose=duels")
        if config.choose in VOTES and task.free_text:
            return (
                f"method.choose={config.choose} votes on answers, and no two texts of task={task.name} are the same; "
                "set method.choose=duels"
            )
        if config.reward == "public_tests" and not issubclass(task, HasPublicTests):
            return f"task={task.name} has no public tests, by which method.reward weighs votes; set method.reward=duels"
        return explain_missing_verifier(task, "method.reward=duels") if config.reward == "verifier" else None

    def solve(self, ctx: Context) -> AsyncIterator[Step]:
        if self.config.holds_duels:
            return self._by_duels(ctx)
        return self._by_oracle(ctx) if self.config.choose == "oracle" else self._by_rewards(ctx)

    async def _by_duels(self, ctx: Context) -> AsyncIterator[Step]:
        """Draw all responses in step 0, then hold one round of duels per step.

        The answer has the highest mean, or is voted for: by all responses, those that have left the pool included.
        """
        proposed = await draw(ctx, self.config)
        arena = self.config.arena(ctx.archive)
        arena.add(await add_feedback(ctx, proposed.parsed))
        answers = [ctx.task.signature(ctx.problem, candidate) for candidate in proposed.parsed]
        arena.note_lost(proposed.unparsed)
        stopping = StoppingRule(self.config, ctx)
        stopping.add(proposed.parsed)
        comparisons: list[Comparison] = []
        for step in count() if self.config.rounds is None else range(self.config.rounds + 1):
            if step > 0:
                comparisons = await hold_duels(ctx, arena, self.config, step=step)
                if not comparisons:
                    return  # no pair to judge, or no budget left
            survivors, best = self.config.survivors(arena), arena.best()
            if self.config.choose in VOTES:
                best = self.config.choose_by_vote(answers, win_probability(arena.mean.round(9), 0.0).tolist())
            rated = arena.rated(survivors.indices)
            arena.keep(survivors.indices)
            sure = stopping.diagnostics(arena.mean, arena.sd, best)
            yield Step(
                step=step,
                best=None if best is None else rated[best],
                candidates=rated,
                pool=len(survivors.indices),
                comparisons=comparisons,
                extra={**survivors.diagnostics(), **(proposed.diagnostics() if step == 0 else {}), **sure},
            )
            if stopping.ends(sure, arena.judged):
                return

    async def _by_rewards(self, ctx: Context) -> AsyncIterator[Step]:
        """Draw all responses, which the task scores without a model's help, and let them vote."""
        proposed = await draw(ctx, self.config)
        drawn = await add_feedback(ctx, proposed.parsed)
        if self.config.reward == "verifier":
            rewards = [found.fitness / 100 for found in await ctx.verify(drawn, max_errors=0)]
        else:
            rewards = [0.0 if candidate.feedback is None else candidate.feedback.score for candidate in drawn]
        best = self.config.choose_by_vote([ctx.task.signature(ctx.problem, candidate) for candidate in drawn], rewards)
        rated = [
            replace(candidate, mean=reward, survivor=True) for candidate, reward in zip(drawn, rewards, strict=True)
        ]
        yield Step(
            step=0,
            best=None if best is None else rated[best],
            candidates=[*rated, *proposed.unparsed],
            extra=proposed.diagnostics(),
        )

    async def _by_oracle(self, ctx: Context) -> AsyncIterator[Step]:
        """Draw one batch of responses per step; the answer is the first with the highest fitness."""
        plan = Plan(operator="init", prompt=ctx.task.generation_prompt(ctx.problem))
        rated, best_fitness = ArchivedCandidates(ctx.archive), -inf
        best: Candidate | None = None
        keys: list[bytes] = []
        slots = 0
        for step in count():
            remaining = self.config.still_to_draw(ctx, slots)
            if remaining <= 0:
                return
            batch = min(remaining, self._batch(slots + remaining))
            drawn = await breed(
                ctx,
                lambda index, attempt: plan,
                range(slots, slots + batch),
                role="generate",
                step=0,  # the batches form one draw of N: their size changes no key, hence no seed and no response
                sampling=self.config.sampling,
                dedup_attempts=self.config.dedup_attempts,
                taken=keys,
            )
            if not drawn.children and step > 0:
                return
            slots += batch
            keys += [child.key for child in drawn.children]
            verifications = await ctx.verify([child.response for child in drawn.children], max_errors=0)
            for index, child, verification in zip(drawn.indices, drawn.children, verifications, strict=True):
                candidate = Candidate.from_response(
                    child.response,
                    id=f"0.{index}",
                    generation=0,
                    operator="init",
                    attempts=child.attempt + 1,
                    call=child.call,
                    fitness=verification.fitness,
                    mean=verification.fitness,
                    survivor=True,
                )
                rated.extend([candidate])
                # Unparsed responses have a fitness, too, but cannot be the answer.
                if candidate.answer is not None and verification.fitness > best_fitness:
                    best, best_fitness = candidate, verification.fitness
            yield Step(step=step, best=best, candidates=Snapshot(rated), pool=len(rated), extra=drawn.diagnostics())
            if ctx.out_of_budget:
                return

    def _batch(self, samples: int) -> int:
        """Return how many of `samples` responses one step draws."""
        return -(-samples // self.config.batches)  # rounded up
