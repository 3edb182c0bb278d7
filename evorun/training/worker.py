"""The trainer process: `python -m evorun.training.worker JOB.json`, or several of them under `accelerate launch`."""

import contextlib
import faulthandler
import os
import sys
import threading
import time
import traceback
from collections.abc import Callable
from pathlib import Path
from typing import Any

from evorun.errors import ConfigError, EvorunError
from evorun.models.memory import is_out_of_memory, measure_memory
from evorun.training.ranks import RANK, log_of_rank, shorten_frame, write_into
from evorun.training.wire import (
    Failed,
    FineTuning,
    Job,
    PolicyGradient,
    ProximalPolicy,
    Ready,
    Started,
    decode_job,
)

_LOST_PEER = (
    "Connection closed by peer",
    "Connection reset by peer",
    "Broken pipe",
    "Socket closed",
    "recvValue failed",
)
"""Parts of what gloo and NCCL say when another rank has ended."""


def main(path: str) -> int:
    """Train as the job file says; return the exit code."""
    faulthandler.enable()  # a crash in torch's native code leaves its Python stack in trainer.log
    # torch's OpenMP reads it at its start: threads that spin while they wait are very slow on shared cores.
    os.environ.setdefault("OMP_WAIT_POLICY", "PASSIVE")
    os.environ.setdefault("TOKENIZERS_PARALLELISM", "false")
    threading.Thread(target=_end_with_the_run, name="run", daemon=True).start()
    job = decode_job(Path(path).read_bytes())
    if job.training.processes == 1:
        _see_one_gpu()
    rank, ranks = (int(os.environ.get(name, default)) for name, default in (("RANK", "0"), ("WORLD_SIZE", "1")))
    if ranks > 1:
        write_into(log_of_rank(Path(job.log), rank, ranks))
    RANK.begin(Path(path).parent, rank)
    RANK.note("importing packages")
    from evorun.training.serving import Link

    link = Link(job.socket, job.secret) if rank == 0 else None
    try:
        _train(job, link)
    except Exception as error:
        traceback.print_exc()
        failure = _describe(error)
        RANK.fail(failure)  # before this process ends, which other ranks notice
        if link is not None:
            with contextlib.suppress(OSError):  # the run has ended, or is ending this process
                link.send(failure)
        return 1
    return 0


def _describe(error: Exception) -> Failed:
    status, text = RANK.status, " ".join(str(error).split()) or type(error).__name__
    if isinstance(error, EvorunError) and not is_out_of_memory(error):
        return Failed(reason=text, of_settings=isinstance(error, ConfigError), rank=status.rank, time=time.time())
    frames = traceback.format_tb(error.__traceback__)
    return Failed(
        reason=text if isinstance(error, EvorunError) else f"{type(error).__name__}: {text}",
        rank=status.rank,
        doing=status.doing,
        at=shorten_frame(frames[-1].splitlines()[0]),
        time=time.time(),
        lost_peer=any(saying in text for saying in _LOST_PEER),
        memory=measure_memory(error) if is_out_of_memory(error) else None,
        weights=status.weights,
        rows=status.rows,
        tokens=status.tokens,
    )


def _end_with_the_run() -> None:
    """End this process when the run's process, which holds the other end of stdin, has ended."""
    while os.read(0, 1):  # not sys.stdin, whose lock would block the interpreter's exit
        pass
    os._exit(1)  # not sys.exit, which would end only this thread and leave the main one in its forward pass


def _see_one_gpu() -> None:
    # TRL's trainers refuse several GPUs in a process; torch, not yet imported, will see only the first.
    os.environ["CUDA_VISIBLE_DEVICES"] = os.environ.get("CUDA_VISIBLE_DEVICES", "0").partition(",")[0]


def _train(job: Job, link: Any) -> None:
    from transformers.utils.logging import disable_progress_bar

    from evorun.training.rollouts import Decoding
    from evorun.training.serving import Finished, Serving
    from evorun.training.settings import meet, require_processes
    from evorun.training.sharding import configure
    from evorun.training.versions import Versions
    from evorun.training.weights import load, on_gpu

    disable_progress_bar()  # type: ignore[no-untyped-call]
    require_processes(job.training)
    configure(job.training, gpu=on_gpu(job))
    make_trainer = _import_trainer(job)
    RANK.note("reaching the other processes", waits=True)
    meet(job)
    if link is not None:
        link.send(Started())
    RANK.note("loading the model")
    model, tokenizer = load(job)
    RANK.note_weights(sum(tensor.nbytes for tensor in (*model.parameters(), *model.buffers())))
    RANK.note("making the trainer")
    decoding = Decoding(tokenizer, job.model, job.max_batch_size, job.prefix_cache_tokens)
    # A fine-tuning plays nothing during an update, and a second copy of all weights would take much memory.
    tunes_all = job.training.weights == "full" and isinstance(job.objective, FineTuning)
    former = 0 if tunes_all else job.training.former_versions
    versions = Versions.resumed(job.updates, job.checkpoint, former)
    serving = Serving(link, decoding, versions, offloads=bool(job.training.offload))
    trainer = make_trainer(job, job.objective, model, tokenizer, serving)
    serving.bind(trainer)
    if link is not None:
        link.send(Ready(sum(p.numel() for p in trainer.model.parameters() if p.requires_grad)))
    with contextlib.suppress(Finished):
        trainer.train(resume_from_checkpoint=job.checkpoint)
        # After the last step, the run may still ask for completions, a checkpoint and the export.
        serving.next_training()


def _import_trainer(job: Job) -> Callable[..., Any]:
    """Return what makes the objective's trainer. Each module loads TRL's trainers, which takes seconds."""
    match job.objective:
        case PolicyGradient():
            from evorun.training.policy_gradient import PolicyGradientTrainer

            return PolicyGradientTrainer
        case ProximalPolicy():
            from evorun.training.proximal_policy import ProximalTrainer

            return ProximalTrainer
        case FineTuning():
            from evorun.training.fine_tuning import make_trainer

            return make_trainer


if __name__ == "__main__":
    sys.exit(main(sys.argv[1]))
