"""Integers and canonical texts: what is understood, what is not, and that equal texts mean equal values."""

from itertools import combinations

import pytest
from contest_fixture import answers_of
from hypothesis import given
from hypothesis import strategies as st

from evorun.tasks.math_contest.reading import canonical, read_integer


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
        ("5 mod 7", None),
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


@given(st.integers(-(10**49), 10**49))
def test_every_integer_is_read_with_and_without_thousands(value: int) -> None:
    assert read_integer(str(value)) == read_integer(f"{value:,}") == value


@given(st.text(max_size=60) | st.text(alphabet="0123456789,.{}\\$^=- tex", max_size=40))
def test_nothing_raises(text: str) -> None:
    read_integer(text)
    assert canonical(canonical(text)) is not None


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
