"""Rows of a run and conversations as data of Tinker's losses, and the figures of an update from what these return.

Tinker's losses sum over tokens (https://tinker-docs.thinkingmachines.ai/losses). With p a token's probability, w its
weight, r the ratio of p to the sampler's probability, and A the token's advantage:

    cross_entropy:  -sum w log p
    ppo:            -sum min(r A, clip(r, low, high) A)
    cispo:          -sum stop_gradient(clip(r, low, high)) A log p

With w = 1 / (learned tokens of the batch), the first is the loss of `FineTuner`. The others are those of
`PolicyGradientTrainer`, where A includes the weight of the token (`token_weight`, which is
positive). They know no reference policy, so `method.kl` reduces a token's advantage by its log-ratio to that policy, as
in Thinking Machines' cookbook (rl/metrics.py), but without its baseline. Where the sampler is the policy, the gradient
is that of `PolicyGradientTrainer`. Two more details differ. That trainer takes probabilities that agree to 1e-4 as
equal, which here makes a gradient differ by 1e-4 at most. And it bounds the ratio of probabilities that are many orders
of magnitude apart.
"""

from collections.abc import Callable, Sequence
from typing import Any, NamedTuple

import numpy as np

from evorun.training.batches import width
from evorun.training.chat_template import NOT_LEARNED, TokenizedExample
from evorun.training.wire import PolicyGradient, Row


class Loss(NamedTuple):
    """One of Tinker's losses with its settings."""

    name: str
    settings: dict[str, float]
    """Bounds of the importance ratio."""


CROSS_ENTROPY = Loss("cross_entropy", {})


def choose_loss(objective: PolicyGradient) -> Loss:
    """Return the loss of Tinker's API that an objective means."""
    low, high = objective.settings.clip_low, objective.settings.clip_high
    if objective.loss == "cispo":
        return Loss("cispo", {"clip_low_threshold": low, "clip_high_threshold": high})
    return Loss("ppo", {"clip_low_threshold": 1 - low, "clip_high_threshold": 1 + high})


class Targets(NamedTuple):
    """A row's tokens but the first, which the model predicts from those before: arrays of shape [T - 1]."""

    tokens: np.ndarray
    learned: np.ndarray
    """True for tokens that the model wrote."""
    advantages: np.ndarray
    """Of learned tokens, times their weight in the loss; 0 for others."""
    logprobs: np.ndarray
    """Under the sampler; 0 for tokens that are not learned."""
    reference: np.ndarray | None
    """Log-probabilities under the reference policy, for the divergence from it; None: without."""


def make_targets(
    row: Row, weight: Callable[[Row], float], kl: float = 0.0, reference: np.ndarray | None = None
) -> Targets:
    """Return a row's targets. weight: gives the weight of each learned token of a row.

    kl: weight of the divergence from the reference policy (`GradientSettings.kl`). reference: see `Targets`.
    """
    start, length = len(row.prompt), width(row)
    learned = np.zeros(length, dtype=bool)
    logprobs = np.zeros(length, dtype=np.float32)
    learned[start:] = row.learned
    logprobs[start:] = np.where(row.learned, row.logprobs, 0.0)
    gains = np.full(length - 1, row.advantage or 0.0)
    if reference is not None:
        gains -= kl * (logprobs[1:] - reference)
    advantages = np.where(learned[1:], gains * weight(row), 0.0).astype(np.float32)
    tokens = np.array([*row.prompt, *row.tokens], dtype=np.int64)
    return Targets(tokens[1:], learned[1:], advantages, logprobs[1:], reference)


def make_datum(row: Row, targets: Targets) -> Any:
    """Return a row as Tinker's Datum."""
    from tinker import types

    return types.Datum(
        model_input=types.ModelInput.from_ints([*row.prompt, *row.tokens][:-1]),
        loss_fn_inputs={
            "target_tokens": targets.tokens,
            "logprobs": targets.logprobs,
            "advantages": targets.advantages,
        },
    )


def measure(loss: Loss, targets: Sequence[Targets], logprobs: Sequence[np.ndarray]) -> dict[str, float]:
    """Return the figures of an optimiser step, named and defined as those of `PolicyGradientTrainer`.

    logprobs: of each row's targets, under the policy before the step.
    """
    learned = np.concatenate([target.learned for target in targets])
    if not learned.any():
        return {"loss": 0.0, "clip_ratio": 0.0, "sampler_kl": 0.0}
    own = np.concatenate([np.asarray(values, dtype=np.float64) for values in logprobs])[learned]
    sampler = np.concatenate([target.logprobs for target in targets])[learned].astype(np.float64)
    advantages = np.concatenate([target.advantages for target in targets])[learned].astype(np.float64)
    log_ratio = own - sampler
    ratio = np.exp(log_ratio)
    clipped = ratio.clip(loss.settings["clip_low_threshold"], loss.settings["clip_high_threshold"])
    if loss.name == "cispo":
        gain, beyond = clipped * advantages * own, ratio != clipped
    else:
        gain = np.minimum(ratio * advantages, clipped * advantages)
        beyond = clipped * advantages < ratio * advantages
    figures = {}
    if all(target.reference is not None for target in targets):
        reference = np.concatenate([np.asarray(target.reference, dtype=np.float64) for target in targets])[learned]
        towards = reference - own
        figures["kl"] = float((ratio * (np.exp(towards) - towards - 1)).mean())
    return figures | {
        "loss": -float(gain.sum()),
        "clip_ratio": float(beyond.mean()),
        # k3 of Schulman's "Approximating KL divergence", from the sampler's tokens
        "sampler_kl": float((ratio - log_ratio - 1).mean()),
    }


def make_conversation_data(examples: Sequence[TokenizedExample]) -> list[Any]:
    """Return conversations as Tinker's data, with equal weights for all learned tokens, which sum to 1."""
    from tinker import types

    learned = [np.array(example.labels[1:]) != NOT_LEARNED for example in examples]
    total = sum(int(mask.sum()) for mask in learned)
    return [
        types.Datum(
            model_input=types.ModelInput.from_ints(example.tokens[:-1]),
            loss_fn_inputs={
                "target_tokens": np.array(example.tokens[1:], dtype=np.int64),
                "weights": (mask / total).astype(np.float32),
            },
        )
        for example, mask in zip(examples, learned, strict=True)
    ]


def measure_cross_entropy(examples: Sequence[TokenizedExample], logprobs: Sequence[np.ndarray]) -> float:
    """Return the mean loss of all learned tokens. logprobs: of each conversation's tokens but the first."""
    learned = np.concatenate([np.array(example.labels[1:]) != NOT_LEARNED for example in examples])
    own = np.concatenate([np.asarray(values, dtype=np.float64) for values in logprobs])
    return -float(own[learned].mean())
