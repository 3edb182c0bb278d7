"""vLLM's sleep mode: requests and a trainer on the same GPU take turns with its memory.

Each sleep is checked. vLLM 0.27.1 woke with weights other than those that it had put to sleep, and raised nothing
(vllm-project/vllm#53888). So the log-probabilities of a fixed text under the newest weights, the probe, are compared.
"""

import asyncio
import contextlib
import logging
import time
from collections.abc import AsyncIterator, Awaitable, Sequence
from typing import Any, Protocol

from evorun.errors import EngineError, WeightsLost
from evorun.models.base import Waking
from evorun.models.vllm.startup import one_line, vllm_version
from evorun.models.vllm.weights import mean_distance

log = logging.getLogger("evorun")

TOLERANCE = 0.02
"""Largest mean absolute difference of log-probabilities before and after a sleep, in nats. `ours`.

The same weights and the same text alone in a batch give the same figures, but for kernels that add in another order on
each call. That is less than another precision changes: the embedded model is 0.05 nats off in bfloat16. An adapter that
no longer applies is off by its whole effect, and damaged weights by nats.
"""


class Probed(Protocol):
    """Weights that can be probed, and read from disk once more; see `EngineWeights`."""

    received: bool
    """True if no folder has them: they came from a trainer's memory."""

    async def probe(self) -> Sequence[float]:
        """Return the log-probabilities of a fixed text under the newest weights."""
        ...

    async def reload_model(self) -> None:
        """Read the model's weights from disk once more."""
        ...

    async def reload_adapters(self) -> None:
        """Read the loaded adapters from disk once more."""
        ...


class SleepMode:
    """Puts an engine to sleep while another process needs its memory. Belongs to one event loop."""

    def __init__(self, engine: Any, weights: Probed, level: int = 1) -> None:
        """engine: an `AsyncLLM` that was started with `enable_sleep_mode`. level: see `VllmConfig.sleep_level`."""
        self._engine = engine
        self._weights = weights
        self._level = level
        self._before: Sequence[float] | None = None
        """The probe before the sleep; None while the engine is awake."""
        self._wanted = False
        """True while a caller of `asleep` uses the engine's memory or waits for it."""
        self._requests = 0
        self._changed = asyncio.Condition()
        self._wakings: list[Waking] = []
        self._seconds = 0.0
        """That the engine took to fall asleep."""
        self._failure: EngineError | None = None

    @contextlib.asynccontextmanager
    async def awake(self, *, replaces: bool = False) -> AsyncIterator[None]:
        """Keep the engine awake while the block runs; many blocks may run at once.

        replaces: the block replaces all weights, so that dropped ones need not come back. Raises EngineError if the
        engine does not wake, or with other weights, and WeightsLost if it dropped weights that no folder has.
        """
        async with self._changed:
            await self._changed.wait_for(lambda: not self._wanted)
            if self._failure is not None:
                raise self._failure
            if self._before is not None:  # only on a request: consecutive updates without requests need no waking
                if replaces and (self._level == 2 or self._weights.received):
                    waking = self._engine.wake_up()
                elif self._level == 2 and self._weights.received:
                    raise WeightsLost("the sleeping vLLM has dropped the weights that the trainer had sent")
                else:
                    waking = self._wake(self._before)
                await self._carry_out("wake", waking)
                self._before = None
            self._requests += 1
        try:
            yield
        finally:
            self._requests -= 1
            async with self._changed:
                self._changed.notify_all()

    @contextlib.asynccontextmanager
    async def asleep(self) -> AsyncIterator[None]:
        """Let the engine sleep while the block runs: requests in progress finish first, later ones wait.

        Raises EngineError if the engine does not fall asleep.
        """
        async with self._changed:
            await self._changed.wait_for(lambda: not self._wanted)
            self._wanted = True
        try:
            async with self._changed:
                await self._changed.wait_for(lambda: self._requests == 0)
                if self._before is None and self._failure is None:
                    await self._carry_out("sleep", self._fall_asleep())
            yield
        finally:
            self._wanted = False
            async with self._changed:
                self._changed.notify_all()

    def take_wakings(self) -> Sequence[Waking]:
        """Return the wakings since the last call."""
        taken, self._wakings = self._wakings, []
        return taken

    async def _carry_out(self, what: str, action: Awaitable[None]) -> None:
        try:
            await action
        except WeightsLost:  # the engine stays asleep to whoever does not replace them
            raise
        except EngineError as error:
            self._failure = error
            raise
        except Exception as error:
            self._failure = EngineError(f"vLLM {vllm_version()} could not {what}: {one_line(error)}")
            raise self._failure from error

    async def _fall_asleep(self) -> None:
        started = time.perf_counter()
        before = await self._weights.probe()
        await self._engine.sleep(level=self._level)  # drops cached keys and values at each level
        self._before = before
        self._seconds = time.perf_counter() - started

    async def _wake(self, before: Sequence[float]) -> None:
        started = time.perf_counter()
        if self._level == 1:
            await self._engine.wake_up()
        else:
            # The cache's memory last: to read weights takes memory of its own.
            await self._engine.wake_up(tags=["weights"])
            await self._weights.reload_model()
            await self._engine.wake_up(tags=["kv_cache"])
            await self._weights.reload_adapters()
        distance, reloads = mean_distance(before, await self._weights.probe()), 0
        if not distance <= TOLERANCE and self._weights.received:
            self._note_waking(started, distance, reloads=1)
            raise WeightsLost(f"vLLM woke with other weights than the trainer had sent ({_describe(distance)})")
        if not distance <= TOLERANCE:  # also if it is NaN
            log.warning("vLLM woke with other weights (%s); they are read from disk once more", _describe(distance))
            await self._weights.reload_model()
            await self._weights.reload_adapters()
            reloads += 1
            distance = mean_distance(before, await self._weights.probe())
        if not distance <= TOLERANCE:
            raise EngineError(
                f"vLLM woke with other weights, even after they were read from disk once more ({_describe(distance)}); "
                f"set engine.sleep_level={3 - self._level}, or give engine and trainer GPUs of their own "
                "(engine.devices, training.devices); evorun resume continues the run"
            )
        self._note_waking(started, distance, reloads)

    def _note_waking(self, started: float, distance: float, reloads: int) -> None:
        seconds = self._seconds + time.perf_counter() - started
        self._wakings.append(Waking(seconds=seconds, distance=distance, reloads=reloads))


def _describe(distance: float) -> str:
    return (
        f"a fixed text's log-probabilities are {distance:.3g} nats from those before, expected at most {TOLERANCE}; "
        f"vLLM {vllm_version()}"
    )
