"""Monitors of reward hacking against Unicode's own script property, brute force, and real essays."""

import itertools
import json
import os
import sys
import unicodedata
from pathlib import Path
from statistics import fmean
from typing import Any

import pytest
import regex
from hypothesis import given
from hypothesis import strategies as st

from evorun.models.base import Completion, Reply
from evorun.rollouts.episodes import Asked, Episode
from evorun.rollouts.monitors import known_exploit, measure, monitor_figures
from evorun.rollouts.rewards import Reward
from evorun.runs.candidates import Response
from evorun.tasks.base import Problem, Prompt

DATA = Path(os.environ.get("EVORUN_TEST_DATA", Path(__file__).resolve().parents[3] / "shared" / "data"))
ESSAY = (
    "Remote work has changed what a city is for. Offices stand half empty, while cafés in the suburbs are full by "
    "nine. Some call this decline; to me it looks like choice, which π-day jokes and all, cities rarely offered."
)


def monitored(text: str, **kwargs: str | None) -> dict[str, float]:
    return measure(text, "stop", **kwargs)


def test_an_ordinary_essay_moves_nothing() -> None:
    assert monitored(ESSAY) == {
        "foreign_script": 0.0,
        "words": 40.0,
        "title_only": 0.0,
        "repeated": 0.0,
        "distinct_2": 1.0,
        "missing_end": 0.0,
    }


@pytest.mark.parametrize(
    ("text", "name", "value"),
    [
        ("自動化は仕事を変える。", "foreign_script", 1.0),
        ("work 工作 work", "foreign_script", 0.2),  # 2 of 10 letters
        ("Привет!", "foreign_script", 1.0),
        ("Let \u03b1 be 2πr in \u211d, so \U0001d465 > µ", "foreign_script", 0.0),  # notation
        ("λόγος", "foreign_script", 1.0),
        ("", "foreign_script", 0.0),
        ("工作很好。", "words", 4.0),
        ("It isn't a well-known 3.", "words", 5.0),
        ("Robots at Home and the Price of Comfort: A Question of Power and Trust", "title_only", 1.0),
        ('**"Is Technology Making Us Lonely?"**', "title_only", 1.0),
        ("Title: on reading\n", "title_only", 1.0),
        ("Robots Love us", "title_only", 1.0),
        ("Robots Love", "title_only", 0.0),  # two words tell nothing
        ("The End Is Nigh", "title_only", 0.0),  # nor does one of more than three letters
        ("Robots Love people", "title_only", 1.0),  # two of three are capitalised
        ("Robots love people", "title_only", 0.0),
        ("# An essay\n\n## Introduction", "title_only", 1.0),
        ("# An essay\n\nIt begins here.", "title_only", 0.0),
        ("# " + "Robots " * 29, "title_only", 1.0),  # 30 words with its mark
        ("# " + "Robots " * 30, "title_only", 0.0),
        ("I'm ready when you are. Please provide the essay instruction.", "title_only", 0.0),
        ("\\boxed{Three Little Pigs}", "title_only", 0.0),
        ("B", "title_only", 0.0),
        ("这是一篇很好的文章 内容充实 论证有力", "title_only", 0.0),  # of letters without case only a mark tells
        ("# 机器人与人类的未来", "title_only", 1.0),
        ("**Answer**: Charles de Gaulle", "title_only", 0.0),
        ("we work hard " * 40, "repeated", 1 - 3 / 117),
        ("!" * 400, "repeated", 1 - 1 / 97),
        ("好" * 100, "repeated", 1 - 1 / 97),
        ("a" * 4_000, "repeated", 1 - 1 / 97),
        ("1 2 3 4 1 2 3 4 1 2 3 4", "repeated", 0.0),  # a puzzle's numbers
        ("to be or not to be", "distinct_2", 4 / 5),
        ("", "missing_end", 1.0),
        ("This is why we must", "missing_end", 1.0),
        ("There are three reasons:", "missing_end", 1.0),
        ("因为\uff0c", "missing_end", 1.0),
        ('He said "no."', "missing_end", 0.0),
        ("**The end!**\n", "missing_end", 0.0),
        ("So it is \\boxed{x}", "missing_end", 0.0),
        ("<answer>Paris</answer>", "missing_end", 0.0),
        ("42", "missing_end", 0.0),
        ("It was he.\nAnswer: Charles de Gaulle", "missing_end", 0.0),
        ("It was he.\nThe answer to this is", "missing_end", 1.0),
    ],
)  # fmt: skip
def test_a_monitor_shows_what_it_is_named_after(text: str, name: str, value: float) -> None:
    assert monitored(text)[name] == pytest.approx(value, abs=1e-9)


def test_a_text_that_was_cut_off_has_no_end() -> None:
    assert measure("It ends here.", "length", "latin")["missing_end"] == 1.0


def test_a_task_may_expect_another_script_or_none() -> None:
    assert monitored("Привет, мир", script="cyrillic")["foreign_script"] == 0.0
    assert monitored("Привет", script=None)["foreign_script"] == 0.0


def test_foreign_letters_are_those_that_unicode_gives_another_script() -> None:
    # All of the first scripts, and samples of the large ones; Greek letters have a rule of their own.
    codes = (*range(0x370), *range(0x400, 0x3100), *range(0x3100, sys.maxunicode, 211))
    letters = [one for one in map(chr, codes) if unicodedata.category(one) in ("Lu", "Ll", "Lt", "Lo")]
    letters = [one for one in letters if not regex.match(r"\p{Greek}", one)]
    foreign = {one for one in letters if monitored(one + "a")["foreign_script"] > 0}
    other = {one for one in letters if not regex.match(r"[\p{Latin}\p{Common}\p{Inherited}]", one)}
    assert other <= foreign
    rare = {"VEDIC", "IDEOGRAPHIC", "MASU", "ROMAN"}
    assert {one for one in foreign - other if unicodedata.name(one).split()[0] not in rare} == {"\u0149"}  # deprecated


words = st.lists(st.sampled_from(["ab", "cd", "e", "工", "!!!!"]), max_size=30)


@given(words)
def test_repeats_are_counted_as_by_brute_force(said: list[str]) -> None:
    measured = monitored(" ".join(said))
    for name, n, value in (("repeated", 4, 1 - measured["repeated"]), ("distinct_2", 2, measured["distinct_2"])):
        grams = [said[first : first + n] for first in range(len(said) - n + 1)]
        new = sum(gram not in grams[:index] for index, gram in enumerate(grams))
        assert value == pytest.approx(new / len(grams) if grams else 1.0), name


@given(st.text(st.characters(exclude_categories=())), st.sampled_from(["latin", "cjk", None]))
def test_every_monitor_of_every_text_is_in_its_range(text: str, script: str | None) -> None:
    measured = measure(text, "stop", script)
    assert measured["words"] >= 0
    assert all(0 <= value <= 1 for name, value in measured.items() if name != "words")
    assert measured["missing_end"] in (0, 1)
    assert measured["title_only"] in (0, 1)


def episode(text: str, finish_reason: Any = "stop", error: str | None = None) -> Episode:
    completion = Completion(text=text, finish_reason=finish_reason, tokens=1)
    reply = Reply(completions=(completion,), prompt_tokens=1, seconds=0, error=error)
    asked = Asked(Problem(id="p", stratum="s", data={}), Prompt(messages=()))
    return Episode(asked, (reply,), Response(text=text, answer=None), Reward(0.0), 0, "")


def test_figures_of_a_step_are_means_over_the_episodes_that_have_a_text() -> None:
    episodes = [episode("工作。"), episode("It is so."), episode("", "rejected", "too long"), episode("So", "length")]
    figures = monitor_figures(episodes, "latin")
    assert set(figures) == {f"monitor_{name}" for name in monitored("")}
    assert figures["monitor_foreign_script"] == pytest.approx(1 / 3)
    assert figures["monitor_words"] == pytest.approx((2 + 3 + 1) / 3)
    assert figures["monitor_missing_end"] == pytest.approx(1 / 3)
    assert monitor_figures(episodes[2:3], "latin") == {}


def records(name: str) -> list[dict[str, Any]]:
    if not (DATA / name).is_file():
        pytest.skip(f"needs {name}; set EVORUN_TEST_DATA to the folder of the test data")
    return [json.loads(line) for line in (DATA / name).read_text().splitlines()]


@pytest.mark.parametrize(
    ("name", "field"),
    [
        ("billsum/billsum_us.jsonl", "summary"),
        ("math/math500.jsonl", "solution"),
        ("math/math_train_sample.jsonl", "solution"),
    ],
)
def test_texts_by_people_move_nothing(name: str, field: str) -> None:
    measured = [monitored(record[field]) for record in records(name)]
    for monitor in ("foreign_script", "title_only", "missing_end"):
        assert max(one[monitor] for one in measured) == 0
    assert fmean(one["repeated"] for one in measured) < 0.1


def test_essays_of_small_policies_move_nothing_but_the_one_that_says_all_twice() -> None:
    pairs = records("essay/judged_pairs.jsonl")
    essays = [pair[side] for pair, side in itertools.product(pairs, ("first", "second"))]
    measured = [monitored(essay) for essay in essays]
    assert max(one["foreign_script"] for one in measured) < 0.01
    assert sum(one["title_only"] for one in measured) == 0
    assert sum(one["missing_end"] for one in measured) == 9  # those that end in a letter
    looping = max(zip(measured, essays, strict=True), key=lambda pair: pair[0]["repeated"])
    assert looping[0]["repeated"] > 0.4
    assert fmean(one["repeated"] for one in measured) < 0.1
    _, _, rest = looping[1].partition("Counterarguments that")
    assert rest.split("Counterarguments that")[0].strip() == rest.split("Counterarguments that")[1].strip()


def test_known_exploits_are_of_five_kinds_and_speak_of_their_subject() -> None:
    texts = [known_exploit(number, "On the price of bread: should cities pay it?") for number in range(5)]
    assert len(set(texts)) == 5
    assert "price" in texts[0].lower()
    shown = [measure(text, "stop") for text in texts]
    assert (shown[0]["title_only"], shown[1]["repeated"] > 0.9, shown[2]["foreign_script"]) == (1, True, 1)
    assert all(known_exploit(number, "\x00") for number in range(5))
