"""Judges that are no language models: a plug-in's code compares two answers and gives the verdict.

A package offers one as an entry point in the group `evorun.judges`, and `judge=NAME` chooses it wherever a method or a
study asks a judge. Its verdicts go through the journal, and each counts as a call.
"""

from dataclasses import dataclass
from typing import Protocol

from evorun.models.config import EngineConfig
from evorun.tasks.base import Problem
from evorun.tasks.capabilities import Judgment


class Judge(Protocol):
    """Compares two answers to a problem. Safe for many calls at once."""

    async def compare(self, problem: Problem, first: str | None, second: str | None, seed: int) -> Judgment:
        """Return `A` where the first answer is better, `B` where the second one is, `T` for a tie, and why.

        first, second: None where a response had no readable answer. seed: the same call has the same seed, and must
        have the same verdict. An exception ends the run.
        """
        ...

    async def close(self) -> None:
        """Release what the judge holds; idempotent."""
        ...


@dataclass
class JudgeConfig(EngineConfig):
    """Base of a judge's settings: a plug-in's subclass, whose defaults take the place of a YAML file.

    `judge=NAME judge.KEY=VALUE` sets them. Give the subclass `name: str = "NAME"`.
    """

    section = "judge"
    by_code = True

    def make(self) -> Judge:
        """Return a judge with these settings. Raises ConfigError or EngineError when something is missing."""
        raise NotImplementedError
