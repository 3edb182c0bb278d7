"""Prefix affinity: which server has lately been asked for a prompt that begins like the next one.

A server keeps the keys and values of its latest prompts and computes none of them again for a prompt that begins alike.
No server says what it has, so this is an approximation: hashed blocks of what it was sent, the oldest forgotten first.
That is the index of llm-d's prefix-cache scorer ("approximate prefix cache"); the rule that turns from affinity to
load balancing is that of SGLang's router (`cache_aware`), from which vLLM's router descends.
"""

from collections import OrderedDict
from collections.abc import Sequence

BLOCK = 128
"""Bytes of a request's body in a block (ours): some 32 tokens, two of vLLM's blocks."""
MAX_BLOCKS = 2**16
"""Most blocks remembered per server (ours): 8 MiB of text, about what a GPU of 80 GiB holds of a model of 7B, in some
10 MB of memory."""
IMBALANCE = 1.5
"""Multiple of the idlest server's load beyond which load decides, not prefixes."""
SLOWER = 2.0
"""Multiple of the shortest expected time beyond which a server gets no call for its cache. `ours`: two equal servers
differ by less, though one has the longer calls for a while."""


def hash_blocks(body: bytes) -> list[int]:
    """Return a hash for each whole block of a request's body, of the block and all before it.

    A body begins with the name of the model or adapter and the prompt, as caches do; what follows differs by seed.
    """
    hashes, before = [], 0
    for start in range(0, len(body) - BLOCK + 1, BLOCK):
        before = hash((before, body[start : start + BLOCK]))
        hashes.append(before)
    return hashes


def balanced(loads: Sequence[int]) -> bool:
    """Return whether the busiest server has at most `IMBALANCE` times the requests of the idlest.

    The next request counts as one of the idlest's: without it, a single request in flight would be an imbalance.
    """
    return max(loads) <= IMBALANCE * (min(loads) + 1)


class SentPrefixes:
    """The blocks that one server was lately sent."""

    def __init__(self) -> None:
        self._blocks: OrderedDict[int, None] = OrderedDict()

    def match(self, blocks: Sequence[int]) -> int:
        """Return how many of a prompt's first blocks the server was sent."""
        for number, block in enumerate(blocks):
            if block not in self._blocks:
                return number
        return len(blocks)

    def add(self, blocks: Sequence[int]) -> None:
        """Remember a prompt's blocks as the latest."""
        for block in reversed(blocks):  # a prompt's end is forgotten before its beginning, as servers do
            self._blocks[block] = None
            self._blocks.move_to_end(block)
        while len(self._blocks) > MAX_BLOCKS:
            self._blocks.popitem(last=False)

    def clear(self) -> None:
        """Forget all blocks, as a server that has restarted has."""
        self._blocks.clear()
