"""Texts with the marks of Rich's markup, along every path that prints: shown as they are, and none is a traceback."""

import ast
import io
from collections.abc import Callable, Iterable
from pathlib import Path
from typing import Any

import pytest
from rich.console import Group
from rich.live import Live
from rich.table import Table
from rich.text import Text

import evorun
from evorun.cli import calibrating, doctor, exporting, graded, listing, studies
from evorun.cli.output import print_error
from evorun.cli.trust import require_trust
from evorun.reports import tables
from evorun.reports.evolution.section import make_principles_table
from evorun.runner import registry
from evorun.runs.calibration import Estimate
from evorun.runs.effects import Traffic
from evorun.runs.progress import Progress, show_progress
from evorun.runs.schema import PrincipleEffect, RubricScore
from evorun.runs.scores import ACCURACY
from evorun.runs.terminal import Terminal
from evorun.traces.counts import Counts, Tally

MARKED = "[/x] in [a, b] [link=y]z :bug:"


def test_the_console_shows_a_text_in_every_place_as_it_is() -> None:
    printed = io.StringIO()
    terminal = Terminal(file=printed, width=300, force_terminal=True, color_system=None)
    table = Table(MARKED, title=MARKED, caption=MARKED)
    table.add_column(MARKED, footer=MARKED)
    table.add_row(MARKED, Text(MARKED))
    terminal.print(table, Group(MARKED, Text(MARKED)), MARKED, style="bold", soft_wrap=True)
    terminal.rule(MARKED)
    terminal.log(MARKED)
    with Live(MARKED, console=terminal):
        pass
    assert printed.getvalue().count(MARKED) >= 11
    assert "\x1b]8;" not in printed.getvalue()  # a link


def test_there_is_no_other_console() -> None:
    for path in Path(evorun.__file__).parent.rglob("*.py"):
        source = path.read_bytes()
        if b"rich" not in source and b"_markup" not in source:
            continue  # to parse all of the package takes a second
        tree = ast.parse(source)
        imported = {
            f"{node.module}.{name.name}"
            for node in ast.walk(tree)
            if isinstance(node, ast.ImportFrom)
            for name in node.names
        }
        if path.name != "terminal.py" or path.parent.name != "runs":
            assert not imported & {"rich.console.Console", "rich.print", "rich.get_console"}, path
        assert not {name for name in imported if name.startswith("rich.markup")}, path
        named = {node.attr for node in ast.walk(tree) if isinstance(node, ast.Attribute)}
        assert not named & {"from_markup", "render_markup"}, path


def _graded() -> Iterable[tables.Table]:
    response = graded.GradedResponse(MARKED, 0, None, True, {"accuracy": 1.0, MARKED: 0.5}, "", None, MARKED)
    return graded.make_tables([response], [ACCURACY], MARKED)


def _errors(_terminal: Terminal, _monkeypatch: pytest.MonkeyPatch) -> None:
    print_error(MARKED)


def _displays(terminal: Terminal, _monkeypatch: pytest.MonkeyPatch) -> None:
    for mode in ("auto", "plain"):
        with show_progress(Progress(MARKED, 1, 1, Traffic(), ACCURACY, about={MARKED: MARKED}), terminal, mode):
            pass


def _findings(terminal: Terminal, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(doctor, "findings", lambda: [doctor.Finding(MARKED, False, MARKED, MARKED)])
    doctor.print_findings(terminal)


def _listed(terminal: Terminal, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(registry, "methods", lambda: {MARKED: type("", (), {"description": MARKED})})
    monkeypatch.setattr(listing, "_pairs", lambda: Table(MARKED))
    listing.print_listing(["methods"], terminal)


def _foreign(terminal: Terminal, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("evorun.cli.trust.is_own", lambda _: False)
    manifest: Any = None
    Path(MARKED).mkdir(parents=True)
    require_trust(Path(MARKED), manifest, {"method": {MARKED: MARKED}}, terminal, given=True)


PRINTED: dict[str, Callable[[], tables.Table | Iterable[tables.Table]]] = {
    "delete-one": lambda: make_principles_table(
        [PrincipleEffect(principle=MARKED, effect=0.1, low=0.0, high=0.2, n=3)], ACCURACY
    ),
    "rescore": lambda: studies._make_strictness_table(
        [RubricScore(rubric=MARKED, refined=0, step=0, score=0.5, low=None, high=None, n=1, unscored=0)]
    ),
    "grade": _graded,
    "traces": lambda: exporting._make_table(
        Counts(
            kind="laft",
            top=None,
            parsed_only=False,
            total=Tally(1, 1, {}),
            by_operator={MARKED: Tally(1, 1, {})},
            runs=[],
        )
    ),
    "calibrate": lambda: calibrating._make_table([Estimate("skill", 0.5, None, 3, MARKED, 2)]),
}


@pytest.mark.parametrize("verb", PRINTED)
def test_a_verbs_tables_show_foreign_texts(verb: str) -> None:
    printed = io.StringIO()
    made = PRINTED[verb]()
    for table in [made] if isinstance(made, tables.Table) else made:
        Terminal(file=printed, width=300).print(table.to_rich())
    assert MARKED in printed.getvalue()


@pytest.mark.parametrize("path", [_errors, _displays, _findings, _listed, _foreign])
def test_what_is_printed_beside_tables_shows_foreign_texts(
    path: Callable[..., None], tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.chdir(tmp_path)
    path(Terminal(width=300), monkeypatch)
    printed = capsys.readouterr()
    assert MARKED in printed.out + printed.err
