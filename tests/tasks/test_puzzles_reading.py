"""What models write around answers: the forms of fences and of scores, as models use them."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from evorun.tasks.judging import last_score, read_fitness
from evorun.tasks.puzzles.reading import blocks, fenced, last_block

SCORES = [
    ("85.5/100", 85.5),
    ("85.5 / 100.0", 85.5),
    ("**85.5** / **100**.", 85.5),
    ("Score/100: 85", 85),
    ("100/100", 100),
    ("0/100", 0),
    ("Score: 90 out of 100", 90),
    ("90 points out of a possible 100 points.", 90),
    ("35 out of the 100 points", 35),
    ("33 out of a maximum of 100", 33),
    ("100 out of 100", 100),
    ("Score: **90** of 100", 90),
    ("90 points of 100", 90),
    ("87.0\n(scale 0 to 100)", 87),
    ("87.0 (0-100)", 87),
    ("87.0 (0\u2013100)", 87),
    ("87 [0, 100]", 87),
    ("On a scale of 0.0 to 100.0, it is 87", 87),
    ("87 on a scale from 0 to **100**", 87),
    ("87, between 0 and 100", 87),
    ("87 on a scale of 1 to 100", 87),
    ("87 on a 100-point scale", 87),
    ("33 (max: 100)", 33),
    ("Score: 90,5", 90.5),
    ("90,5 %", 90.5),
    ("1e2", 100),
    ("8.55E1", 85.5),
    ("85.5%.", 85.5),
    ("**Score:** 72.5", 72.5),
    ("**Score: 72.5**", 72.5),
    ("__72.5__", 72.5),
    ("`72.5`", 72.5),
    (r"The final score is $\boxed{72.5}$.", 72.5),
    ("I'd give it 40.", 40),
    ("Score:0.0", 0),
    ("A score of 100.", 100),
    ("a **score** of 100", 100),
    ("It earns the maximum score of 100.", 100),
    ("6 of 9 rows, 5 of 9 columns, so 66.7", 66.7),
    ("R = 7/9, C = 1, B = 8/9: the score is 88.4", 88.4),
    ("Rows 1, 2, 3 are wrong. 66.7", 66.7),
    ("88.88888888888889", 88.88888888888889),
    ("Score: -5", 0),
    ("\u22125", 0),
    ("1000", 100),
    ("NaN", None),
    ("Score: nan/100", None),
    ("inf", None),
    ("1e999", None),
    ("It is a 9x9 grid.", None),
    ("It is good, on a scale of 0 to 100.", None),
    ("", None),
]


def test_a_score_is_read_in_whatever_words() -> None:
    for text, score in SCORES:
        assert read_fitness(text) == score
        if score is not None:
            assert read_fitness(f"Row 3 repeats 5, and 7 of 9 boxes hold.\n\n{text}\n") == score


def test_the_number_itself_is_not_clamped() -> None:
    assert (last_score("-5"), last_score("1000"), last_score("1,2,3")) == (-5, 1000, 3)


@given(st.floats(0, 100).map(lambda score: round(score, 3)), st.sampled_from(SCORES))
def test_what_follows_a_number_counts_and_what_precedes_it_does_not(score: float, before: tuple[str, object]) -> None:
    assert last_score(f"{before[0]}\n{score:.3f} / 100") == pytest.approx(score)


FENCE = "```"


def test_fences_stand_where_models_put_them() -> None:
    for text, before, content in [
        (f"So:\n{FENCE}0,1,2{FENCE}", "So:", "0,1,2"),
        (f"{FENCE} 0,1 {FENCE}\nDone.", "", "0,1"),
        (f"The answer is {FENCE}0,1{FENCE}.", "The answer is", "0,1"),
        (f"  {FENCE}0,1{FENCE}  ", "", "0,1"),
        ("~~~0,1~~~", "", "0,1"),
        (f"So:\n{FENCE}\n0,1\n9,0{FENCE}\nDone.", "So:", "0,1\n9,0"),
        (f"{FENCE}text\n9,0 {FENCE} ", "", "9,0"),
        (f"Answer: {FENCE}\n0,1\n{FENCE}", "Answer:", "0,1"),
        (f"{FENCE}\n0\n{FENCE}\nno: {FENCE}1{FENCE}", f"{FENCE}\n0\n{FENCE}\nno:", "1"),
        (f"{FENCE}0{FENCE}\nno:\n{FENCE}\n1\n{FENCE}", f"{FENCE}0{FENCE}\nno:", "1"),
        (f"{FENCE}\n0\n{FENCE}\nIt stands between {FENCE} and {FENCE} now.", "", "0"),
        (f"{FENCE}\n0,1", "", "0,1"),
    ]:
        found = last_block(text)
        assert found is not None
        assert (text[: found.start].strip(), found.content) == (before, content)


@given(st.lists(st.text("0123456789, \n.", min_size=1), min_size=1, max_size=5))
def test_blocks_are_read_back_in_order(contents: list[str]) -> None:
    text = "\nand then\n".join(map(fenced, contents))
    assert [block.content for block in blocks(text)] == [content.strip() for content in contents]


PIECES = (
    *("`", "```x", "``` ", "~`", "_", "*", " ", "\n", "-", "1", "1,", "1e", "1.1.", "0", "0 ", "0 to ", "0*_", "/ "),
    *("/100.", "/100.0000", "100 -", "out of ", "out of a possible ", "5 of ", "max ", "scale of "),
)


def test_long_texts_come_to_an_end() -> None:
    for piece in PIECES:  # in time that grows with the square of the length, one of them would take minutes
        text = piece * (100_000 // len(piece)) + "x"
        assert bool(last_block(text)) == (piece in ("`", "```x", "``` "))
        assert last_score(f"{text}\n7") == 7
