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


@pytest.mark.parametrize("terminal", [True, False])
def test_a_table_that_is_too_wide_keeps_ids_figures_and_headings_whole(*, terminal: bool) -> None:
    table = Table("problem", "what became of it")
    table.add_column("95 % interval", justify="right")
    identity = "high_school/algebra-0000000001/variant-2"
    table.add_row(identity, Text("as many words as a line has no room for"), "12.3 to 45.6 %")
    printed = io.StringIO()
    Terminal(file=printed, width=30, force_terminal=terminal, color_system=None).print_table(table)
    for whole in (identity, "12.3 to 45.6 %", "95 % interval"):
        assert whole in printed.getvalue()
    assert ("as many words as a line has no room for" in printed.getvalue()) != terminal


def test_a_table_without_rows_is_not_printed() -> None:
    printed = io.StringIO()
    Terminal(file=printed).print_table(Table("problem"))
    assert printed.getvalue() == ""
