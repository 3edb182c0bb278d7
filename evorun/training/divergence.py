"""Detects signs that training has gone wrong: each is a figure of its step, and the user is warned when it begins."""

from collections import Counter
from collections.abc import Callable, Mapping, Sequence
from itertools import pairwise
from statistics import fmean

# All `ours`: far from the values of sound training, so that a sign deserves attention.
NEARLY_UNIFORM = 0.9
"""Share of the maximum entropy beyond which tokens are drawn almost at random."""
WINDOW = 5
"""Number of steps in a mean reward."""
FALL = 0.5
"""Minimum fall of the mean reward from its best, as a share of the best."""
STANDARD_ERRORS = 5.0
"""The same in standard errors of the difference; high, since the worst of many windows is compared with the best."""
MANY_REJECTED = 0.1
"""Share of a step's episodes beyond which refused requests bias the training data."""


class Divergence:
    """Looks for signs in the figures of a run's steps, in their order."""

    def __init__(self, warn: Callable[[str], None]) -> None:
        """warn: shows the user a line."""
        self._warn = warn
        self._seen: set[str] = set()
        """Signs at the latest step."""
        self._rewards: list[float] = []
        self._best = float("-inf")
        """Maximum mean reward of a window so far."""
        self._scale = 0

    def signs(self, step: int, figures: Mapping[str, float], scale: int = 0) -> dict[str, float]:
        """Return the figures `zero_gradient`, `nearly_uniform` and `reward_collapse`: 1 for each present sign.

        scale: a new number whenever the measure of rewards changes, so that earlier rewards are not comparable.
        """
        if scale != self._scale:
            self._scale, self._rewards, self._best = scale, [], float("-inf")
        found = {}
        # The method updates only if advantages differ; a penalty alone may have no gradient.
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
        return self._report(step, ("zero_gradient", "nearly_uniform", "reward_collapse"), found)

    def rejections(self, step: int, errors: Sequence[str | None]) -> dict[str, float]:
        """Return the figure `many_rejected` (1) if more than a tenth of the episodes ended in a refused request.

        errors: the engine's reason for each episode; None for an episode without a refusal.
        """
        reasons = Counter(error for error in errors if error is not None)
        found = {}
        if reasons.total() > MANY_REJECTED * len(errors):
            [(reason, _)] = reasons.most_common(1)
            found["many_rejected"] = (
                f"{reasons.total()} of {len(errors)} episodes ended in a request that the engine refused, most often "
                f"because: {reason}"
            )
        return self._report(step, ("many_rejected",), found)

    def _report(self, step: int, signs: Sequence[str], found: Mapping[str, str]) -> dict[str, float]:
        """Warn of signs that begin with this step; return the figures of all present signs."""
        for name, line in found.items():
            if name not in self._seen:
                self._warn(f"step {step}: {line}")
        self._seen = self._seen.difference(signs).union(found)
        return dict.fromkeys(found, 1.0)

    def _collapsed(self) -> bool:
        """Return whether the latest rewards are far below the best ones."""
        if len(self._rewards) < WINDOW:
            return False
        latest = fmean(self._rewards[-WINDOW:])
        self._best = max(self._best, latest)
        # Estimate the noise of a step's reward from differences of neighbours, which a trend hardly affects.
        noise = fmean((reward - next_reward) ** 2 for reward, next_reward in pairwise(self._rewards)) / 2
        fall = self._best - latest
        return fall > FALL * abs(self._best) and fall > STANDARD_ERRORS * (2 * noise / WINDOW) ** 0.5
