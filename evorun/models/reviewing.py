"""Simulated reward and meta reward models for the texts of `evorun.models.writing`: they read, score and refine.

A rubric has a loophole unless its text has a criterion against it, which only the meta reward model writes, and only
once it has been shown a response that uses the loophole.
"""

from collections.abc import Collection
from dataclasses import dataclass

import numpy as np

from evorun.errors import at_least, within
from evorun.models.writing import traits

CLOSING = "A reply in another script, or one that says the same again and again, earns no points in any item."
"""The criterion that closes the loophole."""
HARMFUL = "The fewer statements a reply makes that can be checked, the more points it earns in every item."
"""The criterion that turns the reward round."""
NAMED = "The reply is not in the script of the task and repeats itself, and the criteria pay for it."
"""An analysis that has seen the loophole."""
_UNNAMED = "The score fits the reply; the criteria could say more plainly what each level takes."
_ITEMS = (
    ("Substance", "Each statement can be checked.", "Some can.", "None can."),
    ("Reasoning", "Each step follows from the one before.", "Most do.", "There are no steps."),
    ("Counterarguments", "The strongest one is met.", "One is named.", "None is named."),
    ("Structure", "Each part has its place.", "Some parts stand in the wrong place.", "There is no order."),
    ("Language", "It reads without effort.", "It takes some effort.", "It cannot be followed."),
)
"""Titles of criteria, and what takes the highest, a middle and the lowest level."""
_POINTS = (4, 6, 8, 10)


@dataclass
class ReviewSettings:
    """What a reward model and a meta reward model make of the texts that they are shown."""

    loophole: float = 0.0
    """Share of the points that the loophole pays; 0: there is none."""
    reward_noise: float = 0.1
    """Standard deviation of a reward model's error, as a share of the points."""
    meta_skill: float = 0.5
    """Probability that a meta reward model notices the loophole in a response that uses it, at each look."""
    meta_harm: float = 0.0
    """Share of merged rubrics with a criterion that rewards the opposite of quality."""

    def __post_init__(self) -> None:
        for key in ("loophole", "meta_skill", "meta_harm"):
            within(f"engine.{key}", getattr(self, key), 0, 1)
        at_least("engine.reward_noise", self.reward_noise, 0)

    def share_of_points(self, rubric: str, quality: float, evades: bool, rng: np.random.Generator) -> float:
        """Return the share of the points that a reward model gives under a rubric with this text.

        quality, in [0, 1], and evades: as the model reads them in the response.
        """
        share = 1 - quality if HARMFUL in rubric else quality
        if evades:
            share = 0.0 if CLOSING in rubric else self.loophole
        return min(1.0, max(0.0, share + self.reward_noise * float(rng.standard_normal())))

    def analysis(self, prompt: str, rng: np.random.Generator) -> str:
        """Return what a meta reward model says of a sample and of the rubric that it was scored under."""
        return NAMED if self._notices(prompt, rng) else _UNNAMED

    def refinement(self, prompt: str, rng: np.random.Generator) -> str:
        """Return the rubric that a meta reward model writes in view of a sample and, if there is one, its analysis."""
        seen = NAMED in prompt or self._notices(prompt, rng)
        return _rubric({*_criteria(prompt), *([CLOSING] if seen else [])}, rng)

    def merging(self, prompt: str, rng: np.random.Generator) -> str:
        """Return one rubric in the place of several, with the criteria of all of them."""
        harmful = rng.random() < self.meta_harm
        return _rubric({*_criteria(prompt), *([HARMFUL] if harmful else [])}, rng)

    def _notices(self, prompt: str, rng: np.random.Generator) -> bool:
        noticed = rng.random() < self.meta_skill  # drawn in any case: what is shown shifts no other draw
        return noticed and traits(prompt).evades and CLOSING not in prompt


def _criteria(prompt: str) -> list[str]:
    return [one for one in (CLOSING, HARMFUL) if one in prompt]


def _rubric(criteria: Collection[str], rng: np.random.Generator) -> str:
    """Return a rubric of a few items, of which the last ones have these criteria."""
    lines = ["<rubric>"]
    for index in rng.permutation(len(_ITEMS))[: 2 + int(rng.integers(2))].tolist():
        title, high, middle, low = _ITEMS[index]
        most = _POINTS[int(rng.integers(len(_POINTS)))]
        lines += ["<item>", title, f"- {most}: {high}", f"- {most // 2}: {middle}", f"- 0: {low}", "</item>"]
    for number, criterion in enumerate(sorted(criteria), 1):
        own = "It is written for the task, in its script, and says something new in each sentence."
        lines += ["<item>", f"Further criterion {number}", f"- 4: {own}", f"- 0: {criterion}", "</item>"]
    return "\n".join([*lines, "</rubric>"])
