"""Verdicts in a judge's words: what is understood, and that nothing is guessed."""

from evorun.tasks.judging import parse_judgment

VERDICTS = [
    ('{"solution": "A", "reasoning": "r"}', "A"),
    ('{"solution": "B", "reasoning": "cut off he', "B"),
    ('{"solution": "t"}', "T"),
    ('{"solution": "Tie"}', "T"),
    ('{"solution": "Candidate A"}', "A"),
    ('{"solution": "(B)."}', "B"),
    ('```json\n{"solution": "B"}\n```', "B"),
    ("B", "B"),
    ("", "invalid"),
    ("Candidate A is better than B.", "invalid"),
    ("{}", "invalid"),
    ('{"solution": "C"}', "invalid"),
    ('{"solution": "A or B"}', "invalid"),
    ('{"solution": "AB"}', "invalid"),
    ('{"solution": 1}', "invalid"),
    ('{"solution": null}', "invalid"),
    ('{"solution": "A"} {"solution": "B"}', "invalid"),
    ('{"reasoning": "A is better"}', "invalid"),
]


def test_verdicts() -> None:
    for text, verdict in VERDICTS:
        assert parse_judgment(text).verdict == verdict


def test_the_reason_is_kept_and_can_be_written() -> None:
    assert parse_judgment('{"solution": "A", "reasoning": "It checks."}').reason == "It checks."
    assert parse_judgment('{"solution": "A", "reasoning": "\\ud800"}').reason.encode()
    assert parse_judgment('{"solution": "A", "reasoning": 3}').reason == ""
