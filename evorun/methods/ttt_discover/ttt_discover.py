"""TTT-Discover (arXiv 2601.16175): reinforcement learning on one problem at a time, to find its best response.

A step takes parents from the buffer of states, samples a group of completions from each, scores them and makes an
update. Its advantages raise a group's best reward rather than its mean. The weights begin anew with each problem.

`steps` x `states` x `group` calls per problem, times the turns on a task with tools. Figures that the paper leaves open
are those of the released code (test-time-training/discover).
"""

from collections.abc import AsyncIterator, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Annotated, ClassVar

from evorun.errors import ConfigError
from evorun.fields import GroupSize, NonNegativeFloat, OneOf, PositiveFloat, PositiveInt
from evorun.methods.base import DatasetLevel, Regime, SamplingSettings
from evorun.methods.context import Context, RunContext
from evorun.methods.learning.loop import Updates
from evorun.methods.learning.parts import Batch, RewardSource
from evorun.methods.learning.updates import AdvantageSettings, GroupRelative
from evorun.methods.ttt_discover.states import State, States
from evorun.rollouts.calls import Role
from evorun.rollouts.episodes import Asked, Episode, Rollouts
from evorun.rollouts.figures import measure_batch
from evorun.rollouts.rewards import Reward
from evorun.runs.archive import ArchivedCandidates, Snapshot
from evorun.runs.candidates import Candidate, Response, Step
from evorun.tasks.base import Problem, Prompt, Task
from evorun.tasks.capabilities import (
    HasPublicTests,
    HasStartingResponse,
    HasVerifier,
    ScoredResponse,
    SupportsEvolution,
    SupportsGeneration,
)
from evorun.training.divergence import Divergence
from evorun.training.objectives import LOSSES, GradientSettings
from evorun.training.wire import Objective

ROLLOUT = "rollout"
START = "start"


@dataclass(kw_only=True)
class TttDiscoverConfig(SamplingSettings, GradientSettings, AdvantageSettings):
    """Hyperparameters; `conf/method/ttt_discover.yaml` gives each default and its source."""

    name: str
    steps: PositiveInt
    """Steps per problem, each of a batch and an update."""
    states: PositiveInt
    """Parents per step: the buffer begins with as many initial states, so that there always are enough."""
    group: GroupSize
    """Completions from each parent."""
    reward: Annotated[str, OneOf(("auto", "feedback", "verifier"))]
    """feedback: the task's own, such as the share of public tests passed. verifier: the symbolic system's fitness.
    auto: the feedback where the task gives any, else the verifier."""
    best_children: PositiveInt
    """Maximum children of a parent that enter the buffer at a step."""
    buffer: PositiveInt
    """Maximum states in the buffer, the initial ones included."""
    exploration: NonNegativeFloat
    """Weight of rarely tried states in the choice of parents (c of PUCT)."""
    loss: Annotated[str, OneOf(LOSSES)]
    """grpo | dr_grpo | dapo | bnpo: how a batch's tokens are weighted (`evorun.training.batches.token_weight`)."""
    temperature: PositiveFloat
    """At 0 all completions of a prompt would be equal."""

    def __post_init__(self) -> None:
        super().__post_init__()
        self.require_group(self.group)
        if self.buffer < self.states:
            raise ConfigError(
                f"method.buffer: expected room for the {self.states} initial states (method.states), got {self.buffer}"
            )


class TttDiscover(DatasetLevel):
    """Trains the policy on each problem by itself, and returns the best response that it has found."""

    name = "ttt_discover"
    description = "reinforcement learning on one problem at a time, from its best states (TTT-Discover)"
    regime = "problem_only"
    observes = True
    needs = (SupportsGeneration, SupportsEvolution)
    roles: ClassVar[Mapping[str, Role]] = {ROLLOUT: Role("policy", lag=1)}
    trains = True
    restarts = True
    Config = TttDiscoverConfig
    config: TttDiscoverConfig

    @property
    def last_step(self) -> int:
        return self.config.steps

    @property
    def update_rule(self) -> GroupRelative:
        """The update of the weights by a step's batch."""
        config = self.config
        return GroupRelative(config, config.temperature, config.group, config.loss, config.group_advantages)

    def make_objective(self, run: Path) -> Objective:
        return self.update_rule.make_objective(self.config.steps)

    def budget_obstacle(self, calls: int, judges: int = 1) -> str | None:
        needed = self.config.states * self.config.group
        if calls >= needed:
            return None
        return (
            f"method.states x method.group: expected at most the {calls} calls per problem of the budget, since a step "
            f"needs them all, got {needed}; set method.states={max(1, calls // self.config.group)}, or a larger budget"
        )

    def warnings(self, calls: int | None, judges: int = 1) -> list[str]:
        obstacle = None if calls is None else self.budget_obstacle(calls, judges)
        return [] if obstacle is None else [obstacle]

    def information_regime(self, task: type[Task]) -> Regime:
        return "oracle" if self._verifies(task) else super().information_regime(task)

    def incompatibility(self, task: type[Task]) -> str | None:
        wanted: type = HasVerifier if self._verifies(task) else HasPublicTests
        if issubclass(task, wanted):
            return None
        lacks = {"auto": "feedback and a verifier", "feedback": "feedback", "verifier": "a verifier"}
        return (
            f"method.reward={self.config.reward}: task={task.name} lacks {lacks[self.config.reward]}, so nothing "
            "rewards a response during the search"
        )

    def _verifies(self, task: type[Task]) -> bool:
        chosen = self.config.reward
        return chosen == "verifier" or (
            chosen == "auto" and issubclass(task, HasVerifier) and not issubclass(task, HasPublicTests)
        )

    async def learn(self, ctx: RunContext) -> AsyncIterator[Mapping[str, Step]]:
        """Work on one problem after the other, each from the untrained weights."""
        step = 0
        for problem in ctx.problems:
            if step:
                step += 1
                await ctx.policy.restart(step)
            begun = step
            async for found in self._discover(ctx, ctx.context_for(problem), begun):
                step = begun + found.step
                yield {problem.id: found}

    async def _discover(self, run: RunContext, ctx: Context, begun: int) -> AsyncIterator[Step]:
        """Search for one problem's best response; yield the state after each step. begun: the run's step before."""
        config, rule = self.config, self.update_rule
        scorer = _Scorer(ctx, verifies=self._verifies(type(ctx.task)))
        rollouts = Rollouts(ctx, ctx.task, ROLLOUT, scorer, learned=True)
        updates, divergence = Updates(run, rule, _ScorerSource(scorer)), Divergence(run.warn)
        start = await self._start(ctx, scorer)
        initial = [State(f"{START}.{number}", *start) for number in range(config.states)]
        states = States(initial, size=config.buffer, children=config.best_children, exploration=config.exploration)
        everything = ArchivedCandidates(ctx.archive)
        best = start[0]
        if best is not None:
            everything.extend([best])
            yield Step(step=0, best=best, candidates=Snapshot(everything, survivors=[best.id]), pool=1)
        for number in range(1, config.steps + 1):
            step = begun + number
            parents = states.choose(config.states)
            asked = [Asked(ctx.problem, _prompt(ctx, parent)) for parent in parents for _ in range(config.group)]
            calls = rollouts.max_calls([request.problem for request in asked])
            if ctx.affordable(calls, ROLLOUT) < calls:
                return  # a step of fewer completions would be another method
            episodes = await rollouts.play(step, asked, config.sampling)
            learned = await updates.apply(Batch(step, (), episodes, config.group))

            for place, parent in enumerate(parents):
                group = episodes[place * config.group : (place + 1) * config.group]
                made = [_make_candidate(scorer, parent, episode, number) for episode in group]
                everything.extend(made)
                # A response that earns nothing, such as a program that fails, is no state.
                children = [child for child in made if child.mean]
                states.add(parent, [_make_state(ctx, child) for child in children])
                found = children if best is None else [best, *children]
                best = max(found, key=lambda candidate: candidate.mean or 0.0, default=None)  # the first of equal ones
            states.trim()

            figures = {**measure_batch(episodes, config.group), "states": float(len(states)), **learned}
            signs = divergence.signs(step, figures, 0) | ({} if learned else {"no_update": 1.0})
            run.record(step, figures | signs)
            held = [state.candidate for state in states.held if state.candidate is not None]
            yield Step(
                step=number,
                best=best,
                candidates=Snapshot(everything, survivors=[candidate.id for candidate in held]),
                pool=len({candidate.id for candidate in held}),
                extra={"reward": figures.get("reward", 0.0), "parents": float(len(parents))},
            )

    async def _start(self, ctx: Context, scorer: "_Scorer") -> tuple[Candidate | None, float, str]:
        """Return the response that the search begins with (None: it asks from scratch), its reward and its key."""
        task = ctx.task
        if not isinstance(task, HasStartingResponse):
            return None, 0.0, ""
        response, reward = await scorer.score(task.starting_response(ctx.problem))
        first = Candidate.from_response(response, id=START, generation=0, operator=START, mean=reward)
        return first, reward, ctx.task.signature(ctx.problem, first)


class _Scorer:
    """Rewards responses by what the task itself says of them; implements `Rewards`."""

    overflow = None

    def __init__(self, ctx: Context, *, verifies: bool) -> None:
        self._ctx = ctx
        self._verifies = verifies
        self.observed: dict[int, Response] = {}
        """The responses of the step with their feedback, by the episode's index, until candidates are made of them."""

    async def score(self, response: Response) -> tuple[Response, float]:
        """Return the response with the task's feedback, and its reward in [0, 1]: 0 where none could be read."""
        [observed] = await self._ctx.observe([response])
        if self._verifies:
            [verification] = await self._ctx.verify([response], 0)
            return observed, verification.fitness / 100
        return observed, 0.0 if observed.feedback is None else observed.feedback.score

    async def reward(self, step: int, index: int, problem: Problem, response: Response) -> Reward:
        self.observed[index], value = await self.score(response)
        return Reward(value, {"formatted": float(response.answer is not None)})

    def charge(self, step: int, index: int) -> None:
        """Do nothing: a score takes no call of a model."""


class _ScorerSource(RewardSource):
    """Rewards that never change."""

    def __init__(self, scorer: _Scorer) -> None:
        self.rewards = scorer


def _prompt(ctx: Context, state: State) -> Prompt:
    """Ask for a better response than the state's, or for a first one."""
    if state.candidate is None:
        first: Prompt = ctx.task.generation_prompt(ctx.problem)
        return first
    seen = ScoredResponse(response=state.candidate, score=state.reward)
    better: Prompt = ctx.task.evolution_prompt(ctx.problem, [seen])
    return better


def _make_candidate(scorer: _Scorer, parent: State, episode: Episode, number: int) -> Candidate:
    """Return an episode's response, with its feedback if it was scored, as a candidate whose mean is its reward."""
    return Candidate.from_response(
        scorer.observed.pop(episode.number, episode.response),
        id=f"{number}.{episode.number}",
        generation=number,
        parents=() if parent.candidate is None else (parent.candidate.id,),
        operator="init" if parent.candidate is None else "evolve",
        call=episode.call,
        mean=episode.reward.value,
    )


def _make_state(ctx: Context, candidate: Candidate) -> State:
    return State(candidate.id, candidate, candidate.mean or 0.0, ctx.task.signature(ctx.problem, candidate))
