"""The memory of engines and of the trainer by closed forms, before any weight is read; all sizes in GiB per GPU.

Weights: parameters x bytes. A quantised linear layer has its scales too. AWQ and GPTQ have one of 16 bits and a zero
point of 4 bits per group of 128 weights (AutoAWQ's default), compressed-tensors' W4A16 the scale alone. MXFP4 has 8
bits per 32 weights (OCP Microscaling Formats 1.0, section 5.1), in gpt-oss in the experts alone. Block-wise FP8 has 32
bits per 128 x 128. Embeddings and output layer keep 16 bits.

vLLM: weights and cache are split over the GPUs of tensor parallelism. It starts only if the cache holds one sequence of
the whole context (vllm/v1/core/kv_cache_utils.py), and takes its share of the GPU whether it needs it or not.

Training: 16 bytes per trained parameter in mixed precision (weight, gradient and Adam's two moments in float32; ZeRO,
Rajbhandari et al. 2020, section 3.1, has the same sum), and 4 for the gradients' buckets between processes. Activations
follow Korthikanti et al. (2022, section 4.1) for a gated feed-forward network without stored attention scores: with
checkpointing the input of every layer, and the inside of one. An adapter on experts adds a copy of a layer's experts
and its gradient, without checkpointing the copies of all layers (peft/tuners/lora/layer.py, ParamWrapper). All weights
that are trained are in float32, and while the trainer decodes from them autocast holds them in 16 bits, too. Their
reference policy is a copy in 16 bits.
"""

from typing import NamedTuple

from evorun.models.adapters import HELD
from evorun.models.architecture import Architecture, read_architecture
from evorun.models.config import ModelConfig
from evorun.models.memory import GIB
from evorun.runner.plan_records import PlannedMemory
from evorun.training.config import TrainingConfig

LINEAR_BITS = {"awq": 4 + 20 / 128, "gptq": 4 + 20 / 128, "compressed-tensors": 4 + 16 / 128, "fp8": 8 + 32 / 128**2}
"""Bits per weight of linear layers by quantisation, with scales."""
EXPERT_BITS = {"mxfp4": 4 + 8 / 32}
"""The same where only experts are quantised."""
GROUP = {"awq": 128, "gptq": 128, "compressed-tensors": 128, "fp8": 128}
"""Weights in a row that share a scale, which tensor parallelism cannot split."""
TRAINER_BITS = {"nf4": 4 + 8 / 64 + 32 / (64 * 256), "int8": 8.0}
"""Bits per weight of linear layers by `training.quantise`. NF4 has a scale of 8 bits per 64 weights, and one of 32 bits
per 256 scales (QLoRA, Dettmers et al. 2023, section 3). bitsandbytes quantises no experts that are one tensor."""

CONTEXT_GIB = 1.5
"""CUDA's context, NCCL's buffers, CUDA graphs and what the allocator loses (ours)."""
ASLEEP_GIB = 1.5
"""Memory that a sleeping vLLM engine keeps (ours): its CUDA context and graphs."""
BATCHED_TOKENS = 8192
"""Tokens that vLLM computes at once, of prompts and completions (its default is 2,048 to 16,384 by GPU and use)."""
SAMPLER_BYTES = 20
"""Bytes per entry of the vocabulary and sequence while vLLM samples with top_p: logits, sorted ones, order, sums."""
PROMPT_TOKENS = 2048
"""Assumed length of a prompt (ours) where only a completion's limit is known."""
CHUNK_TOKENS = 512
"""Tokens whose logits the trainer holds at once: TRL's fused output layer and evorun's own."""


class GpuMemory(NamedTuple):
    """Memory that an engine or a trainer takes on each of its GPUs, in GiB."""

    weights: float
    training: float = 0.0
    """Trained weights, gradients, the optimiser's moments, and a critic."""
    cache: float = 0.0
    """Keys and values: of vLLM for one whole context, of transformers for a full batch."""
    work: float = 0.0
    """Activations, logits, adapters, CUDA's context."""

    @property
    def total(self) -> float:
        """The sum of all."""
        return sum(self)

    @property
    def resident(self) -> float:
        """Memory that a trainer keeps between updates, its own decoding included."""
        return self.weights + self.training + self.cache + CONTEXT_GIB


def weight_gib(shape: Architecture, model: ModelConfig) -> float:
    """Return the memory of all weights of a model."""
    count, plain = shape.parameters, 32 if model.dtype == "float32" else 16
    linear = LINEAR_BITS.get(model.quantization or "", plain)
    expert = EXPERT_BITS.get(model.quantization or "", linear)
    bits = plain * count.embeddings + linear * (count.attention + count.dense) + expert * count.experts
    return bits / 8 / GIB


def cache_gib(shape: Architecture, tokens: int, gpus: int = 1, *, value_bytes: int = 2) -> float:
    """Return the memory of a sequence's keys and values on each of `gpus` with tensor parallelism."""
    return shape.kv_values(tokens, gpus) * value_bytes / GIB


def count_adapter(shape: Architecture, rank: int, targets: list[str], *, served: bool = False) -> int:
    """Return the parameters of a LoRA adapter: rank x (inputs + outputs) of each target.

    Each expert has an adapter of its own. PEFT joins gate and up, at twice the rank (`evorun.training.experts`); vLLM
    keeps them apart, all at its largest rank. targets: names of linear layers in Llama's or DeepSeek's manner; those of
    other models count as all but the output layer. served: the room that vLLM keeps at this largest rank.
    """
    hidden, expert, experts = shape.hidden, shape.expert_intermediate, shape.sparse_layers * shape.experts
    names: tuple[str, ...] = ("q_proj", "k_proj", "v_proj", "o_proj")
    if shape.kv_rank:
        query = ("q_a_proj", "q_b_proj") if shape.q_rank else ("q_proj",)
        names = (*query, "kv_a_proj_with_mqa", "kv_b_proj", "o_proj")
    sizes = [(name, shape.layers * sum(size)) for name, size in zip(names, shape.attention_shapes, strict=True)]
    feed_forward = ("gate_proj", "up_proj", "down_proj")[3 - shape.matrices :]
    sizes += [(name, (shape.layers - shape.sparse_layers) * (hidden + shape.intermediate)) for name in feed_forward]
    if experts:
        shared = hidden + shape.shared_intermediate if shape.shared_intermediate else 0
        sizes += [(name, shape.sparse_layers * shared) for name in feed_forward]
        sizes.append(("gate_up_proj", experts * 2 * (hidden + (1 if served else 2) * expert)))
        sizes.append(("down_proj", experts * (expert + hidden)))
    known = {name for name, _ in sizes}
    wanted = {*targets, *(("gate_up_proj",) if "gate_proj" in targets else ())}
    wanted |= {"gate_up_proj", "down_proj"} if "experts" in targets else set()
    chosen = known if "all-linear" in targets else known.intersection(wanted) or known
    if "lm_head" in targets:
        sizes.append(("lm_head", hidden + shape.vocabulary))
    return rank * sum(size for name, size in sizes if name in chosen or name == "lm_head")


def serving_memory(
    shape: Architecture,
    model: ModelConfig,
    *,
    gpus: int,
    context: int,
    sequences: int,
    lora_rank: int = 0,
    held_adapters: int = HELD,
    value_bytes: int = 2,
) -> GpuMemory:
    """Return what vLLM needs of each of `gpus` with tensor parallelism; the rest of its share is cache too.

    context: its longest sequence. sequences: decoded at once. value_bytes: of a cached number.
    """
    width = shape.intermediate if not shape.experts else shape.active_experts * shape.expert_intermediate
    activations = BATCHED_TOKENS * 2 * (4 * shape.hidden + 2 * (width + shape.shared_intermediate) / gpus)
    adapters = held_adapters * 2 * count_adapter(shape, lora_rank, [], served=True) / gpus
    logits = sequences * shape.vocabulary * SAMPLER_BYTES
    return GpuMemory(
        weights=weight_gib(shape, model) / gpus,
        cache=cache_gib(shape, context, gpus, value_bytes=value_bytes),
        work=CONTEXT_GIB + (activations + adapters + logits) / GIB,
    )


def decoding_memory(
    shape: Architecture, model: ModelConfig, *, gpus: int, tokens: int, sequences: int, prefix_tokens: int
) -> GpuMemory:
    """Return what transformers needs of each of `gpus` that share the layers.

    tokens: of a sequence. sequences: decoded together. prefix_tokens: kept beside them.
    """
    cache = sequences * cache_gib(shape, tokens) + cache_gib(shape, prefix_tokens)
    logits = sequences * shape.vocabulary * 3 * 4 / GIB
    return GpuMemory(weight_gib(shape, model) / gpus, cache=cache / gpus, work=CONTEXT_GIB + logits)


def training_memory(
    shape: Architecture,
    training: TrainingConfig,
    *,
    processes: int,
    pass_tokens: int,
    critic: str | None,
    decoding: GpuMemory | None,
    reference: bool = False,
) -> GpuMemory:
    """Return what each process of the trainer takes of its GPU: with all weights, or its part (`training.shard`).

    pass_tokens: of a forward and backward pass. critic: `ProximalSettings.critic`, None without one. decoding: of its
    own completions, which alternate with updates. reference: true if the run needs a reference policy.
    """
    half = training.precision != "float32"
    count, every_layer = shape.parameters, training.gradient_checkpointing is False
    frozen = training.weights == "lora"
    adapter = count_adapter(shape, training.rank, training.target_modules)
    trained = adapter if frozen else count.total
    plain = 16 if half else 32
    linear = TRAINER_BITS.get(training.quantise or "", plain) * (count.attention + count.dense)
    copied = 0.0
    if critic == "model":
        others = count.total - count.attention - count.dense - count.embeddings // (1 if shape.tied else 2)
        copied = (linear + plain * others) / 8
        trained += adapter
    elif critic == "full":
        trained += count.total - (0 if shape.tied else count.embeddings // 2)
    parts = processes if training.shard is not None else 1
    copied /= parts
    frozen_copy = 0 if frozen or not reference else (2 if half else 4) * count.total
    copied += frozen_copy if training.reference == "device" else 0
    # The gradients' buckets are those of processes that each have all of them.
    state = trained * (16 + (4 if processes > parts else 0)) / parts + copied
    widths = shape.heads * shape.head_dim + shape.kv_heads * shape.head_dim
    inner = shape.active_experts * shape.expert_intermediate + shape.shared_intermediate or shape.intermediate
    number = 2 if half else 4
    layer = number * (4 * shape.hidden + 2 * widths + 4 * inner) + 8 * shape.hidden  # norms compute in float32
    kept = shape.layers * (layer if every_layer else number * shape.hidden) + (0 if every_layer else 2 * layer)
    networks = 2 if critic in ("model", "full") else 1
    activations = pass_tokens * kept * networks / GIB
    if frozen and shape.experts and training.names_experts:
        # PEFT adds an expert's adapter to its weights: a copy of a layer's experts, and the copy's gradient.
        copies = 1 + (shape.sparse_layers if every_layer else 1)
        activations += number * copies * count.experts / shape.sparse_layers / GIB
    logits = CHUNK_TOKENS * shape.vocabulary * 4 * 3 / GIB
    whole = (linear + plain * (count.embeddings + count.experts)) / 8 / GIB
    weights = whole / parts if frozen else 0.0
    sampling, moved = GpuMemory(0.0), 0.0
    if decoding is not None:
        in_half = 0.0 if frozen or not half else 2 * count.total / GIB
        # Decoding gathers the weights that other processes hold.
        gathered = 0.0 if parts == 1 else whole * (1 - 1 / parts) if frozen else whole
        sampling = decoding._replace(work=decoding.work + in_half + gathered)
    if parts > 1:  # an update gathers the embeddings and two layers, of which the next one is under way
        activations += 2 * whole / shape.layers + count.embeddings * plain / 8 / GIB
    if training.reference == "cpu":  # on the GPU while it scores or decodes
        moved = frozen_copy / GIB
    # the largest of the phases: an update's activations, the trainer's own decoding, or the reference policy's
    phases = (activations + logits - sampling.cache, sampling.work - CONTEXT_GIB, moved + logits - sampling.cache, 0.0)
    return GpuMemory(weights, training=state / GIB, cache=sampling.cache, work=CONTEXT_GIB + max(phases))


def pass_tokens(training: TrainingConfig, longest: int) -> int:
    """Return the tokens of a forward and backward pass: a full one, or one sequence where that is longer."""
    return min(training.micro_batch * longest, max(training.micro_batch_tokens, longest))


def estimate_memory(model: ModelConfig) -> PlannedMemory:
    """Return the memory of a model's weights, and of keys and values per 1,000 tokens in 16 bits."""
    shape = read_architecture(model)
    return PlannedMemory(
        model=model.name,
        weights_gib=None if shape is None else weight_gib(shape, model),
        cache_gib_per_1000_tokens=None if shape is None else cache_gib(shape, 1000),
        cache_gib_per_context=None if shape is None else cache_gib(shape, model.context_length),
        context_length=model.context_length,
    )
