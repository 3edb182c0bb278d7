"""Rubrics: what a refinement may look like, what is refused and why, and given ones in files."""

import contextlib
from pathlib import Path

import pytest

from building import composed, load_task
from evorun.cli.plain import with_absolute_paths
from evorun.errors import ConfigError
from evorun.tasks.rubrics import MAX_ITEMS, read_given, read_rubric
from test_model_texts import refuse_growth

ARGUMENT = """Line of argument (10 points)
- 10: Every claim has a reason, and objections are met.
  (Example: "Who pays? The town does, since ...")
- 6: Most claims have one.
- 0: None has."""
LANGUAGE = """### Language (0-5)
- **5 points**: It reads without effort.
- Example: "The bridge, long closed, was open again. <verdict>RIGHT"
- 2.5 points: It takes some.
* 0 : It cannot be followed."""


def rubric(*items: str, before: str = "", after: str = "") -> str:
    return f"<rubric>{before}" + "\n".join(f"<item>{item}\n</item>" for item in items) + f"{after}</rubric>"


GOOD = rubric(ARGUMENT, LANGUAGE)


def test_a_refinement_has_items_worth_their_highest_levels() -> None:
    read = read_rubric(f"<think>\n<rubric>\n</think>\nHere it is:\n{GOOD}\n<EOE>")
    assert read.maximum == 15
    first, second = read.items
    assert (first.title, first.maximum) == ("Line of argument (10 points)", 10)
    assert first.levels == (
        (
            10,
            'Every claim has a reason, and objections are met. (Example: "Who pays? The town does, since ...")',
        ),
        (6, "Most claims have one."),
        (0, "None has."),
    )
    assert (second.title, second.maximum) == ("Language (0-5)", 5)
    assert [points for points, _ in second.levels] == [5, 2.5, 0]
    # It is shown as it was written, and what is shown reads as the same rubric.
    assert ARGUMENT in read.text
    assert read_rubric(read.text) == read
    assert read.words_per_item == (len(ARGUMENT.split()) + len(LANGUAGE.split())) / 2
    assert (read.subset([1]).items, read.subset([1]).maximum) == ((second,), 5)


@pytest.mark.parametrize(
    "title",
    [
        "**Language** (0-5)",
        "### **Language** (0-5):",
        "- _Language_ (0-5)",
        "__Language (0-5)__",
        "## `Language` (0-5)",
    ],
)
def test_a_titles_mark_up_is_no_part_of_its_name(title: str) -> None:
    assert read_rubric(GOOD.replace("### Language (0-5)", title)).items[1].title == "Language (0-5)"
    kept = "snake_case of 2 names"
    assert read_rubric(GOOD.replace("### Language (0-5)", kept)).items[1].title == kept


@pytest.mark.parametrize(
    "text",
    [
        GOOD.replace("\n", "\r\n"),
        GOOD.replace("<rubric>", "<Rubric>").replace("</item>", "</ITEM>"),
        f"```\n{GOOD}\n```",
        rubric(ARGUMENT, LANGUAGE, after="\nTotal: 15 points\n"),
        rubric(ARGUMENT, LANGUAGE, before="2 items, 15 points in total\n"),
        rubric(ARGUMENT, LANGUAGE, after="\nTotal of 2 items: 10 + 5 = 15\n"),
        f"{GOOD}\n**Total score: 15/15**",
        rubric(ARGUMENT, LANGUAGE, after="\nIn total a reply has 350 words at most.\n"),
        GOOD.replace("(10 points)", "— out of 10"),
        GOOD.replace("(10 points)", "(max. 10)"),
        GOOD.replace("(10 points)", "(0 to 10 pts)"),
        GOOD.replace("(10 points)", "[Points: 10]"),
        GOOD.replace("(0-5)", "(5)"),
        GOOD.replace("(10 points)", "in 4 steps"),
        GOOD.replace("### Language", "3. Language"),
        GOOD.replace("Line of argument (10 points)", "**Line of argument** (**10** points)"),
    ],
)
def test_other_ways_to_write_it(text: str) -> None:
    assert read_rubric(text).maximum == 15


REFUSED = {
    "nothing": ("", "missing"),
    "prose": ("I would add an item on evidence.", "missing"),
    "thinking alone": (f"<think>{GOOD}", "missing"),
    "without items": ("<rubric>Judge it as a whole, from 0 to 5.</rubric>", "empty"),
    "cut off in a level": (GOOD[:90], "unclosed"),
    "cut off after an item": (GOOD[: GOOD.index("</item>") + 7], "unclosed"),
    "cut off in the last tag": (GOOD[:-3], "unclosed"),
    "an item without an end": (GOOD.replace("</item>", "", 1), "nested"),
    "the last item without an end": (rubric(ARGUMENT)[: -len("\n</item></rubric>")] + "</rubric>", "unclosed"),
    "an item in an item": (rubric(ARGUMENT, f"{LANGUAGE}\n<item>More\n- 1: x</item>"), "nested"),
    "a rubric in a rubric": (rubric(ARGUMENT, before=rubric(LANGUAGE)), "nested"),
    "two rubrics": (GOOD + GOOD, "doubled"),
    "two rubrics around thinking": (f"{GOOD}<think>no</think>{GOOD}", "doubled"),
    "an item outside": (f"{GOOD}<item>{LANGUAGE}</item>", "tag"),
    "an end without a beginning": (f"</rubric>{GOOD}", "tag"),
    "an item with attributes": (GOOD.replace("<item>", '<item points="10">', 1), "tag"),
    "an item twice": (rubric(ARGUMENT, LANGUAGE, ARGUMENT), "doubled"),
    "an item twice, with other points": (rubric(ARGUMENT, "1. LINE of argument (1 point)\n- 1: x"), "doubled"),
    "a level twice": (GOOD.replace("- 6:", "- 10.0:"), "doubled"),
    "a negative level": (GOOD.replace("- 0:", "- -2:"), "negative"),
    "a negative level without a blank": (GOOD.replace("- 0:", "-2:"), "negative"),
    "a negative level, typographic": (GOOD.replace("- 0:", "- \u22122 points:"), "negative"),
    "a negative level in words": (GOOD.replace("- 0:", "- minus 2:"), "negative"),
    "a level with a range": (GOOD.replace("- 6:", "- 4-6:"), "level"),
    "a level with a range in words": (GOOD.replace("- 6:", "- 4 to 6 points:"), "level"),
    "a level per cent": (GOOD.replace("- 6:", "- 60%:"), "level"),
    "a level with an exponent": (GOOD.replace("- 6:", "- 1e1:"), "level"),
    "a level in other digits": (GOOD.replace("- 6:", "- \u0666:"), "level"),
    "a level with a comma": (GOOD.replace("- 6:", "- 6,5:"), "level"),
    "a level without a dash": (GOOD.replace("- 6:", "6:"), "level"),
    "an item without levels": (rubric(ARGUMENT, "Language\nIt reads without effort."), "level"),
    "an item without a title": (rubric(LANGUAGE.partition("\n")[2]), "title"),
    "an empty item": (rubric(ARGUMENT, ""), "title"),
    "an item worth nothing": (rubric("Deductions\n- 0: too long"), "points"),
    "an item worth everything": (rubric("Title\n- 1000000: good"), "points"),
    "other points in a title": (GOOD.replace("(10 points)", "(12 points)"), "points"),
    "other points in a title's range": (GOOD.replace("(0-5)", "(0 to 10)"), "points"),
    "other points below a title": (GOOD.replace("(10 points)", "\nworth 12 points"), "points"),
    "other points in a title, in bold": (GOOD.replace("(10 points)", "(**12** points)"), "points"),
    "a weight in a title": (GOOD.replace("(10 points)", "(40 %)"), "points"),
    "another total": (rubric(ARGUMENT, LANGUAGE, after="\nTotal: 20 points\n"), "total"),
    "another total at the top": (rubric(ARGUMENT, LANGUAGE, before="\n20 points in total\n"), "total"),
    "another total behind": (f"{GOOD}\nMaximum score: 100", "total"),
    "another total as a sum": (f"{GOOD}\nThe total is 10 + 5 = 16.", "total"),
    "too many items": (rubric(*(f"Item {chr(65 + n % 26)}{n}x\n- 1: x" for n in range(MAX_ITEMS + 1))), "items"),
}


@pytest.mark.parametrize("name", REFUSED)
def test_what_leaves_a_doubt_is_refused_with_the_reason(name: str) -> None:
    text, kind = REFUSED[name]
    with pytest.raises(ValueError, match=rf"^{kind}: \S"):
        read_rubric(text)


LONG = {
    "levels": lambda n: rubric("Title\n" + "".join(f"- {number / 1000}: x\n" for number in range(n))),
    "items": lambda n: rubric(*(f"{number}a\n- 1: x" for number in range(n))),
    "points in a title": lambda n: rubric("10 points " * n + "\n- 10: x"),
    "lines of a title": lambda n: rubric("Title\n" + "(0-10)\n" * n + "- 10: x"),
    "totals": lambda n: f"{GOOD}" + "total 15\n" * n,
    "totals in a line": lambda n: f"{GOOD}total" + " 15 = 15" * n,
    "openings": lambda n: "<rubric>" + "<item " * n,
}


@pytest.mark.parametrize("name", LONG)
def test_long_texts_take_time_in_proportion_to_their_length(name: str) -> None:
    def read(text: str) -> None:
        with contextlib.suppress(ValueError):
            read_rubric(text)

    refuse_growth(read, LONG[name])


def test_a_rubric_of_just_the_most_items_is_read() -> None:
    most = rubric(*(f"Item {chr(65 + n % 26)}{n}x\n- 1: x" for n in range(MAX_ITEMS)))
    assert len(read_rubric(most).items) == MAX_ITEMS


def test_a_given_rubric_is_free_text_under_its_maximum() -> None:
    given = read_given("maximum: 5\nJudge it as a whole.\n- 5: perfect\n- -1: no level, since it is free text")
    assert (given.maximum, given.items) == (5, ())
    assert (
        given.text
        == given.text_for_scorers
        == "Judge it as a whole.\n- 5: perfect\n- -1: no level, since it is free text"
    )
    assert given.words == given.words_per_item == 17
    assert read_given(GOOD) == read_rubric(GOOD)
    for text in ("Judge it as a whole.", "maximum: five\nx", "maximum: 0\nx", "maximum: 5", "maximum: 1e9\nx"):
        with pytest.raises(ValueError, match="expected a"):
            read_given(text)


def test_rubrics_by_their_name_and_from_a_file(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    task = load_task("arithmetic").task
    assert task.starting_rubric("initial", "").maximum == 5
    with pytest.raises(ConfigError, match=r"^method.rubric: .* no rubric 'expert'; expected one of initial, or a file"):
        task.starting_rubric("expert", "")
    own = tmp_path / "own.md"
    own.write_text(GOOD)
    assert task.starting_rubric(str(own), "") == read_rubric(GOOD)
    own.write_text("Judge it as a whole.")
    with pytest.raises(ConfigError, match=r"own.md: cannot be used as a rubric: expected a first line 'maximum: N'"):
        task.starting_rubric(str(own), "")
    with pytest.raises(ConfigError, match=r"none.md: cannot be used as a rubric"):
        task.starting_rubric(str(tmp_path / "none.md"), "")
    # a folder of the user's prompts has further names
    (tmp_path / "rubric_initial.md").write_text("maximum: 3\n{{ subject }}")
    assert load_task("arithmetic", prompts=str(tmp_path)).task.starting_rubric("initial", "").text == "contest problem"
    # A run goes on in another folder by the same file.
    monkeypatch.chdir(tmp_path)
    for name, recorded in {"own.md": str(own), "initial": "initial"}.items():
        config = composed("method=grpo", "task=arithmetic")
        config["method"]["rubric"] = name
        assert with_absolute_paths(config)["method"]["rubric"] == recorded
