"""The trainer process: `python -m evorun.training.worker JOB.json`, or several of them under `accelerate launch`."""

import contextlib
import os
import sys
import threading
import traceback
from pathlib import Path
from typing import Any

from evorun.errors import ConfigError, EvorunError
from evorun.training.wire import Failed, FineTuning, Job, PolicyGradient, Ready, decode_job


def main(path: str) -> int:
    """Do the job that the file describes; return the exit code."""
    os.environ.setdefault("OMP_WAIT_POLICY", "PASSIVE")
    os.environ.setdefault("TOKENIZERS_PARALLELISM", "false")
    threading.Thread(target=_end_with_the_run, name="run", daemon=True).start()
    job = decode_job(Path(path).read_bytes())
    if job.training.num_processes == 1:
        _see_one_gpu()
    from evorun.training.serving import Link

    link = Link(job.socket) if int(os.environ.get("RANK", "0")) == 0 else None
    try:
        _train(job, link)
    except Exception as error:
        traceback.print_exc()
        if link is not None:
            with contextlib.suppress(OSError):  # the run has gone, or has ended us
                link.send(Failed(_one_line(error), isinstance(error, ConfigError)))
        return 1
    return 0


def _end_with_the_run() -> None:
    """End this process, whatever it is at, once the run's process is gone: it holds the other end of stdin."""
    while os.read(0, 1):  # not sys.stdin, whose lock the interpreter's own end could not get
        pass
    os._exit(1)


def _see_one_gpu() -> None:
    """Hide all GPUs but the first from torch, which is not imported yet: TRL's trainers refuse several in a process."""
    visible = os.environ.get("CUDA_VISIBLE_DEVICES", "0")
    os.environ["CUDA_VISIBLE_DEVICES"] = visible.partition(",")[0]


def _train(job: Job, link: Any) -> None:
    from transformers.utils.logging import disable_progress_bar

    from evorun.training.rollouts import Decoding
    from evorun.training.serving import Finished, Serving
    from evorun.training.settings import require_processes
    from evorun.training.weights import load

    disable_progress_bar()  # type: ignore[no-untyped-call]
    require_processes(job.training)
    model, tokenizer = load(job)
    decoding = Decoding(tokenizer, job.model, job.max_batch_size, job.prefix_cache_tokens)
    serving = Serving(link, decoding)
    trainer = _trainer(job, model, tokenizer, serving)
    serving.bind(trainer)
    if link is not None:
        link.send(Ready(sum(p.numel() for p in trainer.model.parameters() if p.requires_grad)))
    with contextlib.suppress(Finished):
        trainer.train(resume_from_checkpoint=job.checkpoint)
        serving.next_training()


def _trainer(job: Job, model: Any, tokenizer: Any, serving: Any) -> Any:
    if isinstance(job.objective, PolicyGradient):
        from evorun.training.policy_gradient import make_trainer as policy_gradient

        return policy_gradient(job, job.objective, model, tokenizer, serving)
    if isinstance(job.objective, FineTuning):
        from evorun.training.fine_tuning import make_trainer as fine_tuning

        return fine_tuning(job, job.objective, model, tokenizer, serving)
    raise TypeError(f"no trainer for {type(job.objective).__name__}")


def _one_line(error: Exception) -> str:
    text = " ".join(str(error).split()) or type(error).__name__
    return text if isinstance(error, EvorunError) else f"{type(error).__name__}: {text}"


if __name__ == "__main__":
    sys.exit(main(sys.argv[1]))
