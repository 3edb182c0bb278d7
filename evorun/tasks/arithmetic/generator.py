"""Expressions of small integers, their values, and the split that each belongs to.

What an expression is made of decides its split: a digest of its operands and operations, each sorted. So no problem is
in two splits, and neither is one that differs from it only by order (7 + 5 and 5 + 7).
"""

from collections.abc import Iterator, Mapping, Sequence
from hashlib import blake2b
from typing import NamedTuple

import msgspec

from evorun.runs.streams import stream

SIGNS: Mapping[str, str] = {"add": "+", "subtract": "-", "multiply": "*"}
SPLITS = ("train", "test")
# Draws without a new expression after which there are no more
_TRIES = 3000


class Expression(NamedTuple):
    """Operands with an operation between each two; hashable, and equal when it reads the same."""

    operands: tuple[int, ...]
    operations: tuple[str, ...]

    def __str__(self) -> str:
        """Return it as problems show it: `7 + 5`."""
        rest = zip(self.operations, self.operands[1:], strict=True)
        return " ".join([str(self.operands[0]), *(f"{SIGNS[operation]} {operand}" for operation, operand in rest)])


class Space(NamedTuple):
    """The set of expressions that are drawn from."""

    operations: Sequence[str]
    largest_operand: int
    """The smallest is 0."""
    terms: int
    """Operands of an expression."""

    def bounds(self) -> tuple[int, int]:
        """Return the smallest and the largest value of an expression."""
        largest, products, sums = self.largest_operand, "multiply" in self.operations, "add" in self.operations

        def most(terms: int, sums: bool) -> int:
            return max(largest, largest**terms if products else 0, largest * terms if sums else 0)

        # Smallest is 0 - x - y ...: what is subtracted adds up, whether or not sums are among the operations.
        smallest = -most(self.terms - 1, True) if "subtract" in self.operations else 0
        return smallest, most(self.terms, sums)


def value(expression: Expression) -> int:
    """Return the value: products before sums and differences, which go from left to right."""
    total, product = 0, expression.operands[0]
    for operation, operand in zip(expression.operations, expression.operands[1:], strict=True):
        if operation == "multiply":
            product *= operand
        else:
            total += product
            product = operand if operation == "add" else -operand
    return total + product


def split_of(expression: Expression) -> str:
    """Return the split that an expression belongs to: each with a chance of a half."""
    # Sorted, so that 7 + 5 and 5 + 7 are in the same split.
    content = msgspec.json.encode((sorted(expression.operands), sorted(expression.operations)))
    return SPLITS[blake2b(content, digest_size=1).digest()[0] % len(SPLITS)]


def draw(space: Space, split: str, seed: int) -> Iterator[Expression]:
    """Yield different expressions of a split, without end but for a space that is exhausted."""
    rng = stream(seed, "arithmetic", split)
    seen: set[Expression] = set()
    tries = 0
    while tries < _TRIES:
        operands = rng.integers(space.largest_operand + 1, size=space.terms).tolist()
        chosen = rng.integers(len(space.operations), size=space.terms - 1).tolist()
        expression = Expression(tuple(operands), tuple(space.operations[index] for index in chosen))
        tries += 1
        if expression not in seen and split_of(expression) == split:
            yield expression
            seen.add(expression)
            tries = 0
