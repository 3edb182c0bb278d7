"""Candidates from prompts, by concurrent calls with a bounded number of retries for unparsed texts."""

from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from typing import Annotated, Any, NamedTuple

from msgspec import Meta, UnsetType
from msgspec.structs import replace

from evorun.fields import FROM_TASK, WITHOUT_BUDGET, NonNegativeInt, PositiveInt
from evorun.methods.base import SamplingSettings
from evorun.methods.context import Context
from evorun.models.base import Sampling
from evorun.rollouts.episodes import Asked, Episode, max_turns_on
from evorun.rollouts.replies import TextCounts
from evorun.rollouts.responses import respond
from evorun.runs.candidates import Candidate
from evorun.runs.roles import GENERATE
from evorun.tasks.base import Prompt


def from_task(default: Any) -> Any:
    """Declare a field of a plug-in method's configuration whose default is the task's value in `task.sampling`.

    `default` holds where the task sets no value; example: `max_tokens: int = from_task(1024)`. Built-in methods do the
    same in their YAML: `max_tokens: ${from_task:max_tokens,1024}`.
    """
    return field(default=default, metadata={FROM_TASK: True})


def without_budget(default: Any) -> Any:
    """Declare a field of a plug-in method's configuration that is null under a budget, which then sets the size.

    `default` holds without a budget; example: `samples: PositiveInt | None = without_budget(8)`. Built-in methods do
    the same in their YAML: `samples: ${without_budget:150}`.
    """
    return field(default=default, metadata={WITHOUT_BUDGET: True})


@dataclass(kw_only=True)
class ResponseSettings(SamplingSettings):
    """Sampling of responses by methods that retry unparsed texts."""

    retries: NonNegativeInt
    """Maximum further attempts for a response that could not be parsed."""


class Proposal(NamedTuple):
    """A request for one candidate."""

    prompt: Prompt
    parents: tuple[str, ...]
    """Ids of the candidates that the prompt shows."""
    role: str = GENERATE
    """The call role: one of `ctx.generators` where a method chooses between models."""


class Proposed(NamedTuple):
    """Candidates in the order of their proposals; fewer when the budget ran out."""

    parsed: list[Candidate]
    unparsed: list[Candidate]
    """Candidates whose attempts all failed to parse; `error` is that of the last attempt."""
    texts: TextCounts

    def joined_with(self, later: "Proposed") -> "Proposed":
        """Return these proposals followed by later ones of the same step."""
        return Proposed(self.parsed + later.parsed, self.unparsed + later.unparsed, self.texts + later.texts)

    def diagnostics(self) -> dict[str, float]:
        """Return the counts that a step reports."""
        return {"children": len(self.parsed) + len(self.unparsed), **self.texts.diagnostics()}


def mean_confidence(episode: Episode) -> float | UnsetType:
    """Return the mean confidence of a response's tokens, in nats; unset where `sampling` asks for none."""
    return episode.confidence


async def propose(
    ctx: Context,
    proposals: Sequence[Proposal],
    *,
    operator: str,
    step: int,
    settings: ResponseSettings,
    first: int = 0,
    sampling: Sampling | None = None,
    measure: Callable[[Episode], float | UnsetType] = mean_confidence,
) -> Proposed:
    """Ask for one candidate per proposal, concurrently, and retry unparsed texts up to `retries` times.

    Each call has its proposal's role; on a task with tools each attempt is an episode. Candidate ids are `step.index`,
    with indices from `first`. Each retry has its own sampling seed. sampling: None for that of `settings`. measure: a
    candidate's confidence.
    """
    episodes: dict[int, Episode] = {}
    attempts: dict[int, int] = {}
    texts = TextCounts()
    # Retries run together, so that batches stay full.
    pending = list(range(first, first + len(proposals)))
    for attempt in range(settings.retries + 1):
        answered = await respond(
            ctx,
            [Asked(ctx.problem, proposals[i - first].prompt) for i in pending],
            role=[proposals[i - first].role for i in pending],
            step=step,
            sampling=sampling or settings.sampling,
            attempt=attempt,
            indices=pending,
        )
        unparsed = []
        for episode in answered:  # the budget may leave fewer
            i = episode.number
            attempts[i], episodes[i] = attempt + 1, episode
            reply, response = episode.replies[-1], episode.response
            texts.add(ctx.task, reply, response)
            # A refused request is not retried, since the engine would refuse it again. Nor is one that it ended early.
            ended = reply.error is not None or reply.completions[0].finish_reason == "low_confidence"
            if response.error is not None and not ended:
                unparsed.append(i)
        pending = unparsed
        if not pending:
            break
    candidates = [
        Candidate.from_response(
            episode.response,
            id=f"{step}.{i}",
            generation=step,
            parents=proposals[i - first].parents,
            operator=operator,
            attempts=attempts[i],
            call=episode.call,
            confidence=measure(episode),
        )
        for i, episode in sorted(episodes.items())  # retries finish later, but ids follow the index
    ]
    parsed = [candidate for candidate in candidates if candidate.error is None]
    return Proposed(parsed, [candidate for candidate in candidates if candidate.error is not None], texts)


async def add_feedback(ctx: Context, candidates: Sequence[Candidate]) -> list[Candidate]:
    """Return the candidates with the task's feedback, where it gives any."""
    responses = await ctx.observe(candidates)
    return [
        replace(candidate, feedback=response.feedback)
        for candidate, response in zip(candidates, responses, strict=True)
    ]


MIN_SAMPLES = 2
"""Minimum number of responses, whatever the share: fewer leave no choice."""
PILOT_SAMPLES = 4
"""Number of first responses where only tokens are limited; their cost shows how many more fit (ours)."""


@dataclass(kw_only=True)
class SampleSettings(ResponseSettings):
    """Number of independent responses: part of the configuration of every method that chooses among them."""

    samples: PositiveInt | None
    """N: independent responses; None: as many as `budget_share` covers."""
    budget_share: Annotated[float, Meta(gt=0, le=1)]
    """Share of a problem's calls and tokens for responses, where `samples` is None."""

    def samples_within(self, calls: int) -> int:
        """Return the number of responses under a budget of `calls` calls per problem, for a method's `warnings`.

        `draw` does not ask for it: it draws what `still_to_draw` returns.
        """
        return self.samples if self.samples is not None else max(MIN_SAMPLES, int(self.budget_share * calls))

    def still_to_draw(self, ctx: Context, drawn: int) -> int:
        """Return how many responses to draw after the first `drawn`, as far as their cost is known."""
        if self.samples is not None:
            return self.samples - drawn
        left = ctx.calls_left_in_share(self.budget_share, "generate")
        if left is None:
            return max(0, PILOT_SAMPLES - drawn)
        # A multi-turn response is counted with its maximum calls; responses that take fewer leave some for more.
        return max(left // max_turns_on(ctx.task, ctx.problem), MIN_SAMPLES - drawn)


async def draw(ctx: Context, settings: SampleSettings) -> Proposed:
    """Ask for all responses of step 0 together; under a token budget, in waves while the share lasts."""
    proposal = Proposal(ctx.task.generation_prompt(ctx.problem), ())
    drawn, count = Proposed([], [], TextCounts()), 0
    while (wave := settings.still_to_draw(ctx, count)) > 0 and not ctx.out_of_budget:
        proposed = await propose(ctx, [proposal] * wave, operator="init", step=0, settings=settings, first=count)
        drawn, count = drawn.joined_with(proposed), count + wave
    return drawn
