"""Signs that training has gone wrong, though it goes on: each is a figure of its step, and said when it begins."""

from collections import Counter
from collections.abc import Callable, Mapping, Sequence
from itertools import pairwise
from statistics import fmean

# All `ours`: far from what sound training shows, so that a sign is worth a look.
NEARLY_UNIFORM = 0.9
"""Share of the largest entropy beyond which tokens are drawn nearly at random."""
WINDOW = 5
"""Steps that a mean reward is taken over."""
FALL = 0.5
"""Fall of the mean reward from its best, as a share of this."""
STANDARD_ERRORS = 5.0
"""The same in standard errors of the difference: the worst of many windows is compared with the best."""
MANY_REJECTED = 0.1
"""Share of a step's episodes beyond which refused requests decide what is learned from."""


class Divergence:
    """Looks for signs in the figures of a run's steps, in their order."""

    def __init__(self, warn: Callable[[str], None]) -> None:
        """warn: tells the user a line."""
        self._warn = warn
        self._seen: set[str] = set()
        """Signs of the latest step that was looked at for them."""
        self._rewards: list[float] = []
        self._best = float("-inf")
        """The largest mean reward of a window so far."""
        self._scale = 0

    def signs(self, step: int, figures: Mapping[str, float], scale: int = 0) -> dict[str, float]:
        """Return the figures `zero_gradient`, `nearly_uniform` and `reward_collapse`, each where it is seen (1).

        scale: another number where rewards are measured otherwise than before, so that they cannot be compared.
        """
        if scale != self._scale:
            self._scale, self._rewards, self._best = scale, [], float("-inf")
        found = {}
        # The method makes an update only where advantages differ; a penalty alone may have no gradient.
        if figures.get("grad_norm") == 0 and figures.get("equal_groups", 0.0) < 1:
            found["zero_gradient"] = "the gradient is zero though rewards differ, so nothing is learned"
        if figures.get("entropy_fraction", 0.0) > NEARLY_UNIFORM:
            found["nearly_uniform"] = (
                f"the policy's entropy is {figures['entropy']:.2f}, {figures['entropy_fraction']:.0%} of the largest: "
                "it draws tokens nearly at random; lower training.learning_rate"
            )
        self._rewards += [figures["reward"]] if "reward" in figures else []
        if "reward" in figures and self._collapsed():
            found["reward_collapse"] = (
                f"the mean reward of {WINDOW} steps has fallen to {fmean(self._rewards[-WINDOW:]):.3g}, from "
                f"{self._best:.3g} at its best; lower training.learning_rate"
            )
        return self._said(step, ("zero_gradient", "nearly_uniform", "reward_collapse"), found)

    def rejections(self, step: int, errors: Sequence[str | None]) -> dict[str, float]:
        """Return the figure `many_rejected` (1) where more than a tenth of the episodes ended in a refused request.

        errors: the engine's reason of each episode; None for one that it answered to the end.
        """
        reasons = Counter(error for error in errors if error is not None)
        found = {}
        if reasons.total() > MANY_REJECTED * len(errors):
            [(reason, _)] = reasons.most_common(1)
            found["many_rejected"] = (
                f"{reasons.total()} of {len(errors)} episodes ended in a request that the engine refused, most often "
                f"because: {reason}"
            )
        return self._said(step, ("many_rejected",), found)

    def _said(self, step: int, signs: Sequence[str], found: Mapping[str, str]) -> dict[str, float]:
        """Say which of the signs begin with a step; return the figures of those found."""
        for name, line in found.items():
            if name not in self._seen:
                self._warn(f"step {step}: {line}")
        self._seen = self._seen.difference(signs).union(found)
        return dict.fromkeys(found, 1.0)

    def _collapsed(self) -> bool:
        """Tell whether the latest rewards are far below the best ones."""
        if len(self._rewards) < WINDOW:
            return False
        latest = fmean(self._rewards[-WINDOW:])
        self._best = max(self._best, latest)
        # The noise of a step's reward, by differences of neighbours, which a trend leaves alone.
        noise = fmean((one - other) ** 2 for one, other in pairwise(self._rewards)) / 2
        fall = self._best - latest
        return fall > FALL * abs(self._best) and fall > STANDARD_ERRORS * (2 * noise / WINDOW) ** 0.5
