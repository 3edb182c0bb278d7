"""How much the system prompts of a population differ, and a fitness that is worth more where they do."""

from collections.abc import Sequence
from itertools import combinations

import numpy as np
import numpy.typing as npt

from evorun.methods.espl.system_prompts import SystemPrompt

Floats = npt.NDArray[np.float64]


def shared_fitness(scores: Floats) -> Floats:
    """Return the fitness of each row of a score matrix [prompts, problems], where a problem's worth is shared.

    Each problem is worth the same, and is divided among the system prompts in proportion to their scores on it: one
    that alone solves a problem gets all of it. Scores below 0 count from the lowest of their problem on. Source: Smith,
    Forrest and Perelson (1993), "Searching for diverse, cooperative populations with genetic algorithms", whose rule
    for matching antibodies is this one, with degrees.
    """
    above = scores - np.minimum(scores.min(axis=0), 0)
    total = above.sum(axis=0)
    shares = np.divide(above, total, out=np.zeros_like(above), where=total > 0)
    return np.asarray(shares.mean(axis=1), dtype=np.float64)


def genotypic_diversity(prompts: Sequence[SystemPrompt]) -> float | None:
    """Return the mean Jaccard distance between the sets of principles of two prompts, in [0, 1]; None below two."""
    sets = [set(one.principles) for one in prompts]
    distances = [1 - len(a & b) / len(a | b) if a | b else 0.0 for a, b in combinations(sets, 2)]
    return float(np.mean(distances)) if distances else None


def phenotypic_diversity(scores: Floats) -> float | None:
    """Return the mean absolute difference between two rows of a score matrix [prompts, problems]; None below two."""
    distances = [np.abs(a - b).mean() for a, b in combinations(scores, 2)]
    return float(np.mean(distances)) if distances else None
