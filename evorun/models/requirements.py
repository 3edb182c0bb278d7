"""Checks engines' requirements on this machine without loading a model: packages, and files of weights."""

from collections.abc import Iterable
from functools import lru_cache
from importlib.util import find_spec
from pathlib import Path
from typing import Any

import msgspec

from evorun.errors import EngineError, first_line
from evorun.models import embedded
from evorun.models.config import ModelConfig

WEIGHT_SUFFIXES = (".safetensors", ".bin", ".pt", ".gguf")


def find_missing_packages(packages: Iterable[str]) -> list[str]:
    """Return the packages that are not installed, without importing any."""
    return [package for package in packages if find_spec(package) is None]


def require_weights(model: ModelConfig) -> None:
    """Check that a model's weights exist: in a folder, in the embedded model's package, or on a hub.

    Raises EngineError with one line.
    """
    if model.api:
        raise EngineError(
            f"model '{model.id}' is served by its vendor only: use engine=server (OpenAI's: engine=openai)"
        )
    if model.embedded:
        embedded.require_source()
        return
    require_config(model)
    path = Path(embedded.resolve(model))
    if path.is_dir() and not any(file.suffix in WEIGHT_SUFFIXES for file in path.iterdir()):
        raise EngineError(
            f"model '{model.id}': expected weights ({', '.join('*' + s for s in WEIGHT_SUFFIXES)}) in {path}, found "
            "none; download the model again"
        )


def require_config(model: ModelConfig) -> None:
    """Check that a model's id is a hub's, or a folder with a readable config.json. Raises EngineError with one line."""
    if (folder := embedded.find_folder(model.id)) is None:
        return
    file = folder / "config.json"
    if not file.is_file():
        raise EngineError(f"model '{model.id}': expected config.json in {folder}, found none; give a model's folder")
    try:
        msgspec.json.decode(file.read_bytes(), type=dict[str, Any])
    except (OSError, msgspec.DecodeError) as error:
        raise EngineError(
            f"model '{model.id}': expected a JSON object in {file}, it cannot be read ({first_line(error)}); download "
            "the model again"
        ) from error


@lru_cache(maxsize=2)
def load_skeleton(folder: str) -> Any:
    """Return a model of transformers without weights: only the names and shapes of its layers, whatever its size.

    Raises transformers' errors for an unknown or missing model.
    """
    import torch
    from transformers import AutoConfig, AutoModelForCausalLM

    with torch.device("meta"):  # allocates nothing
        config = AutoConfig.from_pretrained(folder, trust_remote_code=False)
        return AutoModelForCausalLM.from_config(config, trust_remote_code=False)  # type: ignore[no-untyped-call]
