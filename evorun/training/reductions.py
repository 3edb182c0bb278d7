"""Smaller passes after memory has run out in the trainer: what is reduced, and its record in the journal.

Passes change results only by rounding. A reduction holds for the rest of the run, also after a resume, so that the
weights that a resumed run computes again are those that the trainer computed after the reduction.
"""

from typing import Literal

import msgspec

from evorun.errors import TrainingError
from evorun.models.transformers.engine import TransformersConfig
from evorun.runs.call_keys import CallKey
from evorun.runs.candidates import SHARED
from evorun.runs.journal import Journal
from evorun.runs.journal_file import Effect, digest_request
from evorun.runs.manifest import SmallerPasses
from evorun.training.config import TrainingConfig
from evorun.training.failures import OutOfMemory
from evorun.training.wire import Command, Evaluate, Generate, Train

Setting = Literal["training.micro_batch_tokens", "engine.max_batch_size"]


class Reductions:
    """The reductions of a run, and the sizes of passes that follow from them."""

    def __init__(self, journal: Journal, training: TrainingConfig, engine: TransformersConfig) -> None:
        self._journal = journal
        self._weights = training.weights
        self._configured: dict[str, int] = {
            "training.micro_batch_tokens": training.micro_batch_tokens,
            "engine.max_batch_size": engine.max_batch_size,
        }
        self._made: list[SmallerPasses] = []
        recorded = journal.keys()
        for key in (key for key in recorded if f"|{_NAME}|" in key):
            result = journal.get(key, _DIGEST, _REQUEST)
            if result is not None:
                self._made.append(msgspec.json.decode(result, type=SmallerPasses))

    @property
    def micro_batch_tokens(self) -> int:
        """`training.micro_batch_tokens`, or what it was reduced to."""
        return self._value("training.micro_batch_tokens")

    @property
    def max_batch_size(self) -> int:
        """The number of completions decoded together, or what it was reduced to."""
        return self._value("engine.max_batch_size")

    async def reduce(self, command: Command, update: int, error: OutOfMemory) -> SmallerPasses:
        """Halve the passes of a command in which memory ran out, and record it.

        Raises TrainingError, with what to set, if the passes cannot be smaller.
        """
        setting: Setting
        if isinstance(command, Train | Evaluate):
            setting, before = "training.micro_batch_tokens", min(error.tokens, self.micro_batch_tokens)
        elif isinstance(command, Generate):
            setting, before = "engine.max_batch_size", min(error.rows, self.max_batch_size)
        else:
            raise self.advise(command, error) from error
        if error.rows < 2:
            raise self.advise(command, error) from error
        made = SmallerPasses(
            update=update,
            command=type(command).__name__.lower(),
            setting=setting,
            configured=self._configured[setting],
            reduced=before // 2,
            reason=str(error),
        )
        key = str(CallKey(SHARED, update, _NAME, len(self._made), 0))
        await self._journal.put(Effect(key, _DIGEST, _REQUEST, msgspec.json.encode(made), None, 0.0))
        self._made.append(made)
        return made

    def advise(self, command: Command | None, error: OutOfMemory) -> TrainingError:
        """Return the error with what to set. command: None while the trainer starts."""
        if isinstance(command, Train | Evaluate) and error.rows > 1:
            advice = f"set training.micro_batch_tokens={error.tokens // 2}"
        elif isinstance(command, Train | Evaluate) and error.rows:
            advice = (
                "a single sequence does not fit: set training.gradient_checkpointing=true, or lower the maximum length "
                "(method.max_tokens, method.max_length)"
            )
        elif isinstance(command, Generate):
            advice = f"set engine.max_batch_size={max(error.rows // 2, 1)}"
        else:
            smaller = "lower training.rank"
            if self._weights == "full":
                smaller = "set training.reference=cpu, train an adapter (training.weights=lora)"
            advice = (
                f"set training.precision=bfloat16, {smaller}, or let engine=vllm leave more of a shared GPU "
                "(engine.gpu_memory_utilization, engine.sleep=true)"
            )
        return TrainingError(f"{error}; {advice}")

    def figures(self, update: int) -> dict[str, float]:
        """Return the figures of an update in which memory ran out; empty for others."""
        here = [made for made in self._made if made.update == update and made.command == "train"]
        if not here:
            return {}
        return {"memory_retries": float(len(here)), "micro_batch_tokens": float(here[-1].reduced)}

    def _value(self, setting: Setting) -> int:
        # A user who has changed the setting since knows better, as on another machine.
        configured = self._configured[setting]
        return min([configured, *(m.reduced for m in self._made if (m.setting, m.configured) == (setting, configured))])


_NAME = "smaller_passes"
_REQUEST = b'{"reduce":"passes"}'
_DIGEST = digest_request(_REQUEST)
