"""The sample set: every expected output found again by slower and plainer means than the reference programs use."""

import json
import subprocess
import sys
from collections import Counter, deque
from collections.abc import Callable, Iterable
from itertools import combinations, pairwise, permutations, product
from pathlib import Path
from typing import Any

import networkx
import numpy as np
import pytest
from scipy.optimize import linear_sum_assignment

from evorun.tasks.livecodebench.problems import SAMPLE

SCRIPT = Path(__file__).resolve().parents[3] / "scripts" / "make_livecodebench_sample.py"
RECORDS = [json.loads(line) for line in SAMPLE.read_bytes().splitlines()]


def rows(numbers: Iterable[int], width: int) -> list[tuple[int, ...]]:
    flat = list(numbers)
    return [tuple(flat[i : i + width]) for i in range(0, len(flat), width)]


# --- scripts: the input's words in, the output's words out ---


def late_buses(words: list[str]) -> list[Any]:
    _, grace, *times = map(int, words)
    late = [arrived - due for due, arrived in rows(times, 2) if arrived - due > grace]
    return [len(late), max([0, *late])]


def odd_socks(words: list[str]) -> list[Any]:
    lying: set[str] = set()
    pairs = 0
    for sock in words[1:]:
        pairs += sock in lying
        lying ^= {sock}
    return [pairs, *(sorted(lying) or ["none"])]


def refill_stops(words: list[str]) -> list[Any]:
    _, capacity, *costs = map(int, words)
    bottle, fills = [1] * capacity, 0
    for cost in costs:
        if len(bottle) < cost:
            bottle, fills = [1] * capacity, fills + 1
        if len(bottle) < cost:
            return [-1]
        del bottle[:cost]
    return [fills]


def longest_hum(words: list[str]) -> list[Any]:
    [word] = words
    for length in range(len(word), 0, -1):
        found = [letter for letter in sorted(set(word)) if letter * length in word]
        if found:
            return [found[0], length]
    raise AssertionError


def two_on_the_ferry(words: list[str]) -> list[Any]:
    n, limit, *cars = map(int, words)
    graph = networkx.Graph([(i, j) for i, j in combinations(range(n), 2) if cars[i] + cars[j] <= limit])
    return [n - len(networkx.max_weight_matching(graph, maxcardinality=True))]


def inland_lakes(words: list[str]) -> list[Any]:
    height, width = map(int, words[:2])
    graph = networkx.grid_2d_graph(height, width)
    graph.remove_nodes_from([(y, x) for y, x in product(range(height), range(width)) if words[2 + y][x] == "#"])
    inner = set(product(range(1, height - 1), range(1, width - 1)))
    lakes = [len(body) for body in networkx.connected_components(graph) if body <= inner]
    return [len(lakes), max([0, *lakes])]


def exact_postage(words: list[str]) -> list[Any]:
    _, price, *values = map(int, words)
    reached, stamps = {0}, 0
    while price not in reached:
        wider = reached | {paid + value for paid in reached for value in values if paid + value <= price}
        if wider == reached:
            return [-1]
        reached, stamps = wider, stamps + 1
    return [stamps]


def longest_break(words: list[str]) -> list[Any]:
    _, day, *times = map(int, words)
    minutes = ["free"] * day
    for start, end in rows(times, 2):
        minutes[start:end] = ["busy"] * (end - start)
    shown = "".join(minute[0] for minute in minutes)
    for length in range(day, 0, -1):
        if "f" * length in shown:
            return [shown.find("f" * length), length]
    return [-1, 0]


def toll_passes(words: list[str]) -> list[Any]:
    n, _, passes, *numbers = map(int, words)
    inf = float("inf")
    paid = [[0 if town == 1 else inf for town in range(n + 1)] for _ in range(passes + 1)]
    for _ in range(n * (passes + 1)):  # Bellman and Ford, layer by layer
        for a, b, toll in rows(numbers, 3):
            for used, (x, y) in product(range(passes + 1), ((a, b), (b, a))):
                free = paid[used - 1][x] if used else inf
                paid[used][y] = min(paid[used][y], paid[used][x] + toll, free)
    best = min(layer[n] for layer in paid)
    return [-1 if best == inf else int(best)]


def crossing_cables(words: list[str]) -> list[Any]:
    left, right = np.array(words[1:], dtype=np.int64).reshape(-1, 2).T
    return [int(np.sum((left[:, None] < left) & (right[:, None] > right)))]


def signal_towers(words: list[str]) -> list[Any]:
    n, m, _, *numbers = map(int, words)
    graph = networkx.Graph(rows(numbers[: 2 * m], 2))
    graph.add_nodes_from(range(1, n + 1))
    counts = []
    for tower in numbers[2 * m :]:
        graph.remove_node(tower)
        counts.append(networkx.number_connected_components(graph))
    return counts


def restless_tickets(words: list[str]) -> list[Any]:
    low, high, k = map(int, words)
    if high > 10**6:
        return [_restless_by_length(high, k) - _restless_by_length(low - 1, k)]
    return [
        sum(
            sum(map(int, str(n))) % k == 0 and all(a != b for a, b in zip(str(n), str(n)[1:], strict=False))
            for n in range(low, high + 1)
        )
    ]


def _restless_by_length(top: int, k: int) -> int:
    """Count by (last digit, rest) tables over free tails, for each place where a number first falls below `top`."""
    digits = list(map(int, str(top)))
    # tails[length][last][rest]: ways to append `length` digits after `last` so that their sum is `rest` modulo k
    tails = [np.zeros((11, k), dtype=object) for _ in range(len(digits) + 1)]
    tails[0][:, 0] = 1
    for length in range(1, len(digits) + 1):
        for last, digit in product(range(11), range(10)):
            if digit != last:
                tails[length][last] += np.roll(tails[length - 1][digit], digit % k)
    total = sum(tails[length - 1][first][-first % k] for length in range(1, len(digits)) for first in range(1, 10))
    for place, limit in enumerate(digits):
        before = digits[place - 1] if place else 10
        for digit in range(0 if place else 1, limit):
            if digit != before:
                rest = -(sum(digits[:place]) + digit) % k
                total += tails[len(digits) - place - 1][digit][rest]
        if limit == before:
            return int(total)
    return int(total + (sum(digits) % k == 0))


# --- methods: the arguments in, the result out ---


def quiet_days(levels: list[int], limit: int) -> int:
    padded = [-1, *levels, -1]
    return sum(all(level < limit for level in three) for three in zip(padded, padded[1:], padded[2:], strict=False))


def mirror_sum(n: int) -> int:
    digits, done = [int(d) for d in str(n)], 0
    while digits != digits[::-1]:
        if done == 30:
            return -1
        carry, total = 0, []
        for a, b in zip(reversed(digits), digits, strict=True):
            carry, digit = divmod(a + b + carry, 10)
            total.append(digit)
        digits, done = [*([carry] if carry else []), *reversed(total)], done + 1
    return done


def last_dancer(names: list[str], turns: list[int]) -> list[str]:
    queue, home = deque(zip(names, turns, strict=True)), []
    while queue:
        name, left = queue.popleft()
        if left == 1:
            home.append(name)
        else:
            queue.append((name, left - 1))
    return home


def plain_rows(mosaic: list[str]) -> list[int]:
    kinds = [row[0] if row == row[0] * len(row) else None for row in mosaic]
    clashes = [pair for pair in pairwise(kinds) if set(pair) == {"#", "."}]
    return [len(kinds) - kinds.count(None), len(clashes)]


def shortest_ribbon(ribbon: str, sign: str) -> int:
    need = Counter(sign)
    for length in range(len(sign), len(ribbon) + 1):
        if any(need <= Counter(ribbon[i : i + length]) for i in range(len(ribbon) - length + 1)):
            return length
    return -1


def calm_stretch(levels: list[int], d: int) -> int:
    best = 0
    for start in range(len(levels)):
        low = high = levels[start]
        for end in range(start, len(levels)):
            low, high = min(low, levels[end]), max(high, levels[end])
            if high - low > d:
                break
            best = max(best, end - start + 1)
    return best


def looping_robot(program: str) -> list[int]:
    def run(place: int, state: tuple[complex, complex]) -> tuple[int, tuple[complex, complex]]:
        """Carry out a part from `place` up to its closing bracket; return where that stands."""
        while place < len(program) and program[place] != ")":
            position, heading = state
            if program[place].isdigit():
                opening = program.index("(", place)
                for _ in range(int(program[place:opening])):
                    closing, state = run(opening + 1, state)
                place = closing
            elif program[place] == "F":
                state = (position + heading, heading)
            else:
                state = (position, heading * (1j if program[place] == "L" else -1j))
            place += 1
        return place, state

    position = run(0, (0, 1j))[1][0]
    return [round(position.real), round(position.imag)]


def club_ledger(entries: list[str], k: int) -> list[str]:
    names = {entry.split(":")[0] for entry in entries}
    balances = [(sum(int(e.split(":")[1]) for e in entries if e.split(":")[0] == name), name) for name in names]
    return [name for _, name in sorted(balances)][:k]


def cheapest_taping(widths: list[int]) -> int:
    known: dict[tuple[int, ...], int] = {}

    def cost(part: tuple[int, ...]) -> int:
        if len(part) == 1:
            return 0
        if part not in known:
            cuts = [(part[:i], part[i:]) for i in range(1, len(part))]
            known[part] = min(cost(a) + cost(b) + min(sum(a), sum(b)) + abs(len(a) - len(b)) for a, b in cuts)
        return known[part]

    return cost(tuple(widths))


def shared_melody(*songs: str) -> str:
    first, second, third = sorted(songs, key=len)
    melodies = {""}
    for letter in first:  # every melody of the shortest song, kept while the others have it
        longer = {melody + letter for melody in melodies}
        melodies |= {melody for melody in longer if _occurs(melody, second) and _occurs(melody, third)}
    return min(melodies, key=lambda melody: (-len(melody), melody))


def _occurs(melody: str, song: str) -> bool:
    notes = iter(song)
    return all(note in notes for note in melody)


def shift_plan(dislike: list[list[int]]) -> list[int]:
    n = len(dislike)
    if n <= 7:
        plans = ([dislike[i][j] for i, j in enumerate(order)] for order in permutations(range(n)))
        return list(min((max(plan), sum(plan)) for plan in plans))
    costs, forbidden = np.array(dislike), 10**6
    for bound in sorted(set(costs.ravel().tolist())):
        allowed = np.where(costs <= bound, costs, forbidden)
        total = int(allowed[linear_sum_assignment(allowed)].sum())
        if total < forbidden:
            return [bound, total]
    raise AssertionError


def double_cover(sheets: list[list[int]]) -> int:
    floor = np.zeros((64, 64), dtype=int)
    for x1, y1, x2, y2 in sheets:
        floor[x1:x2, y1:y2] += 1
    return int((floor >= 2).sum())


SCRIPTS: dict[str, Callable[[list[str]], list[Any]]] = {
    f.__name__: f
    for f in (
        late_buses,
        odd_socks,
        refill_stops,
        longest_hum,
        two_on_the_ferry,
        inland_lakes,
        exact_postage,
        longest_break,
        toll_passes,
        crossing_cables,
        signal_towers,
        restless_tickets,
    )
}
METHODS: dict[str, Callable[..., Any]] = {
    f.__name__: f
    for f in (
        quiet_days,
        mirror_sum,
        last_dancer,
        plain_rows,
        shortest_ribbon,
        calm_stretch,
        looping_robot,
        club_ledger,
        cheapest_taping,
        shared_melody,
        shift_plan,
        double_cover,
    )
}


def name(record: dict[str, Any]) -> str:
    return str(record["id"]).rsplit("/", 1)[1]


@pytest.mark.nightly
def test_every_expected_output_is_what_the_text_asks_for() -> None:
    for record in RECORDS:
        for test in [*record["public_tests"], *record["hidden_tests"]]:
            if record["func_name"]:
                arguments = [json.loads(line) for line in test["input"].splitlines()]
                assert METHODS[name(record)](*arguments) == json.loads(test["output"]), test["input"][:200]
            else:
                found = SCRIPTS[name(record)](test["input"].split())
                assert [str(word) for word in found] == test["output"].split(), test["input"][:200]


@pytest.mark.nightly
def test_regenerating_gives_the_same_bytes(tmp_path: Path) -> None:
    subprocess.run([sys.executable, SCRIPT, tmp_path / "sample.jsonl"], check=True)
    assert (tmp_path / "sample.jsonl").read_bytes() == SAMPLE.read_bytes()


def test_difficulties_and_kinds_are_balanced() -> None:
    counts = Counter((record["difficulty"], record["kind"]) for record in RECORDS)
    assert counts == dict.fromkeys(product(("easy", "medium", "hard"), ("stdin", "functional")), 4)
    assert len({record["statement"] for record in RECORDS}) == len(RECORDS) == 24


def test_hidden_tests_are_other_ones_than_the_public_ones() -> None:
    for record in RECORDS:
        inputs = [test["input"] for test in [*record["public_tests"], *record["hidden_tests"]]]
        assert len(set(inputs)) == len(inputs) == 14
