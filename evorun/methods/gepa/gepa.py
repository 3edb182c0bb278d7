"""GEPA: reflective evolution of the system prompt, by the `gepa` package (Duel-Evolve paper, appendix A.1, B and D).

The paper uses the package's AnyMaths adapter: one text, the system prompt, above a question; a response is right or
wrong, and the reflection is shown the question, the response, and the right answer. `Bridge` is an adapter of the same
kind for any task, in whose words it says what was right or wrong (`reflection_record`; on LiveCodeBench public tests).

Two set-ups. `split`: the prompt is evolved on one half of the validation split and chosen on the other, with labels;
the run's problems are then answered under the best prompt. `inference`: the run's problems are both halves, their
public tests are the score, and each problem keeps the best response that any prompt has brought forth.

The budget (ours): in `split` all problems share the search's cost evenly and are answered equally often; a limit in
tokens holds for the run as a whole. In `inference` each problem pays for its own responses out of its own share, and a
reflection is paid for by the problem of its minibatch that has made the fewest calls. A problem whose share does not
cover another iteration takes no further part in the search, which goes on with the others.
"""

from collections.abc import AsyncIterator, Mapping, Sequence
from contextlib import aclosing
from dataclasses import dataclass
from types import SimpleNamespace
from typing import ClassVar

from evorun.errors import ConfigError, at_least, one_of, within
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
"""The package's names for its ways to choose the prompt that is revised next."""
FEW_TO_CHOOSE_BY = 25
"""With fewer problems to choose prompts by, a score's steps are coarse and luck decides (ours)."""


@dataclass(kw_only=True)
class GepaConfig(SamplingSettings):
    """Hyperparameters; `conf/method/gepa.yaml` gives each default and its source."""

    name: str
    search: str
    """auto: `inference` on tasks with public tests, else `split`."""
    generations: int
    """GEPA's iterations: one reflection each."""
    metric_calls: int | None
    """Rollouts at most, in GEPA's own counting; null: as many as the iterations and the budget take."""
    minibatch: int
    """Problems that a reflection looks at."""
    train_share: float
    """Share of the validation split to reflect on; the rest chooses among prompts (`split`)."""
    candidate_selection: str
    """The prompt that is revised next, by the package's names. pareto: one that is best on some problem, the more
    problems the likelier. current_best. epsilon_greedy: the best, one time in ten any. top_k_pareto: as pareto, among
    the five best."""
    reflection_temperature: float
    reflection_max_tokens: int

    def __post_init__(self) -> None:
        super().__post_init__()
        one_of("method.search", self.search, ("auto", "split", "inference"))
        one_of("method.candidate_selection", self.candidate_selection, CANDIDATE_SELECTIONS)
        at_least("method.generations", self.generations, 0)
        at_least("method.reflection_temperature", self.reflection_temperature, 0)
        for key in ("metric_calls", "minibatch", "reflection_max_tokens"):
            at_least(f"method.{key}", getattr(self, key), 1)
        within("method.train_share", self.train_share, 0, 1)


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
    def last_step(self) -> int:
        return self.config.generations

    def information_regime(self, task: type[Task]) -> Regime:
        return "public_tests" if self._search(task) == "inference" else "labels"

    def check(self, task: type[Task], validation: Sequence[Problem]) -> None:
        if self._search(task) == "inference":
            return
        cut = self._cut(len(validation))
        if not 0 < cut < len(validation):
            raise ConfigError(
                f"method.train_share: expected both parts of the validation split ({len(validation)} problems) to have "
                f"some, got {cut} to reflect on; {task.draw_help.more_validation} or change the share"
            )

    async def learn(self, ctx: RunContext) -> AsyncIterator[Mapping[str, Step]]:
        """Let GEPA run in a thread of its own and report after each of its iterations.

        Raises ConfigError when the package is not installed or the budget does not pay for the seed prompt.
        """
        config, measure = self.config, primary_score(ctx.shared.task.scores)
        on_problems = self._search(type(ctx.shared.task)) == "inference"
        rollouts: Rollouts
        if on_problems:
            rollouts = OnProblems(ctx, config.sampling)
        else:
            # Drawn, not cut as they come: validation splits may be sorted by subject or difficulty.
            order = ctx.shared.rng("split").permutation(len(ctx.demonstrations))
            examples = [ctx.demonstrations[i] for i in order]
            cut = self._cut(len(examples))
            if len(examples) - cut < FEW_TO_CHOOSE_BY:
                ctx.warn(
                    f"gepa: {cut} problems to reflect on and {len(examples) - cut} to choose prompts by are few; "
                    f"to have more, {type(ctx.shared.task).draw_help.more_validation}"
                )
            rollouts = OnValidation(ctx, config.sampling, examples[:cut], examples[cut:])
        least = rollouts.least_calls()
        if ctx.shared.affordable(least, rollouts.role) < least:
            raise ConfigError(f"budget: expected at least {least} calls, which the seed prompt alone takes")
        settings = Settings(
            iterations=config.generations,
            metric_calls=config.metric_calls,
            minibatch=config.minibatch,
            candidate_selection=config.candidate_selection,
            seed=int(ctx.shared.rng("gepa").integers(2**31)),
            reflection=Sampling(temperature=config.reflection_temperature, max_tokens=config.reflection_max_tokens),
            # A score without a known range has no best value that GEPA could take for perfect.
            has_perfect=on_problems or None not in (measure.low, measure.high),
        )
        # Closed on every way out, so that no thread survives a run that was interrupted.
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
                f"method.search=inference needs a task with public tests, which task={task.name} has not; "
                "expected split or auto"
            )
        return self.config.search

    def _cut(self, examples: int) -> int:
        """Return how many of so many examples are reflected on."""
        return round(examples * self.config.train_share)


def run_gepa(bridge: Bridge) -> None:
    """Hand over to the package, whose loop is GEPA's Algorithm 1 (Agrawal et al., 2025); blocks until it ends.

    Each iteration selects a prompt, tries it on a minibatch, reflects on its rollouts, and tries the prompt that comes
    of it on the same minibatch; one that does better is scored on all that chooses among prompts, and joins the pool.
    Raises ConfigError when the package is missing.
    """
    # Imported only where it runs: the package is an optional dependency, and slow to import.
    try:
        from gepa.api import optimize
    except ImportError as error:
        raise ConfigError("method=gepa needs the gepa package: pip install 'evorun[gepa]'") from error
    settings = bridge.settings
    optimize(
        seed_candidate={COMPONENT: bridge.ctx.shared.task.seed_instruction()},
        trainset=Loader(bridge.rollouts, bridge.rollouts.train),  # what minibatches are drawn from: D_feedback
        valset=Loader(bridge.rollouts, bridge.rollouts.validation),  # what chooses among prompts: D_pareto
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
