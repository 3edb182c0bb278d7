"""Best-of-N: independent responses without evolution; duels, rewards and votes, or an oracle choose the best.

The duels are those of Duel-Evolve (its paper's appendix D). With the oracle, a task's symbolic system, it is the
baseline of the Lyria paper (section 4.2.1), which redraws a repeated answer. Votes that rewards weigh cost no call
beyond those of the rewards: majority of the bests (arXiv 2511.18630), weighted voting and best of majority (arXiv
2510.03199). A problem's own criteria (rubrics as rewards, arXiv 2507.17746) choose by their points or weigh votes, at
one judgment for each response and criterion.
"""

from collections.abc import AsyncIterator, Mapping, Sequence
from dataclasses import dataclass
from itertools import count
from math import inf, isqrt
from typing import Annotated, ClassVar

from msgspec.structs import replace

from evorun.errors import ConfigError, DataError
from evorun.fields import Fraction, NonNegativeFloat, NonNegativeInt, OneOf, PositiveInt
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
from evorun.rollouts.item_scores import ask_for_score, read_item_score, weigh_scores
from evorun.rollouts.rubric_rewards import SCORE, read_complete_text
from evorun.runs.archive import ArchivedCandidates, Snapshot
from evorun.runs.candidates import Candidate, Comparison, Step
from evorun.tasks.base import Task
from evorun.tasks.capabilities import (
    HasPublicTests,
    HasRubricItems,
    SupportsGeneration,
    SupportsJudging,
    SupportsRubrics,
)
from evorun.tasks.rubric_items import MAX_PROBLEM_ITEMS

VOTES = ("majority_of_bests", "weighted", "best_of_majority")
"""Choices of an answer by votes that rewards weigh."""
_SCORER: Mapping[str, Role] = {SCORE: Role("reward")}


@dataclass(kw_only=True)
class BestOfNConfig(DuelSettings, StopSettings, SampleSettings):
    """Hyperparameters; `conf/method/best_of_n.yaml` gives each default and its source."""

    name: str
    rounds: NonNegativeInt | None
    """Rounds of duels among the responses; None: until the budget ends."""
    choose: Annotated[str, OneOf(("duels", "oracle", "rubric", *VOTES))]
    """duels: by the judge's duels. oracle: by the fitness from the task's symbolic system. rubric: by points for the
    problem's own criteria. majority_of_bests: the answer that best-of-m gives most often. weighted: the answer with the
    largest sum of rewards. best_of_majority: of the frequent answers, the one with the highest mean reward."""
    reward: Annotated[str, OneOf(("duels", "public_tests", "verifier", "rubric"))]
    """The rewards in [0, 1] that weigh votes. duels: by the posterior mean, the probability of winning against an
    average response. public_tests: the share that a response passes. verifier: the symbolic system's fitness. rubric:
    the share of the criteria's points, at least 0."""
    score_attempts: PositiveInt
    """With the rubric: replies to ask for until a criterion's points can be read; without any, it is left out."""
    reward_json: bool
    """Hold points to a JSON schema, on engines that enforce one: small models follow no other form."""
    reward_temperature: NonNegativeFloat
    reward_max_tokens: PositiveInt
    """Maximum completion tokens of a criterion's points with their reasons."""
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
        return self.choose not in ("oracle", "rubric") and self.reward == "duels"

    @property
    def asks_by_rubric(self) -> bool:
        """True where a reward model judges responses by the problem's criteria."""
        return "rubric" in (self.choose, self.reward)

    @property
    def reward_sampling(self) -> Sampling:
        """The sampling parameters of points."""
        return Sampling(temperature=self.reward_temperature, max_tokens=self.reward_max_tokens)

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
    description = "N independent responses, the best by duels as in Duel-Evolve, by votes, a rubric or an oracle"
    regime = "problem_only"
    needs = (SupportsGeneration, SupportsJudging)
    roles: ClassVar[Mapping[str, Role]] = {"judge": Role("judge"), **_SCORER}
    observes = True
    Config = BestOfNConfig
    config: BestOfNConfig

    @property
    def active_roles(self) -> Mapping[str, Role]:
        return _SCORER if self.config.asks_by_rubric else {"judge": Role("judge")}

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

    @property
    def stop_settings(self) -> StopSettings:
        return self.config

    def rate_by_duels(self, candidates: Sequence[Candidate], duels: Sequence[Comparison]) -> Posterior:
        return rate_in_arena(self.config, candidates, duels)

    def warnings(self, calls: int | None, judges: int = 1) -> list[str]:
        if calls is None or not self.config.holds_duels or self.config.rounds == 0 or not self.config.duels:
            return []
        return warn_if_no_duels(calls, self.config.samples_within(calls), "samples", self.config.orders, judges)

    def information_regime(self, task: type[Task]) -> Regime:
        if self.config.asks_by_rubric and not task.graded_by_opinion:
            return "labels"  # such criteria say what a right response has
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
        if config.asks_by_rubric and not (issubclass(task, HasRubricItems) and issubclass(task, SupportsRubrics)):
            return (
                f"task={task.name} has no criteria of single problems, which method.choose=rubric or "
                "method.reward=rubric needs; set method.choose=duels method.reward=duels"
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
                reached_goal=(ends := stopping.ends(sure, arena.judged)),
            )
            if ends:
                return

    async def _by_rewards(self, ctx: Context) -> AsyncIterator[Step]:
        """Draw all responses, which the task or a rubric scores, and choose by the points or let them vote.

        Raises DataError for a problem without criteria, where they give the rewards.
        """
        if self.config.asks_by_rubric and not ctx.task.rubric_items(ctx.problem):
            raise DataError(
                f"problem {ctx.problem.id} has no criteria of its own, which method.choose=rubric or "
                "method.reward=rubric needs; name their column (task=rows task.rubric=COLUMN), or set "
                "method.choose=duels method.reward=duels"
            )
        proposed = await draw(ctx, self.config)
        drawn = await add_feedback(ctx, proposed.parsed)
        rewards: Sequence[float | None]
        unread: dict[str, float] = {}
        if self.config.asks_by_rubric:
            rewards, unread["unread_scores"] = await self._score_by_rubric(ctx, drawn)
        elif self.config.reward == "verifier":
            rewards = [found.fitness / 100 for found in await ctx.verify(drawn, max_errors=0)]
        else:
            rewards = [0.0 if candidate.feedback is None else candidate.feedback.score for candidate in drawn]
        scored = {place: reward for place, reward in enumerate(rewards) if reward is not None}
        if not scored:
            best = 0 if drawn else None
        elif self.config.choose == "rubric":
            best = max(scored, key=scored.__getitem__)
        else:
            # Votes are at least 0, and the earliest of equal ones wins: those below 0 come last, the worst at the end.
            places = sorted(scored, key=lambda place: max(0.0, -scored[place]))
            answers = [ctx.task.signature(ctx.problem, drawn[place]) for place in places]
            voted = self.config.choose_by_vote(answers, [max(0.0, scored[place]) for place in places])
            best = None if voted is None else places[voted]
        rated = [
            replace(candidate, mean=reward, survivor=True) for candidate, reward in zip(drawn, rewards, strict=True)
        ]
        yield Step(
            step=0,
            best=None if best is None else rated[best],
            candidates=[*rated, *proposed.unparsed],
            extra={**proposed.diagnostics(), **unread},
        )

    async def _score_by_rubric(self, ctx: Context, drawn: Sequence[Candidate]) -> tuple[list[float | None], int]:
        """Return the responses' rewards, None where no judgment could be read, and the number of unread judgments.

        The budget admits each attempt by itself, so that one that ends leaves what was read. Training admits a whole
        step at its maximum before it begins (`evorun.rollouts.rubric_rewards.ask_until_read`).
        """
        config, items = self.config, ctx.task.rubric_items(ctx.problem)
        scores: list[dict[int, float]] = [{} for _ in drawn]
        # An index is that of the response times MAX_PROBLEM_ITEMS, plus that of the criterion.
        pending = {
            int(candidate.id.partition(".")[2]) * MAX_PROBLEM_ITEMS + number: (place, number)
            for place, candidate in enumerate(drawn)
            for number in range(len(items))
        }
        for attempt in range(config.score_attempts):
            prompts = [
                ask_for_score(ctx.task, ctx.problem, drawn[place], items[number], as_json=config.reward_json)
                for place, number in pending.values()
            ]
            indices, refused = list(pending), set()
            replies = await ctx.generate(
                prompts, role=SCORE, step=0, sampling=config.reward_sampling, attempt=attempt, indices=indices
            )
            for index, reply in zip(indices, replies, strict=False):  # the budget may leave fewer
                place, number = pending[index]
                if reply.error is not None:
                    refused.add(index)
                    continue
                try:
                    text = read_complete_text(reply)
                    scores[place][number] = read_item_score(text, items[number], as_json=config.reward_json)
                except ValueError:
                    continue
            # A refused request would be refused again.
            pending = {i: (p, n) for i, (p, n) in pending.items() if n not in scores[p] and i not in refused}
            if not pending or ctx.out_of_budget:
                break
        unread = len(drawn) * len(items) - sum(map(len, scores))
        return [weigh_scores(found, items) for found in scores], unread

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
