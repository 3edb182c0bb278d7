"""Text around answers: the forms of fences and of scores, as models use them."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from evorun.tasks.fitness_scores import read_fitness, read_last_score
from evorun.tasks.puzzles.reading import blocks, fence, last_block

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
    ("Score: 62.5 (= 100 * 5/8)", 62.5),
    ("Score: 62.5\n\n(3 of 8 edges clash.)", 62.5),
    ("**62.5**\n\nEdges 0-1, 1-2 and 2-3 clash: 3/8.", 62.5),
    ("My score is 85/100. There are 2 errors.", 85),
    ("It is 77.8, raised from 66.7 to 77.8", 77.8),
    ("The answer is wrong, with one mistake: 80", 80),
    ("It breaks a rule in one row\n62.5, two errors in all", 62.5),
    ("With 2 clashes, the score would be 75.0", 75),
    ("If all were right it would be 100, but two are not, so it is 77.8", 77.8),
    ("If I had to give a number, I would say 70", 70),
    ("I can't give it full marks, so 70.", 70),
    ("I can't score this fairly, but my best guess is 40.", 40),
    ("I first get 75.0, but that is too high.\n\nFinal score: 50.0", 50),
    ("It passes the first example and fails the second: 50", 50),
    ("Puntuaci\u00f3n: 62,5", 62.5),
    ("\u5f97\u5206\uff1a62.5\u5206", 62.5),
    ("I'd rate this 70, not 80.", 70),
    ("Not perfect, but 90.", 90),
    ("Score: 70. I do not know whether row 3 counts.", 70),
    # Ranges, bounds and parts
    ("The score lies between 60 and 65.", None),
    ("It is somewhere around 40-60.", None),
    ("The score is 60 or 65", None),
    ("at least 60", None),
    ("Score: <62.5", None),
    ("60 or more", None),
    ("60?", None),
    ("60, maybe 65.", None),
    ("100 if the first row is right, else 66.7", None),
    ("65 is my upper bound.", None),
    ("I would not give 65.", None),
    ("The score is not 62.5", None),
    ("75 for the method, 60 for the style", None),
    ("Score: 75\nScore: 60", None),
    # Sums that are not worked out, and what they are worked out from
    ("100 * (1 - 2/8)", None),
    ("100 * (1 - C / 8), where C is the number of edges", None),
    ("R = 7/9, C = 7/9, B = 1", None),
    ("Score: 7 out of 10", None),
    ("There are 3 errors.", None),
    ("Rows 1, 2 and 5 are wrong", None),
    # Cases that are not so, others' scores, what is taken back or declined
    ("85 would be the score with three conflicts", None),
    ("If it had an answer, I would have said 85", None),
    ("Had it been complete, it would be 85.", None),
    ("The student asks for a score of 60.", None),
    ("You want me to write 65, which I refuse.", None),
    ("The previous solution scored 65.", None),
    ("It could be 65, I do not know.", None),
    ("I get 75.0, but that is too high.", None),
    ("Score: 75, but vertex 4 clashes with vertex 5 as well.", None),
    ("R is 0.78 and C is 0.56. I leave the cube root to you.", None),
    ("I give no score; 50.0 is your example", None),
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
    assert (read_last_score("-5"), read_last_score("1000"), read_last_score("1,2,3")) == (-5, 1000, 3)
    assert read_last_score("70\nIt has 3 errors.") == 70


@given(st.floats(0, 100).map(lambda score: round(score, 3)), st.sampled_from(SCORES))
def test_what_follows_a_number_counts_and_what_precedes_it_does_not(score: float, before: tuple[str, object]) -> None:
    assert read_last_score(f"{before[0]}\n{score:.3f} / 100") == pytest.approx(score)


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
    text = "\nand then\n".join(map(fence, contents))
    assert [block.content for block in blocks(text)] == [content.strip() for content in contents]


PIECES = (
    *("`", "```x", "``` ", "~`", "_", "*", " ", "\n", "-", "1", "1,", "1e", "1.1.", "0", "0 ", "0 to ", "0*_", "/ "),
    *("/100.", "/100.0000", "100 -", "out of ", "out of a possible ", "5 of ", "max ", "scale of "),
)


@pytest.mark.nightly
def test_long_texts_come_to_an_end() -> None:
    for piece in PIECES:  # in time that grows with the square of the length, one of them would take minutes
        text = piece * (30_000 // len(piece)) + "x"
        assert bool(last_block(text)) == (piece in ("`", "```x", "``` "))
        assert read_last_score(f"{text}\n7") == 7
