"""Messages between the run's process and the trainer process over a socket: one answer per command."""

import struct
from typing import IO, Any, NamedTuple

import msgspec
from msgspec import UNSET, UnsetType

from evorun.models.base import Reply, Request
from evorun.models.config import ModelConfig
from evorun.models.memory import MemorySizes
from evorun.training.config import TrainingConfig
from evorun.training.objectives import GradientSettings, ProximalSettings


class PolicyGradient(msgspec.Struct, frozen=True, kw_only=True, tag="policy_gradient"):
    """Training on completions with advantages, with TRL's GRPOTrainer."""

    loss: str
    """TRL's `loss_type` (grpo, dr_grpo, dapo, bnpo, cispo); see `evorun.training.batches.token_weight`."""
    settings: GradientSettings
    steps: int
    """Maximum number of batches."""
    temperature: float
    """Sampling temperature of the completions."""


class ProximalPolicy(msgspec.Struct, frozen=True, kw_only=True, tag="ppo"):
    """Training on completions with rewards and a critic: PPO (`evorun.training.proximal_policy`)."""

    settings: ProximalSettings
    steps: int
    """Maximum number of batches."""
    temperature: float
    """Sampling temperature of the completions."""


class FineTuning(msgspec.Struct, frozen=True, kw_only=True, tag="fine_tuning"):
    """Supervised training on conversations, with TRL's SFTTrainer."""

    train: str
    """File of conversations (`evorun.training.conversations`)."""
    held_out: str | None
    """File of the same kind to measure the loss on, or None."""
    source: str
    """Source file of the conversations, for messages to the user."""
    epochs: float
    """Passes over the conversations; may be a fraction."""
    batch: int
    """Conversations per step."""
    max_length: int
    """Maximum length of a conversation in tokens, including its prompt; longer ones are truncated."""


Objective = PolicyGradient | ProximalPolicy | FineTuning


class Job(msgspec.Struct, frozen=True, kw_only=True):
    """Settings of a trainer process, which reads them when it starts."""

    socket: str
    """Path of the run's Unix socket, or HOST:PORT of a trainer on several nodes."""
    secret: str = ""
    """Known to the run and to its trainer's nodes; empty with a Unix socket."""
    model: ModelConfig
    weights: str
    """Folder or hub id to load the base model from."""
    training: TrainingConfig
    objective: Objective
    seed: int
    folder: str
    """Folder for checkpoints."""
    log: str = ""
    """File for the output; each of several processes has one of its own beside it."""
    checkpoint: str | None
    """Checkpoint to resume from, or None."""
    updates: int = 0
    """Number of updates in the checkpoint's weights."""
    device: str
    """auto | cpu | cuda."""
    attention: str | None = None
    """An attention implementation of transformers; None: the model's own default."""
    max_batch_size: int
    """Completions decoded together."""
    prefix_cache_tokens: int


class Row(msgspec.Struct, frozen=True, kw_only=True, array_like=True):
    """An episode to learn from."""

    prompt: tuple[int, ...]
    """Token ids of the prompt as the engine saw it."""
    tokens: tuple[int, ...]
    """Token ids after the prompt: the model's turns, including end-of-sequence tokens, and the tools' turns."""
    learned: tuple[bool, ...]
    """For each of `tokens`, true if the model wrote it, so that it is learned."""
    reward: float
    """Reward of the episode, as used for learning."""
    advantage: float | None
    """Advantage of each learned token; None: the trainer's critic estimates advantages (PPO)."""
    logprobs: tuple[float, ...]
    """For each of `tokens`, its log-probability under the sampler, at the sampling temperature; 0 if not learned."""


class Generate(msgspec.Struct, frozen=True, kw_only=True, tag="generate"):
    """Answer requests; answered by Replies."""

    requests: tuple[Request, ...]
    version: int | None
    """The update whose weights answer: the newest or the one before. None: the reference policy."""


class Train(msgspec.Struct, frozen=True, kw_only=True, tag="train"):
    """Make a step on these rows, or (fine-tuning) on the next conversations; answered by Figures."""

    number: int
    """Number of the update, from 1."""
    rows: tuple[Row, ...] = ()
    rewards_changed: bool = False
    """True if the source of rewards (a rubric, for example) differs from that of the previous update."""


class Evaluate(msgspec.Struct, frozen=True, tag="assess"):
    """Report the size of the fine-tuning data and the loss on the held-out part; answered by Figures."""


class Save(msgspec.Struct, frozen=True, tag="save"):
    """Write a checkpoint into this folder, which does not exist; answered by Done."""

    folder: str


class Export(msgspec.Struct, frozen=True, tag="export"):
    """Write the trained adapter (PEFT's format) or model into this folder; answered by Done."""

    folder: str
    base: str
    """Name of the base model in an adapter's configuration."""
    version: int | None = None
    """The update whose weights to write: the newest or the one before. None: the newest."""
    for_engine: bool = False
    """True: for an engine beside the trainer, until later updates; a trainer on a server may write an address there."""


class Send(msgspec.Struct, frozen=True, kw_only=True, tag="send"):
    """Send all weights of an update to an engine, from memory; answered by EngineCall for each step, then by Done."""

    version: int
    transfer: str
    """ipc or nccl, see `evorun.training.sending`."""
    engine: int
    """The number of the engine's start; another one has not yet met the trainer."""
    processes: int
    """The engine's processes."""


class Called(msgspec.Struct, frozen=True, tag="called"):
    """The engine has carried out what an EngineCall asked for; answered as Send."""


class Finish(msgspec.Struct, frozen=True, tag="finish"):
    """End the trainer; answered by Done."""


class Started(msgspec.Struct, frozen=True, tag="started"):
    """The first message: all processes have started and reached one another."""


class Ready(msgspec.Struct, frozen=True, tag="ready"):
    """The second message: the trainer has loaded everything."""

    trainable: int
    """Number of trained parameters."""


class Replies(msgspec.Struct, frozen=True, tag="replies"):
    """One reply per request, in the same order."""

    replies: tuple[Reply, ...]


class TokenAdvantages(NamedTuple):
    """The advantages of a row's learned tokens."""

    mean: float
    sd: float
    """Population standard deviation over the row's tokens."""


class Speed(msgspec.Struct, frozen=True, kw_only=True):
    """The speed of an update."""

    tokens: int
    """Tokens that were trained on, without padding, times the epochs."""
    seconds: float
    memory: float | None
    """Largest memory of a process since it started, in GiB: of the GPU, or main memory without one; None: elsewhere."""
    mfu: float | None
    """Model FLOPs utilisation; None where the GPU's peak is unknown."""


class Figures(msgspec.Struct, frozen=True, tag="figures"):
    """The measurements of a step or an assessment."""

    figures: dict[str, float]
    advantages: tuple[TokenAdvantages | None, ...] = ()
    """Advantages of each row of a step, if the trainer estimates them; None for a row without learned tokens."""
    speed: Speed | UnsetType = UNSET
    """Of a step; never in the journal, whose results are the same on every repetition."""


class EngineCall(msgspec.Struct, frozen=True, tag="engine_call"):
    """All processes of the engine shall carry out one of their methods, a step of a transfer."""

    step: str
    payload: dict[str, Any]


class Done(msgspec.Struct, frozen=True, tag="done"):
    """The command has been carried out."""


class Failed(msgspec.Struct, frozen=True, kw_only=True, tag="failed"):
    """An exception that ends a process of the trainer, and with it the trainer."""

    reason: str
    of_settings: bool = False
    """True if the same settings will always fail in this way."""
    rank: int = 0
    """Number of the process."""
    doing: str = ""
    """Its work at that time; empty where the reason says all."""
    at: str = ""
    """The innermost call (`model.py:12 in forward`)."""
    time: float = 0.0
    """Seconds since 1970, by which the first of several failures is found, on several machines too."""
    lost_peer: bool = False
    """True if the process only noticed that another one was gone."""
    memory: MemorySizes | None = None
    """None unless memory ran out."""
    weights: int = 0
    """Bytes of the model's weights."""
    rows: int = 0
    """Number of sequences in the pass; 0 outside a pass."""
    tokens: int = 0
    """Tokens of the pass, including padding."""


Command = Generate | Train | Evaluate | Save | Export | Send | Called | Finish
Answer = Started | Ready | Replies | Figures | EngineCall | Done | Failed

LENGTH = struct.Struct("!Q")
"""Header of each message: its length in bytes."""

encode = msgspec.msgpack.Encoder().encode
decode_command = msgspec.msgpack.Decoder(Command).decode
decode_answer = msgspec.msgpack.Decoder(Answer).decode
decode_job = msgspec.json.Decoder(Job).decode


def frame(message: msgspec.Struct) -> bytes:
    """Return a message's bytes on a socket."""
    body = encode(message)
    return LENGTH.pack(len(body)) + body


def read_frame(stream: IO[bytes]) -> bytes | None:
    """Return the bytes of the next message of a socket; None when the other end has closed it."""
    head = stream.read(LENGTH.size)
    if len(head) < LENGTH.size:
        return None
    size = int(LENGTH.unpack(head)[0])
    body = stream.read(size)
    return body if len(body) == size else None
