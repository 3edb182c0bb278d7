"""The sample set: solved again from its texts alone by enumeration, simulation or symbolic algebra."""

import math
import re
import subprocess
import sys
from collections import Counter
from collections.abc import Callable, Sequence
from fractions import Fraction as F
from itertools import combinations, permutations, product
from pathlib import Path
from typing import Any

import msgspec
import sympy

from evorun.tasks.mathbench.mathbench import SAMPLE

SCRIPT = Path(__file__).resolve().parents[2] / "scripts" / "make_mathbench_sample.py"
STAGES = ("middle", "high", "college")


def load(stage: str) -> list[dict[str, Any]]:
    lines = (SAMPLE / stage / "single_choice_en.jsonl").read_bytes().splitlines()
    return [msgspec.json.decode(line) for line in lines]


RECORDS = [record for stage in STAGES for record in load(stage)]


def root(equation: Callable[[Any], Any]) -> F:
    x = sympy.symbols("x")
    [solution] = sympy.solve(equation(x), x)
    return F(int(solution.p), int(solution.q))


def share(hits: Sequence[bool]) -> F:
    return F(sum(hits), len(hits))


def bounced(height: int, part: int, whole: int, landings: int) -> F:
    travelled, top = F(0), F(height)
    for landing in range(landings):
        travelled += top
        top = top * part / whole
        travelled += top if landing < landings - 1 else 0
    return travelled


def bred(born: int, kept: int, grown: int, young: int, years: int) -> int:
    return sum(sympy.Matrix([[0, born], [grown, kept]]) ** years * sympy.Matrix([young, 0]))


def collected(pictures: int) -> F:
    owned_all = F(0)  # expected packets still to open, from all pictures owned down to none
    for owned in range(pictures - 1, -1, -1):
        p = F(pictures - owned, pictures)
        owned_all = root(lambda x, p=p, rest=owned_all: x - 1 - (1 - p) * x - sympy.Rational(p * rest))
    return owned_all


def top_speed(length: int, speed: int, foot: int) -> F:
    t = sympy.symbols("t")
    rate = -sympy.diff(sympy.sqrt(length**2 - (foot + speed * t) ** 2), t).subs(t, 0)
    return F(int(rate.p), int(rate.q))


def same_colour(red: int, blue: int) -> F:
    return share([a == b for a, b in permutations("r" * red + "b" * blue, 2)])


def bulbs(below: int, m: int, a: int, n: int, b: int) -> int:
    [found] = [k for k in range(below) if k % m == a and k % n == b]
    return found


def inflow_excess(square: int, _two: int, linear: int, end: int, out: int) -> int:
    t = sympy.symbols("t")
    return int(sympy.integrate(square * t**2 + linear * t - out, (t, 0, end)))


def best_mix(a: int, c: int, gx: int, b: int, d: int, gy: int, wood: int, hours: int) -> int:
    plans = product(range(wood // a + 1), range(wood // b + 1))
    return max(gx * x + gy * y for x, y in plans if a * x + b * y <= wood and c * x + d * y <= hours)


ORACLES: dict[str, Callable[..., Any]] = {
    "discount_then_tax": lambda price, off, tax: price * (1 - F(off, 100)) * (1 + F(tax, 100)),
    "average_speed": lambda d, u, v: F(2 * d) / (F(d, u) + F(d, v)),
    "work_together": lambda a, b: root(lambda x: x / a + x / b - 1),
    "mixture": lambda x, p, y, q: root(lambda s: s * (x + y) - x * p - y * q),
    "ratio_difference": lambda total, *parts: F(total, sum(parts)) * (max(parts) - min(parts)),
    "ages": lambda k, years, m: next(k * b for b in range(1, 99) if k * b + years == m * (b + years)),
    "coins": lambda n, _5, _20, cents, _: next(t for t in range(n + 1) if 20 * t + 5 * (n - t) == cents),
    "path_area": lambda length, width, p: sum(
        not (p <= x < p + length and p <= y < p + width) for x in range(length + 2 * p) for y in range(width + 2 * p)
    ),
    "original_price": lambda up, after: root(lambda x: x + x * up / 100 - after),
    "consecutive_even": lambda n, total: next(
        2 * k + 2 * (n - 1) for k in range(total) if sum(range(2 * k, 2 * k + 2 * n, 2)) == total
    ),
    "leaking_tank": lambda full, held, pump, leak: next(t for t in range(999) if held + t * (pump - leak) >= full),
    "next_score": lambda n, mean, new: next(s for s in range(101) if F(n * mean + s, n + 1) == new),
    "same_colour": same_colour,
    "theatre_rows": lambda first, step, rows: sum(range(first, first + rows * step, step)),
    "time_of_flight": lambda h, v, _h, _v, _5, _2: next(t for t in range(1, 99) if h + v * t - 5 * t * t <= 0),
    "committee": lambda women, men, size, needed: sum(
        c.count("w") >= needed
        for c in (["w" if i < women else "m" for i in chosen] for chosen in combinations(range(women + men), size))
    ),
    "compound_interest": lambda capital, rate, years: math.prod([1 + F(rate, 100)] * years, start=capital) - capital,
    "fence_by_river": lambda fence: max(side * (fence - 2 * side) for side in range(fence // 2)),
    "doubling": lambda start, every, hours: start * math.prod([2] * len(range(0, hours, every))),
    "remainders": bulbs,
    "sliding_ladder": lambda length, foot, slide: round(
        math.sqrt(length**2 - foot**2) - math.sqrt(length**2 - (foot + slide) ** 2), 9
    ),
    "coin_tosses": lambda n, heads: share([sum(toss) == heads for toss in product((0, 1), repeat=n)]),
    "bouncing_ball": bounced,
    "faulty_parts": lambda x, a, b: share([True] * (x * a) + [False] * ((100 - x) * b)),
    "steady_state": lambda x, y: root(lambda s: s * (100 - x) + (1 - s) * y - 100 * s),
    "largest_of_two": lambda _1, faces: F(sum(max(pair) for pair in product(range(1, faces + 1), repeat=2)), faces**2),
    "net_volume": inflow_excess,
    "best_output": lambda a, slope, c, fixed: max((a - slope * q) * q - c * q - fixed for q in range(a // slope + 1)),
    "sliding_rate": top_speed,
    "elements_of_order": lambda order, n: sum(
        next(k for k in range(1, n + 1) if k * g % n == 0) == order for g in range(n)
    ),
    "parcels_in_vans": lambda parcels, vans: sum(
        len(set(loading)) == vans for loading in product(range(vans), repeat=parcels)
    ),
    "power_remainder": lambda base, exponent, modulus: base**exponent % modulus,
    "full_collection": collected,
    "steady_dose": lambda dose, kept: root(lambda x: x * kept / 100 + dose - x),
    "stage_population": bred,
    "best_mix": best_mix,
}


def test_the_keyed_option_is_what_the_text_asks_for() -> None:
    for record in RECORDS:
        numbers = [int(number) for number in re.findall(r"\d+", record["question"])]
        solved = ORACLES[record["topic"]](*numbers)
        assert F(record["options"]["ABCD".index(record["answer"])]) == F(solved)
        assert sum(F(option) == F(solved) for option in record["options"]) == 1


def test_regenerating_gives_the_same_bytes(tmp_path: Path) -> None:
    subprocess.run([sys.executable, SCRIPT, tmp_path], check=True)
    for stage in STAGES:
        made = (tmp_path / stage / "single_choice_en.jsonl").read_bytes()
        assert made == (SAMPLE / stage / "single_choice_en.jsonl").read_bytes()


def test_letters_are_balanced_and_kinds_are_many() -> None:
    for stage in STAGES:
        records = load(stage)
        assert Counter(record["answer"] for record in records) == dict.fromkeys("ABCD", len(records) // 4)
        assert len({record["topic"] for record in records}) >= 10


def test_questions_and_options_are_distinct() -> None:
    assert len({record["question"] for record in RECORDS}) == len(RECORDS) == 144
    assert all(len({F(option) for option in record["options"]}) == 4 for record in RECORDS)
