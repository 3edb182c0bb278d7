"""Forms of answers: what a careful human takes for the right answer, and what only looks like it."""

import asyncio
from collections.abc import Iterator

import pytest

from building import NoTools
from evorun.runs.candidates import Response
from evorun.tasks.base import Problem
from evorun.tasks.math_contest.math_contest import ContestGrader, MathContest
from evorun.tasks.math_contest.verification import Verifier

# The right answer, an arrow, and answers to the same problem
SAME = r"""
8 <- x=8 | f(3)=8 | m+n=8 | |S|=8 | 8\text{ units} | 8\text{ cm}^2 | 8^\circ | \text{eight} | (8) | 3 + 5 = 8
8 <- 8 = x | 16/2
(-4, \frac{19}{2}) <- -4 < x < \frac{19}{2} | -4 < x < 19/2 | x \in (-4, \frac{19}{2})
(-4, \frac{19}{2}) <- x > -4 \text{ and } x < \frac{19}{2} | \frac{19}{2} > x > -4 | (-4, 9.5)
(3,5) <- 3<x<5 | x=3, y=5 | (x,y)=(3,5)
\{3,5\} <- 3,5 | 5,3 | 3 \text{ and } 5 | x=3 \text{ or } x=5
3,5 <- 5,3 | 3 \text{ and } 5 | x=3,5 | x = 3, x = 5 | x=3 \text{ or } x=5
[-2,7] <- -2 \le x \le 7
[-2,7) <- -2 \le x < 7
(-\infty, 2] <- x \le 2
(-\infty, 2) \cup (3, \infty) <- x<2 \text{ or } x>3
(-\infty,2)\cup(2,\infty) <- x \neq 2 | \mathbb{R} \setminus \{2\}
x \ge 5 <- [5,\infty) | 5 \le x
6\sqrt{10} <- 6√10 | 6*sqrt(10) | 6 \sqrt 10 | \sqrt{360} | 6\cdot 10^{1/2} | 6\sqrt{10}\text{ cm}
\frac{1000}{3} <- \frac{1{,}000}{3} | \frac{1,000}{3} | 333\frac{1}{3}
\frac{1}{3} <- 0.33\overline{3} | 0.\overline{3} | 1/3 | \frac{2}{6} | \frac13
\frac{7}{2} <- 3\frac{1}{2} | 3 1/2 | 3 \frac12
45^\circ <- 45
45 <- 45^\circ | 45 \text{ degrees}
\pm 2 <- 2,-2 | \{2,-2\}
2,-2 <- \pm 2
1 \pm \sqrt{2} <- 1+\sqrt{2}, 1-\sqrt{2}
\begin{pmatrix} 1 \\ 2 \end{pmatrix} <- \begin{bmatrix} 1 \\ 2 \end{bmatrix}
\text{even} <- even | \text{Even}
\text{ellipse} <- \text{an ellipse}
\text{(C)} <- C | (C)
2516_8 <- 2516_{8}
y = 2x + 3 <- 2x+3 | 2x - y + 3 = 0
2x+3 <- y=2x+3
x=5 <- 5
0.25 <- 25\%
25 <- 2500\%
18 <- \$18
18.50 <- \$18.5
1,234 <- 1234
1234 <- 1,234 | 1{,}234
6-5i <- -5i+6
3:4:5 <- 3:4:5
12\text{ cm} <- 12
10:30 <- 10:30\text{ a.m.}
x^2+2x+1 <- (x+1)^2
\sqrt{2} <- 2^{1/2}
\emptyset <- \{\}
2^{10} <- 2^{10} \cdot 1
(1,2),(3,4) <- (3,4),(1,2) | (1,2) \text{ and } (3,4)
1 < x < 3 <- (1,3)
x > 3 <- (3, \infty)
n = 5k + 1 <- 5k+1
2k\pi <- 2\pi k
3 <- 3.0 | \text{three} | three
11 <- \text{eleven}
4 <- \text{(4)}
\frac{-1}{2} <- -\frac12
\frac{5}{11} <- \frac{5}{11} \approx 0.45
2\sqrt{3} <- 2\sqrt{3} \approx 3.46
9 <- 3 \cdot 3 = 9 | m + n = 4 + 5 = 9
"""

DIFFERENT = r"""
8 <- 8\text{ million} | 8\text{ dozen} | 8\% | x^2=8 | 2x=8 | x=5,y=8 | x = 8, y = 3 | x \ge 8 | x \neq 8
8 <- x != 8 | x>8 | \pm 8 | 8 \text{ or } 9 | 8, 9 | 8! | 8x | 8\pi | 8i | 8_9 | \text{not } 8
8 <- \text{at least } 8 | 8\text{ or more} | 7.9999999 | 8.0000001 | 8 + C | 8\text{ thousand} | 8\text{ hundred}
8 <- 8\text{ squared} | \text{none of } 8 | 12 - 4 and then 8 | 1,8 | 9 \neq 8 | x = 9 \text{ not } 8
8 <- 9 \text{ rather than } 8
(-4, \frac{19}{2}) <- \{-4, \frac{19}{2}\} | -4 \le x < \frac{19}{2} | -4 \le x \le \frac{19}{2}
(-4, \frac{19}{2}) <- [-4, \frac{19}{2}) | [-4, \frac{19}{2}] | (\frac{19}{2}, -4)
(3,5) <- (5,3) | \{3,5\} | [3,5]
122_5 <- 122_{\text{six}}
\frac{1}{2} <- \sin 30 | \cos 30^\circ
\{3,5\} <- (3,5) | [3,5] | 3
3,5 <- [3,5] | 3 | 3,5,7
[-2,7] <- (-2,7) | -2 < x < 7 | \{-2,7\} | -2,7
[-2,7) <- [-2,7] | (-2,7]
(-\infty, 2] <- x < 2 | (-\infty,2)
(-\infty, 2) \cup (3, \infty) <- (-\infty,2] \cup [3,\infty) | x \neq 2
x \ge 5 <- x>5 | x = 5 | 5
x<5 <- x>5
6\sqrt{10} <- 6\sqrt{11} | 18.97 | 6 \sqrt[3]{10}
\frac{1000}{3} <- 333.33
\frac{1}{3} <- 0.333 | 0.3333
\frac{3}{2} <- 3\frac{1}{2}
\frac{1}{10000000} <- 0 | 0.0000002
0.0000003 <- 0.0000001
3.2\times 10^{-7} <- 2.9\times 10^{-7}
\pm 2 <- 2 | -2
2 <- \pm 2
1 \pm \sqrt{2} <- 1 + \sqrt{2}
1+\sqrt{2} <- 1 \pm \sqrt{2}
\begin{pmatrix} 1 \\ 2 \end{pmatrix} <- \begin{pmatrix} 1 & 2 \end{pmatrix}
\begin{pmatrix} 1 \\ 2 \end{pmatrix} <- \begin{pmatrix} 2 \\ 1 \end{pmatrix}
\begin{pmatrix} 1 & 2 \\ 3 & 4 \end{pmatrix} <- \begin{pmatrix} 1 & 3 \\ 2 & 4 \end{pmatrix}
\begin{pmatrix} 1 & 2 \\ 3 & 4 \end{pmatrix} <- \begin{vmatrix} 1 & 2 \\ 3 & 4 \end{vmatrix}
\text{even} <- \text{odd} | \text{not even} | \text{neither even nor odd} | \text{nave} | veen
\text{Yes} <- \text{No}
\text{No} <- \text{No solution}
\text{Evelyn} <- \text{Evelyn and Bob} | \text{Bob, not Evelyn}
\text{east} <- \text{west}
\text{ellipse} <- \text{hyperbola}
\text{(C)} <- D | \text{not C}
2516_8 <- 2516_9
1011_2 <- 13_8 | 1011_3 | 1101_2
y = 2x + 3 <- y = 2x+4 | x = 2y+3 | z = 2x+3
2x+3 <- 2x+3=0 | x=2x+3 | 2y+3
x=5 <- y=5 | x=5, y=3 | x=3, y=5
5 <- x=5, y=3 | y=3, x=5 | x=3; y=5
25 <- 0.25
0.25 <- 25
\$18 <- 18\text{ cents}
18 <- 1.8
1,2,3 <- 123
123 <- 1,2,3
1,234 <- 234,1
6-5i <- 6+5i
\pi <- 3.14 | 3.1416 | \frac{22}{7}
1:2 <- 2:1
3:4:5 <- 4:3:5
12\text{ cm} <- 12\text{ m}
12\text{ inches} <- 12\text{ feet}
10:30\text{ a.m.} <- 10:30\text{ p.m.}
x^2+2x+1 <- x^2+2x+1=0 | (x-1)^2
\sqrt{2} <- 1.414 | 1.41421
0 <- \emptyset | \text{no solution}
\emptyset <- 0
\infty <- -\infty
\text{undefined} <- \infty
(1,2),(3,4) <- (1,2) | (1,3),(2,4) | (2,1),(4,3)
(1,2,3) <- (1,3,2) | \{1,2,3\}
\{1,2,3\} <- (1,2,3) | (3,2,1)
1 < x < 3 <- [1,3] | \{1,3\} | 1 \le x \le 3 | 1<y<3
3 <- III | \text{thirteen}
-3 <- 3
\frac{5}{11} <- 0.4545
9 <- 8 \approx 9 | 8 = 9 | 8 < 9 | 9 > 8 | \le 9 | <9
"""


@pytest.fixture(scope="module")
def verifier() -> Iterator[Verifier]:
    verifier = Verifier(cpu_seconds=20)
    yield verifier
    verifier.close()


def is_right(verifier: Verifier, gold: str, answer: str, question: str = "What is the value?") -> bool:
    problem = Problem(id="p", stratum="", data={"problem": question})
    grader = ContestGrader(MathContest(integers=False), {"p": (gold,)}, verifier=verifier)
    return asyncio.run(grader.grade(problem, Response(text="", answer=answer), NoTools())).correct is True


def verdicts(verifier: Verifier, table: str, part: int) -> dict[tuple[str, str], bool]:
    """Return whether each answer of a third of a table is right."""
    lines = [line.split(" <- ") for line in table.strip().splitlines()]
    pairs = [(gold, answer) for gold, given in lines for answer in given.split(" | ")]
    return {(gold, answer): is_right(verifier, gold, answer) for gold, answer in pairs[part::3]}


@pytest.mark.sample(1)
@pytest.mark.parametrize("part", range(3))
def test_right_answers_in_other_forms(verifier: Verifier, part: int) -> None:
    assert [pair for pair, right in verdicts(verifier, SAME, part).items() if not right] == []


@pytest.mark.sample(1)
@pytest.mark.parametrize("part", range(3))
def test_other_answers_in_like_forms(verifier: Verifier, part: int) -> None:
    assert [pair for pair, right in verdicts(verifier, DIFFERENT, part).items() if right] == []


@pytest.mark.parametrize(
    ("gold", "answer", "question", "right"),
    [
        ("25", r"25\%", "What percent of them are left?", True),
        ("25", r"25\%", "How many of them are left?", False),
        ("25", r"25 \text{ percent}", "By how many percent does it grow?", True),
        (r"25\%", "25", "How many of a hundred?", True),
        ("10000", "10000_4", "What is the sum, expressed in base 4?", True),
        ("10000", "10000_4", "What is the sum?", False),
        ("8", r"8 \text{ million}", "How many million people live there?", True),
        ("8000000", r"8 \text{ million}", "How many people live there?", True),
        ("3.46", r"2\sqrt{3} \approx 3.46", "How long is it, to the nearest hundredth?", True),
        ("8", r"\approx 8", "How many are there, to the nearest integer?", True),
        ("-3", "\u22123", "What is the value?", True),
        ("-3", "\u20133", "What is the value?", True),
        ("(2,5)", "2, 5", "Find the ordered pair $(x,y)$.", True),
        ("(2,5)", "2, 5", "Let $a < b$. Find the ordered pair $(a,b)$.", True),
        ("(2,5)", "2, 5", "Solve $x^2 - 7x + 10 < 0$ in interval notation.", False),
        ("4", r"2^{87} + 3 \equiv 4 \pmod{7}", "What is the remainder?", True),
    ],
)
def test_the_question_tells_what_goes_without_saying(
    verifier: Verifier, gold: str, answer: str, question: str, right: bool
) -> None:
    assert is_right(verifier, gold, answer, question) == right
