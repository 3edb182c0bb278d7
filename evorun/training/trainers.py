"""The trainers behind the wire: TRL on this machine, or a server that speaks Tinker's API.

A trainer gets the messages of `evorun.training.wire`, one at a time, and answers each. All that a run knows of its
weights goes through them, so that resume, journal and methods are the same for every trainer.
"""

from collections.abc import Awaitable, Callable, Mapping
from pathlib import Path
from typing import Any, Protocol

from evorun.training.process import TrainerProcess
from evorun.training.wire import Answer, Command, Job, Send


class Trainer(Protocol):
    """Holds the weights under training."""

    async def ask(self, command: Command) -> Answer:
        """Return the answer to a command.

        Train and Evaluate are answered by Figures, Generate by Replies, Save, Export and Finish by Done. Raises
        TrainingError if the trainer fails or has ended, ConfigError if the same settings will always fail.
        """
        ...

    async def send(self, command: Send, call: Callable[[str, Mapping[str, Any]], Awaitable[None]]) -> None:
        """Send all weights to an engine from memory. call: carries out a step of the engine's (`WeightReceiver.call`).

        Raises what `call` and `ask` raise.
        """
        ...

    async def close(self) -> None:
        """Release what it holds; idempotent."""
        ...


async def start_trainer(job: Job, log: Path) -> Trainer:
    """Start the trainer that the job's settings name, and return it once it holds the weights.

    log: file for its output. Raises TrainingError or ConfigError with one line if it cannot start.
    """
    if job.training.backend == "tinker":
        # Imported here: its package takes seconds.
        from evorun.training.tinker.trainer import TinkerTrainer

        return await TinkerTrainer.start(job)
    return await TrainerProcess.start(job, log)
