"""Kernels that multiply two small matrices, scored by a count of their operations: the lower, the better.

A kernel is a list of steps, each a sum, a difference or a product of two earlier values. Entries of the matrices stand
for blocks: they do not commute, and a product costs far more than a sum. The operations are counted, never timed, and a
kernel is checked exactly: each value is a polynomial in the entries, with integers as coefficients.
"""

from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from functools import cache
from itertools import product
from pathlib import Path
from typing import Any, ClassVar, NamedTuple

import numpy as np

from evorun.errors import ConfigError
from evorun.fields import PositiveInt
from evorun.runs.scores import Score
from evorun.sandbox.base import Limits
from evorun.tasks.base import Problem
from evorun.tasks.constructions.construction import VALID, Construction, ConstructionConfig

WORST = 2.0
"""Relative cost of every response that is no better (ours)."""
_COST = Score("relative_cost", 0, WORST, higher_is_better=False)
_OPERATIONS = ("+", "-", "*")
MAX_SIZE = 5
"""Largest number of rows or columns, so that a check stays quick."""
_STEPS_ALLOWED = 4
"""A kernel has at most this many times the steps of the schoolbook kernel."""
_WASTE = 12
"""Most unneeded products in the simulated model's kernels (ours)."""

Polynomial = Mapping[tuple[int, ...], int]
"""Coefficients by the entries that are multiplied, in their order."""


class Shape(NamedTuple):
    """The product of an n x m and an m x p matrix."""

    n: int
    m: int
    p: int

    def left(self, row: int, column: int) -> int:
        """Return the number of an entry of the left matrix."""
        return row * self.m + column

    def right(self, row: int, column: int) -> int:
        """Return the number of an entry of the right matrix."""
        return self.n * self.m + row * self.p + column

    @property
    def entries(self) -> int:
        """Entries of both matrices; the first step has this number."""
        return self.n * self.m + self.m * self.p

    @property
    def schoolbook_steps(self) -> tuple[int, int]:
        """Products, and sums, of the schoolbook kernel."""
        return self.n * self.m * self.p, self.n * (self.m - 1) * self.p


class MatrixProduct(Construction):
    """Asks for a kernel, as its `steps` and the numbers of the product's entries, `outputs`."""

    name = "matrix_product"
    scores = (_COST, VALID)
    prompt_folders: ClassVar[Sequence[Path]] = (Path(__file__).parent / "prompts", *Construction.prompt_folders)
    object_name = "a kernel"

    def measure(self, problem: Problem, value: Any) -> float:
        """Return the cost of a right kernel, relative to that of the schoolbook kernel; at most `WORST`."""
        shape = Shape(*problem.data["arguments"])
        products, sums = shape.schoolbook_steps
        if not isinstance(value, dict) or not all(isinstance(value.get(key), list) for key in ("steps", "outputs")):
            raise ValueError("expected an object with the lists 'steps' and 'outputs'")
        steps, outputs = value["steps"], value["outputs"]
        if len(steps) > (longest := _STEPS_ALLOWED * (products + sums)):
            raise ValueError(f"expected at most {longest} steps, got {len(steps)}")
        values: list[Polynomial] = [{(entry,): 1} for entry in range(shape.entries)]
        for index, step in enumerate(steps):
            values.append(_carry_out(step, values, f"step {index}"))
        if len(outputs) != shape.n * shape.p or not all(_is_number(output, len(values)) for output in outputs):
            raise ValueError(f"outputs: expected {shape.n * shape.p} numbers of values, got {outputs!r:.60}")
        for (row, column), output in zip(product(range(shape.n), range(shape.p)), outputs, strict=True):
            wanted = {(shape.left(row, k), shape.right(k, column)): 1 for k in range(shape.m)}
            if values[output] != wanted:
                raise ValueError(f"the output for row {row}, column {column} is not that of the product")
        count = Counter(step[0] for step in steps)
        price: int = problem.data["product_cost"]
        return min(WORST, (price * count["*"] + count["+"] + count["-"]) / (price * products + sums))

    def worst(self, problem: Problem) -> float:
        return WORST

    def degree(self, problem: Problem, value: float) -> float:
        return _COST.utility(value)

    def seed_degree(self, problem: Problem) -> float:
        return _COST.utility(1)  # the schoolbook kernel

    def make_ladder(self, problem: Problem) -> Sequence[Any]:
        return climb(Shape(*problem.data["arguments"]))

    def random_object(self, problem: Problem, rng: np.random.Generator) -> Any:
        shape = Shape(*problem.data["arguments"])
        return write_kernel(shape, waste=int(rng.integers(1, _max_waste(shape) + 1)))


def _is_number(value: Any, values: int) -> bool:
    return isinstance(value, int) and not isinstance(value, bool) and 0 <= value < values


def _carry_out(step: Any, values: Sequence[Polynomial], what: str) -> Polynomial:
    """Return the value of a step. Raises ValueError."""
    if not isinstance(step, list) or len(step) != 3 or step[0] not in _OPERATIONS:
        raise ValueError(f"{what}: expected [operation, number, number] with one of + - *, got {step!r:.60}")
    operation, *numbers = step
    if not all(_is_number(number, len(values)) for number in numbers):
        raise ValueError(f"{what}: expected numbers of earlier values, below {len(values)}, got {step!r:.60}")
    first, second = (values[number] for number in numbers)
    result: Counter[tuple[int, ...]] = Counter()
    if operation == "*":
        # Otherwise hostile kernels could grow polynomials without end.
        if any(len(term) > 1 for value in (first, second) for term in value):
            raise ValueError(f"{what}: expected no product of a product")
        for (left, a), (right, b) in product(first.items(), second.items()):
            result[left + right] += a * b
    else:
        result.update(first)
        sign = 1 if operation == "+" else -1
        for term, coefficient in second.items():
            result[term] += sign * coefficient
    return {term: coefficient for term, coefficient in result.items() if coefficient}


class _Kernel:
    """A kernel under construction."""

    def __init__(self, shape: Shape) -> None:
        self._first = shape.entries
        self.steps: list[list[Any]] = []

    def add(self, operation: str, first: int, second: int) -> int:
        self.steps.append([operation, first, second])
        return self._first + len(self.steps) - 1

    def sum(self, numbers: Sequence[int]) -> int:
        total = numbers[0]
        for number in numbers[1:]:
            total = self.add("+", total, number)
        return total


def write_kernel(shape: Shape, waste: int = 0, strassen: int = 0) -> Mapping[str, Any]:
    """Return the schoolbook kernel, with so many unneeded products, and Strassen's for so many 2 x 2 x 2 blocks."""
    kernel = _Kernel(shape)
    for _ in range(waste):
        kernel.add("*", shape.left(0, 0), shape.right(0, 0))
    corners = list(product(*(range(0, size - 1, 2) for size in shape)))[:strassen]
    terms: dict[tuple[int, int], list[int]] = {cell: [] for cell in product(range(shape.n), range(shape.p))}
    covered = set()
    for i, k, j in corners:
        for (row, column), number in _multiply_block(kernel, shape, i, k, j).items():
            terms[row, column].append(number)
        covered |= set(product((i, i + 1), (k, k + 1), (j, j + 1)))
    for i, k, j in product(*map(range, shape)):
        if (i, k, j) not in covered:
            terms[i, j].append(kernel.add("*", shape.left(i, k), shape.right(k, j)))
    outputs = [kernel.sum(terms[cell]) for cell in product(range(shape.n), range(shape.p))]
    return {"steps": kernel.steps, "outputs": outputs}


def _multiply_block(kernel: _Kernel, shape: Shape, i: int, k: int, j: int) -> Mapping[tuple[int, int], int]:
    """Return the numbers of a block's four entries, computed by Strassen's seven products (1969)."""
    a11, a12, a21, a22 = (shape.left(i + row, k + column) for row, column in product(range(2), repeat=2))
    b11, b12, b21, b22 = (shape.right(k + row, j + column) for row, column in product(range(2), repeat=2))
    add = kernel.add
    m1 = add("*", add("+", a11, a22), add("+", b11, b22))
    m2 = add("*", add("+", a21, a22), b11)
    m3 = add("*", a11, add("-", b12, b22))
    m4 = add("*", a22, add("-", b21, b11))
    m5 = add("*", add("+", a11, a12), b22)
    m6 = add("*", add("-", a21, a11), add("+", b11, b12))
    m7 = add("*", add("-", a12, a22), add("+", b21, b22))
    return {
        (i, j): add("+", add("-", add("+", m1, m4), m5), m7),
        (i, j + 1): add("+", m3, m5),
        (i + 1, j): add("+", m2, m4),
        (i + 1, j + 1): add("+", add("-", add("+", m1, m3), m2), m6),
    }


def _max_waste(shape: Shape) -> int:
    products, _ = shape.schoolbook_steps
    return min(_WASTE, products)


@cache
def climb(shape: Shape) -> Sequence[Mapping[str, Any]]:
    """Return kernels with ever fewer unneeded products, then with ever more blocks multiplied by Strassen's."""
    blocks = (shape.n // 2) * (shape.m // 2) * (shape.p // 2)
    wasteful = [write_kernel(shape, waste=waste) for waste in range(_max_waste(shape), 0, -1)]
    return [*wasteful, *(write_kernel(shape, strassen=number) for number in range(blocks + 1))]


@dataclass(kw_only=True)
class MatrixProductConfig(ConstructionConfig):
    """Products of small matrices with few operations (ours; matrix products as in AlphaEvolve, 3.1)."""

    task_class = MatrixProduct

    shapes: list[str]
    """Shape of each problem: `2x3x4` is the product of a 2 x 3 and a 3 x 4 matrix; sizes from 1 to 5."""
    product_cost: PositiveInt
    """Cost of a product; that of a sum or a difference is 1."""

    def __post_init__(self) -> None:
        super().__post_init__()
        if not self.shapes or len({*self.shapes}) < len(self.shapes) or not all(map(_is_shape, self.shapes)):
            raise ConfigError(
                f"task.shapes: expected different ones such as 2x3x4, with sizes from 1 to {MAX_SIZE}, got "
                f"{list(self.shapes)}"
            )

    def make_problems(self) -> Sequence[Problem]:
        return [
            Problem(
                id=text,
                stratum=text,
                data={"arguments": [int(size) for size in text.split("x")], "product_cost": self.product_cost},
            )
            for text in self.shapes
        ]

    def make_task(self, limits: Limits) -> MatrixProduct:
        return MatrixProduct(limits, prompts=self.prompts, shown_reasoning_chars=self.shown_reasoning_chars)


def _is_shape(text: str) -> bool:
    sizes = text.split("x")
    return len(sizes) == 3 and all(size in map(str, range(1, MAX_SIZE + 1)) for size in sizes)
