"""HARD: two ideas together, or one that few know: states in a search, trees of sums, reversal, digits, subsets."""

from random import Random

from livecodebench_problems.draft import Draft, lines, some


def _roads(r: Random) -> str:
    n = r.randint(2, 25)
    m = r.randint(1, 3 * n)
    roads = [(*(r.sample(range(1, n + 1), 2)), r.randint(1, 50)) for _ in range(m)]
    return lines((n, m, r.randint(0, 3)), *roads)


_TOLLS = """\
import heapq
import sys

n, m, k, *numbers = map(int, sys.stdin.read().split())
roads = [[] for _ in range(n + 1)]
for a, b, toll in zip(numbers[::3], numbers[1::3], numbers[2::3]):
    roads[a].append((b, toll))
    roads[b].append((a, toll))
best = {}
queue = [(0, 1, 0)]
while queue:
    paid, town, used = heapq.heappop(queue)
    if (town, used) in best:
        continue
    best[town, used] = paid
    for other, toll in roads[town]:
        heapq.heappush(queue, (paid + toll, other, used))
        if used < k:
            heapq.heappush(queue, (paid, other, used + 1))
print(min((best[n, used] for used in range(k + 1) if (n, used) in best), default=-1))
"""

TOLL_PASSES = Draft(
    "Toll Passes",
    "N towns are joined by M toll roads that can be driven in both directions. You drive from town 1 to town N and "
    "hold K passes; each lets you drive one road for nothing, once.\n\n"
    "Print the smallest sum of tolls that you can get by with, or -1 if town N cannot be reached.\n\n"
    "Input: N, M and K on the first line; then M lines with the two towns and the toll of a road.\n\n"
    "Constraints: 2 <= N <= 10^4, 1 <= M <= 10^5, 0 <= K <= 5, a road joins two different towns, tolls lie in [1, "
    "10^9].",
    [lines((4, 4, 1), (1, 2, 5), (2, 4, 6), (1, 3, 2), (3, 4, 8)), lines((3, 1, 2), (1, 2, 7))],
    _roads,
    _TOLLS,
    """\
import heapq
import sys

n, m, k, *numbers = map(int, sys.stdin.read().split())
roads = [[] for _ in range(n + 1)]
for a, b, toll in zip(numbers[::3], numbers[1::3], numbers[2::3]):
    roads[a].append((b, toll))
    roads[b].append((a, toll))
best = {}
queue = [(0, 1, [])]
while queue:
    paid, town, tolls = heapq.heappop(queue)
    if town in best:
        continue
    best[town] = sum(sorted(tolls)[: max(len(tolls) - k, 0)])
    for other, toll in roads[town]:
        heapq.heappush(queue, (paid + toll, other, [*tolls, toll]))
print(best.get(n, -1))
""",
)


def _cables(r: Random) -> str:
    n = r.choice([r.randint(1, 8), r.randint(50, 900)])
    return lines(n, *zip(some(r, 1, max(n // 2, 1), n), some(r, 1, max(n // 2, 1), n), strict=True))


CROSSING_CABLES = Draft(
    "Crossing Cables",
    "Two parallel walls carry hooks, numbered along each wall in the same direction. N straight cables are strung; "
    "cable i runs from hook L_i of the left wall to hook R_i of the right one. Two cables cross when one of them has "
    "the smaller number on the left and the greater one on the right. Cables that share a hook do not cross.\n\n"
    "Print how many pairs of cables cross.\n\n"
    "Input: N on the first line; then L_i and R_i, a cable a line.\n\n"
    "Constraints: 1 <= N <= 2 * 10^5, 1 <= L_i, R_i <= 10^9.",
    [lines(3, (1, 3), (2, 1), (3, 2)), lines(2, (4, 4), (9, 5))],
    _cables,
    """\
import bisect
import sys

n, *numbers = map(int, sys.stdin.read().split())
cables = sorted(zip(numbers[::2], numbers[1::2]))
ranks = sorted({right for _, right in cables})
tree = [0] * (len(ranks) + 1)
crossings = 0
for seen, (_, right) in enumerate(cables):
    place = bisect.bisect_left(ranks, right) + 1
    below, i = 0, place
    while i:
        below += tree[i]
        i &= i - 1
    crossings += seen - below
    i = place
    while i < len(tree):
        tree[i] += 1
        i += i & -i
print(crossings)
""",
    """\
import bisect
import sys

n, *numbers = map(int, sys.stdin.read().split())
cables = sorted(zip(numbers[::2], numbers[1::2]), key=lambda cable: cable[0])
rights, crossings = [], 0
for _, right in cables:
    crossings += len(rights) - bisect.bisect_right(rights, right)
    bisect.insort(rights, right)
print(crossings)
""",
)


def _towers(r: Random) -> str:
    n = r.randint(2, 30)
    pairs = [(a, b) for a in range(1, n + 1) for b in range(a + 1, n + 1)]
    m = r.randint(1, min(len(pairs), 2 * n))
    order = r.sample(range(1, n + 1), r.randint(1, n))
    return lines((n, m, len(order)), *r.sample(pairs, m), order)


SIGNAL_TOWERS = Draft(
    "Signal Towers",
    "N signal towers are joined by M links. Towers that can reach each other over links of standing towers form a "
    "network; a tower without links is a network by itself. A storm blows down Q towers, one after another.\n\n"
    "Print Q lines: after each fall, how many networks the standing towers form.\n\n"
    "Input: N, M and Q on the first line; M lines with the two towers of a link; one line with the Q towers in the "
    "order in which they fall.\n\n"
    "Constraints: 1 <= N, M <= 10^5, 1 <= Q <= N, a link joins two different towers and occurs once, no tower falls "
    "twice.",
    [lines((4, 3, 3), (1, 2), (2, 3), (3, 4), (2, 4, 1)), lines((2, 1, 2), (1, 2), (1, 2))],
    _towers,
    """\
import sys

n, m, q, *numbers = map(int, sys.stdin.read().split())
links = [[] for _ in range(n + 1)]
for a, b in zip(numbers[: 2 * m : 2], numbers[1 : 2 * m : 2]):
    links[a].append(b)
    links[b].append(a)
falls = numbers[2 * m :]
leader = list(range(n + 1))
stands = [True] * (n + 1)
for tower in falls:
    stands[tower] = False


def find(tower):
    while leader[tower] != tower:
        leader[tower] = tower = leader[leader[tower]]
    return tower


networks = 0


def raise_up(tower):
    global networks
    networks += 1
    for other in links[tower]:
        if stands[other]:
            a, b = find(tower), find(other)
            if a != b:
                leader[a] = b
                networks -= 1


standing = [tower for tower in range(1, n + 1) if stands[tower]]
for tower in standing:
    stands[tower] = False
for tower in standing:
    stands[tower] = True
    raise_up(tower)
answers = []
for tower in reversed(falls):
    answers.append(networks)
    stands[tower] = True
    raise_up(tower)
print(*reversed(answers), sep="\\n")
""",
    """\
import sys

n, m, q, *numbers = map(int, sys.stdin.read().split())
links = [set() for _ in range(n + 1)]
for a, b in zip(numbers[: 2 * m : 2], numbers[1 : 2 * m : 2]):
    links[a].add(b)
    links[b].add(a)
networks, seen = 0, set()
for tower in range(1, n + 1):
    if tower not in seen:
        networks += 1
        stack = [tower]
        while stack:
            one = stack.pop()
            if one not in seen:
                seen.add(one)
                stack.extend(links[one])
for tower in numbers[2 * m :]:
    networks += len(links[tower]) - 1
    for other in links[tower]:
        links[other].discard(tower)
    print(networks)
""",
)


def _range(r: Random) -> str:
    high = r.choice([300, 10**5, 10**12])
    low, top = sorted(some(r, 1, high, 2))
    return lines((low, top, r.randint(1, 12)))


RESTLESS_TICKETS = Draft(
    "Restless Tickets",
    "A ticket number is restless when no two digits next to each other are equal and the sum of its digits is a "
    "multiple of K. Numbers are written without zeros at the front.\n\n"
    "Print how many of the numbers A, A + 1, ..., B are restless.\n\n"
    "Input: A, B and K on one line.\n\n"
    "Constraints: 1 <= A <= B <= 10^15, 1 <= K <= 100.",
    [lines((1, 25, 3)), lines((10, 12, 5))],
    _range,
    """\
from functools import lru_cache


def restless(top, k):
    digits = list(map(int, str(top)))

    @lru_cache(maxsize=None)
    def count(place, last, rest, tight, started):
        if place == len(digits):
            return int(started and rest == 0)
        total = 0
        for digit in range(digits[place] + 1 if tight else 10):
            if started and digit == last:
                continue
            now = started or digit > 0
            total += count(
                place + 1, digit if now else -1, (rest + digit) % k, tight and digit == digits[place], now
            )
        return total

    return count(0, -1, 0, True, False)


a, b, k = map(int, input().split())
print(restless(b, k) - restless(a - 1, k))
""",
    """\
from functools import lru_cache


def restless(top, k):
    digits = list(map(int, str(top)))

    @lru_cache(maxsize=None)
    def count(place, last, rest, tight):
        if place == len(digits):
            return int(rest == 0)
        total = 0
        for digit in range(digits[place] + 1 if tight else 10):
            if digit == last and (digit or place > 1):
                continue
            total += count(place + 1, digit, (rest + digit) % k, tight and digit == digits[place])
        return total

    return count(0, -1, 0, True)


a, b, k = map(int, input().split())
print(restless(b, k) - restless(a - 1, k))
""",
)


def _posters(r: Random) -> tuple[list[int]]:
    return (some(r, 1, 30, r.choice([1, 2, 6, 25])),)


CHEAPEST_TAPING = Draft(
    "Cheapest Taping",
    "Posters hang in a row; poster i is widths[i] units wide. Two neighbours can be taped together into one, as wide "
    "as both together. Taping posters of widths a and b costs min(a, b) + |i - j|, where i and j are the numbers of "
    "parts that the two consist of.\n\n"
    "Return the lowest total cost of making one poster of them all, in their order.\n\n"
    "Constraints: 1 <= len(widths) <= 60, 1 <= widths[i] <= 10^4.",
    [([4, 1, 3],), ([7],)],
    _posters,
    """\
class Solution:
    def cheapestTaping(self, widths: List[int]) -> int:
        n = len(widths)
        upto = [0, *accumulate(widths)]
        cost = [[0] * n for _ in range(n)]
        for span in range(2, n + 1):
            for i in range(n - span + 1):
                j = i + span - 1
                cost[i][j] = min(
                    cost[i][k]
                    + cost[k + 1][j]
                    + min(upto[k + 1] - upto[i], upto[j + 1] - upto[k + 1])
                    + abs((k + 1 - i) - (j - k))
                    for k in range(i, j)
                )
        return cost[0][n - 1]
""",
    """\
class Solution:
    def cheapestTaping(self, widths: List[int]) -> int:
        parts, total = [(width, 1) for width in widths], 0
        while len(parts) > 1:
            cost, i = min(
                (min(a[0], b[0]) + abs(a[1] - b[1]), i) for i, (a, b) in enumerate(zip(parts, parts[1:]))
            )
            total += cost
            parts[i : i + 2] = [(parts[i][0] + parts[i + 1][0], parts[i][1] + parts[i + 1][1])]
        return total
""",
    "cheapestTaping(self, widths: List[int]) -> int",
)


def _words(r: Random) -> tuple[str, str, str]:
    size = r.choice([4, 12, 25])
    return tuple("".join(r.choice("abc") for _ in range(r.randint(1, size))) for _ in range(3))  # type: ignore[return-value]


SHARED_MELODY = Draft(
    "Shared Melody",
    "Three songs are written as words, a letter a note. A melody is shared by all three when its notes occur in each "
    "of them in this order, not necessarily next to each other.\n\n"
    "Return the longest shared melody; of several that are equally long, the one that comes first in alphabetical "
    "order.\n\n"
    "Constraints: each song has 1 to 40 lower-case letters.",
    [("abac", "bac", "abca"), ("x", "y", "x")],
    _words,
    """\
class Solution:
    def sharedMelody(self, first: str, second: str, third: str) -> str:
        @lru_cache(maxsize=None)
        def best(i, j, k):
            found = ""
            for letter in sorted(set(first[i:]) & set(second[j:]) & set(third[k:])):
                rest = best(
                    first.index(letter, i) + 1, second.index(letter, j) + 1, third.index(letter, k) + 1
                )
                if len(rest) + 1 > len(found):
                    found = letter + rest
            return found

        return best(0, 0, 0)
""",
    """\
class Solution:
    def sharedMelody(self, first: str, second: str, third: str) -> str:
        def common(a, b):
            table = [[""] * (len(b) + 1) for _ in range(len(a) + 1)]
            for i in range(len(a) - 1, -1, -1):
                for j in range(len(b) - 1, -1, -1):
                    options = [table[i + 1][j], table[i][j + 1]]
                    if a[i] == b[j]:
                        options.append(a[i] + table[i + 1][j + 1])
                    table[i][j] = min(options, key=lambda word: (-len(word), word))
            return table[0][0]

        return common(common(first, second), third)
""",
    "sharedMelody(self, first: str, second: str, third: str) -> str",
)


def _shifts(r: Random) -> tuple[list[list[int]]]:
    n = r.choice([1, 3, 7, 10])
    return ([some(r, 0, 40, n) for _ in range(n)],)


SHIFT_PLAN = Draft(
    "Shift Plan",
    "n people and n shifts: dislike[i][j] says how much person i dislikes shift j. Everybody gets exactly one shift. A "
    "plan is judged by its unhappiest person first: the largest dislike in it counts, and among plans with the same "
    "largest dislike, the smaller sum of all dislikes is better.\n\n"
    "Return [largest, sum] of the best plan.\n\n"
    "Constraints: 1 <= n <= 14, 0 <= dislike[i][j] <= 1000.",
    [([[1, 9], [2, 3]],), ([[5]],)],
    _shifts,
    """\
class Solution:
    def bestPlan(self, dislike: List[List[int]]) -> List[int]:
        n = len(dislike)

        def cheapest(bound):
            best = {0: 0}
            for person in range(n):
                following = {}
                for taken, total in best.items():
                    for shift in range(n):
                        cost = dislike[person][shift]
                        if not taken >> shift & 1 and cost <= bound:
                            plan = taken | 1 << shift
                            if total + cost < following.get(plan, inf):
                                following[plan] = total + cost
                best = following
            return best.get((1 << n) - 1)

        bounds = sorted({cost for row in dislike for cost in row})
        low, high = 0, len(bounds) - 1
        while low < high:
            middle = (low + high) // 2
            if cheapest(bounds[middle]) is None:
                low = middle + 1
            else:
                high = middle
        return [bounds[low], cheapest(bounds[low])]
""",
    """\
class Solution:
    def bestPlan(self, dislike: List[List[int]]) -> List[int]:
        n = len(dislike)
        best = {0: (0, 0)}
        for person in range(n):
            following = {}
            for taken, (total, largest) in best.items():
                for shift in range(n):
                    if not taken >> shift & 1:
                        cost = dislike[person][shift]
                        plan = (total + cost, max(largest, cost))
                        key = taken | 1 << shift
                        following[key] = min(following.get(key, plan), plan)
            best = following
        total, largest = best[(1 << n) - 1]
        return [largest, total]
""",
    "bestPlan(self, dislike: List[List[int]]) -> List[int]",
)


def _sheets(r: Random) -> tuple[list[list[int]]]:
    sheets = []
    for _ in range(r.choice([1, 3, 12, 40])):
        x, y = some(r, 0, 30, 2)
        sheets.append([x, y, x + r.randint(1, 12), y + r.randint(1, 12)])
    return (sheets,)


DOUBLE_COVER = Draft(
    "Double Cover",
    "Rectangular sheets lie on a floor; a sheet [x1, y1, x2, y2] covers the points with x1 <= x <= x2 and y1 <= y <= "
    "y2.\n\n"
    "Return the area of the part of the floor that at least two sheets cover.\n\n"
    "Constraints: 1 <= len(sheets) <= 300, 0 <= x1 < x2 <= 10^9, 0 <= y1 < y2 <= 10^9.",
    [([[0, 0, 3, 2], [1, 1, 5, 4]],), ([[0, 0, 1, 1], [1, 0, 2, 1]],)],
    _sheets,
    """\
class Solution:
    def doubleCover(self, sheets: List[List[int]]) -> int:
        xs = sorted({x for sheet in sheets for x in (sheet[0], sheet[2])})
        area = 0
        for left, right in zip(xs, xs[1:]):
            events = []
            for x1, y1, x2, y2 in sheets:
                if x1 <= left and right <= x2:
                    events += [(y1, 1), (y2, -1)]
            depth, since, covered = 0, 0, 0
            for y, change in sorted(events):
                if depth >= 2:
                    covered += y - since
                depth, since = depth + change, y
            area += covered * (right - left)
        return area
""",
    """\
class Solution:
    def doubleCover(self, sheets: List[List[int]]) -> int:
        area = 0
        for a, b in combinations(sheets, 2):
            width = min(a[2], b[2]) - max(a[0], b[0])
            height = min(a[3], b[3]) - max(a[1], b[1])
            area += max(width, 0) * max(height, 0)
        return area
""",
    "doubleCover(self, sheets: List[List[int]]) -> int",
)

DRAFTS = [
    TOLL_PASSES,
    CROSSING_CABLES,
    SIGNAL_TOWERS,
    RESTLESS_TICKETS,
    CHEAPEST_TAPING,
    SHARED_MELODY,
    SHIFT_PLAN,
    DOUBLE_COVER,
]
