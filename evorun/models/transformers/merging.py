"""Writes a model with an adapter merged into its weights, as any other model of transformers."""

from pathlib import Path

from evorun.errors import EngineError, first_line
from evorun.models.adapters import merge_adapter, read_adapter
from evorun.models.cache import fill_atomically
from evorun.models.config import ModelConfig
from evorun.models.embedded import resolve


def write_merged(model: ModelConfig, adapter: Path, output: Path) -> None:
    """Write the model with the adapter merged, and its tokenizer, into a new or empty folder.

    Weights keep the type in which they are stored, or that of `model.dtype`. Raises EngineError when the model or the
    adapter cannot be loaded, or they do not fit, or when the folder cannot be written.
    """
    found = read_adapter(adapter)
    try:
        import torch
        from transformers import AutoModelForCausalLM, AutoTokenizer
        from transformers.utils.logging import disable_progress_bar
    except ImportError as error:
        raise EngineError(f"format=model: {first_line(error)}; run `pip install 'evorun[train]'`") from error
    path = resolve(model)
    disable_progress_bar()  # type: ignore[no-untyped-call]
    dtype = "auto" if model.dtype == "auto" else getattr(torch, model.dtype)
    try:
        tokenizer = AutoTokenizer.from_pretrained(path, trust_remote_code=False)
        weights = AutoModelForCausalLM.from_pretrained(path, dtype=dtype, trust_remote_code=False)
    except Exception as error:
        raise EngineError(f"model '{model.id}': transformers cannot load it: {first_line(error)}") from error
    merged = merge_adapter(weights, found, model.id)
    try:
        with fill_atomically(output) as unfinished:
            merged.save_pretrained(unfinished)
            tokenizer.save_pretrained(unfinished)
    except OSError as error:
        raise EngineError(f"cannot write the model into {output}: {error.strerror or error}") from error
