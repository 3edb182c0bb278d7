"""E-SPL: system prompts that evolve while the weights learn (Algorithms 1 and 2).

`espl` does both. `espl_evolution` freezes the weights; `espl_self_reflection` is its mutation alone, on a population of
one (section 4.1). RL alone is the same loop under one fixed prompt (`grpo` and its kin). Rewards are the task's grades
or, with `method.rubric`, a reward model's scores by a rubric that is refined as in MPO.

Lines of Algorithm 1 are numbered from the one that initializes the population; each statement is one line.
"""

import asyncio
from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Annotated, Any, ClassVar, NamedTuple

import numpy as np
import numpy.typing as npt

from evorun.fields import GroupSize, OneOf
from evorun.methods.context import RunContext
from evorun.methods.espl.operators import OperatorPrompts, find_contrasts, problem_text, read_summary, render_lessons
from evorun.methods.espl.population import (
    EvolutionSettings,
    Member,
    Population,
    genotypic_diversity,
    phenotypic_diversity,
    shared_fitness,
)
from evorun.methods.espl.system_prompts import Patched, SystemPrompt, clean_analysis, read_roots
from evorun.methods.learning.loop import Learning
from evorun.methods.learning.parts import Batch, DrawnPrompt, PromptSource, RewardSource, UpdateRule
from evorun.methods.learning.updates import BaselineSettings, GroupRelative
from evorun.methods.mpo.mpo import META_ROLES, make_rubric_source
from evorun.methods.mpo.refinement_settings import RefinedLearningSettings
from evorun.models.base import Reply
from evorun.rollouts.calls import Role
from evorun.rollouts.episodes import Episode
from evorun.runs.candidates import Candidate
from evorun.tasks.base import Prompt, Task
from evorun.tasks.capabilities import SupportsGeneration, SupportsSystemPrompts
from evorun.training.objectives import LOSSES, GradientSettings

Floats = npt.NDArray[np.float64]
OPERATORS = ("summary", "critique", "proposal", "aggregation", "crossover")
"""Roles of the operators' calls: those of a mutation in order (`proposal` only with `lessons_first`), and that of a
crossover."""


class OperatorResult(NamedTuple):
    """The outcome of an operator."""

    figures: dict[str, float]
    """Counts of edits by kind and outcome."""
    child: SystemPrompt | None = None
    """None when there were no edits, or none that apply."""
    parents: Sequence[Member] = ()
    origin: Mapping[str, Any] = {}
    """Fields of the child as a candidate."""


def score_matrix(batch: Batch) -> Floats:
    """Return the mean reward of each draw of a system prompt on each problem, of shape (M, B): Phi of Algorithm 2."""
    values = [np.inf if episode.reward.value is None else episode.reward.value for episode in batch.episodes]
    rewards = np.reshape(values, (-1, len(batch.prompts), batch.group))
    # An episode without a reward (a refused request) counts as its problem's worst.
    worst = rewards.min(axis=(1, 2), keepdims=True)
    known = np.where(np.isinf(rewards), np.where(np.isinf(worst), 0.0, worst), rewards)
    # An episode that the chat template ended is left out, unless the prompt has no other on the problem.
    counted = ~np.reshape([episode.ended_by_template for episode in batch.episodes], rewards.shape)
    counted |= ~counted.any(axis=2, keepdims=True)
    return np.asarray(known.mean(axis=2, where=counted).T, dtype=np.float64)


def episodes_of_prompt(batch: Batch, index: int) -> list[Episode]:
    """Return the episodes under the system prompt at an index of the batch's draw."""
    return [
        episode for number, episode in enumerate(batch.episodes) if number // batch.group % len(batch.prompts) == index
    ]


def rank_players(batch: Batch) -> tuple[list[str], Floats]:
    """Return the ids of the batch's distinct system prompts, and their rows of the score matrix."""
    # A prompt that was drawn twice is one player of the tournament, with all of its rollouts.
    rows: dict[str, list[int]] = {}
    for index, prompt in enumerate(batch.prompts):
        rows.setdefault(prompt.id, []).append(index)
    scores = score_matrix(batch)
    return list(rows), np.stack([scores[indices].mean(axis=0) for indices in rows.values()])


class PromptPopulation(PromptSource):
    """A population and the operators that make its children: E-SPL's source of prompts."""

    def __init__(self, ctx: RunContext, settings: EvolutionSettings, root: str) -> None:
        """root: the preamble of the initial system prompts, to which the settings add principles."""
        self._calls = ctx.shared
        self._settings = settings
        roots = read_roots(settings.root_principles, settings.other_roots)
        self._population = Population([SystemPrompt(root, principles) for principles in roots], settings)
        self._operators = OperatorPrompts(
            settings.limits,
            ctx.training.demonstrations,
            local_edits=settings.local_edits,
            rollout_chars=settings.rollout_chars,
            folder=settings.operator_prompts,
        )
        self._uncharged: list[tuple[str, int, Reply]] = []
        """This step's calls that have not been charged yet: role, index and reply."""

    @property
    def evaluated(self) -> DrawnPrompt:
        use_latest = self._settings.eval_prompt == "latest"
        return _as_drawn(self._population.latest if use_latest else self._population.best)

    @property
    def candidates(self) -> Sequence[Candidate]:
        return self._population.candidates

    def max_calls(self, problems: int, group: int) -> int:
        # Per problem summaries, a critique and perhaps a proposal; then the aggregation, and perhaps a crossover.
        calls = problems * (group + 1 + self._settings.lessons_first) + 1 + (self._settings.crossover_rate > 0)
        return calls if self._settings.evolve else 0

    def draw(self, step: int) -> list[DrawnPrompt]:
        return [_as_drawn(member) for member in self._population.select(self._calls.rng("select", step), step)]

    def rate(self, batch: Batch) -> None:
        players, scores = self._players(batch)
        rankings = [self._fitness(scores)]
        if self._settings.ranking == "by_problem":
            # A problem on which all are equal is a draw, as with equal means.
            rankings = list(scores.T)
        for number, values in enumerate(rankings):
            by_id = {player.id: value for player, value in zip(players, values.tolist(), strict=True)}
            self._population.rate(by_id, first_of_batch=number == 0)

    def follow_update(self) -> None:
        self._population.follow_update()

    def save(self, ctx: RunContext) -> None:
        member = self._population.best
        best, prompt = member.candidate, member.prompt
        ctx.save_artifact(
            "system_prompt.json",
            {"id": best.id, "mean": best.mean, "sd": best.sd, "text": prompt.text, **prompt._asdict()},
        )

    def _players(self, batch: Batch) -> tuple[list[Member], Floats]:
        """Return the players of a batch and the scores that rank them."""
        ids, scores = rank_players(batch)
        if self._settings.ranking == "random":
            scores = self._calls.rng("ranking", batch.step).permutation(scores)
        return [self._population[name] for name in ids], scores

    def _fitness(self, scores: Floats) -> Floats:
        """Return the fitness of each row of a score matrix."""
        mean: Floats = scores.mean(axis=1)
        return shared_fitness(scores) if self._settings.fitness_sharing else mean

    async def evolve(self, batch: Batch) -> dict[str, float]:
        """Mutate the best system prompt of a batch and, now and then, cross the others into it.

        Lines 13 to 23 of Algorithm 1. Before them: `draw` (line 4), rollouts and update (the loop), `rate` (11 and 12).
        """
        if not self._settings.evolve:
            return {}
        step = batch.step
        crossing = self._calls.rng("crossover", step).random() < self._settings.crossover_rate  # line 18
        async with asyncio.TaskGroup() as together:
            mutating = together.create_task(self._mutate(batch))  # lines 13 to 16
            crossover = (
                together.create_task(self._cross_over(batch)) if crossing else None
            )  # lines 19 to 21, Algorithm 2
        # in order: see `Calls.charge`
        for role, _, reply in sorted(self._uncharged, key=lambda call: call[:2]):
            self._calls.charge(role, [reply])
        self._uncharged.clear()
        mutant, crossed = mutating.result(), OperatorResult({}) if crossover is None else crossover.result()
        # Added here, in a fixed order, since ids are numbered.
        if mutant.child is not None:  # line 17
            self._population.add_mutant(mutant.child, mutant.parents[0], step, **mutant.origin)
        if crossed.child is not None:  # line 22
            self._population.add_crossover(crossed.child, crossed.parents, step, **crossed.origin)
        if self._settings.migration_every is not None and step % self._settings.migration_every == 0:
            self._population.migrate()
        diversity = {
            "genotypic_diversity": genotypic_diversity([member.prompt for member in self._population.window]),
            "phenotypic_diversity": phenotypic_diversity(rank_players(batch)[1]),
        }
        known = {name: value for name, value in diversity.items() if value is not None}
        return {**Counter(mutant.figures) + Counter(crossed.figures), **known}

    async def _mutate(self, batch: Batch) -> OperatorResult:
        """Reflect on the rollouts of the batch's best system prompt, and edit it (lines 13 to 16, appendix A.1)."""
        step = batch.step
        players, scores = self._players(batch)  # ranked as rated, so that the best is not the luckiest of several draws
        parent = players[int(self._fitness(scores).argmax())]  # line 13, equation 5
        # If it was drawn several times, the rollouts of its first draw, N per problem as in equation 7: using all would
        # triple the cost of reflection while a run has only its root.
        groups = find_contrasts(episodes_of_prompt(batch, [prompt.id for prompt in batch.prompts].index(parent.id)))
        async with asyncio.TaskGroup() as together:
            reflecting = [
                together.create_task(self._reflect(step, number, parent, episodes))
                for number, episodes in enumerate(groups)
            ]
        reflected = [task.result() for task in reflecting]
        lessons = [lesson for lesson in reflected if lesson.edits]
        shortened = sum(self._operators.is_shortened(episode) for episodes in groups for episode in episodes)
        figures = {
            "reflected_problems": float(len(groups)),
            "shortened_rollouts": float(shortened),
            **_count_refused(reflected),
        }
        if not lessons:
            return OperatorResult(figures)
        reply = await self._ask("aggregation", step, 0, self._operators.aggregation(parent.prompt, lessons))
        patched = self._operators.patch_by_reply(parent.prompt, reply, partial=self._settings.partial_edits)
        call: str | None = self._calls.key(step, "aggregation", 0, 0)
        if patched.principles is None and "no_edits" not in patched.refused:  # "no edits" is a valid reply
            # One bad reply must not waste a batch of reflections: apply their own edits, except conflicting ones.
            joined = self._operators.join(parent.prompt, lessons)
            figures |= {"edits_unaggregated": float(len(joined.edits)), **_count_refused([*reflected, joined])}
            patched, call = joined._replace(refused=patched.refused), None
        origin = {
            "call": call,
            "reflection": render_lessons(lessons),
            "blamed": tuple(episode.call for episodes in groups for episode in episodes),
        }
        return OperatorResult({**figures, **patched.figures}, _apply(parent, patched), [parent], origin)

    async def _reflect(self, step: int, number: int, parent: Member, episodes: Sequence[Episode]) -> Patched:
        """Summarize the rollouts of one problem and contrast them (appendices A.2 to A.4)."""
        async with asyncio.TaskGroup() as together:
            asking = [
                together.create_task(
                    self._ask("summary", step, episode.number, self._operators.summary(parent.prompt, episode))
                )
                for episode in episodes
            ]
        summaries = [read_summary(task.result()) for task in asking]
        operators, lessons_first = self._operators, self._settings.lessons_first
        critique = operators.critique(parent.prompt, episodes, summaries, lessons_alone=lessons_first)
        reply = await self._ask("critique", step, number, critique)
        if not lessons_first:
            return operators.read_lesson(parent.prompt, reply)
        lessons = clean_analysis(read_summary(reply), parent.prompt)
        if not lessons:
            return Patched(None, (), {"rejected" if reply.error else "no_lessons": 1})
        proposal = operators.proposal(parent.prompt, lessons)
        proposed = operators.read_lesson(parent.prompt, await self._ask("proposal", step, number, proposal))
        return proposed._replace(analysis=lessons)

    async def _cross_over(self, batch: Batch) -> OperatorResult:
        """Edit the best system prompt, using the problems at which each prompt of the batch was best (Algorithm 2)."""
        step = batch.step
        players, scores = self._players(batch)
        width = batch.group * len(batch.prompts)
        problems = [problem_text(episode) for episode in batch.episodes[::width]]
        alone_by = self._settings.crossover_alone_by
        prompt = self._operators.crossover(players, scores, problems, alone_by=alone_by)
        if prompt is None:  # no other prompt was best at any problem
            return OperatorResult({})
        best = players[int(scores.mean(axis=1).argmax())]
        reply = await self._ask("crossover", step, 0, prompt)
        patched = self._operators.patch_by_reply(best.prompt, reply, partial=self._settings.partial_edits)
        origin = {"call": self._calls.key(step, "crossover", 0, 0), "reflection": patched.analysis}
        return OperatorResult(patched.figures, _apply(best, patched), players, origin)

    async def _ask(self, role: str, step: int, index: int, prompt: Prompt) -> Reply:
        reply = await self._calls.ask(prompt, self._settings.reflection, role=role, step=step, index=index, attempt=0)
        self._uncharged.append((role, index, reply))
        return reply


def _as_drawn(member: Member) -> DrawnPrompt:
    return DrawnPrompt(member.id, member.prompt.text)


def _apply(parent: Member, patched: Patched) -> SystemPrompt | None:
    if patched.principles is None:
        return None
    preamble = parent.prompt.preamble if patched.preamble is None else patched.preamble
    return SystemPrompt(preamble, patched.principles)


def _count_refused(lessons: Sequence[Patched]) -> dict[str, float]:
    """Count refused proposals by reason."""
    counts = sum((Counter(lesson.refused) for lesson in lessons), Counter[str]())
    return {f"proposals_refused_{reason}": float(count) for reason, count in counts.items()}


@dataclass(kw_only=True)
class EsplEvolutionConfig(RefinedLearningSettings, EvolutionSettings):
    """Hyperparameters; `conf/method/espl_evolution.yaml` gives each default and its source."""

    group: GroupSize
    """Completions of each problem under each system prompt (N)."""


@dataclass(kw_only=True)
class EsplConfig(EsplEvolutionConfig, GradientSettings, BaselineSettings):
    """Hyperparameters; `conf/method/espl.yaml` gives each default and its source."""

    loss: Annotated[str, OneOf((*LOSSES, "cispo"))]
    """grpo | dr_grpo | dapo | bnpo: how a batch's tokens are weighted (`evorun.training.batches.token_weight`); or
    cispo."""
    transplant: bool
    """Save the weights of each evaluation in artifacts/adapters/, and at the end test system prompts under all of them
    (`evorun transplant`)."""

    def __post_init__(self) -> None:
        super().__post_init__()
        if self.loss == "cispo":
            self.require_bounds_of_cispo()


class EsplEvolution(Learning):
    """A population of system prompts under frozen weights: evolution alone (section 4.1)."""

    name = "espl_evolution"
    description = "system prompts evolve by self-reflection, under frozen weights (E-SPL's evolution alone)"
    needs = (SupportsSystemPrompts,)
    # Reflections run during the update.
    roles: ClassVar = {**Learning.roles, **META_ROLES, **dict.fromkeys(OPERATORS, Role("reference"))}
    trains = False
    Config: ClassVar[type[EsplEvolutionConfig]] = EsplEvolutionConfig
    config: EsplEvolutionConfig

    @property
    def update_rule(self) -> UpdateRule | None:
        return None

    def prompts(self, ctx: RunContext) -> PromptSource:
        config = self.config
        seed = ctx.training.task.seed_instruction() if config.principles_in == "system" else ""
        return PromptPopulation(ctx, config, config.system_prompt or seed)

    def rewards(self, ctx: RunContext) -> RewardSource:
        config = self.config
        return super().rewards(ctx) if config.rubric is None else make_rubric_source(ctx, config, self.last_step)

    @property
    def after_problem(self) -> bool:
        return self.config.principles_in == "user"

    @property
    def active_roles(self) -> Mapping[str, Role]:
        reflecting = Role("policy", lag=1) if self.config.reflect_with == "policy" else Role("reference")  # figure 15
        return {**super().active_roles, **dict.fromkeys(OPERATORS, reflecting)}

    def incompatibility(self, task: type[Task]) -> str | None:
        if self.config.principles_in == "user" and not issubclass(task, SupportsGeneration):
            return f"method.principles_in: task={task.name} asks only under a system prompt; set it to system"
        return super().incompatibility(task)


class EsplSelfReflection(EsplEvolution):
    """Mutation alone on a population of one: each system prompt replaces its parent (section 4.1)."""

    name = "espl_self_reflection"
    description = "one system prompt is refined by self-reflection, under frozen weights (E-SPL's baseline)"


class Espl(EsplEvolution):
    """Policy gradients under a population of system prompts that evolves by reflection on the same rollouts."""

    name = "espl"
    description = "system prompts evolve by self-reflection while the weights learn (E-SPL)"
    trains = True
    Config = EsplConfig
    config: EsplConfig

    @property
    def update_rule(self) -> UpdateRule:
        config = self.config
        group = config.group * (config.prompts if config.baseline == "problem" else 1)
        return GroupRelative(config, config.temperature, group, config.loss)

    @property
    def transplants(self) -> bool:
        return self.config.transplant

    async def save_evaluation(self, ctx: RunContext, step: int) -> None:
        """Save an evaluation's weights if they will be tested under other system prompts."""
        if self.config.transplant:
            await ctx.policy.export(step)
