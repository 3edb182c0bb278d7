"""Deep think with confidence (DeepConf, arXiv 2508.15260): traces vote with the model's confidence in their tokens.

Offline, all traces are drawn and the surest vote. Online, a few whole traces set a threshold, and the engine ends later
ones that fall below it. N calls per problem at most, times the turns on a task with tools; no judge and no labels.
"""

from collections.abc import AsyncIterator, Mapping, Sequence
from dataclasses import dataclass
from itertools import count
from typing import Annotated, NamedTuple

import numpy as np
from msgspec import UNSET, UnsetType
from msgspec.structs import replace

from evorun.errors import ConfigError, EngineError
from evorun.fields import Fraction, OneOf, PositiveInt
from evorun.methods.base import PerProblem
from evorun.methods.context import Context
from evorun.methods.search.proposals import Proposal, Proposed, SampleSettings, propose
from evorun.models.base import Confidence, Sampling
from evorun.models.confidence import MEASURES, measure, read_confidences
from evorun.ratings.selection import find_surest, weighted_vote
from evorun.rollouts.episodes import Episode
from evorun.rollouts.replies import TextCounts
from evorun.runs.candidates import Candidate, Step
from evorun.tasks.base import Task
from evorun.tasks.capabilities import SupportsGeneration


@dataclass(kw_only=True)
class DeepConfConfig(SampleSettings):
    """Hyperparameters; `conf/method/deepconf.yaml` gives each default and its source."""

    name: str
    mode: Annotated[str, OneOf(("offline", "online"))]
    """offline: draw all traces, then filter. online: end traces below a threshold, and stop when the votes agree."""
    measure: Annotated[str, OneOf(MEASURES)]
    """mean | tail | min_window | bottom_window: a trace's confidence, which is its vote's weight and decides offline
    whether it votes (`evorun.models.confidence.measure`)."""
    keep: Fraction
    """Share of the surest traces: those that vote offline; online, the share of the warm-up's above the threshold."""
    top: PositiveInt
    """k: log-probabilities behind a token's confidence."""
    window: PositiveInt
    """Tokens of a window; a shorter trace is one window."""
    tail: PositiveInt
    """Tokens at the end of a trace that `measure=tail` looks at."""
    bottom: Fraction
    """Share of the lowest windows that `measure=bottom_window` looks at."""
    warmup: PositiveInt
    """Whole traces before the threshold, online."""
    batch: PositiveInt
    """Traces drawn together between two looks at the agreement, online."""
    agreement: Fraction | None
    """Online, stop when one answer has this share of the weight of all whole traces; None: draw all."""

    def __post_init__(self) -> None:
        super().__post_init__()
        if self.keep == 0:
            raise ConfigError("method.keep: expected a share above 0, so that some trace votes, got 0")

    def ask(self, minimum: float | None) -> Sampling:
        """Return the sampling parameters of a trace that ends where its confidence falls below a minimum."""
        wanted = Confidence(top=self.top, tokens=True, window=self.window, minimum=minimum)
        return replace(self.sampling, confidence=wanted)


class Trace(NamedTuple):
    """The tokens of a response."""

    tokens: int
    lowest: float
    """Lowest mean confidence of a window, in nats."""
    weight: float
    """Its confidence by the method's measure, in nats."""


class DeepConf(PerProblem):
    """Draws traces and lets the surest vote, each with its confidence."""

    name = "deepconf"
    description = "N traces, a vote weighed by the model's confidence in them; unsure ones are filtered or ended"
    regime = "problem_only"
    needs = (SupportsGeneration,)
    Config = DeepConfConfig
    config: DeepConfConfig

    @property
    def asks_confidence(self) -> bool:
        return True

    @property
    def ends_early(self) -> bool:
        return self.config.mode == "online"

    @property
    def optional_limits(self) -> Mapping[str, int | None]:
        return {"samples": self.config.samples}

    @property
    def last_step(self) -> int | None:
        if self.config.mode == "offline":
            return 0
        return None if self.config.agreement or self.config.samples is None else self._batches(self.config.samples)

    def _batches(self, samples: int) -> int:
        return max(0, -(-(samples - self.config.warmup) // self.config.batch))

    def warnings(self, calls: int | None, judges: int = 1) -> list[str]:
        config, lines = self.config, []
        if config.mode == "offline":
            return []
        if config.window > config.max_tokens:
            lines.append(
                f"method.window={config.window} is longer than a trace of method.max_tokens={config.max_tokens}, so "
                "the engine ends none early; lower method.window"
            )
        samples = config.samples if calls is None else config.samples_within(calls)
        if samples is not None and samples <= config.warmup:
            lines.append(
                f"method.warmup={config.warmup} leaves no trace to end early within {samples}; lower method.warmup or "
                "raise method.samples"
            )
        return lines

    def incompatibility(self, task: type[Task]) -> str | None:
        if task.free_text:
            return f"votes on answers, and no two texts of task={task.name} are the same; expected another task"
        return None

    async def solve(self, ctx: Context) -> AsyncIterator[Step]:
        """Draw the traces of each step and vote; online, stop when the whole traces agree."""
        pool = Pool(self.config)
        for step in count():
            drawn = await self._draw(ctx, pool, step)
            if step > 0 and not (drawn.parsed or drawn.unparsed):
                return  # no trace is left, or no budget
            online = self.config.mode == "online"
            if step == 0 and online:
                pool.set_threshold()
            rated, best, agreement = pool.vote(ctx)
            agreed = online and self.config.agreement is not None and agreement >= self.config.agreement
            left = self.config.still_to_draw(ctx, pool.count)
            saved = max(0, left) if agreed else 0
            yield Step(
                step=step,
                best=None if best is None else rated[best],
                candidates=[*rated, *pool.unparsed],
                extra=drawn.diagnostics()
                | {"distinct_answers": len({*pool.ballots}), "voters": sum(trace.survivor for trace in rated)}
                | ({"agreement": agreement, "saved_calls": saved} if online else {})
                | ({"saved_tokens": pool.saved_tokens(saved)} if online and step > 0 else {})
                | ({} if pool.threshold is None else {"threshold": pool.threshold}),
                reached_goal=agreed,
            )
            if agreed or not online or left <= 0 or ctx.out_of_budget:
                return

    async def _draw(self, ctx: Context, pool: "Pool", step: int) -> Proposed:
        """Draw the traces of a step: all of them offline, else the warm-up or a batch."""
        proposal = Proposal(ctx.task.generation_prompt(ctx.problem), ())
        most = None if self.config.mode == "offline" else self.config.warmup if step == 0 else self.config.batch
        drawn, first = Proposed([], [], TextCounts()), pool.count
        while not ctx.out_of_budget:
            # Under a token budget, in waves: the first traces show how many more fit.
            wave = self.config.still_to_draw(ctx, pool.count)
            wave = wave if most is None else min(wave, first + most - pool.count)
            if wave <= 0:
                break
            proposed = await propose(
                ctx,
                [proposal] * wave,
                operator="init",
                step=step,
                settings=self.config,
                sampling=self.config.ask(pool.threshold),
                first=pool.count,
                measure=pool.measure,
            )
            pool.add(ctx, proposed, wave)
            drawn = drawn.joined_with(proposed)
        return drawn


class Pool:
    """A problem's traces and their votes."""

    def __init__(self, config: DeepConfConfig) -> None:
        self._config = config
        self.count = 0
        """Traces asked for."""
        self.threshold: float | None = None
        """Confidence below which a trace does not vote, and is ended online, in nats; None before it is known."""
        self.parsed: list[Candidate] = []
        self.unparsed: list[Candidate] = []
        self.ballots: list[str] = []
        """The answer of each parsed trace; equal where two count as the same."""
        self._traces: dict[int, Trace] = {}
        """By index."""
        self._warmup_tokens = 0.0
        """Mean tokens of a whole trace."""
        self._accounted = 0
        """Traces whose saved tokens are reported."""

    def measure(self, episode: Episode) -> float | UnsetType:
        """Note the tokens of a response and return its confidence; unset for a refused request.

        Raises EngineError where the engine gives none.
        """
        replies = [reply for reply in episode.replies if reply.error is None]
        if not replies:
            return UNSET
        parts = [read_confidences(reply.completions[0]) for reply in replies]
        known = [part for part in parts if part is not None]
        if len(known) < len(parts):
            raise EngineError(
                "method=deepconf: the engine gave no confidences; use engine=vllm, engine=transformers, or a server "
                "that returns top_logprobs"
            )
        values, config = np.concatenate(known), self._config
        windows = {"window": config.window, "tail": config.tail, "bottom": config.bottom}
        weight = measure(values, config.measure, **windows)  # type: ignore[arg-type]
        self._traces[episode.number] = Trace(len(values), measure(values, "min_window", window=config.window), weight)
        return weight

    def add(self, ctx: Context, proposed: Proposed, asked: int) -> None:
        """Add the traces that were drawn of those asked for."""
        self.count += asked
        self.parsed += proposed.parsed
        self.unparsed += proposed.unparsed
        self.ballots += [ctx.task.signature(ctx.problem, candidate) for candidate in proposed.parsed]

    def set_threshold(self) -> None:
        """Set the threshold by the warm-up's lowest windows: `keep` of them are not below (section 3.3)."""
        whole = list(self._traces.values())
        self._accounted = self.count
        if whole:
            self.threshold = float(np.percentile([trace.lowest for trace in whole], 100 * (1 - self._config.keep)))
            self._warmup_tokens = float(np.mean([trace.tokens for trace in whole]))

    def saved_tokens(self, left: int) -> float:
        """Return an estimate of the tokens saved since the last look: whole traces have the warm-up's mean length.

        left: traces that will not be drawn.
        """
        new = [trace.tokens for index, trace in self._traces.items() if index >= self._accounted]
        self._accounted = self.count
        return self._warmup_tokens * (len(new) + left) - sum(new)

    def vote(self, ctx: Context) -> tuple[list[Candidate], int | None, float]:
        """Return the candidates with their answer's share of the vote, the winner, and the agreement.

        The agreement is the largest share of an answer in the weight of all whole traces, with or without a vote.
        """
        weights = [candidate.known_confidence for candidate in self.parsed]
        voters = self._find_voters(weights)
        shares = _share(self.ballots, [weight if votes else 0.0 for weight, votes in zip(weights, voters, strict=True)])
        rated = [
            replace(candidate, mean=shares[ballot], survivor=votes)
            for candidate, ballot, votes in zip(self.parsed, self.ballots, voters, strict=True)
        ]
        electors = [index for index, votes in enumerate(voters) if votes]
        elected = weighted_vote([self.ballots[i] for i in electors], [weights[i] for i in electors])
        # Rounded, so that equal answers agree wholly.
        agreement = round(max(_share(self.ballots, weights).values(), default=0.0), 9)
        return rated, None if elected is None else electors[elected], agreement

    def _find_voters(self, weights: Sequence[float]) -> list[bool]:
        """Return which parsed traces vote; all do if none would."""
        if self._config.mode == "offline":
            return find_surest(weights, self._config.keep)
        lowest = [self._traces[int(candidate.id.partition(".")[2])].lowest for candidate in self.parsed]
        votes = [self.threshold is None or value >= self.threshold for value in lowest]
        return votes if any(votes) else [True] * len(votes)


def _share(ballots: Sequence[str], weights: Sequence[float]) -> dict[str, float]:
    """Return each answer's share of the weights."""
    total = sum(weights) or 1.0
    shares = dict.fromkeys(ballots, 0.0)
    for ballot, weight in zip(ballots, weights, strict=True):
        shares[ballot] += weight / total
    return shares
