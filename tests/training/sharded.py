"""Trainers whose processes share the weights, in forks of one process, which has imported what takes long to.

`python sharded.py FOLDER PART:KIND[:again]...` carries out a part's commands in one process (`FOLDER/PART/one`), in
two that share the weights (`PART/KIND`), and, of `again`, in two that begin from the first checkpoint of those
(`PART/KIND-again`).
"""

import contextlib
import os
import socket
import sys
from collections.abc import Callable, Sequence
from functools import partial
from pathlib import Path
from typing import Any

import torch
from forked import forked
from given_commands import GivenCommands
from steps import EXACT, random_rows
from test_fine_tuning import Tuned

from building import make_job, policy_gradient, proximal_policy, training_config
from evorun.models import Message, Request, Sampling
from evorun.models.config import ModelConfig
from evorun.training.fine_tuning import make_trainer
from evorun.training.policy_gradient import PolicyGradientTrainer
from evorun.training.proximal_policy import ProximalTrainer
from evorun.training.rollouts import Decoding
from evorun.training.serving import Finished, Serving
from evorun.training.sharding import configure
from evorun.training.versions import Versions
from evorun.training.weights import load
from evorun.training.wire import Command, Evaluate, Export, Generate, Job, Save, Train
from tiny_llama import write_talking_llama, write_tiny_llama

PARTS = ("adapter", "all", "critic", "bfloat16")
"""Policy gradients on an adapter, fine-tuning of all weights, PPO with an adapter and a critic of all weights, and
policy gradients in bfloat16, with the divergence from a reference policy."""
ASKED = tuple(
    # of different lengths, so that processes decode at paces of their own
    Request(
        messages=(Message(role="user", content=f"Count to {n}."),), sampling=Sampling(temperature=0.0, max_tokens=3 + n)
    )
    for n in range(3)
)


def commands(part: str, folder: Path, first: int, *, again: bool) -> list[Command]:
    """Return the commands from an update on. again: others begin there again, and leave a checkpoint to compare."""
    rows = [() if part == "all" else tuple(random_rows(count, seed=count)) for count in (5, 6)]
    asked = ASKED[:2] if part == "critic" else ASKED  # by day it is the only part
    ask = [Generate(requests=asked, version=version) for version in (0, 1, None)]
    if part == "all":
        ask.pop()  # a fine-tuning has no reference
    told: list[Command] = [Train(number=1, rows=rows[0]), *ask, Save(str(folder / "update-1"))]
    told = told if first == 1 else []
    told += [Train(number=2, rows=rows[1]), Generate(requests=asked, version=2)]
    told += [Save(str(folder / "update-2"))] if again else []
    told += [Generate(requests=ASKED, version=1), Export(str(folder / "former"), "tiny", 1)]
    told += [Evaluate()] if part == "all" else []
    return [*told, Export(str(folder / "trained"), "tiny", 2)]


def carry_out(
    part: str, model: Path, folder: Path, kind: str | None, checkpoint: Path | None = None, *, again: bool
) -> None:
    """Carry out the commands in this process; the first one saves their answers."""
    folder.mkdir(parents=True, exist_ok=True)
    shared: dict[str, Any] = {"shard": kind, "num_processes": 2 if kind else 1}
    if part == "adapter":
        told = policy_gradient(steps=3)
        training = training_config(**{**EXACT, "learning_rate": 10.0, "max_grad_norm": 1.0, **shared})
        job = make_job(model, folder, training, told)
    elif part == "bfloat16":
        training = training_config(**{**EXACT, "learning_rate": 10.0, "precision": "bfloat16", **shared})
        job = make_job(model, folder, training, policy_gradient(steps=3, kl=0.1))
    elif part == "critic":
        # The reference policy scores the batch, and PopArt changes the value head between steps.
        ppo = proximal_policy(steps=3, epochs=1, minibatches=2, critic="full", popart=0.1)
        training = training_config(**{**EXACT, "learning_rate": 12.0, "max_grad_norm": 1.0, **shared})
        job = make_job(model, folder, training, ppo)
    else:
        job = Tuned(model, folder, batch=4, weights="full", micro_batch=1, **shared).job
    configure(job.training, gpu=False)
    first = os.environ.get("RANK", "0") == "0"
    link = GivenCommands(commands(part, folder, 1 if checkpoint is None else 2, again=again)) if first else None
    weights, tokenizer = load(job)
    decoding = Decoding(tokenizer, ModelConfig(name="tiny", id=str(model), context_length=256), 2, 1024)
    resumed = None if checkpoint is None else str(checkpoint)
    serving = Serving(link, decoding, Versions.resumed(0 if checkpoint is None else 1, resumed))  # type: ignore[arg-type]
    trainer = make(part, job, weights, tokenizer, serving)
    serving.bind(trainer)
    with contextlib.suppress(Finished):
        trainer.train(resume_from_checkpoint=resumed)
        serving.next_training()
    if link is not None:
        torch.save(link.answers, folder / "answers.pt")


def make(part: str, job: Job, weights: Any, tokenizer: Any, serving: Serving) -> Any:
    objective: Any = job.objective
    if part in ("adapter", "bfloat16"):
        return PolicyGradientTrainer(job, objective, weights, tokenizer, serving)
    if part == "critic":
        return ProximalTrainer(job, objective, weights, tokenizer, serving)
    return make_trainer(job, objective, weights, tokenizer, serving)


def in_two(work: Callable[[], None]) -> None:
    """Do some work in two forks that find each other."""
    with socket.socket() as free:
        free.bind(("127.0.0.1", 0))
        shared = {"WORLD_SIZE": "2", "MASTER_ADDR": "127.0.0.1", "MASTER_PORT": str(free.getsockname()[1])}
    children = [forked(work, {**shared, "RANK": rank, "LOCAL_RANK": rank}) for rank in ("0", "1")]
    assert [os.waitpid(child, 0)[1] for child in children] == [0, 0]


def main(folder: Path, chosen: Sequence[str]) -> None:
    for part in PARTS:
        kinds = [word.split(":")[1:] for word in chosen if word.startswith(f"{part}:")]
        if not kinds:
            continue
        model = folder / part / "model"
        write_tiny_llama(model) if part == "all" else write_talking_llama(model, layers=1 if part == "critic" else 3)
        again = any(len(kind) > 1 for kind in kinds)
        one = forked(partial(carry_out, part, model, folder / part / "one", None, again=again))
        assert os.waitpid(one, 0)[1] == 0
        for kind, *_ in kinds:
            in_two(partial(carry_out, part, model, folder / part / kind, kind, again=again))
            checkpoint = folder / part / kind / "update-1"
            if again:
                in_two(partial(carry_out, part, model, folder / part / f"{kind}-again", kind, checkpoint, again=True))


if __name__ == "__main__":
    main(Path(sys.argv[1]), sys.argv[2:])
