"""Scores on a run's page: the table, the curves, and what the browser of candidates carries."""

import json
import re
from html.parser import HTMLParser
from pathlib import Path

import pytest
from comparison_fixture import edit_manifest, write_method

from evorun.reports import write_report
from evorun.reports.browser import load_browser
from evorun.reports.comparison import compare, write_comparison
from evorun.reports.overview import load_curves, load_outcome
from evorun.runs.aggregates import count_aggregates
from evorun.runs.reading import read_steps_without_texts
from evorun.runs.scores import ACCURACY
from run_fixture import HOSTILE, RunSpec, write_run

SCORES = {"penalised_score": [100.0, 20.0, 60.0], "missing_cities": [0.0, 3.0, 1.0]}
DECLARED = [
    {"name": "accuracy", "low": 0, "high": 1, "rate": True},
    {"name": "penalised_score", "low": 0, "high": 100},
]


class _Page(HTMLParser):
    """Collects texts and the elements' attributes with Python's own parser."""

    def __init__(self, html: str) -> None:
        super().__init__()
        self.text = ""
        self.tags: set[str] = set()
        self.labels: list[str] = []
        self.feed(html)

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        self.tags.add(tag)
        self.labels += [value or "" for name, value in attrs if name == "aria-label"]

    def handle_data(self, data: str) -> None:
        self.text += data + " "


def _page(run: Path) -> _Page:
    return _Page(write_report(run).read_text("utf-8"))


def test_the_page_has_a_table_and_curves_of_the_scores(tmp_path: Path) -> None:
    page = _page(write_method(tmp_path / "run", [False] * 3, steps=4, scores=SCORES, declared=DECLARED))
    text = " ".join(page.text.split())
    assert re.search(
        r"Penalised score \(scale 0 to 100\) 60\.0 95 % interval \d+\.\d to \d+(\.\d)?; n = 3", text
    )  # the tile
    assert re.search(r"all penalised score \(scale 0 to 100\) 60\.0 \d+\.\d to \d+(\.\d)? 3", text)
    assert [label for label in page.labels if "core" in label] == [
        "Penalised score against generation",
        "Penalised score against calls per problem",
        "Penalised score against tokens per problem",
        "Scores by generation",
    ]
    assert (
        "penalised score (scale 0 to 100) 1 30.0 " in text
    )  # the numbers behind the curve: half of the way after two steps of four


def test_a_page_without_scores_does_not_mention_them(tmp_path: Path) -> None:
    page = _page(write_method(tmp_path / "run", [True, False, True], steps=2))
    assert "Scores" not in page.text
    assert not [label for label in page.labels if "core" in label]


def test_scores_of_other_names_have_a_panel_each(tmp_path: Path) -> None:
    page = _page(write_method(tmp_path / "run", [False] * 3, steps=2, scores={"tour_length": [7.0, 8.0, 9.5]}))
    assert [label for label in page.labels if "core" in label] == ["Scores by generation"]
    assert "tour length" in page.text


def test_the_curves_of_an_unfinished_run_are_counted_from_its_steps(tmp_path: Path) -> None:
    run = write_method(tmp_path / "run", [False] * 3, steps=2, ended=2, scores=SCORES)
    curves = load_curves(load_outcome(run), read_steps_without_texts(run))
    assert curves.from_steps
    assert [point.value for point in curves.scores["penalised_score"]] == [30.0, 60.0]
    (run / "predictions.jsonl").write_text("")  # none has ended
    assert [
        point.value for point in load_curves(load_outcome(run), read_steps_without_texts(run)).scores["missing_cities"]
    ] == [
        0.75,
        1.5,
    ]


@pytest.mark.usefixtures("drawn_figures")
def test_hostile_score_names_stay_texts(tmp_path: Path) -> None:
    names = [HOSTILE[0], HOSTILE[3], HOSTILE[10]]  # each has a figure, which takes time
    page = _page(write_method(tmp_path / "run", [False] * 3, steps=2, scores={name: [1.0, 2.0, 4.0] for name in names}))
    assert page.tags.isdisjoint({"img", "iframe", "object", "base", "form"})
    assert "<script>window.pwned = 1</script>" in page.text


def test_the_browser_carries_scores_fitness_and_errors(tmp_path: Path) -> None:
    run = write_run(tmp_path / "run", RunSpec(problems=1, candidates=3, duels=0))
    plain, scored, long = [json.loads(line) for line in (run / "candidates.jsonl").open()]
    scored |= {"scores": {"score": 12.5}, "fitness": 12.5, "errors": "row 3 repeats 7"}
    long |= {"errors": "e" * 5000}
    (run / "candidates.jsonl").write_text("".join(json.dumps(record) + "\n" for record in (plain, scored, long)))
    figures = count_aggregates(run, ACCURACY)
    (problem,) = load_browser(
        run, load_outcome(run).predictions, read_steps_without_texts(run), figures.by_problem, ACCURACY
    )
    shown = json.loads(problem.packed.json)["candidates"]
    assert [(c["scores"], c["fitness"], c["errors"]) for c in shown[:2]] == [
        ({}, None, ""),
        ({"score": 12.5}, 12.5, "row 3 repeats 7"),
    ]
    assert shown[2]["errors"][4000:] == " … [1,000 characters cut]"


@pytest.mark.sample(2)
@pytest.mark.parametrize(
    ("last", "half", "drawn"),
    [(1.0, 0.3, True), (0.58, 0.03, True), (0.58, 0.3, False), (0.5, None, False)],
    ids=["rises", "little but surely", "within its intervals", "constant"],
)
def test_a_secondary_score_that_is_flat_is_a_line_in_the_table(
    tmp_path: Path, last: float, half: float | None, drawn: bool
) -> None:
    declared = [{"name": "accuracy", "rate": True, "low": 0, "high": 1}, {"name": "form", "low": 0, "high": 1}]
    runs = [
        write_method(tmp_path / method, [True] * 8, method=method, declared=declared, scores={"form": [0.0, 1.0] * 4})
        for method in ("gepa", "lyria")
    ]
    points = [
        {
            "step": step, "name": name, "value": value, "n": 8, "calls": 1 + step, "tokens": 9,
            "ci95": None if half is None else [value - half, value + half],
        }
        for name in ("accuracy", "form")
        for step, value in enumerate((0.5, last))
    ]  # fmt: skip
    for run in runs:
        (run / "metrics.jsonl").write_text("".join(json.dumps(point) + "\n" for point in points))
        edit_manifest(run, files={})
    pages = [_page(runs[0]), _Page(write_comparison(compare(runs), tmp_path / "both.html").read_text())]
    for page in pages:
        assert any("Form" in label and "against" in label for label in page.labels) == drawn
        assert any("Accuracy" in label for label in page.labels)
        assert "form (scale 0 to 1)" in page.text
    assert ("Flat curves (with overlapping intervals) are not drawn: form" in " ".join(pages[0].text.split())) != drawn
