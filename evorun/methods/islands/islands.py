"""Evolution of programs on islands, with the policies of OpenEvolve, ShinkaEvolve and AdaEvolve.

Read in the authors' code: algorithmicsuperintelligence/openevolve (411fb59), SakanaAI/ShinkaEvolve (9912af1) and
skydiscover-ai/skydiscover (59643ef). They make one program at a time, with draws from a global generator. Here a step
makes `children` programs together, so that they share their view of the islands, and every draw has its own stream.
Left out: embeddings and cascades of evaluation.

Calls per problem: generations x children, one for each retry of a text that did not parse or was not new, and those
for advice (`IslandsConfig.max_paradigm_calls` and `max_note_calls`).
"""

import dataclasses
from collections import Counter
from collections.abc import AsyncIterator, Mapping, Sequence
from dataclasses import dataclass, field
from itertools import count
from typing import Any, ClassVar, NamedTuple

import numpy as np
from msgspec.structs import replace

from evorun.methods.base import PerProblem, Regime
from evorun.methods.context import Context
from evorun.methods.islands.choices import (
    ModelBandit,
    Progress,
    choose_island,
    fitness_weights,
    intensity_weights,
    shinka_weights,
)
from evorun.methods.islands.paradigms import PARADIGM, Paradigms
from evorun.methods.islands.population import Features, Island, Member, find_similar, migrate, split_words
from evorun.methods.islands.scratchpad import INSIGHTS, RECOMMEND, SUMMARY, Scratchpad
from evorun.methods.islands.settings import IslandsConfig
from evorun.methods.lyria.population import regime_with_verifier
from evorun.methods.search.proposals import add_feedback
from evorun.rollouts.calls import GENERATOR, Role
from evorun.rollouts.episodes import Asked
from evorun.rollouts.replies import TextCounts
from evorun.rollouts.responses import respond
from evorun.runs.archive import ArchivedCandidates, Snapshot
from evorun.runs.candidates import Candidate, Response, Step
from evorun.runs.roles import GENERATE
from evorun.tasks.base import Prompt, Task
from evorun.tasks.capabilities import (
    HasStartingResponse,
    HasVerifier,
    PatchForm,
    SupportsParadigms,
    SupportsPatches,
    SupportsScratchpad,
)


class Plan(NamedTuple):
    """A child to ask for."""

    island: int
    parent: Member
    shown: tuple[Member, ...]
    form: PatchForm
    model: int
    prompt: Prompt
    advice: str
    """The advice in the prompt; empty where there is none."""


class Answer(NamedTuple):
    """A reply to a plan, read."""

    response: Response
    attempt: int
    call: str
    is_new: bool


@dataclass
class _World:
    """The state of one problem's search."""

    islands: list[Island]
    progress: list[Progress]
    features: Features
    bandit: ModelBandit
    paradigms: Paradigms
    scratchpad: Scratchpad
    children: Counter[str] = field(default_factory=Counter)
    """Children by parent."""
    made: int = 0
    """Children that were scored."""
    spawned_at: int = 0
    best: Member | None = None


class Islands(PerProblem):
    """Evolves programs on several islands that seldom exchange their best."""

    name = "islands"
    description = "programs on islands, changed by patches: policies of OpenEvolve, ShinkaEvolve and AdaEvolve"
    regime = "problem_only"
    needs = (SupportsPatches, HasStartingResponse, HasVerifier)
    roles: ClassVar = {GENERATE: Role(GENERATOR)}
    Config = IslandsConfig
    config: IslandsConfig

    @property
    def active_roles(self) -> Mapping[str, Role]:
        config = self.config
        asked = [PARADIGM] if config.paradigms else []
        asked += [SUMMARY, INSIGHTS, RECOMMEND] if config.notes_every else []
        return {**self.roles, **dict.fromkeys(asked, Role("reflection"))}

    @property
    def optional_limits(self) -> Mapping[str, int | None]:
        return {"generations": self.config.generations}

    @property
    def last_step(self) -> int | None:
        return self.config.generations

    def information_regime(self, task: type[Task]) -> Regime:
        return regime_with_verifier(task)

    def incompatibility(self, task: type[Task]) -> str | None:
        if self.config.paradigms and not issubclass(task, SupportsParadigms):
            return f"method.paradigms: task={task.name} has no prompt for new approaches; set method.paradigms=0"
        if self.config.notes_every and not issubclass(task, SupportsScratchpad):
            return f"method.notes_every: task={task.name} has no prompts for notes; set method.notes_every=0"
        return None

    def warnings(self, calls: int | None, judges: int = 1) -> list[str]:
        if calls is None or calls >= self.config.children:
            return []
        return [
            f"method.children={self.config.children} leaves no step within {calls} calls per problem; lower "
            "method.children or raise the budget"
        ]

    async def solve(self, ctx: Context) -> AsyncIterator[Step]:
        """Put the seed program on each island; then plan, ask for, score and place the children of each step."""
        config: Any = self.config
        everything = ArchivedCandidates(ctx.archive)
        bandit = ModelBandit(
            len(ctx.generators),
            exploration=config.model_exploration,
            epsilon=config.model_epsilon,
            decay=config.model_decay,
            cost_weight=config.model_cost_weight,
        )
        world = _World([], [], Features(config.grid_bins or 1), bandit, Paradigms(config), Scratchpad(config))
        start = ctx.task.starting_response(ctx.problem)
        (seed,) = await self._score(ctx, [Candidate.from_response(start, id="0.seed", generation=0, operator="seed")])
        if config.grid_bins:
            seed = _with_features(seed, world.features.measure(seed.program))
        everything.extend([seed.candidate])
        world.scratchpad.record(seed.candidate)
        for _ in range(config.islands):
            self._start_island(world, seed)
        yield self._report(world, everything, 0, {})
        for step in count(1) if config.generations is None else range(1, config.generations + 1):
            if config.generations is None and ctx.affordable(config.children, GENERATE) < config.children:
                return  # children that are not asked for would leave a smaller step
            best = world.best or seed
            advised = await world.paradigms.renew(ctx, best, step) | await world.scratchpad.renew(ctx, best, step)
            planned: Counter[int] = Counter()
            plans = [self._plan(ctx, world, step, child, planned) for child in range(config.children)]
            answers, texts = await self._ask(ctx, world, plans, step)
            if not answers:
                return
            scored = await self._score(
                ctx, [_make_candidate(plans[child], answer, step, child) for child, answer in answers.items()]
            )
            refused = 0
            for (child, answer), member in zip(answers.items(), scored, strict=True):
                refused += answer.response.answer is not None and not answer.is_new
                settled = self._settle(world, plans[child], member if answer.is_new else None)
                everything.extend([(settled or member).candidate])
            migrants = self._exchange(world, seed, len(answers))
            counts = {"migrants": migrants, "similar": refused, **advised, **texts.diagnostics()}
            if len(ctx.generators) > 1:
                asked = Counter(plan.model for plan in plans)
                counts |= {f"model_{number}_children": asked[number] for number in range(len(ctx.generators))}
            yield self._report(world, everything, step, counts)
            if ctx.out_of_budget:
                return

    # --- planning ---

    def _plan(self, ctx: Context, world: _World, step: int, child: int, planned: Counter[int]) -> Plan:
        """Choose island, parent, shown programs, form and model; all draws are from the child's own streams."""
        config: Any = self.config
        rng = ctx.rng("plan", step, child)
        count = len(world.islands)
        if config.island_choice == "turns":
            number = ((step - 1) * config.children + child) % count
        elif config.island_choice == "uniform":
            number = int(rng.integers(count))
        else:
            number = choose_island(world.progress, [planned[island] for island in range(count)], rng)
        planned[number] += 1
        island = world.islands[number]
        parent = self._choose_parent(world, number, rng)
        paradigm = world.paradigms.take()
        if paradigm is not None and world.best is not None:  # what was proposed in view of the best is for the best
            parent = world.best
        others = [member for member in island.members if member is not parent]
        best, rest = others[: config.shown_best], others[config.shown_best :]
        drawn = rng.choice(len(rest), min(config.shown_others, len(rest)), replace=False) if rest else []
        shown = (*best, *(rest[index] for index in sorted(drawn)))
        form = self._choose_form(rng.random(), bool(shown))
        if form == "cross":  # one partner, chosen among what would be shown
            shown = (shown[int(rng.integers(len(shown)))],)
        models = len(world.bandit.calls)
        bandit = self.config.model_choice == "bandit"
        shares = world.bandit.probabilities(ctx.mean_costs(ctx.generators)) if bandit else None
        model = int(rng.choice(models, p=shares))
        world.bandit.submit(model)
        recommendation = "" if form == "cross" else world.scratchpad.draw(rng)
        advice: dict[str, Any] = {} if paradigm is None else {"paradigm": paradigm}
        if recommendation:
            advice["recommendation"] = recommendation
        beside = [member.candidate for member in shown]
        prompt = ctx.task.patch_prompt(ctx.problem, parent.candidate, beside, form, **advice)
        told = recommendation if paradigm is None else f"{paradigm.title}: {paradigm.plan}\n{recommendation}".rstrip()
        return Plan(number, parent, shown, form, model, prompt, told)

    def _choose_parent(self, world: _World, number: int, rng: np.random.Generator) -> Member:
        config: Any = self.config
        members = world.islands[number].members
        fitness = [member.fitness for member in members]
        if config.parents == "weighted":
            children = [world.children[member.candidate.id] for member in members]
            return members[int(rng.choice(len(members), p=shinka_weights(fitness, children, config.pressure)))]
        if config.parents == "intensity":
            intensity = world.progress[number].intensity(config.intensity_low, config.intensity_high)
            return members[int(rng.choice(len(members), p=intensity_weights(fitness, intensity)))]
        draw = float(rng.random())
        if draw < config.explore:
            return members[int(rng.integers(len(members)))]
        if draw < config.explore + config.exploit:
            alive = {member.candidate.id: member for island in world.islands for member in island.members}
            elites = sorted(alive.values(), key=lambda member: -member.fitness)[: config.elites]
            at_home = [member for member in elites if member in members]
            return (at_home or elites)[int(rng.integers(len(at_home or elites)))]
        return members[int(rng.choice(len(members), p=fitness_weights(fitness)))]

    def _choose_form(self, draw: float, has_partner: bool) -> PatchForm:
        config: Any = self.config
        if draw < config.diff_share:
            return "diff"
        return "cross" if draw < config.diff_share + config.cross_share and has_partner else "full"

    # --- asking ---

    async def _ask(
        self, ctx: Context, world: _World, plans: Sequence[Plan], step: int
    ) -> tuple[dict[int, Answer], TextCounts]:
        """Ask for all children together; ask again for texts that do not parse, and for programs that are not new.

        Return the answers by child, in order; the budget may leave fewer than plans.
        """
        answers: dict[int, Answer] = {}
        texts, roles = TextCounts(), ctx.generators
        pending = list(range(len(plans)))
        for attempt in range(max(self.config.retries + 1, self.config.novelty_tries)):
            episodes = await respond(
                ctx,
                [Asked(ctx.problem, plans[child].prompt) for child in pending],
                role=[roles[plans[child].model] for child in pending],
                step=step,
                sampling=self.config.sampling,
                attempt=attempt,
                indices=pending,
            )
            again = []
            for episode in sorted(episodes, key=lambda episode: episode.number):
                child, reply = episode.number, episode.replies[-1]
                plan, response = plans[child], episode.response
                if reply.error is None:
                    response = ctx.task.read_patch(ctx.problem, plan.parent.candidate, response, plan.form)
                texts.add(ctx.task, reply, response)
                # No child may repeat another of its step and island: by number, whichever reply came first.
                beside = [
                    answer.response.answer
                    for other, answer in answers.items()
                    if other != child and plans[other].island == plan.island
                ]
                is_new = response.answer is not None and self._is_new(world, plan.island, response.answer, beside)
                answers[child] = Answer(response, attempt, episode.call, is_new)
                unparsed = reply.error is None and response.error is not None and attempt < self.config.retries
                if unparsed or (response.answer is not None and not is_new and attempt + 1 < self.config.novelty_tries):
                    again.append(child)
            pending = again
            if not pending:
                break
        return dict(sorted(answers.items())), texts

    def _is_new(self, world: _World, island: int, program: str, beside: Sequence[str | None]) -> bool:
        limit: Any = self.config.max_similarity
        words = split_words(program)
        if any(other is not None and split_words(other) == words for other in beside):
            return False
        return find_similar(words, world.islands[island].members, limit) is None

    async def _score(self, ctx: Context, candidates: Sequence[Candidate]) -> list[Member]:
        """Return the candidates as members, with feedback and the task's fitness."""
        candidates = await add_feedback(ctx, candidates)
        members = []
        for candidate, verified in zip(candidates, await ctx.verify(candidates, max_errors=1), strict=True):
            fitness = verified.fitness
            scored = replace(candidate, fitness=fitness, mean=fitness, errors=verified.errors.text)
            members.append(Member(scored, fitness, split_words(candidate.answer or "")))
        return members

    # --- placing ---

    def _settle(self, world: _World, plan: Plan, member: Member | None) -> Member | None:
        """Place a scored child on its island and return it, with its features where there is a grid.

        None, or one without a valid program, only counts as a visit.
        """
        world.made += 1
        world.children[plan.parent.candidate.id] += 1
        fitness = 0.0 if member is None else member.fitness
        best = -np.inf if world.best is None else world.best.fitness
        world.bandit.update(plan.model, fitness, max(plan.parent.fitness, best))
        world.progress[plan.island].visit(fitness, best)
        world.paradigms.record(member is not None and fitness > best)
        if member is None:
            return None
        world.scratchpad.record(member.candidate)
        if fitness <= 0:
            return member
        measured = world.features.measure(member.program)
        if self.config.grid_bins:
            member = _with_features(member, measured)
        world.islands[plan.island].add(member, world.features.find_cell(measured))
        if world.best is None or fitness > world.best.fitness:
            world.best = member
        return member

    def _exchange(self, world: _World, seed: Member, made: int) -> int:
        """Migrate where a multiple of `migration_every` was passed; start an island where the others stagnate.

        Return how many programs migrated.
        """
        config: Any = self.config
        migrants = 0
        if (
            len(world.islands) > 1
            and world.made // config.migration_every > (world.made - made) // config.migration_every
        ):
            migrants = migrate(
                world.islands,
                config.migration_share,
                world.features.cell,
                both_ways=config.migration_both_ways,
                keep_best=config.keep_best,
            )
            for island, progress in zip(world.islands, world.progress, strict=True):
                if island.best is not None:
                    progress.receive(island.best.fitness)
        gains = sum(progress.gains for progress in world.progress)
        paused = world.made - world.spawned_at < config.spawn_pause
        if len(world.islands) < config.max_islands and not paused and gains < config.spawn_below * world.made:
            self._start_island(world, seed)
            world.spawned_at = world.made
        return migrants

    def _start_island(self, world: _World, seed: Member) -> None:
        island = Island(self.config.capacity or 1, {} if self.config.grid_bins else None)
        island.add(seed, world.features.cell(seed.program))
        progress = Progress(self.config.decay)
        progress.receive(seed.fitness)
        world.islands.append(island)
        world.progress.append(progress)
        if world.best is None:
            world.best = seed

    def _report(self, world: _World, everything: ArchivedCandidates, step: int, counts: Mapping[str, float]) -> Step:
        alive = {member.candidate.id for island in world.islands for member in island.members}
        best = None if world.best is None else world.best.candidate
        if best is not None and best.id in alive:
            best = replace(best, survivor=True)
        figures = {"islands": float(len(world.islands)), **counts}
        if self.config.grid_bins:
            figures["grid_bins"] = float(self.config.grid_bins)
        for number, (island, progress) in enumerate(zip(world.islands, world.progress, strict=True)):
            figures[f"island_{number}_best"] = 0.0 if island.best is None else island.best.fitness
            figures[f"island_{number}_programs"] = float(len(island.members))
            if self.config.parents == "intensity":
                low, high = self.config.intensity_low, self.config.intensity_high
                figures[f"island_{number}_intensity"] = progress.intensity(low, high)
        return Step(
            step=step,
            best=best,
            candidates=Snapshot(everything, survivors=alive),
            pool=len(alive),
            extra=figures,
        )


def _with_features(member: Member, measured: tuple[float, float]) -> Member:
    """Return a member whose candidate has the features by which a grid places it."""
    return dataclasses.replace(member, candidate=replace(member.candidate, features=measured))


def _make_candidate(plan: Plan, answer: Answer, step: int, child: int) -> Candidate:
    """Return a child that has no score yet."""
    return Candidate.from_response(
        answer.response,
        id=f"{step}.{child}",
        generation=step,
        parents=tuple(dict.fromkeys(member.candidate.id for member in (plan.parent, *plan.shown))),
        operator=plan.form,
        attempts=answer.attempt + 1,
        call=answer.call,
        reflection=plan.advice,
    )
