"""Signs that training has gone wrong, though it goes on: each is a figure of its step, and said when it begins."""

from collections.abc import Callable, Mapping
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


class Divergence:
    """Looks for signs in the figures of a run's steps, in their order."""

    def __init__(self, warn: Callable[[str], None]) -> None:
        """warn: tells the user a line."""
        self._warn = warn
        self._before: set[str] = set()
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
        for name, line in found.items():
            if name not in self._before:
                self._warn(f"step {step}: {line}")
        self._before = set(found)
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
