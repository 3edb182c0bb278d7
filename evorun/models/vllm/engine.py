"""The `vllm` engine: vLLM's asynchronous engine in a separate process, on this machine's GPUs (or its CPU build)."""

import asyncio
import contextlib
import itertools
import time
from collections.abc import Awaitable, Callable, Sequence
from dataclasses import dataclass, field, replace
from functools import partial
from pathlib import Path
from typing import Annotated, Any

from jinja2 import TemplateError
from msgspec import UNSET, Meta

from evorun.errors import ConfigError, EngineDied, EngineError
from evorun.fields import NonNegativeInt, OneOf, PositiveFloat, PositiveInt
from evorun.models.adapters import HELD, Adapter, ModelUnderAdapter, read_adapter, served_rank
from evorun.models.base import Completion, LanguageModel, Reply, Request, Waking, WeightReceiver, make_rejection
from evorun.models.channels import find_channels
from evorun.models.chat import PromptTokenizer
from evorun.models.confidence import confidence_fields
from evorun.models.config import EngineConfig, GpuUse, ModelConfig
from evorun.models.devices import check_devices, device_environment
from evorun.models.memory import GIB
from evorun.models.requirements import find_missing_packages, require_weights
from evorun.models.vllm.collecting import Collected, sampling_parameters
from evorun.models.vllm.failures import Diagnosis, EngineErrors
from evorun.models.vllm.sleep import SleepMode
from evorun.models.vllm.startup import (
    adapter_arguments,
    is_cpu_build,
    one_line,
    prepare,
    require_adapter_fit,
    start_engine,
)
from evorun.models.vllm.weights import EngineWeights, require_same_shapes

# `extra_args` may not set these too: a reader of the config would see only one of two values.
OWN_ARGUMENTS = {
    "model": "model.id",
    "dtype": "model.dtype",
    "quantization": "model.quantization",
    "tensor_parallel_size": "engine.tensor_parallel_size",
    "data_parallel_size": "engine.replicas",
    "gpu_memory_utilization": "engine.gpu_memory_utilization",
    "max_num_seqs": "engine.max_num_seqs",
    "max_model_len": "engine.max_model_len",
    "enforce_eager": "engine.enforce_eager",
    "seed": "engine.seed",
    "logprobs_mode": "engine.logprobs",
    "kv_cache_memory_bytes": "engine.cpu_kv_cache_gib",
    "enable_lora": "engine.lora_rank",
    "max_lora_rank": "engine.lora_rank",
    "max_loras": "engine.held_adapters",
    "device_ids": "engine.devices",
    "enable_sleep_mode": "engine.sleep",
}
"""vLLM's arguments with a configuration key in evorun."""

# Never passed on: vLLM reads the format from the checkpoint and picks the fastest kernel for the GPU. Naming the format
# may force a slower kernel.
CHECKPOINT_FORMATS = ("awq", "compressed-tensors", "gptq", "mxfp4")
"""Quantisations that exist only in checkpoints; others (`fp8`) can also be applied while loading."""

DEFAULT_SHARE = 0.9
"""Fraction of a GPU's memory that vLLM takes unless told otherwise."""


@dataclass
class VllmConfig(EngineConfig):
    """vLLM on local GPUs, prefix caching on (schema of `conf/engine/vllm.yaml`).

    The model's configuration gives dtype and quantisation; vLLM reads missing values from the model folder.
    """

    served_by_vllm = True
    takes_weights = True
    holds_weights = True

    name: str = "vllm"
    tensor_parallel_size: PositiveInt | None = None
    """GPUs that share the weights of a replica; null: as few as hold the model (`evorun plan` shows it)."""
    replicas: PositiveInt | None = None
    """Data-parallel copies of the model; a request goes to the least loaded one. null: as many as the GPUs allow."""
    devices: list[int] | None = None
    """GPUs to use, numbered as this process sees them; null: those of the plan."""
    gpu_memory_utilization: Annotated[float, Meta(gt=0, le=1)] | None = None
    """Fraction of each GPU's memory for weights and cache; null: 0.9, vLLM's default, or its part of a shared GPU."""
    sleep: bool | None = None
    """Lend the GPUs' memory to a trainer during its updates (vLLM's sleep mode): calls and updates take turns. null:
    where the plan puts both on one GPU, which does not hold both at once."""
    sleep_level: Annotated[int, Meta(ge=1, le=2)] = 1
    """1: a sleeping engine keeps its weights in main memory. 2: it drops them, and reads them from disk as it wakes."""
    max_num_seqs: PositiveInt = 256
    """Completions decoded at once; further requests wait (256 is vLLM's default below 70 GiB of GPU memory)."""
    max_model_len: PositiveInt | None = None
    """Maximum length of prompt plus completion, in tokens; null: `model.context_length`."""
    enforce_eager: bool = False
    """Disable CUDA graphs: faster start, slower decoding. Always on with the CPU build."""
    seed: NonNegativeInt = 0
    """Seed of requests without one; evorun's requests always have one."""
    logprobs: Annotated[str, OneOf(("processed", "raw"))] | None = None
    """processed: log-probabilities after temperature, top_p and schema, which training needs. raw: before temperature
    and top_p, which confidences need. null: raw where the method asks for confidences, else processed."""
    cpu_kv_cache_gib: PositiveFloat = 2.0
    """GiB for the cache of keys and values, CPU build only (on GPUs `gpu_memory_utilization` decides)."""
    lora_rank: PositiveInt | None = None
    """Maximum rank of adapters that can be loaded while the engine runs; null: that of the adapter that the run trains,
    without training no adapters. `model.adapter` is loaded in any case."""
    held_adapters: PositiveInt = HELD
    """Adapters that answer at the same time; training sets as many as its rollouts need (`training.max_lag`)."""
    extra_args: dict[str, Any] = field(default_factory=dict)
    """Any other argument of vLLM's `AsyncEngineArgs`, by its Python name (`kv_cache_dtype: fp8`,
    `pipeline_parallel_size: 2`, `speculative_config: {...}`). They override this engine's own settings
    (`enable_prefix_caching`, `disable_log_stats`, `language_model_only`, ...)."""

    def __post_init__(self) -> None:
        super().__post_init__()
        check_devices("engine.devices", self.devices)
        width = (self.tensor_parallel_size or 1) * self.pipeline_size
        if self.devices is not None and (
            len(self.devices) % width or self.replicas not in (None, len(self.devices) // width)
        ):
            expected = f"a multiple of {width}" if self.replicas is None else f"{self.replicas * width}"
            raise ConfigError(
                f"engine.devices: expected {expected} GPUs, as engine.tensor_parallel_size and engine.replicas say, "
                f"got {self.devices}"
            )
        for argument in self.extra_args:
            if argument in OWN_ARGUMENTS:
                raise ConfigError(
                    f"engine.extra_args.{argument}: evorun sets this argument; set {OWN_ARGUMENTS[argument]}"
                )

    @property
    def planned_gpus(self) -> Sequence[int]:
        return self.devices or ()

    @property
    def loads_weights(self) -> bool:
        return True

    @property
    def pipeline_size(self) -> int:
        """GPUs in a row that share a replica's layers."""
        return int(self.extra_args.get("pipeline_parallel_size", 1))

    @property
    def copies(self) -> int:
        """Number of replicas: as set, else as many as `devices` hold."""
        width = (self.tensor_parallel_size or 1) * self.pipeline_size
        return self.replicas or (1 if self.devices is None else len(self.devices) // width)

    @property
    def gpus(self) -> int:
        """Number of GPUs that the engine uses."""
        return (self.tensor_parallel_size or 1) * self.pipeline_size * self.copies

    @property
    def memory_share(self) -> float:
        """The fraction of each GPU's memory that the engine takes."""
        return self.gpu_memory_utilization or DEFAULT_SHARE

    @property
    def gpu_use(self) -> GpuUse:
        return GpuUse(self.devices or range(self.gpus), self.memory_share, bool(self.sleep))

    def renders_prompts(self, model: ModelConfig, *, trains: bool) -> bool:
        return True

    def for_adapters(self, rank: int, held: int) -> "VllmConfig":
        # vLLM reserves room for adapters when it starts.
        if self.lora_rank is not None and self.lora_rank < rank:
            raise ConfigError(
                f"engine.lora_rank: expected at least {rank}, the largest rank of the adapter that the run trains "
                f"(training.rank, doubled in a sparse model's experts), got {self.lora_rank}"
            )
        return replace(self, lora_rank=self.lora_rank or rank, held_adapters=held)

    def for_confidence(self, *, ends_early: bool) -> "VllmConfig":
        # vLLM decides at its start which log-probabilities it gives.
        if self.logprobs == "processed":
            raise ConfigError(
                "engine.logprobs: expected raw (or null) with a method that asks for confidences, got processed"
            )
        return replace(self, logprobs="raw")

    def for_transfer(self, transfer: str) -> "VllmConfig":
        # vLLM decides at its start how a trainer can reach its weights.
        if "weight_transfer_config" in self.extra_args or "worker_extension_cls" in self.extra_args:
            raise ConfigError(
                f"engine.extra_args: expected neither weight_transfer_config nor worker_extension_cls with "
                f"training.weight_transfer={transfer}, which sets them; leave them out, or set "
                "training.weight_transfer=folder"
            )
        own: dict[str, Any] = {"weight_transfer_config": {"backend": transfer}}
        if transfer == "ipc":
            own["worker_extension_cls"] = "evorun.models.vllm.worker.IpcWorkerExtension"
        return replace(self, extra_args={**self.extra_args, **own})

    def require(self, model: ModelConfig) -> None:
        if find_missing_packages(["vllm"]):
            raise EngineError(
                "engine=vllm: vLLM is not installed; run `pip install 'evorun[vllm]'` or use another engine"
            )
        if self.lora_rank is not None:
            served_rank(self.lora_rank)
        device_environment("engine.devices", self.devices)
        if self.sleep and is_cpu_build():
            raise EngineError("engine.sleep: vLLM's CPU build has no sleep mode; leave it false")
        require_weights(model)

    async def open(self, model: ModelConfig) -> LanguageModel:
        """Load the weights and start vLLM's engine process. This takes minutes, but does not block the event loop.

        Raises EngineError when vLLM is not installed or cannot serve the model, or when weights or adapter are missing
        or do not fit. Raises ConfigError when `extra_args` names an argument that vLLM does not have.
        """
        self.require(model)
        adapter = None if model.adapter is None else await asyncio.to_thread(read_adapter, model.adapter)
        served = await asyncio.to_thread(self._start, model, adapter)
        try:
            await served.load_own_adapter()
        except BaseException:
            await served.close()
            raise
        return served

    def _start(self, model: ModelConfig, adapter: Adapter | None) -> "VllmModel":
        folder, tokenizer = prepare(model, adapter)
        environment = device_environment("engine.devices", self.devices)
        errors = EngineErrors()
        arguments = self.engine_arguments(model, folder, adapter)
        if "enable_lora" in arguments:
            arguments = adapter_arguments(model) | arguments
        try:
            engine = start_engine(model, arguments, environment, errors)
        except BaseException:
            errors.close()
            raise
        return VllmModel(
            engine,
            tokenizer,
            model,
            adapter,
            self.lora_rank,
            held_adapters=self.held_adapters,
            replicas=self.copies,
            processes=self.gpus,
            sleep_level=self.sleep_level if self.sleep else None,
            raw_logprobs=self.logprobs == "raw",
            diagnosis=Diagnosis(errors, arguments),
        )

    def engine_arguments(self, model: ModelConfig, folder: str, adapter: Adapter | None = None) -> dict[str, Any]:
        """Return the keyword arguments of `AsyncEngineArgs`."""
        arguments: dict[str, Any] = {
            "model": folder,
            "dtype": model.dtype,
            "quantization": None if model.quantization in CHECKPOINT_FORMATS else model.quantization,
            "tensor_parallel_size": self.tensor_parallel_size or 1,
            "data_parallel_size": self.copies,
            "gpu_memory_utilization": self.memory_share,
            "max_num_seqs": self.max_num_seqs,
            "max_model_len": self.max_model_len or model.context_length,
            "enforce_eager": self.enforce_eager,
            "logprobs_mode": f"{self.logprobs or 'processed'}_logprobs",
            "seed": self.seed,
            "enable_prefix_caching": True,
            "enable_sleep_mode": bool(self.sleep),
            # Requests contain only text: memory for image inputs (Gemma 3 accepts them) would be wasted.
            "language_model_only": True,
            # evorun counts tokens and seconds itself.
            "disable_log_stats": True,
        }
        rank = max(self.lora_rank or 0, adapter.rank if adapter else 0)
        if rank:
            arguments |= {"enable_lora": True, "max_lora_rank": served_rank(rank), "max_loras": self.held_adapters}
        if is_cpu_build():
            arguments |= {
                # bfloat16 and compiled graphs were slow or wrong on the CPU build.
                "dtype": "float32",
                "enforce_eager": True,
                # A seeded request with a chunked prefill kills the engine of vLLM 0.32, which rewinds the request's
                # random generator ("CPU Generator does not use offset").
                "enable_chunked_prefill": False,
                "kv_cache_memory_bytes": int(self.cpu_kv_cache_gib * GIB),
                "distributed_executor_backend": "uni",
                "worker_extension_cls": "evorun.models.vllm.worker.CpuWorkerExtension",
            }
            if rank:
                # In a batch with adapters, vLLM's CPU kernels add the last slot's adapter to requests without one
                # (vllm-project/vllm#48421). One more slot than adapters stays empty.
                arguments["max_loras"] = self.held_adapters + 1
        return arguments | self.extra_args


class VllmModel:
    """A model in a vLLM engine process. Belongs to the event loop that first calls it."""

    def __init__(
        self,
        engine: Any,
        tokenizer: Any,
        model: ModelConfig,
        adapter: Adapter | None = None,
        lora_rank: int | None = None,
        *,
        held_adapters: int = HELD,
        replicas: int = 1,
        processes: int = 1,
        sleep_level: int | None = None,
        raw_logprobs: bool = False,
        diagnosis: Diagnosis | None = None,
    ) -> None:
        """adapter: the model's own. lora_rank: maximum rank of further adapters; None: no further adapters.

        held_adapters: the most adapters that stay loaded. replicas: data-parallel copies of the model. processes: all
        of vLLM's workers. sleep_level: 1 or 2; None: without sleep mode. raw_logprobs: see `VllmConfig.logprobs`.
        diagnosis: of the engine's processes; None: not available.
        """
        self.name = model.identity
        self.engine = engine
        self._prompts = PromptTokenizer(tokenizer, model)
        self._channels = find_channels(tokenizer)
        self._model = model
        self._adapter = adapter
        self._own_lora: Any = None
        self._lora_rank = lora_rank
        self._weights = EngineWeights(engine, model, self._prompts.token_ids, replicas, held_adapters, processes)
        self._replaced = 0
        """The number of times that training has replaced the model's weights."""
        self._sleep_mode = None if sleep_level is None else SleepMode(engine, self._weights, sleep_level)
        self._raw_logprobs = raw_logprobs
        self._diagnosis = diagnosis
        self._request_ids = itertools.count()
        self._closed = False

    async def complete(self, request: Request) -> Reply:
        return await self._answer(request, self._own_lora)

    async def load_own_adapter(self) -> None:
        """Load the model's own adapter, if it has one. Raises EngineError when vLLM cannot."""
        if self._adapter is not None:
            self._own_lora = await self._load(self._adapter)

    async def with_adapter(self, folder: Path, name: str) -> LanguageModel:
        if self._adapter is not None:
            raise EngineError(
                f"model '{self.name}' already has an adapter, and vLLM cannot add another; merge the first into the "
                "model, or set model.adapter=null"
            )
        adapter = await asyncio.to_thread(read_adapter, folder)
        if adapter.rank > (self._lora_rank or 0):
            raise EngineError(
                f"adapter {adapter.folder} has rank {adapter.rank}, the vllm engine was started with engine.lora_rank="
                f"{self._lora_rank or 'null'}; set engine.lora_rank={adapter.rank}"
            )
        await asyncio.to_thread(require_adapter_fit, adapter, self._model)
        return ModelUnderAdapter(name, partial(self._answer, lora=await self._load(adapter)))

    async def with_weights(self, folder: Path, name: str) -> LanguageModel:
        self._require_no_adapter()
        await asyncio.to_thread(require_same_shapes, folder, self._model)
        async with self._awake(replaces=True):
            self._replaced += 1  # whatever fails: the former weights may be gone
            await self._weights.replace(folder)
        return ModelUnderAdapter(name, partial(self._answer_with, self._replaced))

    async def receive_weights(self, name: str, send: Callable[[WeightReceiver], Awaitable[None]]) -> LanguageModel:
        self._require_no_adapter()
        async with self._awake(replaces=True):
            self._replaced += 1
            await self._weights.receive(send)
        return ModelUnderAdapter(name, partial(self._answer_with, self._replaced))

    def _require_no_adapter(self) -> None:
        if self._adapter is not None:
            raise EngineError(
                f"model '{self.name}' has an adapter, which belongs to its present weights; merge it into the model, "
                "or set model.adapter=null"
            )

    async def _answer_with(self, replaced: int, request: Request) -> Reply:
        if replaced != self._replaced:
            raise EngineError(f"model '{self.name}': its weights were replaced by newer ones; load these again")
        return await self._answer(request, None)

    def asleep(self) -> contextlib.AbstractAsyncContextManager[None]:
        return contextlib.nullcontext() if self._sleep_mode is None else self._sleep_mode.asleep()

    def take_wakings(self) -> Sequence[Waking]:
        return () if self._sleep_mode is None else self._sleep_mode.take_wakings()

    def _awake(self, *, replaces: bool = False) -> contextlib.AbstractAsyncContextManager[None]:
        return contextlib.nullcontext() if self._sleep_mode is None else self._sleep_mode.awake(replaces=replaces)

    async def _load(self, adapter: Adapter) -> Any:
        """Load an adapter and return the `LoRARequest` to send with its requests."""
        async with self._awake():
            return await self._weights.load_adapter(adapter)

    async def _answer(self, request: Request, lora: Any) -> Reply:
        from vllm.exceptions import VLLMValidationError
        from vllm.inputs import tokens_input
        from vllm.v1.engine.exceptions import EngineDeadError, EngineGenerateError

        if self._closed:
            raise EngineError(f"model '{self.name}': the vllm engine is closed")
        if lora is not None and not self._weights.holds(lora):
            raise EngineError(
                f"adapter {lora.lora_path} was unloaded for the {self._weights.held_adapters} newest; load it again"
            )
        started = time.perf_counter()
        try:
            prompt = await self._prompts.token_ids(request)
        except (TemplateError, ValueError) as error:
            return make_rejection(request, one_line(error), seconds=time.perf_counter() - started)
        if (unfit := self._unfit_for(request)) is not None:
            return make_rejection(request, unfit, prompt_tokens=len(prompt))
        number = str(next(self._request_ids))
        drawn = Collected(request)
        try:
            # Cancelling this coroutine cancels the generator, which aborts the request in the engine.
            parameters = sampling_parameters(request, [] if self._channels is None else self._channels.stops)
            async with self._awake():
                outputs = self.engine.generate(tokens_input(prompt), parameters, number, lora_request=lora)
                # Leaving the block early closes the generator, too.
                async with contextlib.aclosing(outputs):
                    async for output in outputs:
                        if drawn.add(output):
                            break
        except EngineDeadError as error:
            why = "see its messages above" if self._diagnosis is None else self._diagnosis.explain_death()
            raise EngineDied(f"model '{self.name}': the vllm engine process died: {why}") from error
        except (VLLMValidationError, EngineGenerateError, ValueError) as error:
            reason = one_line(error.__cause__ or error)
            return make_rejection(request, reason, prompt_tokens=len(prompt), seconds=time.perf_counter() - started)
        for unsure in (output for output in drawn.outputs if output.unsure):
            # vLLM may have drawn, and decoded, tokens behind the last one.
            unsure.text = await self._prompts.text(unsure.ids)
        return self._reply(request, drawn, prompt, time.perf_counter() - started)

    def _unfit_for(self, request: Request) -> str | None:
        """Return why this engine's log-probabilities are not those that a request needs; None if they are."""
        sampling = request.sampling
        if sampling.confidence is not UNSET and not self._raw_logprobs:
            return "vLLM gives log-probabilities after temperature and top_p, not confidences; set engine.logprobs=raw"
        changed = sampling.temperature not in (0, 1) or sampling.top_p < 1
        if request.logprobs and self._raw_logprobs and changed:
            return (
                "vLLM gives log-probabilities before temperature and top_p, under which these completions are drawn; "
                "set engine.logprobs=processed"
            )
        return None

    async def close(self) -> None:
        """Stop the engine process and free its memory; idempotent."""
        if self._closed:
            return
        self._closed = True
        self._prompts.close()
        # Not in a thread: the engine's own task on this event loop would mistake the stop for a crash.
        self.engine.shutdown()
        if self._diagnosis is not None:
            self._diagnosis.errors.close()
        # vLLM shuts down again when its engine is garbage-collected, which fails while the interpreter exits.
        self.engine = self._sleep_mode = None

    def _reply(self, request: Request, drawn: Collected, prompt: list[int], seconds: float) -> Reply:
        outputs = drawn.outputs
        if any(o.vllm_reason == "abort" for o in outputs):
            raise EngineError(f"model '{self.name}': the vllm engine was shut down while it served a request")
        if any(o.vllm_reason == "error" for o in outputs):
            reason = "vLLM met an internal error on this request"
            return make_rejection(request, reason, prompt_tokens=len(prompt), seconds=seconds)
        completions: tuple[Completion, ...] = ()
        channels = self._channels
        # The next turn continues from the ids of a turn in channels, whose text is only a part of it.
        gives_ids = request.token_ids or channels is not None
        for o in outputs:
            text = o.text
            if channels is not None:
                text = channels.text(o.ids, starts_in_final=request.json_schema is not None)
                for stop in request.sampling.stop:
                    text, _, _ = text.partition(stop)
            completion = Completion(
                text=text,
                finish_reason=o.reason,
                tokens=len(o.ids),
                token_ids=tuple(o.ids) if gives_ids else None,
                logprobs=tuple(o.logprobs) if request.logprobs else None,
                **confidence_fields(o.monitor.values if o.monitor else (), request.sampling.confidence),
            )
            completions += (completion,)
        if request.sampling.temperature == 0:  # vLLM drew only one, see `sampling_parameters`
            completions *= request.sampling.n
        prompt_ids = tuple(prompt) if gives_ids else UNSET
        return Reply(completions=completions, prompt_tokens=len(prompt), seconds=seconds, prompt_ids=prompt_ids)
