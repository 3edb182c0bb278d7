"""Write the sample set of the math contest tasks: generated problems, each answer found in two ways.

usage: make_math_contest_sample.py [FOLDER]     (FOLDER: the sample folder inside the package)

Each kind of problem gives one for the train split and one for the test split, with numbers drawn from a fixed seed. An
answer that the kind's formula gives is checked by enumeration, simulation or numerics; the script stops at the first
that is not confirmed. The output is always the same.
"""

import math
import sys
from collections.abc import Callable, Iterator
from fractions import Fraction
from itertools import combinations, permutations, product
from pathlib import Path
from random import Random
from typing import NamedTuple

import msgspec
import sympy

SEED = 1
SPLITS = ("train", "test")
LARGEST = 999
FOLDER = Path(__file__).resolve().parents[1] / "evorun/tasks/math_contest/sample"


class Made(NamedTuple):
    """A problem, its answer by formula, and whether the other way leads to the same."""

    problem: str
    answer: int | str
    confirmed: bool


# ---- integer answers ----


def multiples(rng: Random) -> Made:
    a, b, c = rng.choice([(4, 6, 5), (6, 9, 7), (4, 10, 3), (6, 8, 5)])
    top = rng.randrange(800, 2000)

    def up_to(n: int) -> int:
        return n // a + n // b - n // math.lcm(a, b)

    found = up_to(top) - (top // math.lcm(a, c) + top // math.lcm(b, c) - top // math.lcm(a, b, c))
    brute = sum((n % a == 0 or n % b == 0) and n % c != 0 for n in range(1, top + 1))
    text = f"How many positive integers up to ${top}$ are divisible by ${a}$ or by ${b}$, but not by ${c}$?"
    return Made(text, found, found == brute)


def last_digits(rng: Random) -> Made:
    base, exponent = rng.choice([3, 7, 13, 17]), rng.randrange(200, 900)
    slow = 1
    for _ in range(exponent):
        slow = slow * base % 1000
    text = f"Find the remainder when ${base}^{{{exponent}}}$ is divided by $1000$."
    return Made(text, pow(base, exponent, 1000), slow == pow(base, exponent, 1000))


def paths(rng: Random) -> Made:
    width, height = rng.randrange(5, 7), rng.randrange(4, 6)
    x, y = rng.randrange(1, width), rng.randrange(1, height)
    through = math.comb(x + y, x) * math.comb(width - x + height - y, height - y)
    found = math.comb(width + height, width) - through
    ways = {(0, 0): 1}
    for i, j in product(range(width + 1), range(height + 1)):
        if (i, j) != (0, 0):
            ways[i, j] = 0 if (i, j) == (x, y) else ways.get((i - 1, j), 0) + ways.get((i, j - 1), 0)
    text = (
        f"An ant walks on grid points from $(0,0)$ to $({width},{height})$. Each step adds $1$ to one of its "
        f"coordinates, and it never visits the point $({x},{y})$. In how many ways can it walk?"
    )
    return Made(text, found, found == ways[width, height])


def digit_sums(rng: Random) -> Made:
    total = rng.randrange(11, 18)
    found = sum(max(0, min(9, total - first) - max(0, total - first - 9) + 1) for first in range(1, 10))
    brute = sum(sum(map(int, str(n))) == total for n in range(100, 1000))
    text = f"How many three-digit positive integers have digits that add up to ${total}$?"
    return Made(text, found, found == brute)


def dice(rng: Random) -> Made:
    first, second, divisor = rng.randrange(8, 13), rng.randrange(13, 20), rng.choice([5, 6, 7])
    good = sum(1 for total in range(divisor, first + second + 1, divisor) for k in range(1, first + 1)
               if 1 <= total - k <= second)  # fmt: skip
    chance = Fraction(good, first * second)
    brute = Fraction(
        sum((a + b) % divisor == 0 for a, b in product(range(1, first + 1), range(1, second + 1))), first * second
    )
    text = (
        f"One fair die has its sides numbered from $1$ to ${first}$, another from $1$ to ${second}$. Both are rolled. "
        f"The probability that the sum is a multiple of ${divisor}$ is $\\frac{{p}}{{q}}$ in lowest terms, with "
        "positive integers $p$ and $q$. Find $p+q$."
    )
    return Made(text, chance.numerator + chance.denominator, chance == brute)


def squares(rng: Random) -> Made:
    top, modulus = rng.randrange(300, 900), rng.choice([701, 811, 907])
    found = top * (top + 1) * (2 * top + 1) // 6 % modulus
    text = f"Find the remainder when $1^2+2^2+3^2+\\cdots+{top}^2$ is divided by ${modulus}$."
    return Made(text, found, found == sum(n * n for n in range(1, top + 1)) % modulus)


def sparse_subsets(rng: Random) -> Made:
    size = rng.randrange(9, 14)
    found = int(sympy.fibonacci(size + 2))
    brute = sum(not mask & mask >> 1 for mask in range(2**size))
    text = (
        f"How many subsets of $\\{{1,2,\\dots,{size}\\}}$, the empty one included, contain no two consecutive integers?"
    )
    return Made(text, found, found == brute)


def remainders(rng: Random) -> Made:
    moduli = rng.choice([(7, 9, 11), (5, 9, 13), (8, 9, 11), (5, 11, 16)])
    left = [rng.randrange(1, modulus) for modulus in moduli]
    product_of_all = math.prod(moduli)
    found = sum(r * (product_of_all // m) * pow(product_of_all // m, -1, m) for r, m in zip(left, moduli, strict=True))
    found %= product_of_all
    brute = next(n for n in range(1, 1000) if all(n % m == r for r, m in zip(left, moduli, strict=True)))
    said = ", ".join(f"${r}$ when divided by ${m}$" for r, m in zip(left, moduli, strict=True))
    return Made(f"Find the smallest positive integer that leaves the remainders {said}.", found, found == brute)


def cubes_of_roots(rng: Random) -> Made:
    p, q = rng.randrange(7, 10), rng.randrange(2, 7)
    roots = sympy.roots(sympy.Poly([1, -p, q], sympy.Symbol("x")), multiple=True)
    brute = sympy.simplify(sum(root**3 for root in roots))
    found = p**3 - 3 * p * q
    text = f"The roots of $x^2-{p}x+{q}=0$ are $r$ and $s$. Compute $r^3+s^3$."
    return Made(text, found, brute == found)


def trailing_zeros(rng: Random) -> Made:
    top, base, prime, power = rng.randrange(500, 1500), *rng.choice([(12, 3, 1), (18, 3, 2), (20, 5, 1), (28, 7, 1)])

    def order(p: int) -> int:
        return sum(top // p**k for k in range(1, 12))

    found = min(order(2) // (2 if base in (12, 20, 28) else 1), order(prime) // power)
    value, brute = math.factorial(top), 0
    while value % base == 0:
        value, brute = value // base, brute + 1
    return Made(f"With how many zeros does ${top}!$ end when it is written in base ${base}$?", found, found == brute)


def inner_points(rng: Random) -> Made:
    ax, ay, bx, by = rng.randrange(20, 40), rng.randrange(1, 9), rng.randrange(3, 15), rng.randrange(25, 45)
    doubled = ax * by - bx * ay
    border = math.gcd(ax, ay) + math.gcd(bx, by) + math.gcd(bx - ax, by - ay)
    found = (doubled - border + 2) // 2

    def inside(x: int, y: int) -> bool:
        first, second = ax * y - ay * x, x * by - y * bx
        return first > 0 and second > 0 and (bx - ax) * (y - ay) - (by - ay) * (x - ax) > 0

    brute = sum(inside(x, y) for x in range(ax + bx) for y in range(by + 1))
    text = (
        f"How many points with integer coordinates lie strictly inside the triangle with the vertices $(0,0)$, "
        f"$({ax},{ay})$ and $({bx},{by})$?"
    )
    return Made(text, found, found == brute)


def seatings(rng: Random) -> Made:
    people, apart = rng.choice([6, 7]), rng.choice([2, 3])
    others = people - apart
    found = math.factorial(others - 1) * math.perm(others, apart)
    brute = 0
    for rest in permutations(range(1, people)):
        circle = (0, *rest)
        brute += not any(a < apart and b < apart for a, b in zip(circle, (*rest, 0), strict=True))
    text = (
        f"${people}$ people sit down at a round table; seatings that differ by a rotation count as one. ${apart}$ of "
        "them are sisters, and no two sisters sit next to each other. How many seatings are there?"
    )
    return Made(text, found, found == brute)


# ---- other answers ----


def heron(rng: Random) -> Made:
    a, b, c = rng.choice([(5, 7, 8), (4, 7, 9), (6, 7, 11), (5, 9, 10)])
    area = sympy.sqrt(sympy.Rational((a + b + c) * (a + b - c) * (a - b + c) * (b + c - a), 16))
    x = (a * a + c * c - b * b) / (2 * c)
    numeric = c * math.sqrt(a * a - x * x) / 2
    text = f"A triangle has sides of length ${a}$, ${b}$ and ${c}$. What is its area?"
    return Made(text, sympy.latex(area), math.isclose(float(area), numeric))


def telescope(rng: Random) -> Made:
    step, top = rng.choice([2, 3]), rng.randrange(20, 60)
    found = sum((Fraction(1, k) - Fraction(1, top + k) for k in range(1, step + 1)), Fraction(0)) / step
    brute = sum(Fraction(1, k * (k + step)) for k in range(1, top + 1))
    text = f"Compute $\\sum_{{k=1}}^{{{top}}} \\frac{{1}}{{k(k+{step})}}$ as a fraction in lowest terms."
    return Made(text, f"\\frac{{{found.numerator}}}{{{found.denominator}}}", found == brute)


def larger_root(rng: Random) -> Made:
    p, q = rng.choice([(5, 3), (7, 5), (9, 7), (7, 4)])
    root = max(sympy.solve(sympy.Symbol("x") ** 2 - p * sympy.Symbol("x") + q))
    numeric = (p + math.sqrt(p * p - 4 * q)) / 2
    text = f"What is the larger root of $x^2-{p}x+{q}=0$?"
    return Made(text, sympy.latex(sympy.together(root)), math.isclose(float(root), numeric))


def ring(rng: Random) -> Made:
    side, corners = rng.choice([3, 5, 7, 9]), rng.choice([5, 6, 8, 10])
    found = sympy.pi * sympy.Rational(side * side, 4)
    outer, inner = side / (2 * math.sin(math.pi / corners)), side / (2 * math.tan(math.pi / corners))
    numeric = math.pi * (outer**2 - inner**2)
    text = (
        f"A regular polygon with ${corners}$ sides of length ${side}$ has a circle through its corners and another one "
        "that touches its sides. What is the area between the two circles?"
    )
    return Made(text, sympy.latex(found), math.isclose(float(found), numeric))


def inequality(rng: Random) -> Made:
    a, b, c = rng.randrange(2, 5), rng.randrange(3, 12), rng.randrange(13, 30)
    low, high = Fraction(b - c, a), Fraction(b + c, a)
    grid = [Fraction(n, 60) for n in range(-1200, 1800)]
    confirmed = all((abs(a * x - b) < c) == (low < x < high) for x in grid)
    ends = ", ".join(sympy.latex(sympy.Rational(end.numerator, end.denominator)) for end in (low, high))
    text = f"For which real numbers $x$ is $|{a}x-{b}|<{c}$? Give the answer as an interval."
    return Made(text, f"\\left({ends}\\right)", confirmed)


def expectation(rng: Random) -> Made:
    balls, drawn = rng.randrange(9, 14), rng.randrange(3, 5)
    found = Fraction(drawn * (balls + 1), drawn + 1)
    all_draws = list(combinations(range(1, balls + 1), drawn))
    brute = Fraction(sum(max(draw) for draw in all_draws), len(all_draws))
    text = (
        f"From ${balls}$ balls numbered from $1$ to ${balls}$, ${drawn}$ are drawn at random without putting any back. "
        "What is the expected value of the largest number drawn?"
    )
    return Made(text, sympy.latex(sympy.Rational(found.numerator, found.denominator)), found == brute)


Kind = Callable[[Random], Made]
INTEGERS: dict[Kind, str] = {
    multiples: "Number Theory",
    last_digits: "Number Theory",
    paths: "Counting & Probability",
    digit_sums: "Number Theory",
    dice: "Counting & Probability",
    squares: "Number Theory",
    sparse_subsets: "Counting & Probability",
    remainders: "Number Theory",
    cubes_of_roots: "Intermediate Algebra",
    trailing_zeros: "Number Theory",
    inner_points: "Geometry",
    seatings: "Counting & Probability",
}
EXPRESSIONS: dict[Kind, str] = {
    heron: "Geometry",
    telescope: "Intermediate Algebra",
    larger_root: "Algebra",
    ring: "Geometry",
    inequality: "Algebra",
    expectation: "Counting & Probability",
}
"""By kind, the subject of MATH that it belongs to."""


def distinct(kind: Kind) -> Iterator[Made]:
    """Yield problems of a kind, each once, those with an integer answer from 0 to 999."""
    rng = Random(f"{SEED}/{kind.__name__}")
    seen = set()
    while True:
        made = kind(rng)
        if not made.confirmed:
            raise SystemExit(f"{kind.__name__}: not confirmed: {made}")
        if made.problem not in seen and not (isinstance(made.answer, int) and made.answer > LARGEST):
            seen.add(made.problem)
            yield made


def main() -> None:
    folder = Path(sys.argv[1]) if len(sys.argv) > 1 else FOLDER
    folder.mkdir(parents=True, exist_ok=True)
    for name, kinds in (("integer", INTEGERS), ("expression", EXPRESSIONS)):
        made = [(kind.__name__, subject, distinct(kind)) for kind, subject in kinds.items()]
        for split in SPLITS:
            records = [
                {
                    "id": f"sample/{split}/{kind}",
                    "problem": question.problem,
                    "answer": question.answer,
                    "subject": subject,
                }
                for kind, subject, problems in made
                for question in [next(problems)]
            ]
            path = folder / f"{split}_{name}.jsonl"
            path.write_bytes(b"".join(msgspec.json.encode(record) + b"\n" for record in records))


if __name__ == "__main__":
    main()
