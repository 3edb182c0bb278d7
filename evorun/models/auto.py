"""`engine=auto`: the fastest local engine that this machine can run."""

import shutil
from importlib.util import find_spec


def automatic_engine() -> str:
    """Return `vllm` where it is installed and an NVIDIA driver is present, else `transformers`."""
    has_gpu = shutil.which("nvidia-smi") is not None
    return "vllm" if has_gpu and find_spec("vllm") is not None else "transformers"
