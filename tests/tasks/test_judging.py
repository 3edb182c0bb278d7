"""Verdicts in a judge's words: what is understood, and that nothing is guessed."""

import pytest

from evorun.tasks.judging import parse_judgment, parse_ratings

VERDICTS = [
    ('{"solution": "A", "reasoning": "r"}', "A"),
    ('{"solution": "B", "reasoning": "cut off he', "B"),
    ('{"solution": "t"}', "T"),
    ('{"solution": "Tie"}', "T"),
    ('{"solution": "Candidate A"}', "A"),
    ('{"solution": "(B)."}', "B"),
    ('```json\n{"solution": "B"}\n```', "B"),
    ('In {98, 100} only \\frac{1}{2}:\n{"solution": "B", "reasoning": "r"}\nso {A}', "B"),
    ("B", "B"),
    ("", "invalid"),
    ("{}", "invalid"),
    ('{"solution": "C"}', "invalid"),
    ('{"solution": "A or B"}', "invalid"),
    ('{"solution": "AB"}', "invalid"),
    ('{"solution": 1}', "invalid"),
    ('{"solution": null}', "invalid"),
    ('{"solution": "A"} {"solution": "B"}', "invalid"),
    ('{"reasoning": "A is better"}', "invalid"),
    ('{"winner": "Candidate B", "reasoning": "r"}', "B"),
    ('{"solution": "C"} Verdict: A', "invalid"),
    ('{"solution": "A"}\nSorry, that is wrong.', "invalid"),
    ('{"verdict": "A"}', "A"),
    ('{"solution": "Solution B"}', "B"),
    ('{"solution": "response a"}', "A"),
    ('{"solution": "' + "*" * 20 + 'A"}', "A"),
    ('{"solution": "' + "*" * 40 + 'A"}', "invalid"),  # longer than any name of a verdict
    # Started over: another verdict, in a longer form or under a key in capitals
    ('{"solution": "Candidate A"} {"solution": "Candidate B", "reas', "invalid"),
    ('{"SOLUTION": "B", "solution": "A"}', "invalid"),
]

IN_PROSE = [
    ("**Verdict: A**\n\nCandidate A's derivation is complete, B's is not.", "A"),
    ("A slips in step 2.\n\n**Winner: B** \U0001f3c6", "B"),
    ("### Verdict\n\n**Candidate B**", "B"),
    ("Decision: Candidate A wins.", "A"),
    ("<verdict>A</verdict>", "A"),
    ("A skips a case.\n\n[[B]]", "B"),
    ("Final Answer: The final answer is $\\boxed{A}$. I hope it is correct.", "A"),
    ("solution: A\nreasoning: B's text has more slips.", "A"),
    ("B\n\nIt handles every case.", "B"),
    ("Both are close in substance.\n\n(B)", "B"),
    ("Candidate A is better than B.", "A"),
    ("Candidate B's answer is wrong, so candidate A is better.", "A"),
    ("Candidate A gives the better answer.", "A"),
    ("I would pick candidate B over A, since it checks the result.", "B"),
    ("Response 1 is the better one.", "A"),
    ("The second response is better.", "B"),
    ("It's a tie.", "T"),
    ("Both are equally good.", "T"),
    ("Neither candidate is better.", "T"),
    ("Winner: tie", "T"),
    ("I prefer B. On style, A is better. Overall, A is better.", "A"),
    ("Candidate B is better. Wait, no: I misread it. Candidate A is better.", "A"),
]

NO_VERDICT = {
    "denied": [
        "A is not better than B.",
        "I don't think that candidate A is better.",
        "Verdict: not A",
        "It is not a tie.",
    ],
    "doubted": [
        "Candidate A might be better.",
        "Perhaps candidate A is better.",
        "It is unclear whether A is better.",
        "It is nearly a tie.",
        "Verdict: A?",
        "Candidate A is better. Then again, I cannot tell.",
    ],
    "supposed": ["If the lemma held, candidate B would be better.", "Winner: A if style counts."],
    "quoted": [
        'Candidate A writes: "Verdict: A".',
        "Candidate B claims: 'I am sound. Candidate B is better.'",
        "> Verdict: A",
        "```\nVerdict: A\n```\nis what the reply ends in.",
        "The claim that candidate A is better is unfounded.",
    ],
    "limited": [
        "Candidate A is better in style.",
        "In style, A is better.",
        "Candidate A is better, but B is correct.",
    ],
    "taken back": ["Candidate A is better. Sorry, that was wrong.", "Verdict: A. Wait, I need to check this again."],
    "conflicting": [
        "Verdict: A\n\nCandidate B is better.",
        "Candidate A is better. However, candidate B is better.",
        "Verdict: A or B",
        "[[A]] or [[B]]",
        "Candidate A is better or candidate B is better.",
    ],
    "none": [
        "The right answer is B.",
        "Solution: A short proof by induction.",
        "Candidate A starts well. Candidate B",
        "**Candidate A**\nfine\n\n**Candidate B**",
        "Verdict: <A, B or T>",
        "Both are close in substance.\n\nB",  # may have been cut off
    ],
}


def test_verdicts() -> None:
    for text, verdict in VERDICTS:
        assert parse_judgment(text).verdict == verdict


@pytest.mark.parametrize(("text", "verdict"), IN_PROSE)
def test_a_verdict_in_prose(text: str, verdict: str) -> None:
    assert parse_judgment(text).verdict == verdict


@pytest.mark.parametrize("why", NO_VERDICT)
def test_prose_that_gives_no_verdict(why: str) -> None:
    assert [text for text in NO_VERDICT[why] if parse_judgment(text).verdict != "invalid"] == []


def test_the_reason_is_kept_and_can_be_written() -> None:
    assert parse_judgment('{"solution": "A", "reasoning": "It checks."}').reason == "It checks."
    assert parse_judgment('{"solution": "A", "reasoning": "\\ud800"}').reason.encode()
    assert parse_judgment('{"solution": "A", "reasoning": 3}').reason == ""
    assert parse_judgment('{"reasoning": "It checks').reason == "It checks"  # cut off before the verdict


@pytest.mark.parametrize(
    ("text", "ratings"),
    [
        ('{"reasoning": "both add up", "rating_a": 8, "rating_b": 3}', (8.0, 3.0)),
        ('I start with {"rating_a": 2, "rating_b": 2}. Now: ```{"rating_a": "10", "rating_b": 1.0}```', (10.0, 1.0)),
        ('<think>{"rating_a": 1, "rating_b": 9}</think>{"rating_b": 7, "rating_a": 6, }', (6.0, 7.0)),
        ('{"rating_a": 8}', None),
        ('{"rating_a": 0, "rating_b": 5}', None),
        ('{"rating_a": 11, "rating_b": 5}', None),
        ('{"rating_a": true, "rating_b": 5}', None),
        ('{"rating_a": "\u0668", "rating_b": 5}', None),
        ('{"rating_a": [8], "rating_b": {"a": 5}}', None),
        ("A: 8, B: 3", None),
        ("", None),
    ],
)
def test_two_ratings_from_one_to_ten_are_read(text: str, ratings: tuple[float, float] | None) -> None:
    assert parse_ratings(text).ratings == ratings
