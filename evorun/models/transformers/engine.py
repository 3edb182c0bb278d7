"""The `transformers` engine: a Hugging Face causal language model in this process, on CPU or GPU.

One worker thread decodes the requests in flight together (`batch_decoder`), so the event loop never blocks.
"""

import asyncio
import contextlib
import gc
import logging
import os
import queue
import sys
import threading
import traceback
from collections.abc import Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Annotated, Any

from evorun.errors import EngineError, first_line
from evorun.fields import NonNegativeInt, OneOf, PositiveInt
from evorun.models.adapters import merge_adapter, read_adapter
from evorun.models.base import Reply, Request
from evorun.models.chat import require_chat_template
from evorun.models.config import EngineConfig, ModelConfig
from evorun.models.devices import check_devices, device_environment
from evorun.models.embedded import resolve
from evorun.models.memory import format_size, is_out_of_memory, measure_memory
from evorun.models.requirements import find_missing_packages, require_weights

if TYPE_CHECKING:
    from evorun.models.transformers.batch_decoder import BatchDecoder, Ticket

log = logging.getLogger("evorun")

PACKAGES = ("torch", "transformers", "llguidance")


@dataclass
class TransformersConfig(EngineConfig):
    """Schema of `conf/engine/transformers.yaml`."""

    is_trainer = True
    holds_weights = True

    name: str = "transformers"
    device: Annotated[str, OneOf(("auto", "cpu", "cuda"))] = "auto"
    """auto (a GPU when there is one) | cpu | cuda."""
    devices: list[int] | None = None
    """GPUs that share the layers, numbered as this process sees them; null: those of the plan, else all."""
    max_batch_size: PositiveInt = 32
    """Completions decoded together. A larger batch is faster until memory runs out."""
    prefix_cache_tokens: NonNegativeInt = 32768
    """Prompt tokens whose keys and values are cached, so that common prefixes are processed once (46 kB per token for
    the embedded model)."""
    threads: PositiveInt | None = None
    """CPU threads; null: torch and OMP_NUM_THREADS decide."""
    attention: str | None = None
    """An attention implementation of transformers (sdpa, eager, flash_attention_2, ...), or null for the model's own
    default."""

    def __post_init__(self) -> None:
        super().__post_init__()
        check_devices("engine.devices", self.devices)

    @property
    def planned_gpus(self) -> Sequence[int]:
        return self.devices or ()

    @property
    def loads_weights(self) -> bool:
        return self.device != "cpu"

    def renders_prompts(self, model: ModelConfig, *, trains: bool) -> bool:
        return True

    def require(self, model: ModelConfig) -> None:
        for package in find_missing_packages(PACKAGES if model.adapter is None else (*PACKAGES, "peft")):
            extra = "train" if package == "peft" else "transformers"
            raise EngineError(
                f"engine=transformers: the package {package} is not installed; run `pip install 'evorun[{extra}]'` or "
                "use another engine"
            )
        device_environment("engine.devices", self.devices)  # refuses GPUs that are not there
        require_weights(model)

    async def open(self, model: ModelConfig) -> "TransformersModel":
        """Load the weights in a worker thread. Raises EngineError when the weights or the device are unavailable."""
        served = TransformersModel(self, model)
        try:
            await served.ready()
        except BaseException:
            await served.close()
            raise
        return served


class TransformersModel:
    """A model in this process; implements `LanguageModel`. Not bound to an event loop."""

    def __init__(self, engine: TransformersConfig, model: ModelConfig) -> None:
        self.name = model.identity
        self._inbox: queue.SimpleQueue[Ticket | None] = queue.SimpleQueue()
        self._loaded = threading.Event()
        self._lock = threading.Lock()
        self._unanswered: set[Ticket] = set()
        self._failure: EngineError | None = None
        # A daemon, so that a process that forgets to close the model can still exit.
        self._worker = threading.Thread(target=self._serve, args=(engine, model), name="transformers", daemon=True)
        self._worker.start()

    async def ready(self) -> None:
        """Wait until the weights are loaded. Raises EngineError when loading fails."""
        await asyncio.to_thread(self._loaded.wait)
        if self._failure is not None:
            raise self._failure

    async def complete(self, request: Request) -> Reply:
        from evorun.models.transformers.batch_decoder import Ticket

        loop = asyncio.get_running_loop()
        answer: asyncio.Future[Reply] = loop.create_future()

        def deliver(result: Reply | EngineError) -> None:
            # The caller's loop may be closed by now; then nobody waits for the answer.
            with contextlib.suppress(RuntimeError):
                loop.call_soon_threadsafe(_settle, answer, result)

        ticket = Ticket(request, deliver)
        with self._lock:
            if self._failure is not None:
                raise EngineError(str(self._failure))  # a shared object would collect the tracebacks of many tasks
            # The worker ends under the same lock: a ticket is either refused here or answered there.
            self._unanswered.add(ticket)
        self._inbox.put(ticket)
        try:
            return await answer
        finally:
            ticket.cancelled = True
            with self._lock:
                self._unanswered.discard(ticket)

    async def close(self) -> None:
        """Stop the worker and free the model; calls in flight end with EngineError."""
        self._inbox.put(None)
        await asyncio.to_thread(self._worker.join)

    def _serve(self, engine: TransformersConfig, model: ModelConfig) -> None:
        """Load the model and decode until closed. This is the worker thread's main function."""
        failure = EngineError(f"model '{model.id}': the transformers engine has been closed")
        try:
            self._load_and_decode(engine, model)
        except Exception as error:
            # Keep a fresh error: the frames of this one's traceback, and of its causes, hold the weights.
            log.info("the transformers engine ends: %s", traceback.format_exc())
            failed = f"model '{model.id}': the transformers engine failed: {first_line(error)}"
            failure = EngineError(str(error) if isinstance(error, EngineError) else failed)
        finally:
            with self._lock:
                self._failure = failure
                unanswered = list(self._unanswered)
            self._loaded.set()
            for ticket in unanswered:
                ticket.deliver(failure)
            # The decoder's frame has ended, so nothing refers to the model; return its memory to the device.
            gc.collect()
            torch = sys.modules.get("torch")  # not imported if loading failed before
            if torch is not None and torch.cuda.is_available():
                torch.cuda.empty_cache()

    def _load_and_decode(self, engine: TransformersConfig, model: ModelConfig) -> None:
        decoder = _load(engine, model)
        self._loaded.set()

        import torch

        with torch.inference_mode():
            try:
                self._decode(decoder)
                return
            except Exception as error:
                if not is_out_of_memory(error):
                    raise
                lack = _describe_lack(model, engine, decoder, error)
                smaller = decoder.in_flight // 2
                if not smaller:
                    raise EngineError(lack) from error
            # Outside the handler, whose traceback holds the tensors of the failed step.
            log.warning("%s; trying again, once, with engine.max_batch_size=%d", lack, smaller)
            decoder.restart(smaller)
            gc.collect()
            if torch.cuda.is_available():
                torch.cuda.empty_cache()
            try:
                self._decode(decoder)
            except Exception as error:
                if not is_out_of_memory(error):
                    raise
                raise EngineError(_describe_lack(model, engine, decoder, error)) from error

    def _decode(self, decoder: "BatchDecoder") -> None:
        """Decode until the engine is closed."""
        while True:
            # Blocks if there is nothing to decode; otherwise takes all waiting tickets, which join this step.
            while not decoder.busy or not self._inbox.empty():
                ticket = self._inbox.get()
                if ticket is None:
                    return
                decoder.submit(ticket)
            decoder.step()


def _describe_lack(model: ModelConfig, engine: TransformersConfig, decoder: "BatchDecoder", error: Exception) -> str:
    """Return the sizes when memory ran out in a step of decoding, and what to set."""
    return (
        f"model '{model.id}': the transformers engine ran out of memory: {measure_memory(error)}; weights "
        f"{format_size(decoder.weights)}, {decoder.in_flight} completions decoded together; lower engine.max_batch_size"
        f"={engine.max_batch_size} or engine.prefix_cache_tokens={engine.prefix_cache_tokens}"
    )


def _settle(answer: "asyncio.Future[Reply]", result: Reply | EngineError) -> None:
    if answer.done():  # cancelled meanwhile
        return
    if isinstance(result, EngineError):
        answer.set_exception(result)
    else:
        answer.set_result(result)


def _load(engine: TransformersConfig, model: ModelConfig) -> "BatchDecoder":
    """Load weights and tokenizer. Raises EngineError with one line when that fails."""
    # torch's OpenMP reads it at its start: threads that spin while they wait are very slow on shared cores.
    os.environ.setdefault("OMP_WAIT_POLICY", "PASSIVE")
    try:
        import torch
        from transformers import AutoModelForCausalLM, AutoTokenizer
        from transformers.utils.logging import disable_progress_bar

        from evorun.models.transformers.batch_decoder import BatchDecoder
        from evorun.models.transformers.kv_cache import use_grouped_attention
    except ImportError as error:
        raise EngineError(
            f"engine=transformers: {first_line(error)}; run `pip install 'evorun[transformers]'` or use another engine"
        ) from error

    device = choose_device(engine.device)
    if engine.threads is not None:
        torch.set_num_threads(engine.threads)
    path = resolve(model)
    # On a CPU `auto` means float32: half precision is slow on most CPUs, and wrong on some.
    dtype = getattr(torch, model.dtype) if model.dtype != "auto" else "auto" if device == "cuda" else torch.float32
    disable_progress_bar()  # type: ignore[no-untyped-call]
    try:
        tokenizer = AutoTokenizer.from_pretrained(path, trust_remote_code=False)
        weights: Any = AutoModelForCausalLM.from_pretrained(
            path,
            dtype=dtype,
            attn_implementation=engine.attention,
            **(_placement(engine.devices) if device == "cuda" else {}),
            trust_remote_code=False,
        )
    except Exception as error:
        raise EngineError(f"model '{model.id}': transformers cannot load it: {first_line(error)}") from error
    require_chat_template(tokenizer, model)
    if model.adapter is not None:
        weights = merge_adapter(weights, read_adapter(model.adapter), model.id)
    weights.eval()
    use_grouped_attention(weights)
    return BatchDecoder(weights, tokenizer, model, engine.max_batch_size, engine.prefix_cache_tokens)


def _placement(devices: list[int] | None) -> dict[str, Any]:
    """Return the arguments of transformers that put a model on GPUs; None: on all of them."""
    import torch

    if devices is None:
        return {"device_map": "auto"}
    if len(devices) == 1:
        return {"device_map": {"": devices[0]}}
    return {"device_map": "auto", "max_memory": {device: torch.cuda.mem_get_info(device)[0] for device in devices}}


def choose_device(asked: str) -> str:
    """Return `cuda` or `cpu` for `engine.device`. Raises EngineError if it is `cuda` and there is no GPU."""
    import torch

    available = torch.cuda.is_available()
    if asked == "cuda" and not available:
        raise EngineError("engine.device: cuda was asked for, torch finds no GPU here; use engine.device=cpu")
    return "cuda" if available and asked != "cpu" else "cpu"
