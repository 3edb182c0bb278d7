"""Foreign texts on a terminal and in a log."""

import io
import logging
import unicodedata

import pytest
from rich.table import Table
from rich.text import Text

from evorun.runs.printable import printable
from evorun.runs.terminal import LogFormatter, Terminal

STEERING = "a\x1b[2J\x9b31m\u202eb"


def test_what_is_printed_steers_nothing_and_styles_stay() -> None:
    output = io.StringIO()
    terminal = Terminal(file=output, force_terminal=True, color_system="standard", width=60)
    table = Table(title=Text(STEERING), caption=STEERING)
    table.add_column(Text(STEERING))
    table.add_row(Text(STEERING, style="red"))
    terminal.print(table)
    terminal.print(STEERING, Text(STEERING))
    terminal.rule(STEERING)
    assert "\x1b[2J" not in output.getvalue()
    assert not {"\x9b", "\u202e"} & set(output.getvalue())
    assert "a\u241b[2J\ufffd31m\ufffdb" in output.getvalue()
    assert "\x1b[31m" in output.getvalue()  # the cell's own red


def test_of_all_marks_those_that_turn_the_direction_are_replaced() -> None:
    turning = {"LRE", "RLE", "LRO", "RLO", "PDF", "LRI", "RLI", "FSI", "PDI"}
    for mark in map(chr, range(0x2000, 0x2100)):
        steers = (
            unicodedata.bidirectional(mark) in turning or mark in "\u200e\u200f"
        )  # left-to-right mark, and its twin
        assert printable(mark) == ("\ufffd" if steers else mark)


def test_what_is_logged_steers_nothing() -> None:
    try:
        raise ValueError(STEERING)
    except ValueError as error:
        record = logging.LogRecord("evorun", logging.ERROR, "", 0, "%s", (STEERING,), (ValueError, error, None))
    line = LogFormatter("%(message)s").format(record)
    assert line.splitlines()[0] == "a\u241b[2J\ufffd31m\ufffdb"
    assert line.count("\u241b") == 2
    assert "\x1b" not in line


def test_a_sentence_in_a_file_is_whole_and_stands_apart_from_the_title_below(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delenv("COLUMNS", raising=False)
    output, sentence = io.StringIO(), "a sentence that takes more than forty columns, and then some"
    terminal = Terminal(file=output, width=40)
    table = Table("n", title="figures", box=None)
    table.add_row("1")
    terminal.print(sentence)
    terminal.print_table(table)
    terminal.print_table(table)
    assert [line.strip() for line in output.getvalue().splitlines()] == [sentence, "", *["figures", "n", "1"] * 2]


@pytest.mark.parametrize(("columns", "lines"), [(None, 1), ("40", 3)])
def test_a_table_in_a_file_is_whole_unless_columns_limits_it(
    columns: str | None, lines: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.delenv("COLUMNS", raising=False)
    if columns:
        monkeypatch.setenv("COLUMNS", columns)
    table = Table("run", "model", box=None, show_header=False)
    table.add_row("a b", "as many words as a line of forty characters has no room for, and more")
    printed = io.StringIO()
    Terminal(file=printed).print_table(table)
    assert len(printed.getvalue().splitlines()) == lines
    assert " \n" not in printed.getvalue()


@pytest.mark.parametrize("terminal", [True, False])
def test_a_table_that_is_too_wide_keeps_ids_figures_and_headings_whole(
    *, terminal: bool, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.delenv("COLUMNS", raising=False)
    table = Table("problem", "what became of it")
    table.add_column("95 % interval", justify="right")
    identity = "high_school/algebra-01"
    table.add_row(identity, Text("as many words as a line has no room for"), "12.3 to 45.6 %")
    printed = io.StringIO()
    Terminal(file=printed, width=50, force_terminal=terminal, color_system=None).print_table(table)
    for whole in (identity, "12.3 to 45.6 %", "95 % interval"):
        assert whole in printed.getvalue()
    assert ("as many words as a line has no room for" in printed.getvalue()) != terminal


@pytest.mark.parametrize("width", [30, 60, 80, 200])
def test_columns_without_room_stand_below_beside_the_names_again(width: int) -> None:
    table = Table(title="scores", box=None, caption="as measured")
    headings = [f"figure {letter}" for letter in "ABCDEFGH"]
    table.add_column("run")
    for heading in headings:
        table.add_column(heading, justify="right")
    rows = [(name, [f"{number}.{column} to 99.9 %" for column in range(8)]) for number, name in enumerate(["x", "y y"])]
    for name, figures in rows:
        table.add_row(name, *figures)
    printed = io.StringIO()
    Terminal(file=printed, width=width, force_terminal=True, color_system=None).print_table(table)
    lines = printed.getvalue().splitlines()
    assert max(map(len, lines)) <= width
    heads = [line.split("figure")[1:] for line in lines if line.strip().startswith("run")]
    assert [letter.strip() for head in heads for letter in head] == list("ABCDEFGH")
    for name, figures in rows:
        shown = [line.strip().removeprefix(name).split("%")[:-1] for line in lines if line.strip().startswith(name)]
        assert [f"{cell.strip()} %" for part in shown for cell in part] == figures
    assert printed.getvalue().count("scores (continued)") == len(heads) - 1 == (width < 200) * (len(heads) - 1)
    assert printed.getvalue().count("as measured") == 1


def test_a_name_without_room_is_folded_not_cut() -> None:
    table = Table("run", box=None)
    table.add_column("calls", justify="right")
    table.add_row("outputs/" + "x" * 40, "1,234")
    printed = io.StringIO()
    Terminal(file=printed, width=30, force_terminal=True, color_system=None).print_table(table)
    assert max(map(len, printed.getvalue().splitlines())) <= 30
    assert printed.getvalue().count("x") == 40
    assert "1,234" in printed.getvalue()


def test_a_table_without_rows_is_not_printed() -> None:
    printed = io.StringIO()
    Terminal(file=printed).print_table(Table("problem"))
    assert printed.getvalue() == ""


def test_no_column_stands_alone_in_a_continued_table() -> None:
    table = Table("run")
    for heading in ("accuracy", "95 % interval", "over seeds", "information"):
        table.add_column(heading, justify="right")
    table.add_row("zero_shot", "37.8 %", "0.0 to 77.6 %", "0.2 to 75.4 %", "problem_only")
    terminal = Terminal(file=io.StringIO(), width=68, force_terminal=True, color_system=None)
    parts = [[str(column.header) for column in part.columns] for part in terminal.fit_table(table)]
    assert parts == [["run", "accuracy", "95 % interval"], ["run", "over seeds", "information"]]
