"""GEPA: reflective evolution of the system prompt, by the `gepa` package (Duel-Evolve paper, appendix A.1, B and D).

The paper uses the package's AnyMaths adapter: a single text, the system prompt, before a question. A response is right
or wrong, and the reflection prompt shows the question, the response and the right answer. `Bridge` is such an adapter
for any task; the task describes what was right or wrong (`reflection_record`; public tests on LiveCodeBench).

There are two modes. `split` evolves the prompt on one half of the validation split and chooses it on the other, with
labels; the run's problems are then answered under the best prompt. `inference` uses the run's problems as both halves
and their public tests as the score; each problem keeps the best response under any prompt.

The budget (ours): in `split` all problems share the search's cost evenly and are answered equally often; a token limit
holds for the whole run. In `inference` each problem pays for its responses from its own share, and the problem of the
minibatch with the fewest calls pays for the reflection. A problem whose share does not cover another iteration drops
out, and the search continues with the others.
"""

from collections.abc import AsyncIterator, Mapping, Sequence
from contextlib import aclosing
from dataclasses import dataclass
from types import SimpleNamespace
from typing import Annotated, ClassVar

from evorun.errors import ConfigError
from evorun.fields import Fraction, NonNegativeFloat, NonNegativeInt, OneOf, PositiveInt
from evorun.methods.base import DatasetLevel, Regime, SamplingSettings
from evorun.methods.context import RunContext
from evorun.methods.gepa.bridge import COMPONENT, Bridge, Loader, Rollouts, Settings, log, optimise
from evorun.methods.gepa.rollouts import OnProblems, OnValidation
from evorun.models.base import Sampling
from evorun.rollouts.calls import Role
from evorun.runs.candidates import Step
from evorun.runs.scores import primary_score
from evorun.tasks.base import Problem, Task
from evorun.tasks.capabilities import HasPublicTests, SupportsSystemPrompts

CANDIDATE_SELECTIONS = ("pareto", "current_best", "epsilon_greedy", "top_k_pareto")
"""The package's strategies for choosing the next prompt to revise."""
MIN_VALIDATION = 25
"""Number of problems below which scores are too coarse to choose among prompts, and luck decides (ours)."""


@dataclass(kw_only=True)
class GepaConfig(SamplingSettings):
    """Hyperparameters; `conf/method/gepa.yaml` gives each default and its source."""

    name: str
    search: Annotated[str, OneOf(("auto", "split", "inference"))]
    """auto: `inference` on tasks with public tests, else `split`."""
    generations: NonNegativeInt | None
    """GEPA's iterations, with one reflection each; null: until the budget ends."""
    metric_calls: PositiveInt | None
    """Maximum rollouts, as GEPA counts them; null: no limit beyond the iterations and the budget."""
    minibatch: PositiveInt
    """Problems per reflection."""
    train_share: Fraction
    """Share of the validation split to reflect on; the rest chooses among prompts (`split`)."""
    candidate_selection: Annotated[str, OneOf(CANDIDATE_SELECTIONS)]
    """The next prompt to revise, by the package's names. pareto: one that is best on some problem, more likely with
    more such problems. current_best. epsilon_greedy: the best, or any one time in ten. top_k_pareto: as pareto, among
    the five best."""
    reflection_temperature: NonNegativeFloat
    reflection_max_tokens: PositiveInt


class Gepa(DatasetLevel):
    """Evolves the instruction that all problems are answered under."""

    name = "gepa"
    description = "reflective evolution of the system prompt on a Pareto frontier (the gepa package)"
    regime = "labels"
    needs = (SupportsSystemPrompts,)
    roles: ClassVar = {"reflect": Role("reflection")}
    observes = True
    Config = GepaConfig
    config: GepaConfig

    @property
    def optional_limits(self) -> Mapping[str, int | None]:
        return {"generations": self.config.generations}

    @property
    def last_step(self) -> int | None:
        return self.config.generations

    def information_regime(self, task: type[Task]) -> Regime:
        return "public_tests" if self._search(task) == "inference" else "labels"

    def check(self, task: type[Task], validation: Sequence[Problem]) -> None:
        if self._search(task) == "inference":
            return
        cut = self._cut(len(validation))
        if not 0 < cut < len(validation):
            help_, change = task.draw_help.more_validation, " or change the share" if len(validation) > 1 else ""
            raise ConfigError(
                f"method.train_share: expected both parts of the validation split ({len(validation)} problems) to have "
                f"some, got {cut} to reflect on; {help_}{change}"
            )

    async def learn(self, ctx: RunContext) -> AsyncIterator[Mapping[str, Step]]:
        """Run GEPA in a separate thread and yield a step after each of its iterations.

        Raises ConfigError when the package is not installed or the budget does not cover the seed prompt.
        """
        config, measure = self.config, primary_score(ctx.shared.task.scores)
        on_problems = self._search(type(ctx.shared.task)) == "inference"
        rollouts: Rollouts
        if on_problems:
            rollouts = OnProblems(ctx, config.sampling)
        else:
            # Shuffled, since validation splits may be sorted by subject or difficulty.
            order = ctx.shared.rng("split").permutation(len(ctx.demonstrations))
            examples = [ctx.demonstrations[i] for i in order]
            cut = self._cut(len(examples))
            if len(examples) - cut < MIN_VALIDATION:
                ctx.warn(
                    f"gepa: {cut} problems to reflect on and {len(examples) - cut} to choose prompts by are few; "
                    f"to have more, {type(ctx.shared.task).draw_help.more_validation}"
                )
            rollouts = OnValidation(ctx, config.sampling, examples[:cut], examples[cut:])
        min_calls = rollouts.min_calls()
        if ctx.shared.affordable(min_calls, rollouts.role) < min_calls:
            raise ConfigError(f"budget: expected at least {min_calls} calls, which the seed prompt alone takes")
        settings = Settings(
            iterations=config.generations,
            metric_calls=config.metric_calls,
            minibatch=config.minibatch,
            candidate_selection=config.candidate_selection,
            seed=int(ctx.shared.rng("gepa").integers(2**31)),
            reflection=Sampling(temperature=config.reflection_temperature, max_tokens=config.reflection_max_tokens),
            # A score without a known range has no maximum that GEPA could take for perfect.
            has_perfect=on_problems or None not in (measure.low, measure.high),
        )
        # Closed on every exit, so that no thread survives an interrupted run.
        async with aclosing(optimise(Bridge(ctx, rollouts, settings), run_gepa)) as turns:
            async for step, state in turns:
                ctx.record(step, {}, [*state.pool, *state.rejected])
                yield await rollouts.steps(step, state)
                best_first = sorted(state.pool, key=lambda prompt: -(prompt.mean or 0.0))
                ctx.save_artifact(
                    "prompts.json", [{"prompt": prompt.text, "score": prompt.mean} for prompt in best_first]
                )

    def _search(self, task: type[Task]) -> str:
        gives_feedback = issubclass(task, HasPublicTests)
        if self.config.search == "auto":
            return "inference" if gives_feedback else "split"
        if self.config.search == "inference" and not gives_feedback:
            raise ConfigError(
                f"method.search=inference needs a task with public tests, which task={task.name} lacks; "
                "expected split or auto"
            )
        return self.config.search

    def _cut(self, examples: int) -> int:
        """Return how many of `examples` are used for reflection."""
        return round(examples * self.config.train_share)


def run_gepa(bridge: Bridge) -> None:
    """Call the package, whose loop is GEPA's Algorithm 1 (Agrawal et al., 2025); blocks until it ends.

    Each iteration selects a prompt, tries it on a minibatch, reflects on its rollouts, and tries the new prompt on the
    same minibatch. A better prompt is scored on all validation problems and joins the pool. Raises ConfigError when the
    package is missing.
    """
    # Imported only here: the package is an optional dependency and slow to import.
    try:
        from gepa.api import optimize
    except ImportError as error:
        raise ConfigError("method=gepa needs the gepa package: pip install 'evorun[gepa]'") from error
    settings = bridge.settings
    optimize(
        seed_candidate={COMPONENT: bridge.ctx.shared.task.seed_instruction()},
        trainset=Loader(bridge.rollouts, bridge.rollouts.train),  # source of minibatches: D_feedback
        valset=Loader(bridge.rollouts, bridge.rollouts.validation),  # chooses among prompts: D_pareto
        adapter=bridge,  # type: ignore[arg-type]
        reflection_lm=bridge.reflect,  # type: ignore[arg-type]
        reflection_minibatch_size=settings.minibatch,
        candidate_selection_strategy=settings.candidate_selection,  # type: ignore[arg-type]
        skip_perfect_score=settings.has_perfect,
        stop_callbacks=bridge.should_stop,  # type: ignore[arg-type]
        callbacks=[bridge],  # type: ignore[list-item]
        logger=SimpleNamespace(log=log.info),
        seed=settings.seed,
    )
