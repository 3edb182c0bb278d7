"""AB-MCTS-A (arXiv 2503.04412, NeurIPS 2025): tree search over responses that decides where to widen and deepen.

A node is a scored response. An expansion of the root answers the problem, and one of another node refines its response
in view of its errors. At each node Thompson sampling decides between a new child and the old ones. Calls per problem:
`nodes`; with scores by a model 3 x `nodes`, or 2 x `nodes` if `max_errors` is 0, where no answer repeats.
"""

from collections.abc import AsyncIterator, Mapping, Sequence
from dataclasses import dataclass
from functools import partial
from itertools import count
from math import inf
from typing import Annotated, ClassVar, Literal

from msgspec.structs import replace

from evorun.fields import Fraction, NonNegativeFloat, NonNegativeInt, OneOf, PositiveFloat, PositiveInt
from evorun.methods.base import PerProblem, Regime
from evorun.methods.context import Context
from evorun.methods.lyria.population import Evaluator, answer_key, explain_missing_verifier, regime_with_verifier
from evorun.methods.search.proposals import Proposal, ResponseSettings, add_feedback, propose
from evorun.methods.tree.beliefs import Belief, Beta, Gaussian, GaussianPrior
from evorun.methods.tree.policies import AdaptiveBranching, BestFirst, BreadthFirst, ModelChoice, Node, Policy, Ucb
from evorun.models.base import Sampling
from evorun.rollouts.calls import GENERATOR, Role
from evorun.rollouts.episodes import max_turns_on
from evorun.runs.archive import ArchivedCandidates, Snapshot
from evorun.runs.candidates import Candidate, Step
from evorun.runs.roles import GENERATE
from evorun.tasks.base import Task
from evorun.tasks.capabilities import (
    Diagnosis,
    HasPublicTests,
    HasVerifier,
    Individual,
    SupportsErrorDetection,
    SupportsFitnessScores,
    SupportsGeneration,
    SupportsModelOperators,
    Verification,
)

Source = Literal["verifier", "tests", "model"]


@dataclass(kw_only=True)
class AbMctsConfig(ResponseSettings):
    """Hyperparameters; `conf/method/ab_mcts.yaml` gives each default and its source."""

    name: str
    policy: Annotated[str, OneOf(("ab_mcts", "ucb", "best_first", "breadth_first"))]
    """ab_mcts: adaptive branching. ucb: independent responses, with a bandit over the models. best_first: the best
    response without a child is refined next. breadth_first: the best responses of a level make the next level."""
    nodes: PositiveInt | None
    """Responses per problem, at one call each (times the turns on a task with tools); None: until the budget ends."""
    batch: PositiveInt
    """Maximum responses that are asked for together, before any of their scores is known."""
    score: Annotated[str, OneOf(("auto", "verifier", "tests", "model"))]
    """verifier: the task's symbolic system. tests: the share of public tests passed. model: the judge model's score.
    auto: the first of these that the task has."""
    max_errors: NonNegativeInt
    """Maximum errors that a refinement is shown, from the source of the scores."""
    fitness_threshold: NonNegativeFloat | None
    """Stop as soon as the best score reaches it, in [0, 100]; None: never."""
    prior: Annotated[str, OneOf(("gaussian", "beta"))]
    """Of an arm's scores, which are in [0, 1]."""
    prior_mean: Fraction
    """m of the Gaussian prior."""
    prior_mean_weight: PositiveFloat
    """kappa: number of scores that the mean stands for."""
    prior_variance: PositiveFloat
    """tau^2."""
    prior_variance_weight: PositiveFloat
    """nu: number of scores that the variance stands for."""
    beta_prior: PositiveFloat
    """a = b of the Beta prior."""
    model_choice: Annotated[str, OneOf(("thompson", "ucb"))]
    """The model of an expansion, by all scores in the tree, where a run has several generators."""
    breadth: PositiveInt
    """Responses of a level that breadth_first expands."""
    width: PositiveInt | None
    """Children of a node: by each model with best_first, by all with breadth_first; None: 2 and 5."""
    evaluator_temperature: NonNegativeFloat
    evaluator_max_tokens: PositiveInt

    def make_belief(self) -> Belief:
        """Return the prior belief about an arm."""
        if self.prior == "beta":
            return Beta(self.beta_prior)
        return Gaussian(
            GaussianPrior(self.prior_mean, self.prior_mean_weight, self.prior_variance, self.prior_variance_weight)
        )

    def make_policy(self, root: Node, models: int) -> Policy:
        """Return the policy of a tree that so far has only its root."""
        match self.policy:
            case "ucb":
                return Ucb(root, models)
            case "best_first":
                return BestFirst(root, models, self.width or 2)
            case "breadth_first":
                return BreadthFirst(root, models, self.breadth, self.width or 5)
            case _:
                choice = ModelChoice(models, self.model_choice, self.make_belief)
                return AdaptiveBranching(root, choice, self.make_belief)


class AbMcts(PerProblem):
    """Grows a tree of responses, each a refinement of its parent, and returns the one with the best score."""

    name = "ab_mcts"
    description = "tree search over scored responses that weighs new ones against refinements (AB-MCTS)"
    regime = "problem_only"
    needs = (SupportsGeneration, SupportsModelOperators)
    roles: ClassVar = {GENERATE: Role(GENERATOR), "fitness": Role("judge"), "errors": Role("judge")}
    Config = AbMctsConfig
    config: AbMctsConfig

    @property
    def optional_limits(self) -> Mapping[str, int | None]:
        return {"nodes": self.config.nodes}

    @property
    def last_step(self) -> int | None:
        nodes, in_full_batches = self.config.nodes, self.config.policy in ("ab_mcts", "ucb")
        return len(range(0, nodes, self.config.batch)) - 1 if nodes is not None and in_full_batches else None

    def source_of_scores(self, task: type[Task]) -> Source:
        """Return where the scores come from on a task."""
        if self.config.score != "auto":
            source: Source = self.config.score  # type: ignore[assignment]  # OneOf has checked it
            return source
        return "verifier" if issubclass(task, HasVerifier) else "tests" if issubclass(task, HasPublicTests) else "model"

    def calls_per_node(self, task: type[Task]) -> int:
        """Return the calls of a node whose answer is new and whose response takes one call."""
        return 1 + (1 + (self.config.max_errors > 0) if self.source_of_scores(task) == "model" else 0)

    def information_regime(self, task: type[Task]) -> Regime:
        source = self.source_of_scores(task)
        if source == "model":
            return self.regime
        return regime_with_verifier(task) if source == "verifier" else "public_tests"

    def incompatibility(self, task: type[Task]) -> str | None:
        match self.source_of_scores(task):
            case "verifier":
                return explain_missing_verifier(task, "method.score=model")
            case "tests" if not issubclass(task, HasPublicTests):
                return f"method.score=tests: task={task.name} has no public tests; set method.score=auto"
            case "model" if not issubclass(task, SupportsFitnessScores):
                return f"task={task.name} has no scores: neither a verifier, public tests nor prompts for a model"
            case "model" if self.config.max_errors and not issubclass(task, SupportsErrorDetection):
                return f"task={task.name} has no prompts for a model that finds errors; set method.max_errors=0"
        return None

    async def solve(self, ctx: Context) -> AsyncIterator[Step]:
        """Choose expansions, ask for them together, score the new responses and add them to the tree; repeat."""
        config, models = self.config, ctx.generators
        max_calls = self.calls_per_node(type(ctx.task)) - 1 + max_turns_on(ctx.task, ctx.problem)
        threshold = inf if config.fitness_threshold is None else config.fitness_threshold - 1e-9
        evaluator, everything = self._make_evaluator(ctx), ArchivedCandidates(ctx.archive)
        root, best, best_fitness = Node(), None, -inf
        grown: dict[Node, int] = {}  # each node's place among the candidates
        policy = config.make_policy(root, len(models))
        for step in count():
            room = config.batch if config.nodes is None else min(config.batch, config.nodes - len(grown))
            if step > 0:
                room = ctx.affordable(room * max_calls, models[-1]) // max_calls
            if room == 0:
                return
            expansions = policy.choose(room, partial(ctx.rng, "expansion", step))
            proposals = [
                _propose(ctx, None if node is root else everything.at(grown[node]), models[model])
                for node, model in expansions
            ]
            proposed = await propose(ctx, proposals, operator="refine", step=step, settings=config)
            born = {int(child.id.partition(".")[2]): child for child in (*proposed.parsed, *proposed.unparsed)}
            if not born and step > 0:
                return
            order = sorted(born)  # the budget may leave fewer than expansions
            responses = [born[index] for index in order]
            if self.source_of_scores(type(ctx.task)) != "model":
                responses = await add_feedback(ctx, responses)
            verified = await self._evaluate(ctx, evaluator, responses, step)
            for index, response, verification in zip(order, responses, verified, strict=True):
                (node, model), fitness = expansions[index], verification.fitness
                candidate = replace(
                    response,
                    operator="refine" if response.parents else "init",
                    fitness=fitness,
                    errors=verification.errors.text,
                    mean=fitness,
                    survivor=True,
                )
                child = Node(node, min(max(fitness / 100, 0.0), 1.0), model)
                grown[child] = len(everything)
                everything.extend([candidate])
                node.children.append(child)
                policy.add(child)
                if candidate.answer is not None and fitness > best_fitness:  # the first of equals stays
                    best, best_fitness = candidate, fitness
            shape = {"depth": max((child.depth for child in grown), default=0), "from_scratch": len(root.children)}
            fittest = {} if best is None else {"best_fitness": best_fitness}
            yield Step(
                step=step,
                best=best,
                candidates=Snapshot(everything),
                pool=len(everything),
                extra={**proposed.diagnostics(), **shape, **fittest, **evaluator.diagnostics()},
                reached_goal=best_fitness >= threshold,
            )
            if ctx.out_of_budget or best_fitness >= threshold:
                return

    def _make_evaluator(self, ctx: Context) -> Evaluator:
        config, verified = self.config, self.source_of_scores(type(ctx.task)) != "model"
        sampling = Sampling(temperature=config.evaluator_temperature, max_tokens=config.evaluator_max_tokens)
        return Evaluator(verified, verified, config.max_errors, sampling, ctx.archive)

    async def _evaluate(
        self, ctx: Context, evaluator: Evaluator, candidates: Sequence[Candidate], step: int
    ) -> list[Verification]:
        """Return the fitness and the errors of each candidate; equal answers are evaluated once."""
        if self.source_of_scores(type(ctx.task)) == "tests":
            return [
                Verification(fitness=100 * tested.score, errors=Diagnosis(text=tested.text))
                if (tested := candidate.feedback) is not None
                else Verification(fitness=0.0, errors=Diagnosis())
                for candidate in candidates
            ]
        keys = [answer_key(ctx, candidate) for candidate in candidates]
        await evaluator.evaluate(ctx, dict(zip(keys, candidates, strict=True)), step=step)
        return [evaluator.evaluation(key) for key in keys]


def _propose(ctx: Context, parent: Candidate | None, role: str) -> Proposal:
    """Return the request for an answer from scratch, or for a refinement of its parent."""
    if parent is None:
        return Proposal(ctx.task.generation_prompt(ctx.problem), (), role)
    errors = Diagnosis(text=parent.errors)
    individual = Individual(response=parent, fitness=parent.fitness or 0.0, errors=errors)
    return Proposal(ctx.task.mutation_prompt(ctx.problem, individual), (parent.id,), role)
