"""A tournament's page and tables: what they show, and that hostile names stay texts."""

import io
import re
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import numpy as np
import pytest
from drawn import panels_of
from markup import Page

from building import composed
from evorun.reports.comparison.reported import find_reported_elo
from evorun.reports.tournament import print_tournament, write_tournament_page
from evorun.runs.manifest import ModelInRun
from evorun.runs.records import write_json
from evorun.runs.schema import Metric, Spent
from evorun.runs.terminal import Terminal
from evorun.runs.tournaments import (
    Games,
    TournamentManifest,
    TournamentResults,
    bradley_terry,
    load_tournament_results,
    make_results,
)
from run_fixture import HOSTILE

pytestmark = pytest.mark.usefixtures("drawn_figures")


def played(names: list[str]) -> TournamentResults:
    """Return the results of players of whom each has beaten the next ones three times, and lost to them once."""
    rows = [(i, j, score) for i in range(len(names)) for j in range(i + 1, len(names)) for score in (1, 1, 0.5, 1, 0)]
    games = Games.of(rows)
    rated = [
        bradley_terry(len(names), games, initial=1000, resamples=20, longer=longer)
        for longer in (None, np.linspace(-1, 1, len(rows)))
    ]
    results = make_results(
        names, [games, Games.of(rows[::-1])], games, k=32, initial=1000, plain=rated[0], controlled=rated[1]
    )
    results.judgments, results.prompts, results.invalid = len(rows), 4, {"cut_off": 2, "rejected": 1}
    results.first_shown, results.cost = Metric(0.625, (0.5, 0.75), 40), Spent(1234, 5, 6)
    return results


def write(folder: Path, results: TournamentResults, text: str = "") -> Path:
    manifest = TournamentManifest(
        status="completed",
        started=f"then {text}",
        command=["evorun", "tournament", text],
        evorun_version="0",
        git_commit=None,
        packages={},
        hardware={},
        task=f"essay {text}",
        runs={one.name: f"javascript:{text}" for one in results.players},
        judge=ModelInRun(f"judge {text}", text, "server"),
        simulated=False,
        settings={"k": 4, "initial": 1000, text or "seed": text},
        config={},
        identity={},
    )
    write_json(folder / "tournament.json", manifest)
    write_json(folder / "results.json", results)
    return write_tournament_page(folder)


def printed(results: TournamentResults, width: int, *, simulated: bool = False) -> str:
    console = Terminal(file=io.StringIO(), width=width, force_terminal=False)
    print_tournament(results, console, simulated=simulated)
    return console.file.getvalue()  # type: ignore[attr-defined,no-any-return]


@pytest.mark.parametrize("width", [60, 200])
def test_page_and_terminal_show_the_same_figures(tmp_path: Path, width: int) -> None:
    results = played(["one", "two", "three"])
    page = " ".join(Page(write(tmp_path, results).read_text()).text.split())
    shown = printed(results, width)
    first = results.players[0]
    assert first.bradley_terry is not None
    for figure in (
        f"{first.elo:,.1f}",
        "6 / 2 / 2",  # of 10 matches
        "70.0 %",
        f"{first.bradley_terry.value:,.0f}",
        f"{first.bradley_terry.low:,.0f} to {first.bradley_terry.high:,.0f}",
        "70.0 % of 5",
    ):
        assert figure in page
        assert figure in shown
    for fact in (
        "62.5 % (95 % interval over prompts 50.0 to 75.0 %) of the decided judgments",
        "2 cut off, 1 rejected",
        "1,234 calls",
    ):
        assert fact in page
        assert fact in " ".join(shown.split())
    assert load_tournament_results(tmp_path) == results


def test_a_papers_elo_stands_beside_the_measured_one(tmp_path: Path) -> None:
    results = played(["one", "two"])
    assert "eported" not in write(tmp_path, results).read_text() + printed(results, 200)
    results.players[1].reported, results.players[1].reported_sd = 987.0, 13.5
    page, shown = " ".join(Page(write(tmp_path, results).read_text()).text.split()), printed(results, 200)
    for told in (page, " ".join(shown.split())):
        assert "987 13.5" in told
        assert "Reported: the paper's Elo of such a run" in told


def test_the_untrained_model_has_the_elo_of_the_tournament_that_it_is_in() -> None:
    """Table 1 of MPO, right: one untrained model, in the tournament of either reward model's runs."""
    reported = composed("experiment=mpo/essay")["reported"]

    def run(method: str, reward: str, **settings: Any) -> Any:
        models = {"policy": ModelInRun("qwen2_1_5b", "Qwen/x", "vllm")}
        config = {"method": {"name": method, **settings}, "reward": {"name": reward}, "reported": reported}
        return SimpleNamespace(models=models, method=method, task="essay", config=config)

    small, large = (
        [run("mpo", reward, refine_schedule="during"), run("ppo", reward, rubric="expert")]
        for reward in ("qwen2_5_32b_awq", "qwen2_5_72b_awq")
    )
    untrained = run("zero_shot", "policy")
    assert find_reported_elo(small[0], [small[1], untrained]) == (1168, 7)
    assert find_reported_elo(large[1], [large[0], untrained]) == (706, 12)
    assert find_reported_elo(run("mpo", "gpt_4o"), []) == (None, None)
    assert find_reported_elo(untrained, small) == (794, 11)
    assert find_reported_elo(untrained, large) == (889, 10)
    assert find_reported_elo(untrained, [*small, *large]) == (None, None)
    assert find_reported_elo(untrained, []) == (None, None)


def test_warnings_are_told(tmp_path: Path) -> None:
    results = played(["one", "two"])
    assert "of the judgments were invalid" in printed(results, 200)
    results.ended_early, results.invalid = "the budget ended it", {}
    shown = printed(results, 200, simulated=True)
    assert "The budget ended it." in shown
    assert "Simulated: no language model judged" in shown
    assert "invalid" not in shown


def test_hostile_names_stay_texts(tmp_path: Path) -> None:
    names = [f"{number} {text}" for number, text in enumerate(HOSTILE)]
    results = played([name.encode("utf-8", "replace").decode() for name in names])
    html = write(tmp_path, results, "".join(HOSTILE).encode("utf-8", "replace").decode()).read_text()
    page = Page(html)
    policy = next(a["content"] for t, a in page.elements if t == "meta" and "http-equiv" in a)
    assert policy is not None
    assert "default-src 'none'" in policy
    assert "script-src" not in policy
    assert {tag for tag, _ in page.elements}.isdisjoint({"script", "img", "iframe", "object", "base", "form", "b"})
    assert not [a for _, attributes in page.elements for a in attributes if a.startswith("on")]
    for tag, attributes in page.elements:
        for name in ("src", "href", "action", "srcset"):
            assert (attributes.get(name) or "#").startswith(("#", "data:")), (tag, name)
    assert not re.search(r"url\((?!#)", html)
    assert "\x00" not in html
    assert "\u202e" not in html
    assert "<script>window.pwned = 1</script>" in page.text
    shown = printed(results, 200)
    assert "\x1b" not in shown
    assert "[red]markup[/red] [/] $\\frac{" in shown


def test_ratings_are_drawn_with_their_intervals(tmp_path: Path) -> None:
    results = played(["one", "two", "three"])
    (panel,) = panels_of(write(tmp_path, results).read_text(), "Ratings of a tournament's runs with their intervals")
    wanted = []
    for row, one in enumerate(results.players):
        assert one.bradley_terry is not None
        assert one.equal_length is not None
        models = [(rating.value, rating.low, rating.high) for rating in (one.bradley_terry, one.equal_length)]
        spread = one.sd or 0
        rated = [(one.elo, one.elo - spread, one.elo + spread), *models]
        wanted += [(line, row + 0.2 * (line - 1), *ends) for line, ends in enumerate(rated)]
    assert len(wanted) == len(panel.bars) == 9
    marks = [line for line in panel.lines if len(line) == 3]
    for line, row, value, low, high in wanted:
        assert (value, row) in [pytest.approx(mark, rel=1e-3, abs=2e-3) for mark in marks[line]]
        assert (low, row, high, row) in [pytest.approx(bar, rel=1e-3, abs=2e-3) for bar in panel.bars]
