"""Loads the base model and makes the adapter's configuration for TRL's trainers.

Imports torch: only the trainer process and a check before a teacher's run import this module.
"""

import os
from typing import Any

import torch
from transformers import AutoModelForCausalLM, AutoTokenizer

from evorun.errors import ConfigError, EngineError, first_line
from evorun.models.chat import require_chat_template
from evorun.models.experts import find_experts, find_routers
from evorun.models.requirements import load_skeleton
from evorun.models.transformers.engine import choose_device
from evorun.models.transformers.kv_cache import use_grouped_attention
from evorun.training.config import TrainingConfig
from evorun.training.experts import ALL_LINEAR, find_targets, former_names, is_named
from evorun.training.wire import FineTuning, Job

SCALES_LOGITS = ("final_logit_softcapping", "logit_scale", "logits_scaling", "lm_head_multiplier", "output_multiplier")
"""Settings of models that change their output layer's logits."""
LANGUAGE_MODEL = "language_model"
"""Name in transformers of the text part of multimodal models (Gemma 3 and others)."""


def load(job: Job) -> tuple[Any, Any]:
    """Return the base model, in bfloat16 if it is frozen and computes in bfloat16, else in float32, and its tokenizer.

    Raises EngineError when they cannot be loaded, ConfigError when the adapter does not fit the model.
    """
    try:
        tokenizer = AutoTokenizer.from_pretrained(job.weights, trust_remote_code=False)
        layers = load_skeleton(job.weights)
    except Exception as error:
        raise EngineError(f"model '{job.model.id}': transformers cannot load it: {first_line(error)}") from error
    # Check before loading the weights, which takes minutes.
    require_chat_template(tokenizer, job.model)
    if job.training.weights == "lora":
        require_targets(layers, job.training.target_modules)
        refuse_dropout(layers, job.training)
        if isinstance(job.objective, FineTuning):
            refuse_output_layer(layers, job.training.target_modules)
    # Frozen weights need no more precision than they were stored with; trained ones do.
    frozen = mixed_precision(job) and job.training.weights == "lora"
    return load_model(job, torch.bfloat16 if frozen else torch.float32), tokenizer


def load_model(job: Job, dtype: torch.dtype) -> Any:
    """Return the base model with weights of this type. Raises EngineError when they cannot be loaded."""
    try:
        model: Any = AutoModelForCausalLM.from_pretrained(
            job.weights,
            dtype=dtype,
            attn_implementation=job.attention,
            trust_remote_code=False,
            **{**_read_as(job), **_quantisation(job, dtype)},
        )
    except Exception as error:
        raise EngineError(f"model '{job.model.id}': transformers cannot load it: {first_line(error)}") from error
    use_grouped_attention(model)
    for layer in model.modules():
        # bitsandbytes would repack these weights when a CPU decodes, and then compute wrong gradients from them.
        if hasattr(layer, "support_avx512bf16_for_cpu"):
            layer.support_avx512bf16_for_cpu = False
    return model


def _read_as(job: Job) -> dict[str, Any]:
    """Return further arguments of `from_pretrained` by the format of the stored weights."""
    stored = load_skeleton(job.weights).config.to_dict().get("quantization_config") or {}
    if stored.get("quant_method") != "mxfp4":
        return {}
    from transformers.utils.quantization_config import Mxfp4Config

    # gpt-oss's experts; kernels for 4 bits, where they are installed, have no gradient.
    return {"quantization_config": Mxfp4Config(dequantize=True)}


def _quantisation(job: Job, dtype: torch.dtype) -> dict[str, Any]:
    """Return transformers' settings of quantised base weights; dtype: of all else, and of the arithmetic."""
    if job.training.quantise is None:
        return {}
    from transformers import BitsAndBytesConfig

    settings: dict[str, Any] = {"load_in_8bit": True}
    if job.training.quantise == "nf4":  # as in QLoRA: the scales of blocks are quantised, too
        settings = {
            "load_in_4bit": True,
            "bnb_4bit_quant_type": "nf4",
            "bnb_4bit_use_double_quant": True,
            "bnb_4bit_compute_dtype": dtype,
        }
    device = f"cuda:{os.environ.get('LOCAL_RANK', '0')}" if on_gpu(job) else "cpu"
    configured = BitsAndBytesConfig(**settings)  # type: ignore[no-untyped-call]
    return {"quantization_config": configured, "device_map": {"": device}}


def keep_adapter_precise(model: Any) -> None:
    """Let the adapter of a quantised model learn in float32; TRL makes it bfloat16, where small steps are lost."""
    for parameter in model.parameters():
        if parameter.requires_grad:
            parameter.data = parameter.data.float()


def adapter(training: TrainingConfig, model: Any) -> Any:
    """Return PEFT's configuration of an adapter on the model, as `training` describes it."""
    from peft import LoraConfig

    targets = training.target_modules
    sparse = find_targets(model, targets)
    if sparse is None and ALL_LINEAR in targets and len(targets) > 1:
        targets = sorted({*linear_layers(model), *targets} - {ALL_LINEAR})
    # `all-linear` would also adapt the vision and audio parts, which process no text.
    multimodal = model.config.get_text_config() is not model.config
    named = any(LANGUAGE_MODEL in name for name, _ in model.named_modules())
    return LoraConfig(
        r=training.rank,
        lora_alpha=training.alpha,
        lora_dropout=training.dropout,
        target_modules=sparse.modules if sparse else ALL_LINEAR if targets == [ALL_LINEAR] else list(targets),
        target_parameters=(sparse.parameters or None) if sparse else None,
        rank_pattern=dict.fromkeys(sparse.joined, 2 * training.rank) if sparse else {},
        alpha_pattern=dict.fromkeys(sparse.joined, 2 * training.alpha) if sparse else {},
        exclude_modules=rf"(?!.*{LANGUAGE_MODEL}).*" if multimodal and named else None,
        task_type="CAUSAL_LM",
    )


def linear_layers(model: Any) -> list[str]:
    """Return the names of a model's linear layers (last components), without the output layer."""
    output = model.get_output_embeddings()
    linear = {
        name for name, module in model.named_modules() if isinstance(module, torch.nn.Linear) and module is not output
    }
    return sorted({name.rpartition(".")[2] for name in linear})


def adapts_output(model: Any, targets: list[str]) -> bool:
    """Return whether an adapter's targets include the model's output layer."""
    output = model.get_output_embeddings()
    names = [name for name, module in model.named_modules() if module is output]
    return any(is_named(name, targets) for name in names)


def on_gpu(job: Job) -> bool:
    """Return whether the job trains on a GPU. Raises EngineError if one is configured and there is none."""
    return choose_device(job.device) == "cuda"


def mixed_precision(job: Job) -> bool:
    """Return whether the model computes in bfloat16."""
    return job.training.precision == "bfloat16" or (job.training.precision == "auto" and on_gpu(job))


def require_targets(model: Any, targets: list[str]) -> None:
    """Raise ConfigError if the model has no layers to adapt under a name. The model needs no weights."""
    linear = [name for name, module in model.named_modules() if isinstance(module, torch.nn.Linear)]
    linear += [name for name in (*find_experts(model), *find_routers(model)) if name not in linear]
    known = sorted({name.rpartition(".")[2] for name in linear})
    for target in targets:
        if target != ALL_LINEAR and not any(is_named(name, [target]) for name in (*linear, *former_names(model))):
            raise ConfigError(
                f"training.target_modules: the model has no linear layer '{target}'; it has {', '.join(known)} "
                f"({ALL_LINEAR}: all except the output layer{' and routers' if find_experts(model) else ''})"
            )
    find_targets(model, targets)
    scales = [name for name in SCALES_LOGITS if getattr(model.config.get_text_config(), name, None) not in (None, 1)]
    if scales and adapts_output(model, targets):
        raise ConfigError(
            f"training.target_modules: expected no output layer of a model that scales or caps its logits "
            f"({', '.join(scales)}), got {', '.join(targets)}"
        )


def refuse_dropout(model: Any, training: TrainingConfig) -> None:
    """Raise ConfigError for dropout in an adapter on experts, which PEFT applies to weights, not to inputs."""
    targets = find_targets(model, training.target_modules)
    if training.dropout and targets is not None and targets.parameters:
        raise ConfigError(
            f"training.dropout: expected 0 with an adapter on {', '.join(targets.parameters)}, got {training.dropout}; "
            "or name only layers of the attention in training.target_modules"
        )


def refuse_output_layer(model: Any, targets: list[str]) -> None:
    """Raise ConfigError if a fine-tuning adapter's targets include the output layer."""
    if adapts_output(model, targets):
        raise ConfigError(
            f"training.target_modules: expected no output layer with method=sft, got {', '.join(targets)}: TRL's loss "
            f"ignores an adapter there; use {ALL_LINEAR}, which leaves it out"
        )
