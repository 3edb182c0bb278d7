"""What the run's process and the trainer process say to each other, over a Unix socket: one message, one answer."""

import struct
from typing import IO

import msgspec

from evorun.models.base import Reply, Request
from evorun.models.config import ModelConfig
from evorun.training.config import TrainingConfig


class PolicyGradient(msgspec.Struct, frozen=True, kw_only=True, tag="policy_gradient"):
    """Training on rewarded completions, with the trainers of TRL."""

    trainer: str
    """grpo | rloo."""
    loss: str
    """TRL's `loss_type` (grpo, dr_grpo, dapo, bnpo, cispo); of no effect with rloo."""
    rows: int
    """Completions in a batch."""
    group: int
    """Completions that share a baseline: so many, in a row, answer the same prompt."""
    steps: int
    """Batches at most."""
    minibatches: int
    """Optimiser steps a batch."""
    kl: float
    """Weight of the divergence from the reference policy (beta)."""
    clip_low: float
    clip_high: float
    temperature: float
    """Of the completions' sampling."""
    max_tokens: int


class FineTuning(msgspec.Struct, frozen=True, kw_only=True, tag="fine_tuning"):
    """Supervised training on conversations, with TRL's SFTTrainer."""

    train: str
    """File of conversations (`evorun.training.conversations`)."""
    held_out: str | None
    """File of the same kind that loss is measured on; None: no such measurement."""
    source: str
    """File that the conversations come from, for messages to the user."""
    epochs: float
    """Times that each conversation is learned from."""
    batch: int
    """Conversations in a step."""
    max_length: int
    """Tokens of a conversation, its prompt included, that are used at most; longer ones are cut."""


class Job(msgspec.Struct, frozen=True, kw_only=True):
    """All that the trainer process has to know before its first message."""

    socket: str
    model: ModelConfig
    weights: str
    """Folder or hub id to load the base model from."""
    training: TrainingConfig
    objective: PolicyGradient | FineTuning
    seed: int
    folder: str
    """Where checkpoints go."""
    checkpoint: str | None
    """Checkpoint to go on from; None: start anew."""
    device: str
    """auto | cpu | cuda."""
    max_batch_size: int
    """Completions decoded together."""
    prefix_cache_tokens: int


class Row(msgspec.Struct, frozen=True, kw_only=True, array_like=True):
    """An episode to learn from."""

    prompt: tuple[int, ...]
    """Token ids of the prompt as the engine saw it."""
    tokens: tuple[int, ...]
    """Token ids of all that came after it: the model's, end-of-sequence tokens included, and the tools' turns."""
    learned: tuple[bool, ...]
    """Which of `tokens` are learned from: the model's own."""
    signal: float | None
    """The reward; None: not to be learned from."""


class Generate(msgspec.Struct, frozen=True, kw_only=True, tag="generate"):
    """Answer requests with the present weights; answered by Replies."""

    requests: tuple[Request, ...]
    adapter: bool
    """False: with the adapter off, as the reference policy."""


class Train(msgspec.Struct, frozen=True, kw_only=True, tag="train"):
    """Make a step: on these completions, or (fine-tuning) on the data that come next; answered by Figures."""

    number: int
    """Of the update: 1 for the first."""
    rows: tuple[Row, ...] = ()


class Assess(msgspec.Struct, frozen=True, tag="assess"):
    """Say what the data of a fine-tuning are, and measure the loss on what is held out; answered by Figures."""


class Save(msgspec.Struct, frozen=True, tag="save"):
    """Write a checkpoint into this folder, which does not exist; answered by Done."""

    folder: str


class Export(msgspec.Struct, frozen=True, tag="export"):
    """Write what has been trained into this folder, in PEFT's format (full: as a model); answered by Done."""

    folder: str
    base: str
    """How an adapter names its base model."""


class Finish(msgspec.Struct, frozen=True, tag="finish"):
    """End; answered by Done."""


class Ready(msgspec.Struct, frozen=True, tag="ready"):
    """The first message: the trainer has loaded everything."""

    trainable: int
    """Parameters that are trained."""


class Replies(msgspec.Struct, frozen=True, tag="replies"):
    """One reply a request."""

    replies: tuple[Reply, ...]


class Figures(msgspec.Struct, frozen=True, tag="figures"):
    """What a step, or an assessment, has measured."""

    figures: dict[str, float]


class Done(msgspec.Struct, frozen=True, tag="done"):
    """What was asked for has been done."""


class Failed(msgspec.Struct, frozen=True, tag="failed"):
    """The trainer cannot go on, and ends."""

    reason: str
    of_settings: bool = False
    """Whether the same settings will always fail so."""


Command = Generate | Train | Assess | Save | Export | Finish
Answer = Ready | Replies | Figures | Done | Failed

LENGTH = struct.Struct("!Q")
"""In front of each message: its length in bytes."""

encode = msgspec.msgpack.Encoder().encode
decode_command = msgspec.msgpack.Decoder(Command).decode
decode_answer = msgspec.msgpack.Decoder(Answer).decode
decode_job = msgspec.json.Decoder(Job).decode


def framed(message: Command | Answer) -> bytes:
    """Return a message as it goes over the socket."""
    body = encode(message)
    return LENGTH.pack(len(body)) + body


def read_frame(stream: IO[bytes]) -> bytes | None:
    """Return the next message's bytes; None when the other side has gone."""
    head = stream.read(LENGTH.size)
    if len(head) < LENGTH.size:
        return None
    size = int(LENGTH.unpack(head)[0])
    body = stream.read(size)
    return body if len(body) == size else None
