"""Errors and scores in a model's words: what is read from them, and that nothing makes the reading fail."""

import json

import pytest
from hypothesis import given
from hypothesis import strategies as st

from evorun.tasks.fitness_scores import read_fitness
from evorun.tasks.judging import ERROR_CHARS, ERRORS_SCHEMA, FITNESS_SCHEMA, read_errors

HOSTILE = (
    "",
    "\x00",
    "\ud800 lone",
    '{"errors": ["\\ud800"], "score": "\\ud800"}',
    '{"errors": {"a": 1}, "score": [1]}',
    '{"errors": [[], {}, null, 3], "score": null}',
    '{"errors": null, "score": true}',
    "{" * 500,
    "[" * 500,
    "A" * 20_000,
    "1" * 20_000,
    '{"score": 1e999}',
    '{"errors": ["' + "x" * 100_000,
    "-" * 50_000 + "5",
)


def test_errors() -> None:
    for text, expected in [
        ('{"reasoning": "r", "errors": ["One.", "Two."]}', ["One.", "Two."]),
        ('```json\n{"errors": ["One."]}\n```', ["One."]),
        ('Well: {"errors": ["One.", "One.", " One. "],}', ["One."]),
        ('{"errors": "a single one"}', ["a single one"]),
        ('{"errors": []}', []),
        ('{"errors": ["None.", "", "no errors"]}', []),
        ('{"errors": ["First\\n  line", {"step": 2}, 7, "Second"]}', ["First line", "Second"]),
        ('{"errors": ["A", "B", "C", "D"]}', ["A", "B", "C"]),
        ("There are no errors.", None),
        ('{"reasoning": "cut in the mid', None),
        ('{"errors": {"one": "A"}}', None),
        ("", None),
    ]:
        assert read_errors(text, 3) == expected


def test_scores() -> None:
    for text, expected in [
        ('{"reasoning": "2 of 3 hold", "score": 66.5}', 66.5),
        ('{"score": 0}', 0),
        ('{"score": 250}', 100),
        ('{"score": -3}', 0),
        ('{"score": "80", "note": "none"}', 80),
        ("It deserves 40 out of all: 55.0", 55),
        ("Score: 85.", 85),
        ('{"score": true}', None),
        ('{"score": null}', None),
        ('{"score": "85/100", "reasoning": "3 of 4"}', 85),
        ('{"score": null, "reasoning": "Step 2 fails."}', None),
        ('{"Score": 80, "reasoning": "Step 2 fails."}', 80),
        ('{"fitness": 80, "reasoning": "Step 2 fails."}', 80),
        ('{"score": 80, "reasoning": "r"}\nas \\frac{1}{2} of {98, 2}', 80),
        ('{"score": 20}\nNo, step 3 holds: {"score": 80}', 80),
        ('I solved it, so here it is in the format that you asked for:\n{"reasoning": "r", "score": 70}', 70),
        ('I cannot run it.\n\n{"reasoning": "r", "score": 70}', 70),
        ('{"reasoning": "...", "score": 50.0}', None),
        ('{"reasoning": "good", "score": "80-90"}', None),
        ('{"reasoning": "good", "score": "at least 60"}', None),
        ('I cannot score this. The form would be {"reasoning": "r", "score": 50.0}.', None),
        ('If it were complete, I would say {"reasoning": "r", "score": 85}', None),
        ('{"reasoning": "r", "score": 85}\n{"reasoning": "r", "score": 60}', None),
        ('{"reasoning": "r", "score": 85}\n\nThat score is too high.', None),
        ('{"reasoning": "The value is 42, and', None),  # cut off before the score
        ('{"reasoning": "Step 2 fails."}\nScore: 70', 70),
        ("good", None),
        ("", None),
    ]:
        assert read_fitness(text) == expected


@given(st.one_of(st.text(), st.sampled_from(HOSTILE)), st.integers(0, 5))
def test_nothing_makes_it_fail(text: str, max_errors: int) -> None:
    errors, score = read_errors(text, max_errors), read_fitness(text)
    assert score is None or 0 <= score <= 100
    for error in errors or ():
        assert 0 < len(error) <= ERROR_CHARS + 60  # an excerpt says how much is left out
        assert "\n" not in error
        error.encode()
    assert len(errors or ()) <= max_errors


@pytest.mark.timeout(600)  # quadratic time would take hours
def test_hostile_texts_are_read_in_linear_time() -> None:
    for text in HOSTILE:
        read_errors(text, 3)
        read_fitness(text)


@given(st.lists(st.text(min_size=1, max_size=40)), st.floats(0, 100))
def test_what_the_schemas_allow_is_read(errors: list[str], score: float) -> None:
    assert read_errors(json.dumps({"reasoning": "5 of 7", "errors": errors}), 10) is not None
    assert read_fitness(json.dumps({"reasoning": "5 of 7", "score": score})) == score
    for schema in (ERRORS_SCHEMA, FITNESS_SCHEMA):
        assert list(schema["properties"]) == schema["required"]
