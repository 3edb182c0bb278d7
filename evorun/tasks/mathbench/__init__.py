"""MathBench: four-option mathematics questions of three stages, answered, improved and compared."""

from evorun.tasks.mathbench.config import MathBenchConfig

__all__ = ["MathBenchConfig"]
