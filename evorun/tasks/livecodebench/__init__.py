"""LiveCodeBench: programming problems of three difficulties, answered by programs that hidden tests grade."""

from evorun.tasks.livecodebench.config import LiveCodeBenchConfig

__all__ = ["LiveCodeBenchConfig"]
