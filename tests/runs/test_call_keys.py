"""Keys of calls are read back whatever a problem's id holds."""

from hypothesis import given
from hypothesis import strategies as st

from evorun.runs.call_keys import CallKey, parse_call_key

NUMBERS = st.integers(0, 10**6)
ROLES = st.text(st.characters(exclude_characters="|"), min_size=1)


@given(st.text(), NUMBERS, ROLES, NUMBERS, NUMBERS)
def test_a_key_is_read_back_as_its_parts(problem: str, step: int, role: str, index: int, attempt: int) -> None:
    assert parse_call_key(f"{problem}|{step}|{role}|{index}|{attempt}") == CallKey(problem, step, role, index, attempt)
    assert str(CallKey(problem, step, role, index, attempt)) == f"{problem}|{step}|{role}|{index}|{attempt}"


def test_a_call_without_a_place_keeps_its_digest_and_a_program_has_no_parts() -> None:
    assert parse_call_key("*|0|gold|5f3a|1") == CallKey("*", 0, "gold", "5f3a", 1)
    assert parse_call_key("program 5f") is parse_call_key("a|b|c|d|e") is None
