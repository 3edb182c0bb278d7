"""The weights that a vLLM engine holds: its model's, which training may replace, and those of adapters."""

import itertools
import math
from collections import deque
from collections.abc import Awaitable, Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import Any

from evorun.errors import EngineError
from evorun.models.adapters import HELD, Adapter
from evorun.models.base import Message, Request, WeightReceiver
from evorun.models.config import ModelConfig
from evorun.models.embedded import resolve
from evorun.models.vllm.startup import is_cpu_build, one_line, vllm_version

PROBE = Request(
    messages=(
        Message(
            role="user",
            content="A train leaves at 7:15 and arrives at 9:40. It stops three times, four minutes each. How long "
            "does it move? Explain each step, then write the answer on a line of its own.",
        ),
    )
)
"""The text whose log-probabilities show what weights an engine has; `ours`."""


_STARTS = itertools.count(1)


class EngineWeights:
    """Loads, replaces and probes the weights of one engine. Belongs to one event loop."""

    def __init__(
        self,
        engine: Any,
        model: ModelConfig,
        token_ids: Callable[[Request], Awaitable[list[int]]],
        replicas: int = 1,
        held_adapters: int = HELD,
        processes: int = 1,
    ) -> None:
        """engine: an `AsyncLLM`. token_ids: returns a request's prompt. replicas: data-parallel copies of the model.

        held_adapters: the most adapters that stay loaded. processes: of the engine, each on a GPU of its own.
        """
        self.number = next(_STARTS)
        self.processes = processes
        self.received = False
        """True if a trainer's memory was the source of the weights, so that no folder has them."""
        self._engine = engine
        self._model = model
        self._token_ids = token_ids
        self._replicas = replicas
        self.held_adapters = held_adapters
        self._folder: Path | None = None
        """Of the weights that replaced the model's own."""
        self._adapters: deque[Any] = deque()
        """The loaded adapters, as `LoRARequest`s; the newest is the last."""
        self._ids = itertools.count(1)
        self._probes = itertools.count()

    def holds(self, lora: Any) -> bool:
        """Return whether an adapter is loaded."""
        return any(lora.lora_int_id == loaded.lora_int_id for loaded in self._adapters)

    async def load_adapter(self, adapter: Adapter) -> Any:
        """Load an adapter in place of the oldest one; return the `LoRARequest` to send with its requests.

        Raises EngineError when vLLM cannot.
        """
        from vllm.lora.request import LoRARequest

        # Each load gets a new id, because vLLM never reads the weights of a known id again. The name identifies the
        # weights, because vLLM reuses a prompt's cached keys and values under the same name and path.
        name, number, folder = adapter.served_name, next(self._ids), str(adapter.folder)
        lora = LoRARequest(name, number, folder, is_3d_lora_weight=adapter.stacks_experts)
        with self._explaining(f"serve it under adapter {adapter.folder}"):
            if len(self._adapters) == self.held_adapters:
                await self._engine.remove_lora(self._adapters.popleft().lora_int_id)
            # Load it before its first request: vLLM's engine process dies if a request fails to load an adapter.
            await self._engine.add_lora(lora)
        self._adapters.append(lora)
        return lora

    async def replace(self, folder: Path) -> None:
        """Replace the model's weights by those in a folder, while no request is in progress.

        Raises EngineError when vLLM cannot load them.
        """
        await self.reload_model(folder)
        await self._forget_prompts()
        self._folder, self.received = folder, False
        self._adapters.clear()  # vLLM drops them, since they belong to the former weights

    async def receive(self, send: Callable[[WeightReceiver], Awaitable[None]]) -> None:
        """Let a trainer replace the model's weights by those in its memory, while no request is in progress.

        Raises EngineError when vLLM cannot take them.
        """
        self._folder, self.received = None, True
        await send(self)
        if is_cpu_build():
            await self._engine.collective_rpc("repack_output_layer")
        await self._forget_prompts()
        self._adapters.clear()

    async def call(self, step: str, payload: Mapping[str, Any]) -> None:
        """Carry out a step of a transfer in all processes; see `WeightReceiver`."""
        with self._explaining("take weights from the trainer's memory"):
            await self._engine.collective_rpc(step, kwargs=dict(payload))

    async def _forget_prompts(self) -> None:
        # Keys and values of the former weights.
        if not await self._engine.reset_prefix_cache():
            raise EngineError(f"model '{self._model.id}': its weights were replaced while requests were in progress")

    async def reload_model(self, folder: Path | None = None) -> None:
        """Read the model's weights from disk once more, or those in a folder, without adapters.

        Raises EngineError when vLLM cannot.
        """
        path = folder or self._folder
        with self._explaining(f"load {path or 'its weights'} while it runs"):
            await self._engine.collective_rpc(
                "reload_weights", kwargs={} if path is None else {"weights_path": str(path)}
            )
            if is_cpu_build():
                await self._engine.collective_rpc("repack_output_layer")

    async def reload_adapters(self) -> None:
        """Read the loaded adapters from disk once more. Raises EngineError when vLLM cannot."""
        for lora in self._adapters:
            with self._explaining(f"load adapter {lora.lora_path} again"):
                await self._engine.remove_lora(lora.lora_int_id)  # vLLM does not read a known adapter again
                await self._engine.add_lora(lora)

    async def probe(self) -> list[float]:
        """Return the log-probabilities of `PROBE`'s tokens under the newest weights, of all replicas in turn."""
        from vllm import SamplingParams
        from vllm.inputs import tokens_input

        prompt = await self._token_ids(PROBE)
        # Of the prompt, which vLLM then computes anew: sampled tokens might differ, and cached keys and values tell
        # nothing of the weights.
        parameters = SamplingParams(max_tokens=1, temperature=0.0, prompt_logprobs=0)
        found: list[float] = []
        for replica in range(self._replicas):
            final = None
            async for output in self._engine.generate(
                tokens_input(prompt),
                parameters,
                f"probe-{next(self._probes)}",
                lora_request=self._adapters[-1] if self._adapters else None,
                data_parallel_rank=replica if self._replicas > 1 else None,
            ):
                final = output
            assert final is not None  # noqa: S101 - vLLM answers or raises
            positions = zip(prompt[1:], final.prompt_logprobs[1:], strict=True)
            found += [float(position[token].logprob) for token, position in positions]
        return found

    @contextmanager
    def _explaining(self, work: str) -> Iterator[None]:
        """Raise EngineError for any error of vLLM's in the block, whose work completes `vLLM cannot ...`."""
        try:
            yield
        except Exception as error:
            raise EngineError(
                f"model '{self._model.id}': vLLM {vllm_version()} cannot {work}: {one_line(error)}"
            ) from error


def mean_distance(first: Sequence[float], second: Sequence[float]) -> float:
    """Return the mean absolute difference of two probes, in nats; NaN where a log-probability is none."""
    return math.fsum(abs(a - b) for a, b in zip(first, second, strict=True)) / len(first)


def require_same_shapes(folder: Path, model: ModelConfig) -> None:
    """Raise EngineError unless a folder holds weights with the shapes of a model's own, where those are on disk."""
    found = _read_shapes(folder)
    if not found:
        raise EngineError(f"weights in {folder}: expected *.safetensors, found none; export the model again")
    own = Path(resolve(model))
    expected = _read_shapes(own) if own.is_dir() else {}
    shared = found.keys() & expected.keys()
    if expected and not shared:
        raise EngineError(
            f"weights in {folder}: expected those of model '{model.id}', got tensors of other names, such as "
            f"{min(found)}; train the model that the engine serves"
        )
    for name in sorted(shared):
        if found[name] != expected[name]:
            raise EngineError(
                f"weights in {folder}: expected {name} of shape {expected[name]} as in model '{model.id}', got "
                f"{found[name]}; train the model that the engine serves"
            )


def _read_shapes(folder: Path) -> dict[str, list[int]]:
    """Return the shapes of a folder's tensors by name; reads only the files' headers."""
    from safetensors import SafetensorError, safe_open

    shapes: dict[str, list[int]] = {}
    for path in sorted(folder.glob("*.safetensors")):
        try:
            with safe_open(path, framework="np") as file:
                shapes |= {name: file.get_slice(name).get_shape() for name in file.keys()}  # noqa: SIM118 - no mapping
        except SafetensorError as error:
            raise EngineError(f"weights in {folder}: {path.name} is broken: {error}; export the model again") from error
    return shapes
