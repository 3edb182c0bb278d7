"""A trainer on the tiny model of `steps.py` that has a trouble: `troubled_trainer.py JOB.json`.

The job's model names the trouble. It befalls the last rank, in the forward pass.
"""

import os
import signal
import sys
import threading
from typing import Any

import torch
from steps import tiny

from evorun.training import weights, worker

MOST_TOKENS = 300
"""More tokens in a pass are too many for `out of memory`."""


def troubled(trouble: str) -> tuple[Any, Any]:
    """Return the tiny model with a trouble, and its tokenizer."""
    model, tokenizer = tiny()
    last = int(os.environ.get("RANK", "0")) + 1 == int(os.environ.get("WORLD_SIZE", "1"))

    def befall(layer: Any, args: tuple[torch.Tensor, ...]) -> None:
        rows, tokens = args[0].shape[:2]
        if trouble == "raises":
            raise ValueError("no such\nlayer")
        if trouble == "hangs":
            threading.Event().wait()
        if trouble == "is killed":
            print("almost there", flush=True)
            os.kill(os.getpid(), signal.SIGKILL)
        if trouble == "out of memory" and rows * tokens > MOST_TOKENS:
            raise torch.OutOfMemoryError("CUDA out of memory. Tried to allocate 2.00 GiB. GPU 0 has less.")
        if trouble == "never enough memory":
            raise MemoryError

    if last:
        model.model.layers[1].register_forward_pre_hook(befall)
    return model, tokenizer


if __name__ == "__main__":
    load = weights.load
    weights.load = lambda job: load(job) if job.model.name == "sound" else troubled(job.model.name)
    sys.exit(worker.main(sys.argv[1]))
