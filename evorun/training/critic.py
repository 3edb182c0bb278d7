"""The critic of PPO: estimates the value of each state of an episode, by the base model with a value head.

The critic is a second tree of modules. Training changes either all its weights or only its adapter. The adapter's base
weights are a copy of the policy's, or the policy's themselves; the values are the same. The policy's modules stay
unchanged, for sampling and export.

Imports torch: only the trainer process imports this module.
"""

import copy
from itertools import chain
from pathlib import Path
from typing import Any, NamedTuple

import torch
from peft import PeftModel
from safetensors.torch import load_file, save_file
from trl.trainer.utils import disable_dropout_in_model

from evorun.training.rows_trainer import score
from evorun.training.value_head import ValueHead
from evorun.training.weights import adapter
from evorun.training.wire import Job

CRITIC = "critic.safetensors"
"""File in a checkpoint with the critic's trained weights."""


class Critic(torch.nn.Module):
    """A decoder, trained directly or under an adapter, with a value head on its last hidden states."""

    def __init__(self, job: Job, model: Any, *, kind: str, popart: float | None) -> None:
        """model: the base model, before it gets the policy's adapter. kind: see `ProximalSettings.critic`.

        popart: see `ValueHead`.
        """
        super().__init__()
        base = model.get_decoder()
        # deepcopy treats the memo's entries as already copied: the modules are new, but share the tensors.
        own = chain(base.parameters(), base.buffers()) if kind == "head" else ()
        decoder = copy.deepcopy(base, {id(tensor): tensor for tensor in own})
        disable_dropout_in_model(decoder)
        if kind == "full":
            # The base may be in bfloat16, which would round steps of a small learning rate to nothing.
            self.decoder = decoder.float().requires_grad_()
        else:
            lora = adapter(job.training, decoder)
            lora.task_type = None  # a decoder predicts no tokens
            self.decoder = PeftModel(decoder, lora)
        self.head = ValueHead(model.get_output_embeddings().weight.shape[1], popart)

    def forward(self, ids: torch.Tensor) -> torch.Tensor:
        """Return the value head's output for the state after each token: shape [rows, T]."""
        hidden = self.decoder(input_ids=ids, use_cache=False).last_hidden_state
        with torch.autocast(hidden.device.type, enabled=False):  # bfloat16 has only three digits
            outputs: torch.Tensor = self.head(hidden.float())[..., 0]
        return outputs

    def save(self, folder: Path) -> None:
        """Write the trained weights into a checkpoint."""
        save_file({name: tensor.detach().cpu() for name, tensor in self._learned().items()}, folder / CRITIC)

    def load(self, folder: Path) -> None:
        """Read the trained weights from a checkpoint."""
        saved = load_file(folder / CRITIC)
        with torch.no_grad():
            for name, tensor in self._learned().items():
                tensor.copy_(saved[name])

    def _learned(self) -> dict[str, torch.Tensor]:
        trained = {name: parameter for name, parameter in self.named_parameters() if parameter.requires_grad}
        return {**trained, **dict(self.head.named_buffers(prefix="head"))}


class ActorCriticOutputs(NamedTuple):
    """Outputs of policy and critic for some rows."""

    logprobs: torch.Tensor
    """See `evorun.training.rows_trainer.Scores`."""
    entropy: torch.Tensor
    values: torch.Tensor
    """Outputs of the value head for the state after each token: shape [rows, T]."""


class ActorCritic(torch.nn.Module):
    """Policy and critic as one module: one optimiser updates both, and one backward pass covers both."""

    def __init__(self, policy: Any, critic: Critic) -> None:
        super().__init__()
        self.policy = policy
        self.critic = critic
        # FSDP2 gathers each of these by itself: the policy also runs alone, and the head's weights are not rounded.
        layers = getattr(policy, "_no_split_modules", None) or ()
        self._no_split_modules = [*layers, type(policy).__name__, Critic.__name__, ValueHead.__name__]

    def forward(self, ids: torch.Tensor, learned: torch.Tensor) -> ActorCriticOutputs:
        """Return the outputs of both for some rows."""
        return ActorCriticOutputs(*score(self.policy, ids, learned), self.critic(ids))

    def gradient_checkpointing_enable(self, **settings: Any) -> None:
        """Let both recompute activations in the backward pass; transformers calls this method."""
        self.policy.gradient_checkpointing_enable(**settings)
        self.critic.decoder.gradient_checkpointing_enable(**settings)
        self.critic.decoder.enable_input_require_grads()
