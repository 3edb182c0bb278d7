"""same_output: LiveCodeBench's rules, and texts made to harm."""

import json
import tracemalloc
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from evorun.sandbox import same_output

JSON_VALUES: st.SearchStrategy[Any] = st.recursive(
    st.none() | st.booleans() | st.integers() | st.floats(allow_nan=False, allow_infinity=False) | st.text(),
    lambda inner: st.lists(inner, max_size=4) | st.dictionaries(st.text(), inner, max_size=4),
    max_leaves=12,
)


@pytest.mark.parametrize(
    ("expected", "actual", "same"),
    [
        ("3\n", "3", True),
        ("3\n", "\n\n 3 \n\n", True),
        ("1 2\n3", "1 2 \r\n3", True),
        ("1 2\n3", " 1 2\n  3", True),
        ("1\n2", "1 2", False),
        ("1\n2", "1\n\n2", False),
        ("1\n2", "1", False),
        ("1", "1\n2", False),
        ("1\n2\n3", "1\n2", False),
        ("1.0", "1.00", True),
        ("1", "1.0", True),
        ("1e3", "1000", True),
        ("-0", "0", True),
        ("0.3", "0.30000001", False),
        ("50000000000000000", "50000000000000001", False),
        ("1 2", "1  2.0", True),
        ("1 2", "1 2 2", False),
        ("a 1", "a 1.0", False),  # a line with a word must be equal
        ("a  b", "a b", False),
        ("YES", "Yes", False),
        ("", "", True),
        ("", "0", False),
        ("0", "", False),
        ("nan", "NaN", False),
        ("snan", "1", False),
        ("inf", "Infinity", True),
    ],
)
def test_lines(expected: str, actual: str, same: bool) -> None:
    assert same_output("lines", expected, actual) is same


@pytest.mark.parametrize(
    ("expected", "actual", "same"),
    [
        ("[1, 2]", "[1,2]", True),
        ("[1, 2]", "[2, 1]", False),
        ("1", "1.0", True),
        ("true", "1", True),  # plain equality of Python values, as the harness has it
        ("true", '"true"', False),
        ("5", '"5"', False),
        ('{"a": 1, "b": [2]}', '{"b": [2], "a": 1}', True),
        ("0.1", "0.10000000000000001", True),
        ("0.1", "0.1000001", False),
        ("null", "", False),
        ("[1]", "[1", False),
        ("[1]", "[1] [1]", False),
        ("[1]", "{1}", False),
        ("[1]", "__import__('os').system('true')", False),
        ("[1]", "[1][0:1]", False),
        ("1" * 9000, "1" * 9000 + ".0", False),  # a float that large is infinite
        ("[" + "1" * 9000 + "]", "[" + "1" * 8999 + "2]", False),
        ("[" + "1" * 9000 + ", 2]", "[" + "1" * 9000 + ",2]", True),
    ],
)
def test_json(expected: str, actual: str, same: bool) -> None:
    assert same_output("json", expected, actual) is same


@pytest.mark.parametrize(
    ("expected", "actual"),
    [
        ("[[1, 2], [3]]", "[(1, 2), (3,)]"),
        ("[true, false, null]", "[True, False, None]"),
        ('["a\'b", "c", "None", "(x,)"]', """["a'b", 'c', 'None', '(x,)']"""),
        (r'["\n\t\\\"é\u0000"]', repr(['\n\t\\"é\0'])),
        ("[]", "()"),
        ('"abc"', "'abc'"),
        ('"abc"', "abc"),
        ('"abc"', "  abc \n"),
        ('" a b "', " a b "),
        ('"a\\nb"', "a\nb"),
        ('"12"', "12"),
        ('"012"', "012"),
        ('"None"', "None"),
        ('"[1]"', "[1]"),
        ('""', "\n"),
    ],
)
def test_a_script_may_print_a_value_as_python_does_and_a_callable_may_not_return_that(
    expected: str, actual: str
) -> None:
    assert same_output("json", expected, actual, printed=True)
    assert not same_output("json", expected, actual)


@pytest.mark.parametrize("printed", [True, False])
@pytest.mark.parametrize(
    ("expected", "actual"),
    [
        ('"abc"', "abd"),
        ('"abc"', "Abc"),
        ('"abc"', "a bc"),
        ('"abc"', "abc abc"),
        ('"abc"', '["abc"]'),
        ('"a\\nb"', "a b"),
        ('"12"', "12.0"),
        ('"12"', "012"),
        ('""', '"x"'),
        ("12", '"12"'),
        ('["abc"]', "[abc]"),
        ('["abc"]', "abc"),
        ("true", "yes"),
        ("abc", "abd"),  # a test whose output is no JSON
    ],
)
def test_a_bare_text_stands_for_its_own_string_only(expected: str, actual: str, printed: bool) -> None:
    assert not same_output("json", expected, actual, printed=printed)


@given(st.text(), st.text())
def test_a_script_prints_a_string_bare_or_quoted(wanted: str, other: str) -> None:
    for shown in (wanted, json.dumps(wanted)):
        assert same_output("json", json.dumps(wanted), shown, printed=True)
    if other.strip() not in (wanted.strip(), json.dumps(wanted), repr(wanted)):
        assert same_output("json", json.dumps(wanted), other, printed=True) is False


@given(st.text(), st.sampled_from(["lines", "json"]))
def test_a_text_equals_itself(text: str, check: Any) -> None:
    assert same_output(check, text, text)


@given(
    st.lists(
        st.lists(st.decimals(allow_nan=False, allow_infinity=False), min_size=1, max_size=4), min_size=1, max_size=4
    )
)
def test_numbers_equal_themselves_with_zeros_and_spaces_added(rows: list[list[Any]]) -> None:
    plain = "\n".join(" ".join(f"{n:f}" for n in row) for row in rows)
    padded = "\n".join("  ".join(f"{n:f}" + (".00" if "." not in f"{n:f}" else "00") for n in row) for row in rows)
    assert same_output("lines", plain, f"\n{padded} \n")


@given(JSON_VALUES, JSON_VALUES)
def test_json_values_compare_as_python_compares_them(first: Any, second: Any) -> None:
    assert same_output("json", json.dumps(first), json.dumps(first, indent=1))
    assert same_output("json", json.dumps(first), json.dumps(second)) == (first == second)


@given(JSON_VALUES)
def test_what_print_shows_equals_the_json_value(value: Any) -> None:
    assert same_output("json", json.dumps(value), repr(value), printed=True)


@given(st.text(), st.text(), st.sampled_from(["lines", "json"]), st.booleans())
def test_any_texts_give_an_answer(first: str, second: str, check: Any, printed: bool) -> None:
    assert same_output(check, first, second, printed=printed) in (True, False)


MEBI = 1 << 20


@pytest.mark.sample(5)
@pytest.mark.parametrize(
    ("check", "expected", "actual"),
    [
        ("json", "[1]", "[" * MEBI),
        ("json", "[1]", "[" * 900 + "]" * 900),
        ("json", "[" * 900 + "1" + "]" * 900, "[" * 900 + "2" + "]" * 900),
        ("json", "1", "(" * MEBI),
        ("json", "1", "'" * MEBI),
        ("json", "1", "'\\n'," * (MEBI // 5)),
        ("json", "1", "'" + "\\" * MEBI),
        ("json", "1", "," + " " * MEBI),
        ("json", "1", "9" * MEBI),
        ("json", "1", "[" + "9" * 4000 + (",  " + "9" * 4000) * (MEBI // 4000)),
        ("json", "1", "1e" + "9" * MEBI),
        ("json", "1", "{" * MEBI),
        ("json", "1", "-" * MEBI),
        ("lines", "1", "9" * MEBI),
        ("lines", "1", "1e999999999999999999"),
        ("lines", "1e-999999999999999999", "1e999999999999999999"),
        ("lines", "1\n" * (MEBI // 4), "1.0\n" * (MEBI // 4)),
        ("lines", "\n" * MEBI, " \n" * MEBI),
        ("lines", "1 " * (MEBI // 4), "1.0 " * (MEBI // 4)),
    ],
    ids=range(19),
)
def test_harmful_texts_have_an_answer(check: Any, expected: str, actual: str) -> None:
    assert same_output(check, expected, actual, printed=True) in (True, False)


@pytest.mark.sample(1)
@pytest.mark.parametrize(
    ("expected", "actual"),
    [("1 " * (MEBI // 16), "1.0 " * (MEBI // 32)), ("1 2\n" * (MEBI // 16), "1 2.0\n" * (MEBI // 16))],
)
def test_lines_take_no_more_memory_than_their_texts(expected: str, actual: str) -> None:
    tracemalloc.start()
    same_output("lines", expected, actual)
    _, peak = tracemalloc.get_traced_memory()
    tracemalloc.stop()
    assert peak < 2 * (len(expected) + len(actual))
