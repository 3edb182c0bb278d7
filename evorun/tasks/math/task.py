"""MATH as methods see it: a contest whose problems have a subject, a level and a cluster."""

from collections.abc import Sequence
from pathlib import Path
from typing import Any, ClassVar

from evorun.tasks.base import Problem
from evorun.tasks.math.records import cluster_names
from evorun.tasks.math_contest.task import MathContest


class Math(MathContest):
    """Answers a competition problem in free text that ends in a box; scored under a rubric for each cluster."""

    name = "math"
    prompt_folders: ClassVar[Sequence[Path]] = (Path(__file__).parent / "prompts", *MathContest.prompt_folders)

    def __init__(self, *, clusters: int = 3, **settings: Any) -> None:
        """clusters: of each subject. settings: see `MathContest`."""
        self._clusters = clusters
        super().__init__(**settings)

    def rubric_keys(self) -> tuple[str, ...]:
        """Return a key for each cluster of each subject: 21 with 3 clusters (MPO, section 3.3.3)."""
        return cluster_names(self._clusters)

    def rubric_key(self, problem: Problem) -> str:
        key: str = problem.data["cluster"]
        return key
