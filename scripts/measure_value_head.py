"""Measures how far a value head in bfloat16 moves PPO's advantages, from those of one in float32.

    python scripts/measure_value_head.py

Hidden states are random, with a given correlation between neighbouring tokens; values have a standard deviation of 0.5.
"""

import numpy as np
import torch

from evorun.training.advantages import Floats

WIDTH, TOKENS, EPISODES = 1536, 200, 20
GAE_LAMBDA = 0.95


def estimate_advantages(values: Floats) -> Floats:
    """Return the advantages of an episode with a reward of 1 at its end, without discount: shape [TOKENS]."""
    errors = np.append(values[1:], 1.0) - values
    advantages, sum_so_far = np.zeros(TOKENS), 0.0
    for token in reversed(range(TOKENS)):
        sum_so_far = errors[token] + GAE_LAMBDA * sum_so_far
        advantages[token] = sum_so_far
    return advantages


def measure(correlation: float, seed: int) -> float:
    """Return the deviation of the advantages, as a share of their own standard deviation."""
    generator = torch.Generator().manual_seed(seed)
    states = torch.randn(TOKENS, WIDTH, generator=generator)
    for token in range(1, TOKENS):
        states[token] = correlation * states[token - 1] + (1 - correlation**2) ** 0.5 * states[token]
    weight = 0.5 * WIDTH**-0.5 * torch.randn(WIDTH, generator=generator)
    precise = estimate_advantages((states @ weight).double().numpy())
    rounded = estimate_advantages((states.bfloat16() @ weight.bfloat16()).double().numpy())
    return float((rounded - precise).std() / precise.std())


def main() -> None:
    """Print a line for each correlation."""
    for correlation in (0.5, 0.9, 0.99):
        shares = [measure(correlation, seed) for seed in range(EPISODES)]
        print(f"correlation {correlation}: advantages move by {100 * np.mean(shares):.2f} % of their spread")


if __name__ == "__main__":
    main()
