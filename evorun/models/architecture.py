"""Sizes of a model by its config.json, before any weight is read: parameters by kind, and keys and values per token.

The numbers come from the model's folder, else from the hub's cache on this machine, else from conf/architectures.yaml,
which has those of the models in conf/model. Counts leave out biases and norms (below 0.1 % of all parameters) and the
image encoder of a multimodal model, which vLLM does not load for text.
"""

import json
from collections.abc import Mapping
from functools import cache
from pathlib import Path
from typing import Any, NamedTuple, Self

import msgspec

import evorun
from evorun.models.config import ModelConfig

UNGATED = ("bloom", "falcon", "gpt_neox", "gptj", "opt", "phi", "starcoder2")
"""Model types whose feed-forward network has two matrices; that of all others here has a gate too (Shazeer 2020)."""
NEEDED = frozenset({"hidden_size", "num_hidden_layers", "num_attention_heads", "intermediate_size", "vocab_size"})
"""Keys without which a config.json is not read."""


class Parameters(NamedTuple):
    """Numbers of parameters."""

    embeddings: int
    """Of the input embeddings, and of the output layer where it has its own; quantisation leaves both as they are."""
    attention: int
    dense: int
    """Of feed-forward networks that every token passes, shared experts included."""
    experts: int
    active_experts: int
    """Of the experts that one token passes."""

    @property
    def total(self) -> int:
        """All parameters."""
        return self.embeddings + self.attention + self.dense + self.experts

    @property
    def active(self) -> int:
        """The parameters that one token passes."""
        return self.total - self.experts + self.active_experts


class Architecture(NamedTuple):
    """The shape of a decoder, in the names of config.json without the prefix `num_`."""

    hidden: int
    layers: int
    heads: int
    kv_heads: int
    head_dim: int
    intermediate: int
    """Width of a dense feed-forward network."""
    vocabulary: int
    tied: bool
    """True where the output layer is the input embeddings."""
    matrices: int = 3
    """Matrices of a feed-forward network: gate, up, down; 2 without a gate."""
    experts: int = 0
    """Experts of a sparse layer; 0: a dense model."""
    active_experts: int = 0
    expert_intermediate: int = 0
    shared_intermediate: int = 0
    """Width of the feed-forward network that every token passes beside the experts."""
    dense_layers: int = 0
    """Leading layers without experts, of a sparse model."""
    q_rank: int = 0
    kv_rank: int = 0
    """Width of the latent keys and values of multi-head latent attention (DeepSeek-V2, section 2.1); 0: without."""
    rope_dim: int = 0
    nope_dim: int = 0
    value_dim: int = 0
    window: int = 0
    """Tokens that a layer with sliding attention keeps; 0: no such layer."""
    window_layers: int = 0

    @classmethod
    def from_config(cls, config: Mapping[str, Any]) -> Self:
        """Return the architecture that a config.json states. Raises KeyError for one without the necessary keys."""
        config = {key: value for key, value in config.get("text_config", config).items() if value is not None}
        heads, hidden, layers = config["num_attention_heads"], config["hidden_size"], config["num_hidden_layers"]
        experts = config.get("n_routed_experts") or config.get("num_experts") or config.get("num_local_experts") or 0
        expert_width = config.get("moe_intermediate_size", config["intermediate_size"])
        shared = config.get("shared_expert_intermediate_size", config.get("n_shared_experts", 0) * expert_width)
        sliding = _count_sliding_layers(config)
        return cls(
            hidden=hidden,
            layers=layers,
            heads=heads,
            kv_heads=config.get("num_key_value_heads", heads),
            head_dim=config.get("head_dim", hidden // heads),
            intermediate=config["intermediate_size"],
            vocabulary=config["vocab_size"],
            # transformers leaves out what is the default of a model's class
            tied=config.get("tie_word_embeddings", str(config.get("model_type")).startswith("gemma")),
            matrices=2 if config.get("model_type") in UNGATED else 3,
            experts=experts,
            active_experts=config.get("num_experts_per_tok", 1) if experts else 0,
            expert_intermediate=expert_width if experts else 0,
            shared_intermediate=shared if experts else 0,
            dense_layers=config.get("first_k_dense_replace", 0) if experts else 0,
            q_rank=config.get("q_lora_rank", 0),
            kv_rank=config.get("kv_lora_rank", 0),
            rope_dim=config.get("qk_rope_head_dim", 0),
            nope_dim=config.get("qk_nope_head_dim", 0),
            value_dim=config.get("v_head_dim", 0),
            window=config.get("sliding_window", 0) if sliding else 0,
            window_layers=sliding,
        )

    @property
    def attention_shapes(self) -> list[tuple[int, int]]:
        """The input and output widths of the linear layers of one layer's attention."""
        if self.kv_rank:
            width = self.nope_dim + self.rope_dim
            query = [(self.hidden, self.q_rank), (self.q_rank, self.heads * width)]
            return [
                *(query if self.q_rank else [(self.hidden, self.heads * width)]),
                (self.hidden, self.kv_rank + self.rope_dim),
                (self.kv_rank, self.heads * (self.nope_dim + self.value_dim)),
                (self.heads * self.value_dim, self.hidden),
            ]
        query_width, kv_width = self.heads * self.head_dim, self.kv_heads * self.head_dim
        into = [(self.hidden, query_width), (self.hidden, kv_width), (self.hidden, kv_width)]
        return [*into, (query_width, self.hidden)]

    @property
    def sparse_layers(self) -> int:
        """Number of layers with experts."""
        return self.layers - self.dense_layers if self.experts else 0

    @property
    def parameters(self) -> Parameters:
        """The numbers of parameters by kind."""
        expert = self.matrices * self.hidden * self.expert_intermediate
        shared = self.matrices * self.hidden * self.shared_intermediate + self.hidden * self.experts  # and the router
        dense_layers = self.layers - self.sparse_layers
        return Parameters(
            embeddings=self.vocabulary * self.hidden * (1 if self.tied else 2),
            attention=self.layers * sum(inputs * outputs for inputs, outputs in self.attention_shapes),
            dense=dense_layers * self.matrices * self.hidden * self.intermediate + self.sparse_layers * shared,
            experts=self.sparse_layers * self.experts * expert,
            active_experts=self.sparse_layers * self.active_experts * expert,
        )

    def kv_values(self, tokens: int, gpus: int = 1) -> float:
        """Return the numbers that a GPU of `gpus` with tensor parallelism caches for a sequence of tokens.

        A key and a value per head and layer; with more GPUs than heads of keys, heads are repeated. Latent keys and
        values are one vector per layer, repeated on every GPU. A sliding layer keeps its window.
        """
        if self.kv_rank:
            return float(self.layers * (self.kv_rank + self.rope_dim) * tokens)
        per_layer = 2 * max(1, self.kv_heads / gpus) * self.head_dim
        kept = (self.layers - self.window_layers) * tokens + self.window_layers * min(tokens, self.window)
        return per_layer * kept

    def splits_into(self, gpus: int, *, group: int = 1) -> bool:
        """Tell whether vLLM can split the weights over this many GPUs.

        The number divides the attention heads and, with the quantisation's group, the widths of feed-forward networks;
        it divides the heads of keys and values, or is a multiple of them (vllm/config/model.py).
        """
        widths = {self.expert_intermediate or self.intermediate, self.shared_intermediate}
        whole = all(width % (gpus * group) == 0 for width in widths)
        heads = self.heads % gpus == 0 and (self.kv_heads % gpus == 0 or gpus % self.kv_heads == 0)
        return heads and whole


def _count_sliding_layers(config: Mapping[str, Any]) -> int:
    """Return the number of layers whose attention sees only a window."""
    if not config.get("sliding_window") or config.get("use_sliding_window") is False:
        return 0
    layers: int = config["num_hidden_layers"]
    if (kinds := config.get("layer_types")) is not None:
        return sum(kind == "sliding_attention" for kind in kinds)
    if (pattern := config.get("sliding_window_pattern")) is not None:  # every such layer is a full one
        return layers - layers // int(pattern)
    return layers


def read_architecture(model: ModelConfig, *, download: bool = False) -> Architecture | None:
    """Return a model's architecture; None where no config.json of it is known, or it lacks a necessary number.

    download: ask the hub for one that is not here.
    """
    config = _read_folder(model.id) or _published().get(model.id) or (_download(model.id) if download else None)
    try:
        return None if config is None else Architecture.from_config(config)
    except (KeyError, TypeError, ZeroDivisionError):
        return None


def _read_folder(model: str) -> dict[str, Any] | None:
    """Return a model's config.json from its folder or the hub's cache on this machine; None where neither has it."""
    file: Any = Path(model) / "config.json"
    if not file.is_file():
        from huggingface_hub import try_to_load_from_cache
        from huggingface_hub.errors import HFValidationError

        try:
            file = try_to_load_from_cache(model, "config.json") if model.count("/") == 1 else None
        except HFValidationError:  # whoever loads the model says what its id lacks
            return None
    if not isinstance(file, str | Path):
        return None
    return _read_file(Path(file))


def _download(model: str) -> dict[str, Any] | None:
    """Return a model's config.json from the hub; None where it has none, or cannot be asked."""
    from huggingface_hub import hf_hub_download

    try:
        return _read_file(Path(hf_hub_download(model, "config.json"))) if model.count("/") == 1 else None
    except Exception:  # the hub's own types for a wrong name, no access, no network: the engine will say it better
        return None


def _read_file(file: Path) -> dict[str, Any] | None:
    try:
        values = json.loads(file.read_text())
        return values if values.get("text_config", values).keys() >= NEEDED else None
    except (OSError, ValueError, AttributeError, RecursionError):
        return None


@cache
def _published() -> dict[str, dict[str, Any]]:
    """Return the numbers of published config.json files by the models' hub ids."""
    package = Path(evorun.__file__).parent
    inside = package / "conf"
    file = (inside if inside.is_dir() else package.parent / "conf") / "architectures.yaml"
    return msgspec.yaml.decode(file.read_bytes(), type=dict[str, dict[str, Any]])
