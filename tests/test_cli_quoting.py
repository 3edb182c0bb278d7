"""Texts between quotes are read back by Hydra as they were."""

from hydra.core.override_parser.overrides_parser import OverridesParser
from hypothesis import example, given
from hypothesis import strategies as st

from evorun.cli.overrides import permit_unlisted_key
from evorun.cli.quoting import quoted


def read(override: str) -> str:
    value = OverridesParser.create().parse_overrides([override])[0].value()
    return str(getattr(value, "text", value))


@given(st.text("ab\\'\"(=, é", max_size=12))
@example("a\\b(c")
@example("ends in one(\\")
def test_a_quoted_text_is_read_back(text: str) -> None:
    assert read(f"key={quoted(text)}") == text


def test_a_backslash_in_a_value_that_needs_quotes_stays_one() -> None:
    assert read(permit_unlisted_key("task.data=a\\b(c")) == "a\\b(c"
