"""Principles in the system prompts of simulated models: some help, some harm, and only the simulator knows which."""

from collections.abc import Mapping
from functools import lru_cache

import numpy as np

from evorun.simulation.settings import World

CATALOGUE = (
    "Restate what is asked before the first step.",
    "Name every unknown and say what it may be.",
    "Solve the smallest case first.",
    "Draw the situation, or list its parts.",
    "Write down what stays the same throughout.",
    "Look for a symmetry and use it.",
    "Count the same thing in two ways.",
    "Split the problem into cases that do not overlap.",
    "Work backwards from what is asked.",
    "Check parity and remainders early.",
    "Bound the answer before you compute it.",
    "Replace numbers by letters, and solve that.",
    "Try the extreme values.",
    "Test a formula on a case that you can count.",
    "Keep fractions exact until the end.",
    "Put the answer into the conditions given.",
    "Solve it a second way and compare.",
    "Name the fact behind each step.",
    "Stop at the first answer that looks right.",
    "Skip the steps that seem obvious.",
    "Round every number to two digits.",
    "Guess a pattern from the first three terms.",
    "Prefer the longest derivation.",
    "Answer at once, then explain.",
)
"""All principles that simulated reflections write. None is part of another, or of the texts of GEPA's reflections."""


def merit(world: World, text: str) -> float:
    """Return the gain in `skill` from the principles in a text, each counted once, without training's effect."""
    merits = _merits(world.principle_seed or 0, world.helpful_principles, world.harmful_principles)
    return world.principle_gain * sum(merits[principle] for principle in find_principles(text))


def merit_when_trained(world: World, text: str, trained: float) -> float:
    """Return the same for weights whose updates have reached the share `trained` of their maximum gain."""
    missing = max(0.0, world.interaction)  # the share of their value that principles lack without training
    return merit(world, text) * (1 - missing + world.interaction * trained)


@lru_cache(maxsize=10_000)  # thousands of consecutive requests have the same system prompt
def find_principles(text: str) -> tuple[str, ...]:
    """Return the catalogue's principles that a text contains."""
    return tuple(principle for principle in CATALOGUE if principle in text)


@lru_cache(maxsize=100)
def _merits(seed: int, helpful: float, harmful: float) -> Mapping[str, float]:
    """Return the merit of each of the catalogue's principles: on average 1 for helpful ones, -1 for harmful ones."""
    rng = np.random.default_rng(seed)
    order, count = rng.permutation(len(CATALOGUE)).tolist(), len(CATALOGUE)
    sizes = rng.uniform(0.5, 1.5, count).tolist()
    helping, harming = round(helpful * count), round(harmful * count)
    signs = [1] * helping + [-1] * min(harming, count - helping) + [0] * (count - helping - harming)
    return {CATALOGUE[index]: sign * size for index, sign, size in zip(order, signs, sizes, strict=False)}
