"""EASY: one loop over the input, and a condition that is easily read wrongly."""

from random import Random

from livecodebench_problems.draft import Draft, lines, some


def _buses(r: Random) -> str:
    n = r.randint(1, 40)
    planned = sorted(some(r, 0, 1000, n))
    return lines((n, r.randint(0, 5)), *((p, p + r.randint(-6, 9)) for p in planned))


LATE_BUSES = Draft(
    "Late Buses",
    "A depot notes for each of N buses the minute at which it was due and the minute at which it arrived. A bus counts "
    "as late when it arrived more than G minutes after it was due.\n\n"
    "Print how many buses were late, and the largest delay in minutes among the late ones (0 if none was late).\n\n"
    "Input: the first line holds N and G. Each of the next N lines holds the due and the arrival minute of one bus.\n\n"
    "Output: two integers on one line.\n\n"
    "Constraints: 1 <= N <= 1000, 0 <= G <= 100, due minutes lie in [0, 10^6], arrivals in [-10^6, 2 * 10^6].",
    [lines((3, 2), (10, 15), (20, 21), (30, 33)), lines((2, 5), (7, 9), (8, 3))],
    _buses,
    """\
n, grace = map(int, input().split())
delays = []
for _ in range(n):
    due, arrived = map(int, input().split())
    if arrived - due > grace:
        delays.append(arrived - due)
print(len(delays), max(delays, default=0))
""",
    """\
n, grace = map(int, input().split())
delays = []
for _ in range(n):
    due, arrived = map(int, input().split())
    if arrived - due > grace:
        delays.append(arrived - due)
print(len(delays), delays[0] if delays else 0)
""",
)


def _socks(r: Random) -> str:
    n = r.randint(1, 60)
    return lines(n, [r.choice(["red", "blue", "grey", "teal", "plum", "sand"]) for _ in range(n)])


ODD_SOCKS = Draft(
    "Odd Socks",
    "After the wash there are N socks on the line, each with a colour. Two socks of one colour make a pair.\n\n"
    "Print on the first line how many pairs can be made. Print on the second line the colours of which one sock is "
    "left over, in alphabetical order with blanks between them, or the word none.\n\n"
    "Input: N on the first line; N colours on the second.\n\n"
    "Constraints: 1 <= N <= 1000; a colour is a word of 1 to 10 lower-case letters.",
    [lines(5, ["red", "blue", "red", "red", "blue"]), lines(4, ["teal", "teal", "plum", "plum"])],
    _socks,
    """\
from collections import Counter

input()
counts = Counter(input().split())
print(sum(count // 2 for count in counts.values()))
print(*(sorted(colour for colour in counts if counts[colour] % 2) or ["none"]))
""",
    """\
from collections import Counter

input()
counts = Counter(input().split())
print(sum(count // 2 for count in counts.values()))
print(*([colour for colour in counts if counts[colour] % 2] or ["none"]))
""",
)


def _walk(r: Random) -> str:
    n = r.randint(1, 40)
    return lines((n, r.randint(1, 12)), some(r, 1, 9, n))


REFILL_STOPS = Draft(
    "Refill Stops",
    "A hiker carries a bottle that holds C cups and starts with it full. The trail has N sections in a row; section i "
    "costs A_i cups. There is a spring before every section. Before a section the hiker looks at the bottle: if it "
    "holds fewer cups than the section costs, the hiker fills it up, and otherwise walks on without stopping. A "
    "section that costs more than C cups cannot be walked at all.\n\n"
    "Print how many times the hiker fills the bottle, or -1 if the trail cannot be walked to its end.\n\n"
    "Input: N and C on the first line; A_1 ... A_N on the second.\n\n"
    "Constraints: 1 <= N <= 1000, 1 <= C <= 1000, 1 <= A_i <= 1000.",
    [lines((4, 5), (3, 2, 4, 5)), lines((3, 4), (4, 1, 9))],
    _walk,
    """\
n, capacity = map(int, input().split())
costs = list(map(int, input().split()))
left, fills = capacity, 0
for cost in costs:
    if left < cost:
        left, fills = capacity, fills + 1
    left -= cost
print(-1 if max(costs) > capacity else fills)
""",
    """\
n, capacity = map(int, input().split())
costs = list(map(int, input().split()))
if max(costs) > capacity:
    print(-1)
else:
    print(-(-sum(costs) // capacity) - 1)
""",
)


def _runs(r: Random) -> str:
    return lines(
        "".join(r.choice("ab" if r.random() < 0.5 else "abc") * r.randint(1, 4) for _ in range(r.randint(1, 12)))
    )


LONGEST_HUM = Draft(
    "Longest Hum",
    "A recording is a word of lower-case letters. A hum is a stretch of equal letters that cannot be made longer on "
    "either side. Find the longest hum; of several that are equally long, the one whose letter comes first in the "
    "alphabet.\n\n"
    "Print its letter and its length.\n\n"
    "Input: the word, on one line.\n\n"
    "Constraints: the word has 1 to 10^5 letters.",
    [lines("aabbbcc"), lines("xyzz")],
    _runs,
    """\
from itertools import groupby

best = min((-len(list(run)), letter) for letter, run in groupby(input().strip()))
print(best[1], -best[0])
""",
    """\
from itertools import groupby

best = max((len(list(run)), letter) for letter, run in groupby(input().strip()))
print(best[1], best[0])
""",
)


def _levels(r: Random) -> tuple[list[int], int]:
    return some(r, 0, 20, r.randint(1, 30)), r.randint(5, 20)


QUIET_DAYS = Draft(
    "Quiet Days",
    "A street's noise level is measured once a day. A day is quiet when its own level and those of the day before and "
    "the day after are all below a limit; a day that has no neighbour on one side is judged by the days that there "
    "are.\n\n"
    "Return the number of quiet days.\n\n"
    "Constraints: 1 <= len(levels) <= 1000, 0 <= levels[i], limit <= 1000.",
    [([3, 4, 9, 2, 1, 2, 8], 5), ([9, 9], 4)],
    _levels,
    """\
class Solution:
    def countQuietDays(self, levels: List[int], limit: int) -> int:
        return sum(max(levels[max(i - 1, 0) : i + 2]) < limit for i in range(len(levels)))
""",
    """\
class Solution:
    def countQuietDays(self, levels: List[int], limit: int) -> int:
        return sum(max(levels[max(i - 1, 0) : i + 2]) <= limit for i in range(len(levels)))
""",
    "countQuietDays(self, levels: List[int], limit: int) -> int",
)

MIRROR_SUM = Draft(
    "Mirror Sum",
    "The mirror image of a positive integer is what one gets by writing its digits in reverse order and dropping zeros "
    "at the front: that of 120 is 21. Starting from n, add the number's mirror image to it, over and over, until the "
    "number reads the same in both directions.\n\n"
    "Return the number of additions, or -1 when 30 additions have not been enough. A number that reads the same in "
    "both directions from the start needs none.\n\n"
    "Constraints: 1 <= n <= 10^9.",
    [(57,), (121,)],
    lambda r: (r.choice([196, 89, r.randint(1, 10**9), r.randint(1, 10**4), r.randint(1, 300)]),),
    """\
class Solution:
    def additions(self, n: int) -> int:
        for done in range(31):
            if str(n) == str(n)[::-1]:
                return done
            n += int(str(n)[::-1])
        return -1
""",
    """\
class Solution:
    def additions(self, n: int) -> int:
        for done in range(4):
            if str(n) == str(n)[::-1]:
                return done
            n += int(str(n)[::-1])
        return -1
""",
    "additions(self, n: int) -> int",
)


def _names(r: Random) -> tuple[list[str], list[int]]:
    n = r.randint(1, 12)
    return [f"{r.choice(['ana', 'bo', 'cy', 'dee', 'eli'])}{i}" for i in range(n)], some(r, 1, 6, n)


LAST_DANCER = Draft(
    "Last Dancer",
    "Dancers wait in a queue; dancer names[i] wants to dance turns[i] times. The one at the front dances once and "
    "then, if there are turns left to dance, goes to the back of the queue, and otherwise home.\n\n"
    "Return the names in the order in which the dancers go home.\n\n"
    "Constraints: 1 <= len(names) <= 100, len(turns) == len(names), names are distinct, 1 <= turns[i] <= 100.",
    [(["mia", "tom", "zoe"], [2, 1, 3]), (["al"], [4])],
    _names,
    """\
class Solution:
    def homeward(self, names: List[str], turns: List[int]) -> List[str]:
        order = sorted(range(len(names)), key=lambda i: turns[i])
        return [names[i] for i in order]
""",
    """\
class Solution:
    def homeward(self, names: List[str], turns: List[int]) -> List[str]:
        return [name for _, name in sorted(zip(turns, names))]
""",
    "homeward(self, names: List[str], turns: List[int]) -> List[str]",
)


def _grid(r: Random) -> tuple[list[str]]:
    width = r.randint(1, 6)
    return (
        [
            r.choice([r.choice("#.") * width, "".join(r.choice("#.") for _ in range(width))])
            for _ in range(r.randint(1, 9))
        ],
    )


PLAIN_ROWS = Draft(
    "Plain Rows",
    "A mosaic is given as rows of equal length; each tile is '#' or '.'. A row is plain when all its tiles are equal. "
    "Two plain rows next to each other clash when they differ.\n\n"
    "Return a list of two numbers: how many rows are plain, and how many pairs of neighbouring rows clash.\n\n"
    "Constraints: 1 <= len(rows) <= 100, 1 <= len(rows[i]) <= 100.",
    [(["###", "...", "#.#", "..."],), (["#", "#"],)],
    _grid,
    """\
class Solution:
    def plainRows(self, rows: List[str]) -> List[int]:
        plain = [len(set(row)) == 1 for row in rows]
        clashes = sum(plain[i] and plain[i + 1] and rows[i] != rows[i + 1] for i in range(len(rows) - 1))
        return [sum(plain), clashes]
""",
    """\
class Solution:
    def plainRows(self, rows: List[str]) -> List[int]:
        plain = [row for row in rows if len(set(row)) == 1]
        return [len(plain), sum(a != b for a, b in zip(plain, plain[1:]))]
""",
    "plainRows(self, rows: List[str]) -> List[int]",
)

DRAFTS = [LATE_BUSES, ODD_SOCKS, REFILL_STOPS, LONGEST_HUM, QUIET_DAYS, MIRROR_SUM, LAST_DANCER, PLAIN_ROWS]
