"""The comparison's tables in a terminal and its page's markup; test_report_chromium.py opens it in a browser."""

import dataclasses
import io
import re
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from comparison_fixture import write_method
from markup import Page
from scipy import stats

from evorun.errors import RunDirectoryError
from evorun.reports.comparison import compare, print_comparison, write_comparison
from evorun.reports.comparison.notes import WORDING
from evorun.reports.comparison.tables import make_main_table, make_scores_table
from evorun.reports.overview import load_outcome
from evorun.reports.run_tables import describe_repeated_scores
from evorun.reports.run_tables import make_scores_table as run_scores_table
from evorun.runs.terminal import Terminal
from run_fixture import HOSTILE

GOOD = [True] * 8 + [False] * 2
POOR = [True] * 3 + [False] * 7
REPORTED = {
    "source": "A paper, Figure 2",
    "note": "with its own model",
    "rows": [{"method": "duel_evolve", "accuracy": 0.94, "by_stratum": {"middle": 0.98}}],
}


@pytest.fixture(name="two")
def _two(tmp_path: Path) -> list[Path]:
    config = {"reported": REPORTED}
    return [
        write_method(tmp_path / "poor", POOR, calls={"generate": 1}, regime="demonstrations"),
        write_method(tmp_path / "good", GOOD, method="duel_evolve", steps=4, calls={"a": 2, "b": 300}, config=config),
    ]


def _printed(runs: list[Path], width: int = 200, *, terminal: bool = True, **options: Any) -> str:
    output = io.StringIO()
    console = Terminal(file=output, width=width, force_terminal=terminal, color_system=None)
    print_comparison(compare(runs, **options), runs[0].parent / "comparison.html", console)
    return output.getvalue()


def _rows(printed: str) -> list[str]:
    return [_plain(line) for line in printed.splitlines()]


def _plain(text: str) -> str:
    """Return a text with single spaces and signs that are on a keyboard."""
    return " ".join(text.replace("\u2212", "-").replace("\u2013", "none").split())


def test_the_terminal_shows_one_table_with_what_differs(two: list[Path]) -> None:
    rows = _rows(_printed(two))
    assert "task mathbench; model smollm2_135m; engine transformers; seed 0" in rows
    good = "duel_evolve 10 80.0 % 49.0 to 94.3 % problem_only 75.0 % 100.0 % 66.7 % 1,208 133 k 94.0 % -14.0 pp"
    poor = "zero_shot 10 30.0 % 10.8 to 60.3 % demonstrations 25.0 % 33.3 % 33.3 % 1 110 none none"
    assert [row for row in rows if row.startswith(("duel_evolve 10", "zero_shot 10 30"))] == [good, poor]
    assert f"Reported: A paper, Figure 2. with its own model. {WORDING}" in rows
    assert "duel_evolve middle 66.7 % 98.0 % -31.3 pp" in rows


def test_the_terminal_shows_the_pairs_and_how_they_were_made(two: list[Path]) -> None:
    rows = _rows(_printed(two))
    assert "Against duel_evolve, on the same problems" in rows
    (pair,) = [row for row in rows if row.startswith("zero_shot 10 -")]
    assert pair.startswith("zero_shot 10 -50.0 pp -80.0 to -20.0 pp 0 5 0.062 0.062 52.4 pp demonstrations, not")
    text = " ".join(rows)
    assert "1 comparison. Difference: accuracy of the run minus that of the reference" in text
    assert "chosen on these problems, which favours it" in text
    assert "favours" not in " ".join(_rows(_printed(two, against=two[1])))


@pytest.mark.usefixtures("without_figures")
def test_seeds_of_one_method_have_nothing_to_be_paired_with(tmp_path: Path) -> None:
    runs = [write_method(tmp_path / str(seed), GOOD, seed=seed) for seed in range(3)]
    for shown in (_printed(runs), _page(runs)):
        assert "not paired" not in shown
        assert "Against zero_shot" not in shown


def test_a_refused_pair_is_one_line(two: list[Path]) -> None:
    other = write_method(two[0].parent / "other", GOOD, method="gepa", task="livecodebench")
    assert "gepa is not paired: another task: livecodebench, not mathbench" in _rows(_printed([*two, other]))


@pytest.mark.nightly
@pytest.mark.usefixtures("without_figures")
def test_groups_stand_below_one_another_each_with_its_reference(tmp_path: Path) -> None:
    runs = [
        write_method(tmp_path / f"{task}_{method}", outcomes, method=method, task=task)
        for task in ("tsp", "sudoku")
        for method, outcomes in (("lyria", GOOD), ("gepa", POOR), ("zero_shot", POOR))
    ]
    rows = _rows(_printed(runs))
    assert "Against lyria, on the same problems with the same model" in rows
    start = next(i for i, row in enumerate(rows) if row.startswith("reference run n difference"))
    shown = [row.partition(" 10 -50.0 pp")[0] for row in rows[start + 2 : start + 7] if row]
    assert shown == ["lyria, tsp gepa, tsp", "zero_shot, tsp", "lyria, sudoku gepa, sudoku", "zero_shot, sudoku"]
    text = " ".join(rows)
    assert "adjusted for the 4 comparisons" in text
    assert "Each run is compared with the reference of its group" in text
    assert "the method that most others can be paired with" in text
    page = _plain(Page(_page(runs)).text)
    assert "lyria, sudoku gepa, sudoku 10 -50.0 pp" in page


def test_seeds_are_pooled_in_the_table_of_pairs(tmp_path: Path) -> None:
    runs = [
        write_method(tmp_path / f"{method}{seed}", outcomes, method=method, seed=seed)
        for seed in range(2)
        for method, outcomes in (("lyria", GOOD), ("gepa", POOR))
    ]
    rows = _rows(_printed(runs))
    (pooled,) = [row for row in rows if row.startswith("gepa 2 x 10 -")]
    # five of ten problems, each lost with both seeds, which agree: Student's t over the problems
    p = stats.ttest_1samp([-1] * 5 + [0] * 5, 0).pvalue
    assert pooled.startswith(f"gepa 2 x 10 -50.0 pp -90.0 to -10.0 pp -87.7 to -12.3 pp 0 10 {p:.3f} ")
    assert rows.index(pooled) < rows.index("pairs seed by seed")
    assert "With several seeds, each run is paired with the reference of its seed" in " ".join(rows)


def test_cost_is_shown_by_whatever_roles_there_are(two: list[Path]) -> None:
    rows = _rows(_printed(two))
    assert "duel_evolve a 8 800 80" in rows
    assert "b 1,200 120,000 12,000" in rows
    assert "total 1,208 120,800 12,080" in rows
    assert "zero_shot generate 1 100 10" in rows


@pytest.mark.sample(1)
@pytest.mark.parametrize("width", [60, 100])
def test_no_figure_is_cut_in_a_narrow_terminal(two: list[Path], width: int) -> None:
    printed = _printed(two, width)
    assert "\u2026" not in printed
    for figure in ("49.0 to 94.3 %", "-80.0 to -20.0 pp", "1,208", "100.0 %", "demonstrations"):
        assert figure in _plain(printed)


def test_a_file_gets_the_whole_table_in_one_line_each(two: list[Path], monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delenv("COLUMNS", raising=False)
    lines = _printed(two, 80, terminal=False).splitlines()
    (line,) = [line for line in lines if line.split()[:2] == ["duel_evolve", "10"]]
    assert " 1,208 " in line
    assert line.rstrip().endswith("14.0 pp")


def test_hostile_names_cannot_steer_the_terminal(tmp_path: Path) -> None:
    runs = [
        write_method(tmp_path / str(i), GOOD, method=text, regime=text, calls={text: 1})
        for i, text in enumerate(HOSTILE[6:8] + HOSTILE[10:11])
    ]
    printed = _printed(runs)
    assert not {"\x1b[31m", "\x07", "\x00", "\u202e"} & {
        printed[i : i + n] for n in (1, 5) for i in range(len(printed))
    }
    assert "[red]markup[/red] [/] $\\frac{" in printed


def _page(runs: list[Path], target: Path | None = None) -> str:
    return write_comparison(compare(runs), target or runs[0].parent / "comparison.html").read_text("utf-8")


@pytest.mark.usefixtures("without_figures")
def test_the_page_shows_what_the_terminal_shows(two: list[Path]) -> None:
    html = _page(two)
    text = _plain(Page(html).text)
    for figure in (
        "duel_evolve 10 80.0 % 49.0 to 94.3 % problem_only 75.0 % 100.0 % 66.7 % 1,208 133 k 94.0 % -14.0 pp",
        "zero_shot 10 -50.0 pp -80.0 to -20.0 pp 0 5 0.062 0.062 52.4 pp demonstrations, not problem_only",
        f"Reported: A paper, Figure 2. with its own model. {WORDING}",
        "duel_evolve middle 66.7 % 98.0 % -31.3 pp",
        "Final accuracy",
        "By generation",
        "Against model calls",
        "Against tokens",
    ):
        assert figure in text
    labels = [a["aria-label"] for tag, a in Page(html).elements if tag == "svg" and a.get("aria-label")]
    assert len(labels) == 5  # the last, of arms that none dominates, since two methods differ in cost
    assert _page(two) == html


def test_the_page_runs_nothing_and_loads_nothing(tmp_path: Path, draw_only: Callable[..., None]) -> None:
    draw_only("final-*", "front-*", "accuracy-calls*")  # the other curves have the same names
    task = " ".join(HOSTILE)  # each task has figures, which take time
    runs = [
        write_method(tmp_path / f"javascript:{i} <b>'\"", GOOD, method=text, task=task, regime=text, error=text)
        for i, text in enumerate(HOSTILE)
    ]
    html = _page(runs)
    page = Page(html)
    policy = next(a["content"] for t, a in page.elements if t == "meta" and "http-equiv" in a)
    assert policy is not None
    assert "default-src 'none'" in policy
    assert "script-src" not in policy
    assert {tag for tag, _ in page.elements}.isdisjoint({"script", "img", "iframe", "object", "base", "form", "b"})
    assert not [a for _, attributes in page.elements for a in attributes if a.startswith("on")]
    for tag, attributes in page.elements:
        for name in ("src", "href", "action", "srcset"):
            value = attributes.get(name) or "#"
            assert value.startswith(("#", "data:", "./")), (tag, name, value)
    assert not re.search(r"url\((?!#)", html)
    assert "\x00" not in html
    assert "<script>window.pwned = 1</script>" in page.text


def test_a_narrow_page_has_the_names_of_lines_beside_their_marks(two: list[Path]) -> None:
    page = write_comparison(compare(two), two[0].parent / "comparison.html").read_text()
    legend = page.partition('<ul class="legend">')[2].partition("</ul>")[0]
    names = re.findall(r"<li>.*?</span>([^<]+)</li>", legend, re.DOTALL)
    assert names == ["duel_evolve", "zero_shot"]
    assert legend.count("<svg") == 2


@pytest.mark.nightly
@pytest.mark.usefixtures("without_figures")
def test_links_lead_to_the_runs_own_pages(two: list[Path], tmp_path: Path) -> None:
    (tmp_path / "else where").mkdir()
    for target in (tmp_path / "comparison.html", tmp_path / "else where" / "c.html"):
        links = [str(a["href"]) for tag, a in Page(_page(two, target)).elements if tag == "a"]
        found = {(target.parent / link).resolve() for link in links if not link.startswith("data:")}
        assert found == {(run / "report.html").resolve() for run in two}


def test_runs_without_any_figure_still_have_a_page(tmp_path: Path) -> None:
    runs = [write_method(tmp_path / name, GOOD, method=name, ended=0) for name in "ab"]
    assert "b is not paired: no problem has ended in both yet" in " ".join(Page(_page(runs)).text.split())
    assert "Comparison" in _printed(runs)


def test_a_page_that_cannot_be_written_is_one_clear_error(two: list[Path], tmp_path: Path) -> None:
    with pytest.raises(RunDirectoryError, match=r"cannot write .*nowhere/c\.html: No such file"):
        _page(two, tmp_path / "nowhere" / "c.html")


@pytest.fixture(name="scored")
def _scored(tmp_path: Path) -> list[Path]:
    rows = [{"method": "lyria", "model": "smollm2_135m", "accuracy": 0.04, "metrics": {"penalised_score": 95.0}}]
    config = {"reported": {"source": "A paper, Table 1", "rows": rows}}
    good, poor = [100.0, 90.0, 80.0, 95.0, 85.0, 70.0], [50.0, 40.0, 80.0, 35.0, 25.0, 70.0]
    return [
        write_method(
            tmp_path / method, [False] * 6, method=method, steps=3, config=config,
            scores={"penalised_score": scores, "missing_cities": [0, 1, 2, 0, 1, 2]},
            declared=[
                {"name": "accuracy", "low": 0, "high": 1, "rate": True},
                {"name": "penalised_score", "low": 0, "high": 100},
            ],
        )
        for method, scores in (("lyria", good), ("best_of_n", poor))
    ]  # fmt: skip


def test_scores_have_columns_intervals_reported_figures_and_pairs(scored: list[Path]) -> None:
    rows = _rows(_printed(scored))
    (main,) = [row for row in rows if row.startswith("lyria 6")]
    assert " 86.7 1.00 " in main
    scores = [row for row in rows if row.startswith(("lyria penalised", "missing cities 1.00 "))]
    assert re.fullmatch(r"lyria penalised score \(scale 0 to 100\) 86\.7 7\d\.\d to 9\d\.\d 6 95\.0 -8\.33", scores[0])
    assert re.fullmatch(r"missing cities 1\.00 0\.\d+ to 1\.\d+ 6 none none", scores[1])
    (pair,) = [row for row in rows if row.startswith("best_of_n penalised score 6 ")]
    assert re.fullmatch(r"best_of_n penalised score 6 -36\.7 -5\d\.\d to -1\d\.\d 0 4", pair)
    assert "missing cities 6 0 none 0 0" in rows
    text = " ".join(rows)
    assert "the highest accuracy, then the highest penalised score. It was chosen on these problems" in text
    assert "whichever is better" in text


def test_reported_figures_name_their_model_where_the_runs_do_not(scored: list[Path]) -> None:
    comparison = compare(scored)
    simulated = [dataclasses.replace(row, facts={**row.facts, "model": "simulated"}) for row in comparison.rows]
    for rows, heading in ((comparison.rows, "reported"), (simulated, "reported\n(smollm2_135m)")):
        for table in (make_main_table(comparison, rows, [], []), make_scores_table(rows)):
            assert table.headings[-2:] == [heading, "difference"]


def test_scores_are_not_cut_in_a_narrow_terminal(scored: list[Path]) -> None:
    printed = _printed(scored, 80)
    assert "\u2026" not in printed
    assert re.search(r"lyria penalised (score )?(\(scale )?86\.7 7\d\.\d to 9\d\.\d 6 95\.0 -8\.33", _plain(printed))


@pytest.mark.usefixtures("without_figures")
def test_the_page_shows_scores_and_draws_them(scored: list[Path]) -> None:
    html = _page(scored)
    page = Page(html)
    text = _plain(page.text)
    assert re.search(r"lyria penalised score \(scale 0 to 100\) 86\.7 7\d\.\d to 9\d\.\d 6 95\.0 -8\.33", text)
    assert re.search(r"best_of_n penalised score 6 -36\.7 -5\d\.\d to -1\d\.\d 0 4", text)
    labels = [a["aria-label"] for tag, a in page.elements if tag == "svg" and a.get("aria-label")]
    assert [label for label in labels if label and "enalised" in label] == [
        "Final penalised score on mathbench",
        "Penalised score on mathbench against generation",
        "Penalised score on mathbench against calls per problem",
        "Penalised score on mathbench against tokens per problem",
    ]
    assert [label for label in labels if label and "cities" in label] == [
        "Missing cities on mathbench against generation"
    ]


@pytest.mark.nightly
def test_a_score_that_stays_where_it_is_has_a_line_and_no_figure(tmp_path: Path) -> None:
    moving, flat = [10.0, 90.0, 50.0, 70.0, 30.0, 100.0], [0.0, 12.0, 0.0, 12.0, 0.0, 0.0]
    names = ("penalised_score", "style", "length")
    runs = [
        write_method(
            tmp_path / method, [False] * 6, method=method, steps=3,
            scores={"penalised_score": moving, "style": flat, "length": moving[::-1]},
            declared=[{"name": "accuracy", "low": 0, "high": 1, "rate": True},
                      *({"name": name, "low": 0, "high": 100} for name in names)],
        )
        for method in ("lyria", "best_of_n")
    ]  # fmt: skip
    page = Page(_page(runs))
    labels = " ".join(str(a.get("aria-label")) for tag, a in page.elements if tag == "svg")
    assert "Length on mathbench against generation" in labels
    assert "Style" not in labels
    assert _plain(page.text).count("style (scale 0 to 100) 4.00 ") == 2


@pytest.mark.usefixtures("drawn_figures")
def test_hostile_score_names_stay_texts(tmp_path: Path) -> None:
    names = [*HOSTILE[:4], HOSTILE[6], HOSTILE[10]]  # each has a figure, which takes time
    runs = [
        write_method(tmp_path / m, [False] * 4, method=m, steps=2, scores={name: [1.0, 2.0, i, 5.0] for name in names})
        for i, m in enumerate(("a", "b"))
    ]
    page = Page(_page(runs))
    assert {tag for tag, _ in page.elements}.isdisjoint({"script", "img", "iframe", "object", "base", "form", "b"})
    assert not [a for _, attributes in page.elements for a in attributes if a.startswith("on")]
    assert "\x1b[31m" not in _printed(runs)


def test_a_score_that_repeats_another_is_left_out_and_named(tmp_path: Path) -> None:
    overlaps = [0.1, 0.25, 0.5, 0.75]
    scores = {"rougeL": overlaps, "rougeLsum": overlaps, "format": [1, 1, 1, 0], "style": [1, 1, 1, 0]}
    declared = [{"name": "accuracy", "low": 0, "high": 1, "rate": True}, *({"name": name} for name in scores)]
    runs = [
        write_method(tmp_path / method, [True] * 4, method=method, scores=scores, declared=declared)
        for method in ("gepa", "zero_shot")
    ]
    compared = compare(runs)
    tables = (make_scores_table(compared.rows, compared.omitted_scores), run_scores_table(load_outcome(runs[0])))
    assert [{row[1] for row in table.rows} for table in tables] == [{"rougeL", "format", "style"}] * 2
    left_out = "Left out, since equal to another score on each problem: rougeLsum (as rougeL)."
    assert left_out in compared.remarks
    outcomes = [run.outcome for run in compared.runs]
    beside = "Shown only beside reported figures, since equal to another score on each problem: rougeLsum (as rougeL)."
    assert describe_repeated_scores(outcomes, {"rougeLsum"}) == beside
    runs = [
        write_method(
            tmp_path / f"{method} constant", [True] * 4, method=method, scores={"format": [1] * 4, "style": style}
        )
        for method, style in (("gepa", [1] * 4), ("zero_shot", [0] * 4))
    ]
    compared = compare(runs)
    assert {row[1] for row in make_scores_table(compared.rows, compared.omitted_scores).rows} == {"style"}
    assert "Left out, since the same on all problems of all runs: format (1.00)." in compared.remarks
    assert tables[1].caption.startswith(left_out)


def test_an_arm_with_scores_at_both_ends_alone_is_named(tmp_path: Path) -> None:
    declared = [{"name": "style", "low": 0, "high": 10}]
    ends, between = [0.0] * 3 + [10.0] * 5, [0.0] * 3 + [5.0] * 5

    def remarks(*arms: list[float]) -> list[str]:
        folder = tmp_path / str(len(list(tmp_path.iterdir())))
        runs = [
            write_method(folder / f"m{i}", [False] * 8, method=f"m{i}", scores={"style": values}, declared=declared)
            for i, values in enumerate(arms)
        ]
        return [line for line in compare(runs).remarks if "ends of the range" in line]

    said = "5 of 8 scores in style are 10.0 and the others 0, the ends of the range; other arms have scores between."
    assert remarks(ends, between) == [f"m0: {said}"]
    assert remarks(ends, ends) == []
    assert remarks([10.0] * 8, between) == []
    assert remarks(between, between) == []
