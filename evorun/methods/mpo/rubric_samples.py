"""The choice of the episodes that a rubric is refined on (MPO, section 2.3; choices other than at random are ours)."""

from collections.abc import Sequence

import numpy as np
from msgspec.structs import replace

from evorun.methods.learning.sources import normalised_score
from evorun.methods.mpo.meta_prompts import Sample
from evorun.models.base import Completion, Reply
from evorun.rollouts.episodes import Episode
from evorun.rollouts.monitors import measure


def without_tokens(episode: Episode) -> Episode:
    """Return an episode without its token ids and log-probabilities: many batches of them would fill the memory."""
    turns = [
        replace(turn, prompt_ids=None, completions=_bare(turn)) if isinstance(turn, Reply) else turn
        for turn in episode.turns
    ]
    return episode._replace(turns=tuple(turns))


def _bare(reply: Reply) -> tuple[Completion, ...]:
    return tuple(replace(one, token_ids=None, logprobs=None) for one in reply.completions)


def choose(
    samples: Sequence[Sample], count: int, how: str, rng: np.random.Generator, script: str | None = None
) -> list[Sample]:
    """Return `count` of the samples, or all where there are no more, in their order.

    how: random; thirds: as many at random from each third by score; informative; or
    boundary: those whose scores are the nearest to the middle of the scale. script: see
    `evorun.rollouts.monitors.measure`.
    """
    shuffled = rng.permutation(len(samples)).tolist()
    if how == "random":
        return [samples[index] for index in sorted(shuffled[:count])]
    if how == "thirds":
        by_score = sorted(shuffled, key=lambda index: normalised_score(samples[index].episode))
        thirds = [third.tolist() for third in np.array_split(by_score, 3)]
        return [samples[index] for third in thirds for index in rng.permutation(third)[: count // 3].tolist()]
    worths = [_worths(one.episode, script) if how == "informative" else (_nearness(one.episode),) for one in samples]
    # Sorting is stable, so that chance decides among equals.
    rankings = [sorted(shuffled, key=lambda index: -worths[index][at]) for at in range(len(worths[0]) if worths else 0)]
    turns = dict.fromkeys(index for places in zip(*rankings, strict=True) for index in places)
    return [samples[index] for index in sorted(list(turns)[:count])]


def _worths(episode: Episode, script: str | None) -> tuple[float, ...]:
    """Return what makes an episode worth a look, each by itself.

    A high score; a low one; points for what looks like an exploit; many words, and few.
    """
    score = normalised_score(episode)
    monitors = measure(episode.response.text, episode.replies[-1].completions[0].finish_reason, script)
    suspect = max(monitors[name] for name in ("foreign_script", "title_only", "repeated", "missing_end"))
    return score, -score, score * suspect, monitors["words"], -monitors["words"]


def _nearness(episode: Episode) -> float:
    return -abs(normalised_score(episode) - 0.5)
