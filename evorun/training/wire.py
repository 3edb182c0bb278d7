"""Messages between the run's process and the trainer process over a Unix socket: one answer to each command."""

import struct
from typing import NamedTuple

import msgspec

from evorun.models.base import Reply, Request
from evorun.models.config import ModelConfig
from evorun.training.config import TrainingConfig
from evorun.training.objectives import GradientSettings, ProximalSettings


class PolicyGradient(msgspec.Struct, frozen=True, kw_only=True, tag="policy_gradient"):
    """Training on completions with advantages, with TRL's GRPOTrainer."""

    loss: str
    """TRL's `loss_type` (grpo, dr_grpo, dapo, bnpo, cispo); see `evorun.training.batches.token_weight`."""
    settings: GradientSettings
    steps: int
    """Largest number of batches."""
    temperature: float
    """Sampling temperature of the completions."""


class ProximalPolicy(msgspec.Struct, frozen=True, kw_only=True, tag="ppo"):
    """Training on completions with rewards and a critic: PPO (`evorun.training.proximal_policy`)."""

    settings: ProximalSettings
    steps: int
    """Largest number of batches."""
    temperature: float
    """Sampling temperature of the completions."""


class FineTuning(msgspec.Struct, frozen=True, kw_only=True, tag="fine_tuning"):
    """Supervised training on conversations, with TRL's SFTTrainer."""

    train: str
    """File of conversations (`evorun.training.conversations`)."""
    held_out: str | None
    """File of the same kind to measure the loss on, or None."""
    source: str
    """File that the conversations come from, for messages to the user."""
    epochs: float
    """Passes over the conversations; may be a fraction."""
    batch: int
    """Conversations in a step."""
    max_length: int
    """Longest conversation, in tokens, its prompt included; longer ones are cut."""


Objective = PolicyGradient | ProximalPolicy | FineTuning


class Job(msgspec.Struct, frozen=True, kw_only=True):
    """Settings of a trainer process, read when it starts."""

    socket: str
    model: ModelConfig
    weights: str
    """Folder or hub id to load the base model from."""
    training: TrainingConfig
    objective: Objective
    seed: int
    folder: str
    """Folder for checkpoints."""
    checkpoint: str | None
    """Checkpoint to resume from, or None."""
    updates: int = 0
    """Updates behind the checkpoint's weights."""
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
    """Token ids of all that follows: the model's turns, end-of-sequence tokens included, and the tools' turns."""
    learned: tuple[bool, ...]
    """For each of `tokens`, true when it is the model's own, to be learned."""
    reward: float
    """Of the episode, as it is learned from."""
    advantage: float | None
    """Of each of its learned tokens; None: the trainer's critic estimates them (PPO)."""
    logprobs: tuple[float, ...]
    """For each of `tokens`, its log-probability under the sampler, at the sampling temperature; 0 where not learned."""


class Generate(msgspec.Struct, frozen=True, kw_only=True, tag="generate"):
    """Answer requests; answered by Replies."""

    requests: tuple[Request, ...]
    version: int | None
    """Answer with the weights of this update, the newest or the one before; None: with the adapter off, as the
    reference policy."""


class Train(msgspec.Struct, frozen=True, kw_only=True, tag="train"):
    """Make a step on these rows, or (fine-tuning) on the next conversations; answered by Figures."""

    number: int
    """Number of the update, from 1."""
    rows: tuple[Row, ...] = ()
    rewards_changed: bool = False
    """What rewards, such as a rubric, is another than in the update before."""


class Assess(msgspec.Struct, frozen=True, tag="assess"):
    """Report the size of a fine-tuning's data and the loss on the held-out part; answered by Figures."""


class Save(msgspec.Struct, frozen=True, tag="save"):
    """Write a checkpoint into this folder, which does not exist; answered by Done."""

    folder: str


class Export(msgspec.Struct, frozen=True, tag="export"):
    """Write the trained adapter (PEFT's format) or model into this folder; answered by Done."""

    folder: str
    base: str
    """Name of the base model in an adapter's configuration."""
    version: int | None = None
    """The weights of this update, the newest or (of an adapter) the one before; None: the newest."""


class Finish(msgspec.Struct, frozen=True, tag="finish"):
    """End; answered by Done."""


class Ready(msgspec.Struct, frozen=True, tag="ready"):
    """The first message, sent when the trainer has loaded everything."""

    trainable: int
    """Number of trained parameters."""


class Replies(msgspec.Struct, frozen=True, tag="replies"):
    """One reply for each request, in their order."""

    replies: tuple[Reply, ...]


class TokenAdvantages(NamedTuple):
    """The advantages that the learned tokens of a row were learned with."""

    mean: float
    sd: float
    """Standard deviation over the row's tokens (of a population)."""


class Figures(msgspec.Struct, frozen=True, tag="figures"):
    """The measurements of a step or an assessment."""

    figures: dict[str, float]
    advantages: tuple[TokenAdvantages | None, ...] = ()
    """Of each row of a step, where the trainer estimates them; None for a row without a learned token."""


class Done(msgspec.Struct, frozen=True, tag="done"):
    """The command has been carried out."""


class Failed(msgspec.Struct, frozen=True, tag="failed"):
    """The trainer cannot continue, and ends."""

    reason: str
    of_settings: bool = False
    """True when the same settings will always fail in this way."""


Command = Generate | Train | Assess | Save | Export | Finish
Answer = Ready | Replies | Figures | Done | Failed

LENGTH = struct.Struct("!Q")
"""Precedes each message: its length in bytes."""

encode = msgspec.msgpack.Encoder().encode
decode_command = msgspec.msgpack.Decoder(Command).decode
decode_answer = msgspec.msgpack.Decoder(Answer).decode
decode_job = msgspec.json.Decoder(Job).decode


def framed(message: Command | Answer) -> bytes:
    """Return a message's bytes on the socket."""
    body = encode(message)
    return LENGTH.pack(len(body)) + body
