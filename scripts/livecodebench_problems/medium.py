"""MEDIUM: a standard method (two pointers, search in a grid, dynamic programming, a window) that must be found."""

from random import Random

from livecodebench_problems.draft import Draft, lines, some


def _ferry(r: Random) -> str:
    n = r.choice([r.randint(1, 12), r.randint(1, 400)])
    limit = r.randint(10, 60)
    return lines((n, limit), some(r, 1, limit, n))


FERRY = Draft(
    "Two on the Ferry",
    "N cars wait for a small ferry that takes at most two cars, together not heavier than W tons. Car i weighs A_i "
    "tons, never more than W. The cars may cross in any order.\n\n"
    "Print the smallest number of crossings that takes all of them over.\n\n"
    "Input: N and W on the first line; A_1 ... A_N on the second.\n\n"
    "Constraints: 1 <= N <= 10^5, 1 <= A_i <= W <= 10^9.",
    [lines((4, 10), (7, 3, 6, 5)), lines((3, 9), (9, 1, 2))],
    _ferry,
    """\
n, limit = map(int, input().split())
cars = sorted(map(int, input().split()))
light, heavy, trips = 0, n - 1, 0
while light <= heavy:
    if cars[light] + cars[heavy] <= limit:
        light += 1
    heavy -= 1
    trips += 1
print(trips)
""",
    """\
n, limit = map(int, input().split())
cars = sorted(map(int, input().split()))
trips = i = 0
while i < n:
    i += 2 if i + 1 < n and cars[i] + cars[i + 1] <= limit else 1
    trips += 1
print(trips)
""",
)


def _map(r: Random) -> str:
    height, width = r.randint(1, 12), r.randint(1, 12)
    share = r.choice([0.3, 0.5, 0.7])
    rows = ["".join("#" if r.random() < share else "." for _ in range(width)) for _ in range(height)]
    return lines((height, width), *rows)


_LAKES = """\
import sys

height, width, *rows = sys.stdin.read().split()
height, width = int(height), int(width)
seen = [[cell == "#" for cell in row] for row in rows]
lakes = []
for y in range(height):
    for x in range(width):
        if seen[y][x]:
            continue
        seen[y][x] = True
        stack, size, inland = [(y, x)], 0, True
        while stack:
            a, b = stack.pop()
            size += 1
            inland = inland and 0 < a < height - 1 and 0 < b < width - 1
            for c, d in ((a - 1, b), (a + 1, b), (a, b - 1), (a, b + 1)):
                if 0 <= c < height and 0 <= d < width and not seen[c][d]:
                    seen[c][d] = True
                    stack.append((c, d))
        if inland:
            lakes.append(size)
print(len(lakes), max(lakes, default=0))
"""

INLAND_LAKES = Draft(
    "Inland Lakes",
    "A map has H rows of W cells, each land ('#') or water ('.'). Water cells that touch along a side belong to one "
    "body of water. A body of water is a lake when none of its cells lies on the rim of the map.\n\n"
    "Print the number of lakes and the size of the largest one (0 if there is none).\n\n"
    "Input: H and W on the first line, then the rows.\n\n"
    "Constraints: 1 <= H, W <= 500.",
    [lines((4, 5), "#####", "#.#.#", "#.#.#", "#####"), lines((3, 3), "###", "#.#", "#.#")],
    _map,
    _LAKES,
    _LAKES.replace("and 0 < b < width - 1", "and 0 < b"),
)


def _stamps(r: Random) -> str:
    k = r.randint(1, 5)
    return lines((k, r.randint(1, 300)), sorted(r.sample(range(2, 60), k)))


POSTAGE = Draft(
    "Exact Postage",
    "A post office sells K kinds of stamps with the values V_1 ... V_K, each as often as one likes. A letter costs P "
    "and has to carry stamps of exactly that value together.\n\n"
    "Print the smallest number of stamps that will do, or -1 if no choice of stamps is exact.\n\n"
    "Input: K and P on the first line; V_1 ... V_K on the second.\n\n"
    "Constraints: 1 <= K <= 20, 1 <= P <= 10^4, 1 <= V_i <= 10^4, the values are distinct.",
    [lines((3, 11), (2, 5, 7)), lines((2, 3), (2, 4))],
    _stamps,
    """\
k, price = map(int, input().split())
values = list(map(int, input().split()))
best = [0] + [price + 1] * price
for paid in range(1, price + 1):
    for value in values:
        if value <= paid:
            best[paid] = min(best[paid], best[paid - value] + 1)
print(best[price] if best[price] <= price else -1)
""",
    """\
k, price = map(int, input().split())
count = 0
for value in sorted(map(int, input().split()), reverse=True):
    used = price // value
    count += used
    price -= used * value
print(count if price == 0 else -1)
""",
)


def _bookings(r: Random) -> str:
    n, day = r.randint(1, 25), r.choice([60, 600])
    spans = []
    for _ in range(n):
        start = r.randrange(day)
        spans.append((start, r.randint(start + 1, min(day, start + 40))))
    return lines((n, day), *spans)


LONGEST_BREAK = Draft(
    "Longest Break",
    "A hall is open from minute 0 to minute D. N bookings are known; booking i keeps the hall busy from minute S_i "
    "until minute E_i, and bookings may overlap. A break is a time during which the hall is open and "
    "free all along.\n\n"
    "Print the first minute and the length of the longest break; of equally long ones the earliest. If the hall is "
    "never free, print -1 0.\n\n"
    "Input: N and D on the first line, then S_i and E_i, a booking a line.\n\n"
    "Constraints: 1 <= N <= 10^5, 1 <= D <= 10^9, 0 <= S_i < E_i <= D.",
    [lines((3, 20), (2, 5), (4, 9), (15, 18)), lines((2, 10), (0, 6), (5, 10))],
    _bookings,
    """\
import sys

n, day, *numbers = map(int, sys.stdin.read().split())
free_from, best, begin = 0, 0, -1
for start, end in [*sorted(zip(numbers[::2], numbers[1::2])), (day, day)]:
    if start - free_from > best:
        best, begin = start - free_from, free_from
    free_from = max(free_from, end)
print(begin, best)
""",
    """\
import sys

n, day, *numbers = map(int, sys.stdin.read().split())
free_from, best, begin = 0, 0, -1
for start, end in [*sorted(zip(numbers[::2], numbers[1::2])), (day, day)]:
    if start - free_from > best:
        best, begin = start - free_from, free_from
    free_from = end
print(begin, best)
""",
)


def _letters(r: Random) -> tuple[str, str]:
    text = "".join(r.choice("abcd") for _ in range(r.choice([8, 40, 300])))
    return text, "".join(r.choice("abcd") for _ in range(r.randint(1, 6)))


SHORTEST_RIBBON = Draft(
    "Shortest Ribbon",
    "A long ribbon carries a row of letters. A piece of it (letters in a row) can be cut up into single letters, from "
    "which a sign is made. The sign needs each of its letters as often as it has it.\n\n"
    "Return the length of the shortest piece from which the sign can be made, or -1 if even the whole ribbon will not "
    "do.\n\n"
    "Constraints: 1 <= len(ribbon) <= 10^5, 1 <= len(sign) <= 10^5, lower-case letters only.",
    [("abcda", "ad"), ("abc", "aa")],
    _letters,
    """\
class Solution:
    def shortestPiece(self, ribbon: str, sign: str) -> int:
        lacking = Counter(sign)
        missing, start, best = len(sign), 0, len(ribbon) + 1
        for end, letter in enumerate(ribbon, 1):
            missing -= lacking[letter] > 0
            lacking[letter] -= 1
            while missing == 0:
                best = min(best, end - start)
                lacking[ribbon[start]] += 1
                missing += lacking[ribbon[start]] > 0
                start += 1
        return best if best <= len(ribbon) else -1
""",
    """\
class Solution:
    def shortestPiece(self, ribbon: str, sign: str) -> int:
        if any(ribbon.count(letter) < sign.count(letter) for letter in sign):
            return -1
        need = set(sign)
        best = len(ribbon)
        for start in range(len(ribbon)):
            for end in range(start + len(sign), len(ribbon) + 1):
                if need <= set(ribbon[start:end]):
                    best = min(best, end - start)
                    break
        return best
""",
    "shortestPiece(self, ribbon: str, sign: str) -> int",
)


def _heights(r: Random) -> tuple[list[int], int]:
    return some(r, 0, r.choice([10, 100]), r.choice([5, 30, 500])), r.randint(0, 30)


CALM_STRETCH = Draft(
    "Calm Stretch",
    "The water level of a harbour is measured every hour. A stretch of hours in a row is calm when the highest and the "
    "lowest level in it differ by at most d.\n\n"
    "Return the length of the longest calm stretch.\n\n"
    "Constraints: 1 <= len(levels) <= 10^5, 0 <= levels[i], d <= 10^9.",
    [([4, 2, 3, 8, 7, 6, 7], 2), ([5], 0)],
    _heights,
    """\
class Solution:
    def longestCalm(self, levels: List[int], d: int) -> int:
        low, high, start, best = deque(), deque(), 0, 0
        for end, level in enumerate(levels):
            while low and levels[low[-1]] >= level:
                low.pop()
            while high and levels[high[-1]] <= level:
                high.pop()
            low.append(end)
            high.append(end)
            while levels[high[0]] - levels[low[0]] > d:
                start += 1
                if low[0] < start:
                    low.popleft()
                if high[0] < start:
                    high.popleft()
            best = max(best, end - start + 1)
        return best
""",
    """\
class Solution:
    def longestCalm(self, levels: List[int], d: int) -> int:
        best = run = 1
        for before, after in zip(levels, levels[1:]):
            run = run + 1 if abs(after - before) <= d else 1
            best = max(best, run)
        return best
""",
    "longestCalm(self, levels: List[int], d: int) -> int",
)


def _moves(r: Random, depth: int = 0) -> str:
    parts = []
    for _ in range(r.randint(1, 5)):
        if depth < 2 and r.random() < 0.35:
            parts.append(f"{r.randint(2, 12)}({_moves(r, depth + 1)})")
        else:
            parts.append(r.choice("FFLR"))
    return "".join(parts)


ROBOT = Draft(
    "Looping Robot",
    "A robot stands at (0, 0) and looks north, towards larger y. Its program is a word: F moves it one step ahead, L "
    "and R turn it by 90 degrees to the left and to the right. A number in front of a bracketed part, as in 3(FR), "
    "means that the part is carried out that many times; brackets may stand inside brackets, and every bracket has a "
    "number.\n\n"
    "Return [x, y], where the robot stands at the end.\n\n"
    "Constraints: the word has 1 to 1000 characters, the numbers lie in [2, 99], and the robot makes fewer than 10^5 "
    "moves and turns in all.",
    [("F2(RF)",), ("4(FL)F",)],
    lambda r: (_moves(r),),
    """\
class Solution:
    def finalPosition(self, program: str) -> List[int]:
        stack, number = [["", 1]], 0
        for sign in program:
            if sign.isdigit():
                number = 10 * number + int(sign)
            elif sign == "(":
                stack.append(["", number])
                number = 0
            elif sign == ")":
                part, times = stack.pop()
                stack[-1][0] += part * times
            else:
                stack[-1][0] += sign
        x, y, dx, dy = 0, 0, 0, 1
        for move in stack[0][0]:
            if move == "F":
                x, y = x + dx, y + dy
            elif move == "L":
                dx, dy = -dy, dx
            else:
                dx, dy = dy, -dx
        return [x, y]
""",
    """\
class Solution:
    def finalPosition(self, program: str) -> List[int]:
        flat = re.sub(r"(\\d)\\(([FLR]*)\\)", lambda m: m[2] * int(m[1]), program)
        x, y, dx, dy = 0, 0, 0, 1
        for move in flat:
            if move == "F":
                x, y = x + dx, y + dy
            elif move == "L":
                dx, dy = -dy, dx
            elif move == "R":
                dx, dy = dy, -dx
        return [x, y]
""",
    "finalPosition(self, program: str) -> List[int]",
)


def _ledger(r: Random) -> tuple[list[str], int]:
    people = ["ida", "jon", "kim", "lea", "max"]
    entries = [f"{r.choice(people)}:{r.choice([1, -1]) * r.randint(1, 30)}" for _ in range(r.randint(1, 40))]
    return entries, r.randint(1, 5)


BIG_SPENDERS = Draft(
    "Club Ledger",
    "Each entry of a club's ledger reads name:amount, where a positive amount was paid in and a negative one taken "
    "out. A member's balance is the sum of the member's amounts.\n\n"
    "Return the names of the k members with the lowest balances, lowest first; of equal balances the name that comes "
    "first in the alphabet goes first. If there are fewer than k members, return all of them.\n\n"
    "Constraints: 1 <= len(entries) <= 10^4, 1 <= k <= 10^4, names have 1 to 10 lower-case letters, amounts lie in "
    "[-10^6, 10^6].",
    [(["ida:5", "jon:-2", "ida:-9", "kim:1"], 2), (["max:3"], 4)],
    _ledger,
    """\
class Solution:
    def lowestBalances(self, entries: List[str], k: int) -> List[str]:
        balance = defaultdict(int)
        for entry in entries:
            name, amount = entry.split(":")
            balance[name] += int(amount)
        return sorted(balance, key=lambda name: (balance[name], name))[:k]
""",
    """\
class Solution:
    def lowestBalances(self, entries: List[str], k: int) -> List[str]:
        balance = defaultdict(int)
        for entry in entries:
            name, amount = entry.split(":")
            balance[name] = min(balance[name], balance[name] + int(amount))
        return sorted(balance, key=lambda name: (balance[name], name))[:k]
""",
    "lowestBalances(self, entries: List[str], k: int) -> List[str]",
)

DRAFTS = [FERRY, INLAND_LAKES, POSTAGE, LONGEST_BREAK, SHORTEST_RIBBON, CALM_STRETCH, ROBOT, BIG_SPENDERS]
