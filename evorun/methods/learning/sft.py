"""Supervised fine-tuning on conversations, evaluated on a task: `sft`.

The Lyria paper (section 5) trains LAFT's students in this way, on conversations that `evorun traces` exports; any other
file of conversations will do. The loss is on the assistant's tokens only. TRL's SFTTrainer does the rest; see
`evorun.training.fine_tuning`.
"""

import math
from collections.abc import AsyncIterator, Mapping, Sequence
from dataclasses import dataclass
from functools import cached_property
from pathlib import Path
from typing import Annotated, cast

import msgspec
from msgspec import Meta

from evorun.errors import ConfigError, RunDirectoryError
from evorun.fields import PositiveFloat, PositiveInt
from evorun.methods.base import DatasetLevel
from evorun.methods.context import RunContext
from evorun.methods.learning.evaluation import ROLE, Evaluations, RepeatedEvaluationSettings
from evorun.runs.candidates import Step
from evorun.runs.paths import display
from evorun.runs.records import write_atomically
from evorun.runs.schema import STEPS
from evorun.tasks.base import Problem, Task
from evorun.tasks.capabilities import SupportsGeneration
from evorun.traces import simulated_runs
from evorun.training.base import FineTunedPolicy
from evorun.training.conversations import Conversation, Split, count_examples, read_split
from evorun.training.wire import FineTuning

TRAIN, HELD_OUT = "train.jsonl", "held_out.jsonl"
"""The run's own copies of its data, in artifacts/."""


@dataclass(kw_only=True)
class SftConfig(RepeatedEvaluationSettings):
    """Hyperparameters; `conf/method/sft.yaml` gives each default and its source."""

    name: str
    data: str | None
    """File with one conversation per line: `{"messages": [{"role": ..., "content": ...}, ...]}`."""
    limit: PositiveInt | None
    """Number of conversations to use, from the start of the file; null: all."""
    held_out: Annotated[float, Meta(ge=0, le=0.9)]
    """Share of the conversations held out to measure the loss; 0: none."""
    epochs: PositiveFloat
    batch: PositiveInt
    """Conversations per step."""
    max_length: Annotated[int, Meta(ge=2)]
    """Maximum tokens of a conversation, including its prompt: longer ones are cut, or dropped if no token of an answer
    is left. The model's context length is another limit."""


class Sft(DatasetLevel):
    """Imitates the assistant's answers."""

    name = "sft"
    description = "supervised fine-tuning on conversations, loss on the assistant's tokens (TRL's SFTTrainer)"
    regime = "labels"
    needs = (SupportsGeneration,)
    trains = True
    Config = SftConfig
    config: SftConfig

    def incompatibility(self, task: type[Task]) -> str | None:
        if self.config.data is None:
            return "method.data: expected a file of conversations, got null; set method.data=FILE"
        return None

    def check(self, task: type[Task], validation: Sequence[Problem]) -> None:
        _ = self.split  # reading it raises DataError before any model is loaded

    def warnings(self, calls: int | None, judges: int = 1) -> list[str]:
        lines, empty = [], self.split.empty
        if empty:
            lines.append(f"{self.source}: conversations with an empty answer are left out: {empty}")
        if simulated := simulated_runs(self._file):
            lines.append(
                f"{self.source}: from simulated models, so no language model wrote them: {', '.join(simulated)}"
            )
        return lines

    def make_objective(self, run: Path) -> FineTuning:
        """Return the trainer's objective, and copy the data into artifacts/, so that a resume trains on the same.

        Raises DataError for unusable training data, RunDirectoryError when existing copies differ.
        """
        split = self.split
        return FineTuning(
            train=str(self._copy(run, TRAIN, split.train)),
            held_out=str(self._copy(run, HELD_OUT, split.held_out)) if split.held_out else None,
            source=self.source,
            epochs=self.config.epochs,
            batch=self.config.batch,
            max_length=self.config.max_length,
        )

    async def learn(self, ctx: RunContext) -> AsyncIterator[Mapping[str, Step]]:
        """Measure the loss and evaluate, before training and every few steps; save the weights in artifacts/."""
        evaluations = Evaluations(ctx, self.config)
        policy = cast(FineTunedPolicy, ctx.policy)
        # Before the first step: the untrained loss, and the number of conversations, which decides that of the steps.
        data = await policy.evaluate()
        steps = math.ceil(count_examples(int(data["conversations"]), self.config.epochs) / self.config.batch)
        cut, dropped = int(data["cut"]), int(data["dropped"])
        if cut or dropped:
            ctx.warn(
                f"{self.source}: longer than {self.config.max_length} tokens (method.max_length) or than the model's "
                f"context: conversations that are cut: {cut}; dropped, since no answer begins in time: {dropped}"
            )
        ctx.record(0, {STEPS: float(steps), **_with_perplexity(data)})
        yield await evaluations.evaluate(0)
        for step in range(1, steps + 1):
            figures = dict(await policy.train_step(step))
            evaluated = step == steps
            if not evaluated and self.config.evaluates_after(step):
                needed = 2 * evaluations.max_calls  # for this evaluation and the last one
                evaluated = ctx.shared.affordable(needed, ROLE) == needed
            if evaluated and "held_out_loss" in data:
                held_out = await policy.evaluate()
                kept = ("held_out_loss", "scored_tokens")
                figures |= _with_perplexity({name: value for name, value in held_out.items() if name in kept})
            ctx.record(step, figures)
            if step == steps:
                await policy.export()  # before the evaluation, which may take long
            if evaluated:
                yield await evaluations.evaluate(step)

    @cached_property
    def split(self) -> Split:
        """The conversations. Raises DataError."""
        if self.config.data is None:
            raise ConfigError("method.data: expected a file of conversations, got null; set method.data=FILE")
        return read_split(self._file, limit=self.config.limit, held_out=self.config.held_out)

    @property
    def source(self) -> str:
        """The file of the conversations, as the program shows it."""
        return display(self._file)

    @property
    def _file(self) -> Path:
        return Path(self.config.data or "").expanduser()

    def _copy(self, run: Path, name: str, conversations: Sequence[Conversation]) -> Path:
        """Copy conversations into the run directory, or check that they equal an earlier copy."""
        file = run.resolve() / "artifacts" / name
        content = b"".join(msgspec.json.encode(conversation) + b"\n" for conversation in conversations)
        if file.exists():
            # A resumed run must train on its original data; a changed source would mix two data sets.
            if file.read_bytes() != content:
                raise RunDirectoryError(
                    f"{display(file)} differs from {self.source} as it is now; restore that file, or start a new run"
                )
            return file
        try:
            file.parent.mkdir(parents=True, exist_ok=True)
        except OSError as error:
            raise RunDirectoryError(f"cannot write {display(file)}: {error.strerror}") from error
        write_atomically(file, content)
        return file


def _with_perplexity(figures: Mapping[str, float]) -> dict[str, float]:
    """Add the perplexity of the held-out answers' tokens, where their loss was measured."""
    if "held_out_loss" not in figures:
        return dict(figures)
    # math.exp overflows above 709.
    return {**figures, "held_out_perplexity": math.exp(min(figures["held_out_loss"], 700.0))}
