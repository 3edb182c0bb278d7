"""Serves the run's commands in the trainer process between two steps.

Only the first of several processes is connected to the run; it passes each command on to the others.

Imports torch and accelerate: only the trainer process imports this module.
"""

import functools
import math
import socket
from collections.abc import Mapping
from contextlib import nullcontext
from pathlib import Path
from typing import IO, Any

import msgspec
import torch
from accelerate.utils import broadcast_object_list, gather_object

from evorun.errors import TrainingError
from evorun.models.base import Reply
from evorun.models.cache import apply_umask
from evorun.training import tcp
from evorun.training.offload import Offload
from evorun.training.ranks import RANK
from evorun.training.rollouts import Decoding
from evorun.training.sending import PolicyWeights, Sender
from evorun.training.sharding import is_sharded, release, whole
from evorun.training.speed import Meter
from evorun.training.versions import Versions
from evorun.training.wire import (
    Answer,
    Called,
    Command,
    Done,
    EngineCall,
    Evaluate,
    Export,
    Figures,
    Finish,
    Generate,
    Replies,
    Save,
    Send,
    Train,
    decode_command,
    frame,
    read_frame,
)


class Finished(Exception):
    """Raised to end TRL's training loop when the run needs no more steps."""


class Link:
    """The first trainer process's end of the socket."""

    def __init__(self, address: str, secret: str = "") -> None:
        """address, secret: those of the job."""
        if secret:
            host, _, port = address.rpartition(":")
            self._socket = tcp.connect(host, int(port), secret)
        else:
            self._socket = socket.socket(socket.AF_UNIX)
            self._socket.connect(address)
        self._stream: IO[bytes] = self._socket.makefile("rb")

    def receive(self) -> Command:
        """Return the next command. Raises Finished when the run has ended."""
        body = read_frame(self._stream)
        if body is None:
            raise Finished
        command: Command = decode_command(body)
        return command

    def send(self, answer: Answer) -> None:
        """Answer a command."""
        self._socket.sendall(frame(answer))


class Serving:
    """Carries out commands with one of TRL's trainers, which calls `next_training` when it is ready for a step."""

    def __init__(self, link: Link | None, decoding: Decoding, versions: Versions, *, offloads: bool = False) -> None:
        """link: None in all processes except the first. offloads: see `TrainingConfig.offload`."""
        self._link = link
        self._decoding = decoding
        self._versions = versions
        self._trainer: Any = None
        self._offloads = offloads
        self._offload: Offload | None = None
        self._measured = 0
        self._training = False
        self._meter = Meter()
        self._sender: Sender | None = None

    def bind(self, trainer: Any) -> None:
        """Set the trainer whose weights are served."""
        self._trainer = trainer
        # TRL would write a model card with each checkpoint.
        trainer.create_model_card = lambda *_, **__: None
        # PEFT would also write the base model's embeddings beside an adapter of the output layer.
        if hasattr(self._model, "peft_config"):
            self._model.save_pretrained = functools.partial(self._model.save_pretrained, save_embedding_layers=False)

    def next_training(self) -> Train:
        """Report the completed step, if any, then serve until the run asks for the next step, and return that.

        Raises Finished if the run ends instead.
        """
        if self._offloads and self._offload is None:
            self._offload = Offload(self._trainer)  # not before transformers has made the optimiser
        self._free_memory()  # of an engine on the same GPU, which wakes up now
        if self._training:
            figures = Figures(self._new_figures(), tuple(getattr(self._trainer, "advantages", ())), self._meter.read())
            self._answer(figures)
        self._training = False
        while True:
            # Every process must take part in each command, since steps, saving and generation synchronise.
            RANK.note("waiting for the next command", waits=True)
            received: list[Any] = [self._link.receive() if self._link is not None else None]
            broadcast_object_list(received)
            command: Command = received[0]
            RANK.begin_command(_describe(command))
            release(self._model)
            # The other commands read the weights where they are.
            if self._offload is not None and isinstance(command, Train | Evaluate | Generate):
                self._offload.come_back()
            if isinstance(command, Train):
                self._training = True
                self._meter.begin(self._trainer, command)
                # Not 0 at the first step: a checkpoint restores a resumed trainer's earlier log.
                self._measured = len(self._trainer.state.log_history)
                self._decoding.weights_changed()
                self._versions.advance(self._model, command.number)
                return command
            if isinstance(command, Finish):
                self._answer(Done())
                raise Finished
            answer = self._carry_out(command)
            self._free_memory()
            self._answer(answer)

    def _free_memory(self) -> None:
        """Free memory of the GPU before the run goes on."""
        if self._offload is not None:
            self._decoding.weights_changed()
            self._offload.leave()
        elif self._training:
            torch.cuda.empty_cache()

    @property
    def _model(self) -> Any:
        return self._trainer.policy

    def _answer(self, answer: Answer) -> None:
        if self._link is not None:
            self._link.send(answer)

    def _carry_out(self, command: Command) -> Answer:
        if isinstance(command, Generate):
            return Replies(tuple(self._generate(command)))
        if isinstance(command, Evaluate):
            return Figures(self._finite(self._trainer.evaluate()))
        if isinstance(command, Save):
            self._save(Path(command.folder))
        elif isinstance(command, Export):
            self._export(command)
        elif isinstance(command, Send):
            self._send(command)
        return Done()

    def _generate(self, command: Generate) -> list[Reply]:
        """Answer the requests; each of n processes answers every n-th request."""
        accelerator, versions = self._trainer.accelerator, self._versions
        count, index = accelerator.num_processes, accelerator.process_index
        requests, version = command.requests[index::count], command.version
        policy = self._model
        # All weights are in float32 while they are trained, and compute in bfloat16 on a GPU.
        computing = nullcontext() if hasattr(policy, "peft_config") else accelerator.autocast()
        used = self._trainer.reference.use(policy) if version is None else versions.use(policy, version)
        # With its own part of the policy alone, a process would need the others at every layer, but each decodes other
        # texts at another pace.
        with used as model, computing, whole(self._trainer) if model is policy else nullcontext():
            mine = self._decoding.decode(model, requests, version)
        RANK.note("done", waits=True)
        parts = gather_object([mine])
        return [parts[i % count][i // count] for i in range(len(command.requests))]

    def _save(self, folder: Path) -> None:
        """Let TRL write its checkpoint, and move it to `folder`."""
        trainer = self._trainer
        # transformers has no public method that writes a checkpoint outside a step.
        trainer._save_checkpoint(trainer.model, trial=None)
        trainer.accelerator.wait_for_everyone()
        written = Path(trainer.args.output_dir) / f"checkpoint-{trainer.state.global_step}"
        self._versions.save(self._model, None if self._link is None else written)
        if self._link is not None:
            written.rename(folder)

    def _export(self, command: Export) -> None:
        """Write the weights of a version, and the tokenizer beside all weights of a model."""
        folder, trainer = Path(command.folder), self._trainer
        halved = trainer.args.bf16 and not (is_sharded(self._model) or hasattr(self._model, "peft_config"))
        with self._versions.use(self._model, command.version) as model:
            if not halved:
                trainer.save_model(str(folder))
            elif trainer.args.should_save:
                # They compute in bfloat16, in which engines serve them; a checkpoint keeps float32.
                model.save_pretrained(folder, state_dict=_halve(model.state_dict()))
                trainer.processing_class.save_pretrained(folder)
                _edit(folder / "config.json", dtype="bfloat16")
        self._trainer.accelerator.wait_for_everyone()
        if self._link is not None:
            # Pickled arguments with local paths, and PEFT's empty template of a model card.
            for name in ("training_args.bin", "README.md"):
                (folder / name).unlink(missing_ok=True)
            # An adapter should name its base model, not the folder from which that was loaded.
            config = folder / "adapter_config.json"
            if config.exists():
                _edit(config, base_model_name_or_path=command.base)
            apply_umask(folder)

    def _send(self, command: Send) -> None:
        """Send the weights of a version to an engine, from this process's GPU."""
        accelerator = self._trainer.accelerator
        if self._sender is None:
            self._sender = Sender(accelerator.process_index, self._ask_engine)
        with self._versions.use(self._model, command.version) as model:
            dtype = torch.bfloat16 if self._trainer.args.bf16 else None
            self._sender.send(command, PolicyWeights(model, dtype, accelerator.device))

    def _ask_engine(self, step: str, payload: Mapping[str, Any]) -> None:
        assert self._link is not None  # noqa: S101 - only the first process asks
        self._link.send(EngineCall(step, dict(payload)))
        answer = self._link.receive()
        if not isinstance(answer, Called):
            raise TrainingError(f"expected to hear of the engine, got {_describe(answer)}")

    def _new_figures(self) -> dict[str, float]:
        """Return the means of TRL's figures since the last report: a step may contain several optimiser steps.

        `clipped_gradients` is the share of optimiser steps whose gradient was longer than `training.max_grad_norm`.

        Raises TrainingError if a figure is not finite.
        """
        logged = [entry for entry in self._trainer.state.log_history[self._measured :] if "loss" in entry]
        figures = {}
        for name, figure in FIGURES.items():
            values = [float(entry[name]) for entry in logged if entry.get(name) is not None]
            if values:
                figures[figure] = sum(values) / len(values)
        # transformers reports the norm before clipping; 0 stands for training.max_grad_norm=null.
        norms, longest = (
            [entry["grad_norm"] for entry in logged if "grad_norm" in entry],
            self._trainer.args.max_grad_norm,
        )
        if norms:
            figures["clipped_gradients"] = sum(norm > longest > 0 for norm in norms) / len(norms)
        return self._finite(figures)

    def _finite(self, figures: dict[str, float]) -> dict[str, float]:
        """Return the figures. Raises TrainingError if one is not finite, as after a divergence."""
        for figure, value in figures.items():
            if not math.isfinite(value):
                raise TrainingError(
                    f"optimiser step {self._trainer.state.global_step}: expected numbers, got {figure} {value}; lower "
                    "training.learning_rate"
                )
        return figures


def _halve(state: Mapping[str, torch.Tensor]) -> dict[str, torch.Tensor]:
    """Return tensors in bfloat16 in main memory; those that share memory still do, so that each is written once."""
    halves: dict[int, torch.Tensor] = {}
    for tensor in state.values():
        if tensor.data_ptr() not in halves:
            dtype = torch.bfloat16 if tensor.is_floating_point() else tensor.dtype
            halves[tensor.data_ptr()] = tensor.to("cpu", dtype)
    return {name: halves[tensor.data_ptr()] for name, tensor in state.items()}


def _edit(file: Path, **changes: Any) -> None:
    """Change some settings in a JSON file."""
    settings = {**msgspec.json.decode(file.read_bytes()), **changes}
    file.write_bytes(msgspec.json.format(msgspec.json.encode(settings), indent=2))


def _describe(command: Command) -> str:
    """Return what a rank is doing while it carries out a command, for messages to the user."""
    if isinstance(command, Train):
        return f"update {command.number}"
    return {
        Generate: "generation",
        Evaluate: "evaluation",
        Save: "checkpoint",
        Export: "export",
        Send: "transfer of weights",
        Called: "transfer of weights",
        Finish: "end",
    }[type(command)]


FIGURES = {
    "loss": "loss",
    "grad_norm": "grad_norm",
    "learning_rate": "learning_rate",
    "entropy": "entropy",
    "entropy_fraction": "entropy_fraction",
    "kl": "kl",
    "episode_kl": "episode_kl",
    "clip_ratio": "clip_ratio",
    "sampler_kl": "sampler_kl",
    "policy_loss": "policy_loss",
    "value_loss": "value_loss",
    "value_clip_ratio": "value_clip_ratio",
    "explained_variance": "explained_variance",
    "return": "return",
    "return_spread": "return_spread",
    "advantage_spread": "advantage_spread",
    "value_scale": "value_scale",
    "mean_token_accuracy": "token_accuracy",
}
"""Figures kept from TRL's log, with evorun's names for them."""


def seed_everything(*numbers: int) -> None:
    """Seed all random generators of this process from some numbers."""
    import numpy as np
    from transformers import set_seed

    set_seed(int(np.random.SeedSequence(numbers).generate_state(1)[0]))
