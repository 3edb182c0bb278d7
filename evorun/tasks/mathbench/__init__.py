"""MathBench: four-option mathematics questions of three stages, answered, improved and compared."""
