"""Integers and canonical texts: what is understood, what is not, and that equal texts mean equal values."""

import re
from itertools import combinations

import pytest
from contest_fixture import answers_of
from hypothesis import given
from hypothesis import strategies as st

from evorun.tasks.math_contest.reading import canonical, final_integer, read_integer, stated


def test_integers() -> None:
    for text, value in [
        ("42", 42),
        ("042", 42),
        ("000", 0),
        (" 42. ", 42),
        ("42.0", 42),
        ("+42", 42),
        ("-3", -3),
        ("\u22123", -3),
        ("$42$", 42),
        (r"\(42\)", 42),
        (r"\text{42}", 42),
        (r"\textbf{\text{42}}", 42),
        (r"\mathbf{042}", 42),
        ("{42}", 42),
        ("1,234", 1234),
        ("1{,}234", 1234),
        (r"1\,234", 1234),
        (r"10,\!080", 10080),
        ("12,345,678", 12345678),
        (r"42^\circ", 42),
        (r"42^{\circ}", 42),
        ("42°", 42),
        (r"42\%", 42),
        (r"\$42", 42),
        (r"42\text{ cm}^2", 42),
        (r"42 \mbox{ square units}", 42),
        ("42 units.", 42),
        ("m + n = 113", 113),
        ("p+q=1,024", 1024),
        ("9" * 50, int("9" * 50)),
        ("9" * 51, None),
        ("", None),
        ("-", None),
        ("84/2", None),
        (r"\frac{84}{2}", None),
        ("2^5", None),
        ("2^{10}", None),
        ("5x", None),
        ("5!", None),
        ("5 million", None),
        ("5 or 6", None),
        ("5 mod 7", 5),
        (r"5 \pmod{7}", 5),
        (r"5 \text{ (mod } 7)", 5),
        (r"12 \bmod 7", None),
        ("5, 6", None),
        ("12,34", None),
        ("1 2", None),
        ("42.5", None),
        ("4e2", None),
        ("0x1F", None),
        ("1_000", None),
        ("\u0664\u0662", None),
        (r"65\sqrt2", None),
        ("ANSWER", None),
        ("__import__('os')", None),
    ]:
        assert read_integer(text) == value


NAMED = r"""
n = 89 | f(3) = 89 | m + n = 89 | |S| = 89 | \left|S\right| = 89 | \angle ABC = 89 | m\angle ABC = 89^\circ
89 = n | = 89 | N \equiv 89 \pmod{1000}
m + n = 80 + 9 = 89 | 100m + n = 89 | x^2 + y^2 = 89 | AC^2 = 89 | BC^{2} = 89 | \overline{AB} = 89 | a_{10} = 89
x_1 + x_2 = 89 | \frac{m}{n} = 89 | xyz = 89 | \lfloor 100\alpha \rfloor = 89 | \text{number of ways} = 89 | [ABC] = 89
N \bmod 1000 = 89 | 2^{100} \bmod 1000 = 89 | \binom{8}{4} + 19 = 89 | k = \frac{178}{2} = 89 | \gcd(a, b) = 89
x = 2y = 2 \cdot 44.5 = 89 | AE = CD = 89 | f^{\prime}(1) = 89 | 1,089 - 1,000 = 89
\sum_{k=1}^{10} a_k = 89 | \frac{80}{9} \Rightarrow m + n = 89 | \text{The answer is } n = 89 | \theta = 89^\circ
"""

NOT_NAMED = r"""
n \ge 89 | n >= 89 | n != 89 | n \neq 89 | n \not= 89 | n \approx 89 | n \leq 89 | n < 89 | 1 < n = 89
n ≥ 89 | n ≠ 89
x^2 = 89 | x^{2} = 89 | 2x = 89 | 3n + 1 = 89 | x + 1 = 89 | -x = 89 | \sqrt{x} = 89 | \frac{x}{2} = 89
x/2 = 89 | 2^n = 89
n! = 89 | 2(x+1) = 89 | x = 3, y = 89 | n = 1, n = 89 | n = 88 = 89 | \pm 89 | x = \pm 89 | 89 or 98 | n = 88, 89
n \in \{89\} | n \equiv 89 | 89 thousands | 89 dozens | 89 at least | 89 or more | 89 approximately | = | == | ==89=
"""


def alternatives(table: str) -> list[str]:
    """Return the texts of a table; bars with blanks around them separate them."""
    return [text.strip() for line in table.strip().splitlines() for text in re.split(r" \| ", line)]


def test_an_equation_states_its_value_where_the_left_side_is_a_name() -> None:
    assert [text for text in alternatives(NAMED) if read_integer(text) != 89] == []
    assert [text for text in alternatives(NOT_NAMED) if read_integer(text) is not None] == []


@given(st.integers(-(10**49), 10**49))
def test_every_integer_is_read_with_and_without_thousands(value: int) -> None:
    assert read_integer(str(value)) == read_integer(f"{value:,}") == value


@given(st.text(max_size=60) | st.text(alphabet="0123456789,.{}\\$^=- tex", max_size=40))
def test_nothing_raises(text: str) -> None:
    read_integer(text)
    assert canonical(canonical(text)) is not None


@pytest.mark.parametrize("last", ["$$42$$", "**42**", r"\[ 42 \]"])
def test_a_value_that_stands_alone_at_the_end_is_the_answer(last: str) -> None:
    assert stated(f"We add {'them and ' * 60}\n\n{last}") == "42"
    assert stated(f"{last}\n\nWe add them.") is None


def test_an_integer_behind_the_last_box_is_the_answer() -> None:
    assert final_integer("\\boxed{3}.\nFinal answer: 5.") == "5"
    assert final_integer("\\boxed{3}.\nFinal answer: 5.\nHence \\boxed{7}.") is None
    assert final_integer("Final answer: 5.") is None


def test_the_same_written_otherwise() -> None:
    for same in [
        ("0.5", ".5", "1/2", r"\frac{1}{2}", r"\dfrac12", r"\tfrac{2}{4}", r"\frac 12", "$0.50$"),
        ("58500", "58,500", r"58{,}500", r"58,\!500", r"58\,500", "58 500"),
        (r"2\sqrt{3}", r"2 \sqrt 3", r"2\sqrt3", r"\displaystyle 2\sqrt{3}"),
        (r"\left( 3, \frac{\pi}{2} \right)", r"(3,\frac{\pi}{2})", r"\left(3,\dfrac{\pi}{2}\right)."),
        (r"\text{(C)}", "C", "(C)", r"\textbf{C}"),
        ("90", r"90^\circ", r"90^{\circ}", "90.0"),
        ("k=6", "6"),
        ("-0.25", r"-\frac{1}{4}", r"\frac{-1}{4}"),
        (r"\text{two lines}", "two lines"),
    ]:
        assert len({canonical(text) for text in same}) == 1


def test_others_stay_apart() -> None:
    for left, right in [
        ("12", "1 2"),
        ("(1,2)", "(2,1)"),
        ("(1,2)", "[1,2]"),
        ("1,2", "12"),
        ("1/2", "1/20"),
        (r"\sqrt{3}", "3"),
        ("x+1=2", "2"),
        ("1/0", "0"),
    ]:
        assert canonical(left) != canonical(right)


@pytest.mark.parametrize("name", ["hmmt_cmimc", "math500", "math_train_sample"])
def test_equal_texts_have_equal_values(name: str) -> None:
    """Of all answers in the data: two that are the same here are the same to an algebra system."""
    from math_verify import parse, verify

    texts: dict[str, set[str]] = {}
    for answer in answers_of(name):
        texts.setdefault(canonical(answer), set()).add(answer)
    pairs = [pair for same in texts.values() for pair in combinations(sorted(same), 2)]
    read = {text: parse(f"${text}$", parsing_timeout=None) for pair in pairs for text in pair}
    different = [pair for pair in pairs if not verify(read[pair[0]], read[pair[1]], timeout_seconds=None)]
    assert different == []
