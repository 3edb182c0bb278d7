"""Pairwise preferences as methods share them: which pairs duel, and what judges say of them."""

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from evorun.errors import above, at_least
from evorun.methods.arena import Arena
from evorun.methods.context import Context
from evorun.models.base import Reply, Sampling
from evorun.runs.candidates import Candidate, Comparison, Outcome, Verdict
from evorun.tasks.capabilities import Judgment

Pair = tuple[int, int]
"""Indices of two candidates of an arena."""


@dataclass(kw_only=True)
class DuelSettings:
    """Hyperparameters of judging by duels, part of every configuration of a method that does so."""

    duels: int
    """Pairs to judge in a round, each twice."""
    max_pool: int
    """Survivors at most; those with the highest upper bounds stay."""
    bound_width: float
    """Half width of the confidence bounds that decide survival, in posterior standard deviations."""
    prior_sd: float
    """sigma_0 of Eq. 4, in logits."""
    judge_temperature: float
    judge_max_tokens: int

    def __post_init__(self) -> None:
        at_least("method.judge_max_tokens", self.judge_max_tokens, 1)
        for key in ("duels", "judge_temperature", "bound_width"):
            at_least(f"method.{key}", getattr(self, key), 0)
        at_least("method.max_pool", self.max_pool, 2)
        above("method.prior_sd", self.prior_sd, 0)

    @property
    def judge_sampling(self) -> Sampling:
        """The sampling parameters of a judgment."""
        return Sampling(temperature=self.judge_temperature, max_tokens=self.judge_max_tokens)


def select_duels(
    arena: Arena, survivors: NDArray[np.intp], newcomers: Sequence[int], count: int, rng: np.random.Generator
) -> list[Pair]:
    """Choose `count` different pairs of survivors by double Thompson sampling (section 2.2 and 2.3.3).

    Each duel takes two independent draws from the posterior: the first draw's maximiser meets the best other
    candidate of the second draw. The first duels go to the newcomers among the survivors, each against the best of
    a draw, so that every new arrival is evaluated. A pair is chosen once a batch; which of the two is `first` is
    random.
    """
    if len(survivors) < 2:
        return []
    count = min(count, len(survivors) * (len(survivors) - 1) // 2)
    mean, sd = arena.mean[survivors], arena.sd[survivors]
    rank = {index: k for k, index in enumerate(survivors.tolist())}
    waiting = [rank[index] for index in newcomers if index in rank]
    chosen: dict[frozenset[int], Pair] = {}
    for duel in range(count):
        draws = mean + sd * rng.standard_normal((2, len(survivors)))
        challengers, opponents = (-draws).argsort().tolist()
        # The first pair, challengers before opponents, that is not chosen yet; `count` leaves one over each time.
        a, b = next(
            (challenger, opponent)
            for challenger in waiting[duel : duel + 1] + challengers
            for opponent in opponents
            if opponent != challenger and frozenset((challenger, opponent)) not in chosen
        )
        if rng.random() >= 0.5:  # judges favour a position: neither candidate may have it always
            a, b = b, a
        chosen[frozenset((a, b))] = (int(survivors[a]), int(survivors[b]))
    return list(chosen.values())


async def hold_duels(
    ctx: Context, arena: Arena, newcomers: Sequence[int], settings: DuelSettings, *, step: int
) -> list[Comparison]:
    """Choose pairs among the survivors, judge them, and update the arena's posterior; return the comparisons."""
    # Eliminated candidates duel no more: the budget goes to those that may still be best.
    rivals = arena.survivors(settings.bound_width, settings.max_pool, newcomers)
    pairs = select_duels(arena, rivals, newcomers, settings.duels, ctx.rng("duels", step))
    comparisons = await judge_pairs(ctx, arena.candidates, pairs, step=step, sampling=settings.judge_sampling)
    arena.update(comparisons)
    return comparisons


def no_duels(calls: int | None, responses: int, key: str) -> list[str]:
    """Say that so many initial responses, set by `method.<key>`, leave none of a problem's calls for a duel."""
    # The cheapest duel is two calls: one in each order.
    if calls is None or responses < 2 or calls >= responses + 2:
        return []
    return [
        f"budget of {calls} calls a problem: {responses} initial responses (method.{key}) leave none for duels, so the "
        f"first response is the answer; raise the budget or lower method.{key}"
    ]


async def judge_pairs(
    ctx: Context, candidates: Sequence[Candidate], pairs: Sequence[Pair], *, step: int, sampling: Sampling
) -> list[Comparison]:
    """Judge each pair twice, the order of presentation swapped (appendix A.1).

    When the budget does not allow all duels, the first ones only.
    """
    # Whole duels only: a verdict on one order of presentation decides nothing.
    pairs = pairs[: ctx.affordable(2 * len(pairs), "judge") // 2]
    prompts = []
    for i, j in pairs:
        prompts.append(ctx.task.judge_prompt(ctx.problem, candidates[i], candidates[j]))
        prompts.append(ctx.task.judge_prompt(ctx.problem, candidates[j], candidates[i]))
    replies = await ctx.generate(prompts, role="judge", step=step, sampling=sampling)
    judgments = [read_judgment(ctx, reply) for reply in replies]
    return [
        Comparison(
            first=candidates[i].id,
            second=candidates[j].id,
            verdicts=(judgment.verdict, swapped.verdict),
            outcome=order_consistent_outcome(judgment.verdict, swapped.verdict),
            reasons=(judgment.reason, swapped.reason),
        )
        for (i, j), judgment, swapped in zip(pairs, judgments[::2], judgments[1::2], strict=True)
    ]


def read_judgment(ctx: Context, reply: Reply) -> Judgment:
    """Return the judgment in a reply; a request that the engine refused is an invalid one."""
    if reply.error is not None:
        return Judgment(verdict="invalid", reason=f"rejected: {reply.error}")
    judgment: Judgment = ctx.task.parse_judgment(reply.completions[0].text)
    return judgment


def order_consistent_outcome(verdict: Verdict, swapped: Verdict) -> Outcome | None:
    """Return the winner when both orders of presentation name the same one (appendix A.1, d_ij = 1), else None."""
    if (verdict, swapped) == ("A", "B"):
        return "first"
    if (verdict, swapped) == ("B", "A"):
        return "second"
    return None
