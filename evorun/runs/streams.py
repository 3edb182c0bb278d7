"""Named random streams: the same seed and names give the same numbers, whatever ran before or beside them."""

from hashlib import blake2b

import numpy as np

SEED_BITS = 31
"""Sampling seeds lie in [0, 2**31), which every engine accepts."""


def _entropy(seed: int, names: tuple[str | int, ...]) -> int:
    # with the type of each name, so that the streams of step 1 and of problem "1" differ
    text = "\x1f".join([str(seed), *[f"{type(name).__name__}:{name}" for name in names]])
    return int.from_bytes(blake2b(text.encode(), digest_size=16).digest(), "big")


def stream(seed: int, *names: str | int) -> np.random.Generator:
    """Return a fresh generator for the stream that `names` identify under `seed`."""
    return np.random.Generator(np.random.PCG64(_entropy(seed, names)))


def call_seed(seed: int, *names: str | int) -> int:
    """Return the sampling seed of one model call, in [0, 2**31)."""
    return _entropy(seed, names) & ((1 << SEED_BITS) - 1)
