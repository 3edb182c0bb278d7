"""Candidates from prompts: parallel calls, a bounded number of retries for texts that do not parse, nothing lost."""

from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import Any, NamedTuple

from msgspec.structs import replace

from evorun.errors import at_least
from evorun.methods.base import SamplingSettings
from evorun.methods.context import Context
from evorun.rollouts.episodes import Asked, Episode
from evorun.rollouts.replies import TextCounts
from evorun.rollouts.responses import respond
from evorun.runs.candidates import Candidate
from evorun.tasks.base import Prompt

FROM_TASK = "from_task"
"""Names OmegaConf's resolver, and marks the fields, that read `task.sampling`."""


def from_task(default: Any) -> Any:
    """Declare a field of a plug-in method's configuration whose default is the task's, by its name in `task.sampling`.

    `default` holds where the task leaves the value open; example: `max_tokens: int = from_task(1024)`. Built-in methods
    say the same in their YAML: `max_tokens: ${from_task:max_tokens,1024}`.
    """
    return field(default=default, metadata={FROM_TASK: True})


@dataclass(kw_only=True)
class ResponseSettings(SamplingSettings):
    """Sampling of responses by methods that ask again for a text that does not parse."""

    retries: int
    """Further attempts at a response whose text could not be parsed."""

    def __post_init__(self) -> None:
        super().__post_init__()
        at_least("method.retries", self.retries, 0)


class Proposal(NamedTuple):
    """A request for one candidate."""

    prompt: Prompt
    parents: tuple[str, ...]
    """Ids of the candidates that the prompt shows."""


class Proposed(NamedTuple):
    """Candidates in the order of their proposals; fewer when the budget ran out."""

    parsed: list[Candidate]
    unparsed: list[Candidate]
    """Those whose every attempt failed to parse; `error` is of the last one."""
    texts: TextCounts

    def joined(self, later: "Proposed") -> "Proposed":
        """Return these and later ones of the same step."""
        return Proposed(self.parsed + later.parsed, self.unparsed + later.unparsed, self.texts + later.texts)

    def diagnostics(self) -> dict[str, float]:
        """Return the counts that a step reports."""
        return {"children": len(self.parsed) + len(self.unparsed), **self.texts.diagnostics()}


async def propose(
    ctx: Context, proposals: Sequence[Proposal], *, operator: str, step: int, settings: ResponseSettings, first: int = 0
) -> Proposed:
    """Ask for one candidate a proposal, all at once, and once more for each text that did not parse, `retries` times.

    The calls have the role `generate`; on a task with tools each attempt is an episode. Candidate ids are `step.index`,
    with indices from `first`. A retry has a sampling seed of its own.
    """
    episodes: dict[int, Episode] = {}
    attempts: dict[int, int] = {}
    texts = TextCounts()
    # Retries go out together, not one after the other: batches stay full.
    pending = list(range(first, first + len(proposals)))
    for attempt in range(settings.retries + 1):
        answered = await respond(
            ctx,
            [Asked(ctx.problem, proposals[i - first].prompt) for i in pending],
            role="generate",
            step=step,
            sampling=settings.sampling,
            attempt=attempt,
            indices=pending,
        )
        again = []
        for i, episode in zip(pending, answered, strict=False):  # the budget may cut them short
            attempts[i], episodes[i] = attempt + 1, episode
            reply, response = episode.replies[-1], episode.response
            texts.add(ctx.task, reply, response)
            # A refused request is not asked again: the engine would refuse it again.
            if reply.error is None and response.error is not None:
                again.append(i)
        pending = again
        if not pending:
            break
    candidates = [
        Candidate.of(
            episode.response,
            id=f"{step}.{i}",
            generation=step,
            parents=proposals[i - first].parents,
            operator=operator,
            attempts=attempts[i],
            call=episode.call,
        )
        for i, episode in sorted(episodes.items())  # retries came in later, ids are by index
    ]
    return Proposed(
        parsed=[c for c in candidates if c.error is None],
        unparsed=[c for c in candidates if c.error is not None],
        texts=texts,
    )


async def observed(ctx: Context, candidates: Sequence[Candidate]) -> list[Candidate]:
    """Return the candidates with the task's feedback on their responses, where it gives any."""
    responses = await ctx.observe(candidates)
    return [
        replace(candidate, feedback=response.feedback)
        for candidate, response in zip(candidates, responses, strict=True)
    ]
