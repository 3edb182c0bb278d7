"""Confidences of completions, from the log-probabilities of their tokens (DeepConf, arXiv 2508.15260, section 2).

Engines reduce log-probabilities to float16 numbers here. Their sums are exact in float64 (below 2**29 nats), whatever
the order of summation. An engine's threshold therefore agrees to the last bit with a later look at the recorded tokens.
"""

from collections.abc import Sequence
from typing import Any

import numpy as np
import numpy.typing as npt
from msgspec import UNSET, UnsetType

from evorun.models.base import DECIMALS, Completion, Confidence

Confidences = npt.NDArray[np.float16]
"""Confidences of a completion's tokens, in nats: shape [tokens]."""

MEASURES = ("mean", "tail", "min_window", "bottom_window")
"""Confidences of a whole completion; see `measure`."""

_DTYPE = np.dtype("<f2")


def token_confidence(logprobs: Sequence[float] | npt.NDArray[np.floating[Any]]) -> float:
    """Return minus the mean of a token's largest log-probabilities, rounded to float16; 0 if there are none.

    logprobs: the `Confidence.top` largest; values of minus infinity, of tokens that a schema forbids, are left out.
    """
    values = np.asarray(logprobs, dtype=np.float64)
    allowed = values[values > _FORBIDDEN]
    return float(np.float16(-allowed.mean())) if allowed.size else 0.0


_FORBIDDEN = -9000.0
"""Log-probabilities below stand for minus infinity; vLLM's server writes -9999."""


def read_confidences(completion: Completion) -> Confidences | None:
    """Return the confidences of a completion's tokens; None where they were not requested."""
    encoded = completion.token_confidences
    return None if encoded is None else np.frombuffer(encoded, _DTYPE)


def confidence_fields(values: Sequence[float] | Confidences, asked: Confidence | UnsetType) -> dict[str, Any]:
    """Return the fields of a completion that hold its tokens' confidences, as far as a request asks for them."""
    if asked is UNSET:
        return {}
    tokens = np.asarray(values, dtype=_DTYPE)
    mean = round(float(tokens.mean(dtype=np.float64)), DECIMALS) if tokens.size else 0.0
    return {"confidence": mean, "token_confidences": tokens.tobytes() if asked.tokens else None}


class WindowMonitor:
    """Follows the mean confidence of a completion's last tokens while it is drawn."""

    def __init__(self, asked: Confidence) -> None:
        self._window = asked.window
        self._minimum = asked.minimum
        self._sum = 0.0
        self.values: list[float] = []
        """Confidences of the tokens so far, each a float16."""

    def add(self, confidence: float) -> bool:
        """Add the next token's confidence; return True if the completion must end with it."""
        self.values.append(confidence)
        if self._minimum is None:
            return False
        self._sum += confidence
        if len(self.values) > self._window:
            self._sum -= self.values[-self._window - 1]
        return len(self.values) >= self._window and self._sum / self._window < self._minimum


def window_means(values: Confidences, window: int) -> npt.NDArray[np.float64]:
    """Return the means of all runs of `window` tokens, in order; of all tokens if there are fewer. Needs a token."""
    sums = np.cumsum(np.concatenate(([0.0], values.astype(np.float64))))
    size = min(window, len(values))
    means: npt.NDArray[np.float64] = (sums[size:] - sums[:-size]) / size
    return means


def find_end(values: Confidences, asked: Confidence) -> int | None:
    """Return the number of tokens after which a completion must end; None if it may go on."""
    if asked.minimum is None or len(values) < asked.window:
        return None
    below = np.flatnonzero(window_means(values, asked.window) < asked.minimum)
    return None if not below.size else int(below[0]) + asked.window


def measure(values: Confidences, kind: str, *, window: int = 2048, tail: int = 2048, bottom: float = 0.1) -> float:
    """Return the confidence of a whole completion, in nats; 0 without tokens.

    kind: one of `MEASURES`. mean: of all tokens. tail: of the last `tail` ones. min_window: the lowest mean of `window`
    consecutive tokens. bottom_window: the mean of the lowest share `bottom` of these means, of one at least. Paper:
    section 3.1, with the authors' rounding down of the share.
    """
    if not len(values):
        return 0.0
    if kind == "mean":
        return float(values.mean(dtype=np.float64))
    if kind == "tail":
        return float(values[-tail:].mean(dtype=np.float64))
    means = np.sort(window_means(values, window))
    lowest = 1 if kind == "min_window" else max(1, int(bottom * len(means)))
    return float(means[:lowest].mean())
