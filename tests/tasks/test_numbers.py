"""Numbers are read in their usual forms, exactly, and what is none is refused in one way."""

from fractions import Fraction

import pytest

from evorun.tasks.numbers import read_number


@pytest.mark.parametrize(
    ("text", "value"),
    [
        ("84", 84),
        ("-1,234.5", Fraction("-1234.5")),
        ("\\frac{3}{4}", Fraction(3, 4)),
        ("7 jars", 7),
        ("$12$", 12),
        ("2.5e3", 2500),
        ("1.5E-3", Fraction("0.0015")),
        ("3 x 10^5", 300_000),
        ("3 \u00d7 10\u2076", 3_000_000),
        ("$-2 \\times 10^{-3}$", Fraction("-0.002")),
        ("10^6", 1_000_000),
        ("2.5 km", Fraction("2.5")),
        ("$3.0 \\cdot 10^8\\text{ metres per second}$", 300_000_000),
        ("1/2 cup", Fraction(1, 2)),
        ("0.5%", Fraction("0.5")),
        ("9" * 308, int("9" * 308)),
    ],
)
def test_numbers_are_read_in_usual_forms(text: str, value: Fraction | int) -> None:
    assert read_number(text) == value
    assert float(read_number(text)) == float(value)


@pytest.mark.parametrize(
    "text",
    [
        *("seven", "", "1/0", "inf", "nan", "3 or 4", "x = y", "2^5", "3!", "1,5", "5 million", "2.5 million"),
        *("2.5 or more", "3e", "3 x 10^x5", "1 x 10^5 to 2 x 10^5", "1e999", "1e999999999", "1e-999999999", "9" * 5000),
    ],
)
def test_what_is_no_number_is_refused(text: str) -> None:
    with pytest.raises(ValueError, match=r"^not_a_number: expected a number, got "):
        read_number(text)
