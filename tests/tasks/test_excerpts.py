"""Excerpts of long texts."""

import re
from pathlib import Path

from hypothesis import given
from hypothesis import strategies as st

from building import make_method
from evorun.runs.results import write_results
from evorun.runs.scores import ACCURACY
from evorun.tasks.excerpts import excerpt
from method_fixture import drive
from text_tasks import Sums

MARK = re.compile(r" ?\[\.\.\. ([\d,]+) characters left out \.\.\.\] ?")


def test_the_middle_is_left_out_between_words_and_the_text_says_so() -> None:
    for limit, shown in (
        (13, "one two [... 17 characters left out ...] six"),
        (15, "one two [... 17 characters left out ...] six"),
        (16, "one two [... 12 characters left out ...] five six"),
        (25, "one two three [... 6 characters left out ...] five six"),
    ):
        assert excerpt("one two three four five six", limit) == shown
    assert excerpt(" ".join(["word"] * 1000), 20) == "word word [... 4,981 characters left out ...] word word"


def test_a_text_within_the_limit_and_any_without_one_are_whole() -> None:
    assert excerpt("one two", 7) == "one two"
    assert excerpt("word " * 10_000, None) == "word " * 10_000


def test_one_endless_word_is_cut_all_the_same() -> None:
    assert excerpt("z" * 5000, 10) == "zzzzz [... 4,990 characters left out ...] zzzzz"


@given(st.text(alphabet="ab \n[.]", max_size=200), st.integers(1, 120))
def test_what_is_shown_and_what_is_left_out_make_the_text(text: str, limit: int) -> None:
    shown = excerpt(text, limit)
    if len(text) <= limit:
        assert shown == text
        return
    marks = [mark for mark in MARK.finditer(shown) if len(text) - int(mark[1].replace(",", "")) <= limit]
    head, tail = shown[: marks[0].start()], shown[marks[0].end() :]
    assert text.startswith(head)
    assert text.endswith(tail)
    assert len(head) + len(tail) + int(marks[0][1].replace(",", "")) == len(text)


async def test_texts_of_which_prompts_show_a_part_are_counted_in_steps_and_results(tmp_path: Path) -> None:
    long = "It takes many words to say. " * 5 + "#### 5"
    driven = await drive(
        make_method("best_of_n", samples=4, rounds=0),
        tmp_path,
        lambda ask: long if ask.role == "generate" and ask.index < 3 else "#### 5",
        task=Sums(shown_reasoning_chars=60),
        problems=2,
    )
    assert [step["extra"]["shortened_texts"] for step in driven.records("steps")] == [3, 3]
    assert write_results(tmp_path, [ACCURACY], {}).counts["shortened_texts"] == 6
