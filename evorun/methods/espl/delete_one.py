"""Delete-one: what each principle of a system prompt is worth, by the test problems answered without it (ours)."""

from collections.abc import Mapping, Sequence

from evorun.methods.espl.system_prompts import SystemPrompt
from evorun.runs.schema import PrincipleEffect
from evorun.runs.statistics import mean_interval


def without_each(prompt: SystemPrompt) -> list[SystemPrompt]:
    """Return the system prompts to evaluate beside the whole one, in the order of its principles.

    Each lacks one principle; those after it move up a number, as they would if it were removed for good.
    """
    principles = prompt.principles
    return [
        prompt._replace(principles=principles[:index] + principles[index + 1 :]) for index in range(len(principles))
    ]


def effects(
    prompt: SystemPrompt, whole: Mapping[str, float], without: Sequence[Mapping[str, float]]
) -> list[PrincipleEffect]:
    """Return the effect of each principle of a system prompt, with its 95 % interval.

    whole: the mean score of each test problem under the whole prompt, by problem id. without: the same under each of
    `without_each`. Problems are paired, so that their differing difficulty cancels out; one that has no score under
    both counts for nothing. An interval is of its own principle: of 20 principles that do nothing one is expected to
    lie outside.
    """
    found = []
    for principle, scores in zip(prompt.principles, without, strict=True):
        differences = [whole[name] - scores[name] for name in whole if name in scores]
        low, high = mean_interval(differences) or (None, None)
        effect = sum(differences) / len(differences) if differences else 0.0
        found.append(PrincipleEffect(principle=principle, effect=effect, low=low, high=high, n=len(differences)))
    return found
