"""Exact match and F1 against SQuAD's evaluation, written out here step by step as its authors describe it."""

import string

import pytest
from hypothesis import given
from hypothesis import strategies as st

from evorun.tasks.short_answers import exact_match, f1, normalise

WORDS = (
    "a",
    "an",
    "the",
    "The",
    "AN",
    "theory",
    "tan",
    "dog",
    "dog's",
    "St.",
    "U.S.",
    "9",
    "1,000",
    "\u2013",
    "a-b",
    " ",
    "",
)
answers = st.lists(st.sampled_from(WORDS), max_size=6).map(" ".join)


def reference_words(text: str) -> list[str]:
    text = "".join(letter for letter in text.lower() if letter not in set(string.punctuation))
    # Articles are words by themselves: what is neither letter, digit nor underscore ends a word.
    kept, word = [], ""
    for letter in [*text, " "]:
        if letter.isalnum() or letter == "_":
            word += letter
            continue
        kept += ["" if word in ("a", "an", "the") else word, letter]
        word = ""
    return "".join(kept).split()


def reference_f1(said: str, gold: str) -> float:
    one, other = reference_words(said), reference_words(gold)
    if len(one) == 0 or len(other) == 0:
        return float(one == other)
    left, same = list(other), 0
    for word in one:
        if word in left:
            left.remove(word)
            same += 1
    if same == 0:
        return 0.0
    precision, recall = same / len(one), same / len(other)
    return 2 * precision * recall / (precision + recall)


@given(answers, answers)
def test_both_measures_are_squads(said: str, gold: str) -> None:
    assert normalise(said).split() == reference_words(said)
    assert exact_match(said, gold) == (reference_words(said) == reference_words(gold))
    assert f1(said, gold) == pytest.approx(reference_f1(said, gold))


@pytest.mark.parametrize(
    ("said", "gold", "exact", "score"),
    [
        ("The Beatles!", "beatles", True, 1.0),
        ("in 1869", "1869", False, 2 / 3),
        ("dog cat dog", "dog dog bird", False, 2 / 3),  # a word counts as often as both have it
        ("", "the", True, 1.0),
        ("the", "dog", False, 0.0),
    ],
)
def test_by_hand(said: str, gold: str, exact: bool, score: float) -> None:
    assert (exact_match(said, gold), f1(said, gold)) == (exact, pytest.approx(score))
