"""LoRA adapters in PEFT's folder format: identifies them, checks that they fit a model, and merges them into it."""

import hashlib
import re
from collections.abc import Awaitable, Callable
from dataclasses import dataclass
from pathlib import Path
from typing import Annotated, Any

import msgspec

from evorun.errors import EngineError
from evorun.models.base import Reply, Request

CONFIG = "adapter_config.json"
WEIGHTS = "adapter_model.safetensors"
ADDRESS = "tinker.json"
"""File with the address of an adapter's weights on a server that speaks Tinker's API: beside its own files, or in their
place where the server exports none."""

SIMULATED = "simulated_policy.json"
"""File that stands for an adapter of a simulated model, which has no weights: what its updates added to its skill."""

# Two: the newest adapter, and the one before it for requests in progress when training makes a new one.
HELD = 2
"""Adapters that an engine keeps loaded for its views unless training needs more. `ours`."""

SERVED_RANKS = (1, 8, 16, 32, 64, 128, 256, 320, 512)
"""Values of `max_lora_rank` that vLLM 0.32 accepts (vllm/config/lora.py)."""

OUTPUT_LAYER_SERVED = frozenset(
    {
        *("GraniteForCausalLM", "LlamaForCausalLM", "MixtralForCausalLM", "NemotronForCausalLM", "Phi3ForCausalLM"),
        *("PhiMoEForCausalLM", "Qwen3ForCausalLM", "Qwen3MoeForCausalLM", "SolarForCausalLM"),
    }
)
"""Architectures for which vLLM 0.32 accepts an adapter on the output layer: those whose class lists `lm_head` in its
`embedding_modules` (vllm/model_executor/models). For others, such as Qwen2, it refuses such an adapter."""

_ABOUT_THE_FILE = frozenset(
    {
        "auto_mapping",
        "base_model_name_or_path",
        "inference_mode",
        "lora_dropout",
        "megatron_core",
        "peft_version",
        "revision",
        "task_type",
    }
)
"""Settings about an adapter's origin and training, which do not affect its computation."""
_SETS = ("exclude_modules", "modules_to_save", "target_modules", "target_parameters")
"""Settings that PEFT writes in random order, from Python sets."""
_TENSOR = re.compile(r"base_model\.model\.(?P<module>.+?)(\.base_layer)?\.lora_(?P<side>[AB])\.weight")
_STACKED = ("gate_up_proj", "up_proj", "down_proj")
"""Names of the parameters in which transformers stacks a layer's experts."""
_CHUNK = 2**20
_LONGEST_CONFIG = 2**24
"""Bytes to read of a configuration; a longer one is truncated, and therefore invalid JSON."""


_Rank = Annotated[int, msgspec.Meta(ge=1, le=2**20)]


class _Settings(msgspec.Struct):
    """The part of adapter_config.json that evorun reads."""

    peft_type: str
    r: _Rank
    rank_pattern: dict[str, _Rank] | None = None
    target_parameters: list[str] | None = None


@dataclass(frozen=True)
class Adapter:
    """A LoRA adapter on disk."""

    folder: Path
    """Absolute path."""
    rank: int
    """Maximum rank of its modules."""
    digest: str
    """First 12 hexadecimal digits of `_digest`."""
    stacks_experts: bool = False
    """True if PEFT wrote the adapters of a layer's experts as one (`target_parameters`)."""

    @property
    def served_name(self) -> str:
        """Name of the adapter on a server or in vLLM; adapters with the same name compute the same."""
        return f"evorun-{self.digest}"


def read_adapter(folder: str | Path) -> Adapter:
    """Identify the adapter in a folder. Raises EngineError when there is none."""
    path = Path(folder).expanduser().absolute()
    for name in (CONFIG, WEIGHTS):
        if not (path / name).is_file():
            found = f"no {name}" if path.is_dir() else "no such folder"
            advice = "give the folder of a LoRA adapter"
            # Folders that users give by mistake.
            if (path / "artifacts" / "adapter" / CONFIG).is_file():
                advice = f"a run leaves its adapter in {path / 'artifacts' / 'adapter'}"
            elif (path / "config.json").is_file():
                advice = f"it holds a whole model, which model=local model.id={path} runs"
            elif (path / SIMULATED).is_file():
                advice = "it is a simulated model's, which has no weights: use engine=simulated"
            raise EngineError(
                f"adapter {path}: expected {CONFIG} and {WEIGHTS}, as PEFT writes them, found {found}; {advice}"
            )
    try:
        with (path / CONFIG).open("rb") as file:
            written = file.read(_LONGEST_CONFIG)
        settings = msgspec.json.decode(written, type=_Settings)
        digest = _digest(msgspec.json.decode(written), path / WEIGHTS)
    # TypeError: a list holds other things than names. RecursionError: a thousand nested lists.
    except (OSError, msgspec.DecodeError, UnicodeDecodeError, TypeError, RecursionError) as error:
        raise EngineError(f"adapter {path}: cannot be read: {error}; export the adapter again") from error
    if settings.peft_type != "LORA":
        raise EngineError(f"adapter {path}: expected peft_type LORA, got {settings.peft_type}; train a LoRA adapter")
    # `rank_pattern` overrides `r` for some modules, and engines reserve memory for the largest.
    rank = max(settings.r, *(settings.rank_pattern or {"": settings.r}).values())
    stacked = any(name.rpartition(".")[2] in _STACKED for name in settings.target_parameters or ())
    return Adapter(path, rank, digest[:12], stacked)


def digest_adapter(folder: str | Path) -> str:
    """Return the digest that identifies an adapter: of its files or, without them, of its address on a server.

    That of a simulated model is its file's. Raises EngineError when the folder has none of these.
    """
    path = Path(folder).expanduser().absolute()
    for name in (ADDRESS, SIMULATED):
        if (path / name).is_file() and not (path / WEIGHTS).is_file():
            return hashlib.sha256((path / name).read_bytes()).hexdigest()[:12]
    return read_adapter(path).digest


def served_rank(rank: int) -> int:
    """Return vLLM's smallest `max_lora_rank` for adapters of this rank. Raises EngineError if the rank is too large."""
    for allowed in SERVED_RANKS:
        if rank <= allowed:
            return allowed
    raise EngineError(f"vLLM serves adapters of rank {SERVED_RANKS[-1]} at most, got {rank}; train a smaller adapter")


def _digest(settings: dict[str, Any], weights: Path) -> str:
    """Return the SHA-256 of an adapter's settings in canonical form and of its weights file, in hexadecimal.

    Only settings that may affect the adapter's computation count.
    """
    # The same adapter written twice has different bytes: PEFT writes sets in random order, its own version, and the
    # path of the base model. The digest ignores settings that are off (null, false, empty): newer versions of PEFT
    # write more of them.
    kept = {key: value for key, value in settings.items() if value and key not in _ABOUT_THE_FILE}
    for key in _SETS:
        if isinstance(kept.get(key), list):
            kept[key] = sorted(kept[key])
    digest = hashlib.sha256(msgspec.json.encode(kept, order="deterministic"))
    with weights.open("rb") as file:
        while chunk := file.read(_CHUNK):
            digest.update(chunk)
    return digest.hexdigest()


def require_fit(adapter: Adapter, model: Any, name: str) -> None:
    """Check that `model`, a module of transformers, has a linear layer for each of the adapter's matrices.

    Raises EngineError naming the model and the first matrix that does not fit it.
    """
    # Nobody else checks this: PEFT silently skips matrices without a layer, and vLLM silently pads those that are too
    # small.
    matrices = _matrices(adapter)
    flaw = None if matrices else f"its {WEIGHTS} holds no LoRA matrices"
    for module, side, shape in matrices:
        size, given, direction = (
            ("in_features", shape[1], "inputs") if side == "A" else ("out_features", shape[0], "outputs")
        )
        try:
            expected = getattr(model.get_submodule(module), size, None)
        except AttributeError:
            flaw = f"it changes {module}, which this model does not have"
            break
        if expected is not None and given != expected:
            flaw = f"{module} has {expected} {direction}, the adapter's matrix {given}"
            break
    if flaw is not None:
        raise EngineError(
            f"adapter {adapter.folder} does not fit model '{name}': {flaw}; use the model that it was trained on"
        )


def adapted_layers(adapter: Adapter) -> set[str]:
    """Return the last components of the names of the layers that an adapter changes; experts are `experts`."""
    return {module.rpartition(".")[2] for module, *_ in _matrices(adapter)}


def _matrices(adapter: Adapter) -> list[tuple[str, str, list[int]]]:
    """Return module, side (A: inputs, B: outputs) and shape of each LoRA matrix. Reads only the file's header."""
    from safetensors import SafetensorError, safe_open

    try:
        with safe_open(adapter.folder / WEIGHTS, framework="np") as file:
            matches = [match for key in file.keys() if (match := _TENSOR.fullmatch(key))]  # noqa: SIM118 - no mapping
            return [(match["module"], match["side"], file.get_slice(match.string).get_shape()) for match in matches]
    except SafetensorError as error:
        raise EngineError(f"adapter {adapter.folder}: {WEIGHTS} is broken: {error}; export it again") from error


def merge_adapter(model: Any, adapter: Adapter, name: str) -> Any:
    """Return a model of transformers with the adapter merged into its weights.

    Changes `model` in place. Raises EngineError when PEFT is not installed or the adapter does not fit.
    """
    try:
        from peft import PeftModel
    except ImportError as error:
        raise EngineError("model.adapter: PEFT is not installed; run `pip install 'evorun[train]'`") from error
    require_fit(adapter, model, name)
    _untie(model, adapter)
    try:
        with_adapter = PeftModel.from_pretrained(model, str(adapter.folder), torch_device=str(model.device))
        # After merging, each layer is one matrix product: as fast as without an adapter.
        return with_adapter.merge_and_unload()
    except Exception as error:  # PEFT, torch and safetensors each raise their own types
        reason = " ".join(str(error).split()) or type(error).__name__
        raise EngineError(f"adapter {adapter.folder}: PEFT cannot merge it into '{name}': {reason[:400]}") from error


def _untie(model: Any, adapter: Adapter) -> None:
    """Untie a model's output layer from its embedding if the adapter changes the output layer."""
    output = model.get_output_embeddings()
    names = {name for name, module in model.named_modules() if module is output}
    if output is None or names.isdisjoint(module for module, *_ in _matrices(adapter)):
        return
    if output.weight is model.get_input_embeddings().weight:
        output.weight = type(output.weight)(output.weight.detach().clone(), requires_grad=False)
        model.config.get_text_config().tie_word_embeddings = False


class ModelUnderAdapter:
    """A view of an engine that answers with the model under an adapter; implements `LanguageModel`."""

    def __init__(self, name: str, answer: Callable[[Request], Awaitable[Reply]]) -> None:
        self.name = name
        self._answer = answer

    async def complete(self, request: Request) -> Reply:
        return await self._answer(request)

    async def close(self) -> None:
        """Do nothing: whoever opened the engine closes it."""
