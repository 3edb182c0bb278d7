"""The page's markup, without a browser; tests/reports/test_report_chromium.py opens it in one."""

import base64
import csv
import hashlib
import json
import re
import subprocess
import sys
from collections.abc import Callable
from html.parser import HTMLParser
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from comparison_fixture import write_method
from drawn import panels_of

from evorun.errors import RunDirectoryError
from evorun.reports import write_report
from evorun.reports.facts import mark_origins
from evorun.reports.html import make_report
from evorun.runs.results import write_results
from evorun.runs.scores import ACCURACY
from run_fixture import HOSTILE, RunSpec, write_run


class _Page(HTMLParser):
    """Collects elements and text with Python's own parser."""

    def __init__(self, html: str) -> None:
        super().__init__()
        self.elements: list[tuple[str, dict[str, str | None]]] = []
        self.scripts: list[str] = []
        self.text = ""
        self._script = False
        self.feed(html)

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        self.elements.append((tag, dict(attrs)))
        self._script = tag == "script" and "type" not in dict(attrs)

    def handle_endtag(self, tag: str) -> None:
        self._script = False

    def handle_data(self, data: str) -> None:
        if self._script:
            self.scripts.append(data)
        self.text += data


def _render(tmp_path: Path, spec: RunSpec | None = None) -> str:
    return write_report(write_run(tmp_path / "run", spec)).read_text("utf-8")


SOME = ("accuracy-strata", "calibration")
"""Figures that are drawn."""


@pytest.fixture(name="drawn", scope="module")
def _drawn(tmp_path_factory: pytest.TempPathFactory, drawing_only: Callable[..., Any]) -> Path:
    """Return a run with its page, for tests that only read: drawing takes a second."""
    run = write_run(tmp_path_factory.mktemp("drawn") / "run")
    with drawing_only(*SOME):
        write_report(run)
    return run


@pytest.fixture(name="hostile", scope="module")
def _hostile(tmp_path_factory: pytest.TempPathFactory, drawing_only: Callable[..., Any]) -> str:
    manifest = {"error": "".join(HOSTILE), "command": list(HOSTILE), "method": HOSTILE[1], "task": HOSTILE[2]}
    with drawing_only("accuracy-strata"):
        return _render(tmp_path_factory.mktemp("hostile"), RunSpec(hostile=True, strata=HOSTILE, manifest=manifest))


def test_the_page_allows_only_its_own_script(hostile: str) -> None:
    page = _Page(hostile)
    (script,) = page.scripts
    digest = base64.b64encode(hashlib.sha256(script.encode()).digest()).decode()
    policy = next(a["content"] for t, a in page.elements if t == "meta" and "http-equiv" in a)
    assert policy is not None
    assert "default-src 'none'" in policy
    assert f"script-src 'sha256-{digest}';" in policy


def test_hostile_texts_add_no_elements(hostile: str) -> None:
    page = _Page(hostile)
    assert not [tag for tag, _ in page.elements if tag in ("img", "iframe", "object", "b:", "base", "form")]
    assert not [a for _, attributes in page.elements for a in attributes if a.startswith("on")]
    assert len(page.scripts) == 1
    assert "<script>window.pwned = 1</script>" in page.text
    assert "\x00" not in hostile
    assert "{{ 7 * 7 }}" in page.text


def test_nothing_on_the_page_points_outside(drawn: Path) -> None:
    html = (drawn / "report.html").read_text("utf-8")
    page = _Page(html)
    for tag, attributes in page.elements:
        for name, value in attributes.items():
            if name in ("src", "href", "xlink:href", "action", "srcset"):
                assert (value or "").startswith(("#", "data:")), (tag, name, value)
    assert "@import" not in page.text
    assert not re.search(r"url\((?!#)", html)


@pytest.mark.usefixtures("without_figures")
def test_nothing_of_a_page_that_lies_in_the_folder_is_kept(tmp_path: Path) -> None:
    run = write_run(tmp_path / "run", RunSpec(problems=1))
    own = write_report(run).read_text("utf-8")
    # as it is, every digest and signature in it included, but for a script that its policy admits
    planted = re.sub("script-src '[^']*'", "script-src 'unsafe-inline'", own).replace("</body>", "<script>1</script>")
    (run / "report.html").write_text(planted, "utf-8")
    assert write_report(run).read_text("utf-8") == own


@pytest.mark.usefixtures("drawn_figures")
def test_the_same_run_gives_the_same_page(drawn: Path, draw_only: Callable[..., None]) -> None:
    draw_only(*SOME)
    first = (drawn / "report.html").read_bytes()
    assert write_report(drawn).read_bytes() == first


@pytest.mark.parametrize(
    ("manifest", "banner"),
    [
        ({}, "Sample set: 60 word problems made by the project"),
        (
            {"provenance": {"source": "stand_in", "description": "other questions", "digest": ""}},
            "Stand-in data: other questions",
        ),
        (
            {"provenance": {"source": "generated", "description": "evaluation split", "digest": ""}},
            "Generated data: evaluation split",
        ),
        ({"provenance": {"source": "own", "description": "complaints", "digest": ""}}, "Own problems: complaints"),
        ({"simulated": True}, "Simulated model"),
        ({"stages": {"teacher": {"folder": "t", "digest": "d", "simulated": True}}}, "Simulated teacher"),
        ({"status": "running"}, "Unfinished"),
        ({"status": "failed", "error": "server gone"}, "Error: server gone"),
    ],
)
def test_warnings_are_on_top(tmp_path: Path, manifest: dict[str, object], banner: str) -> None:
    html = _render(tmp_path, RunSpec(problems=0, manifest=manifest))
    [(look, shown)] = [
        found for found in re.findall(r'<p class="(banner[^"]*)"[^>]*>(.*?)</p>', html) if banner in found[1]
    ]
    assert look == ("banner plain" if shown.startswith(("Generated data", "Own problems")) else "banner")


def test_figures_are_not_marked_for_problems_that_are_the_tasks_own() -> None:
    assert (
        mark_origins(["simulated", "own problems"], ["generated data", "sample set"]) == "simulated, partly sample set"
    )


@pytest.mark.usefixtures("without_figures")
def test_a_finished_benchmark_run_has_no_banner(tmp_path: Path) -> None:
    html = _render(tmp_path, RunSpec(manifest={"provenance": {"source": "benchmark", "description": "", "digest": ""}}))
    assert 'class="banner"' not in html


@pytest.mark.parametrize(
    ("sandbox", "shown"),
    [
        ({"isolation": "namespaces", "full": True, "note": ""}, "namespaces, full isolation"),
        (
            {"isolation": "rlimits", "full": False, "note": f"the network is open {HOSTILE[0]}"},
            f"rlimits, NOT fully isolated: the network is open {HOSTILE[0]}",
        ),
    ],
)
def test_the_isolation_of_programs_is_among_the_facts(tmp_path: Path, sandbox: dict[str, object], shown: str) -> None:
    page = _Page(_render(tmp_path, RunSpec(problems=0, manifest={"sandbox": sandbox})))
    assert f"Sandbox{shown}\n" in page.text
    assert page.scripts == []


def test_a_run_that_tests_no_programs_names_no_sandbox(tmp_path: Path) -> None:
    assert "Sandbox" not in _Page(_render(tmp_path, RunSpec(problems=0))).text


@pytest.mark.parametrize(
    ("settings", "judges"),
    [
        ({"name": "duel_evolve", "judge_temperature": 0.7}, True),
        ({"name": "best_of_n", "judge_temperature": 0.7, "choose": "oracle"}, False),
        ({"name": "best_of_n", "judge_temperature": 0.7, "choose": "weighted", "reward": "rubric"}, False),
        ({"name": "few_shot"}, False),
    ],
)
def test_a_run_without_duels_says_so_where_its_method_has_any(
    tmp_path: Path, settings: dict[str, object], judges: bool
) -> None:
    html = _render(tmp_path, RunSpec(problems=1, duels=0, manifest={"config": {"method": settings}}))
    assert ("<h2>Judge</h2>" in html) == judges
    assert ("This run has no duels." in html) == judges
    assert "Decisive share of duels by generation" not in html


def test_the_tile_of_losses_counts_what_was_asked_for_again(drawn: Path) -> None:
    candidates = [json.loads(line) for line in (drawn / "candidates.jsonl").open()]
    lost, again = sum(one["answer"] is None for one in candidates), sum(one["attempts"] > 1 for one in candidates)
    assert 0 < again < len(candidates)
    said = f"{lost} of {len(candidates)} candidates; {again} retried as unparsable or repeated"
    assert said in _Page((drawn / "report.html").read_text("utf-8")).text


@pytest.mark.usefixtures("without_figures")
def test_a_judge_that_decides_nothing_is_named_beside_its_numbers(tmp_path: Path) -> None:
    run = write_run(tmp_path / "run", RunSpec(problems=3))
    assert "posterior stays the prior" not in write_report(run).read_text()
    duels = [json.loads(line) for line in (run / "comparisons.jsonl").open()]
    biased = [{**duel, "verdicts": ["A", "A"], "outcome": None} for duel in duels]
    (run / "comparisons.jsonl").write_text("".join(json.dumps(duel) + "\n" for duel in biased))
    write_results(run, (ACCURACY,), {})
    text = " ".join(_Page(write_report(run).read_text()).text.split())
    assert "Position bias 100 %: whenever the judge chose, it named A" in text
    assert "the posterior stays the prior" in text


def test_an_empty_run_still_has_a_page(tmp_path: Path) -> None:
    spec = RunSpec(problems=0, finished=False, manifest={"status": "running"})
    html = _render(tmp_path, spec)
    assert "No candidates recorded." in html
    assert "<svg" not in html


def test_a_manifest_alone_is_enough(tmp_path: Path) -> None:
    run = write_run(tmp_path / "run", RunSpec(manifest={"status": "failed", "error": "no weights"}))
    for path in run.iterdir():
        if path.name != "manifest.json":
            path.unlink()
    assert "no weights" in write_report(run).read_text()


@pytest.mark.parametrize(("problems", "each"), [(9, "3"), (10, "3 to 4")])
def test_curves_by_stratum_say_what_their_intervals_are_over(
    tmp_path: Path, problems: int, each: str, draw_only: Callable[..., None]
) -> None:
    draw_only("nothing")
    page = _Page(_render(tmp_path, RunSpec(problems=problems)))
    assert f"With 95 % intervals over the problems of a stratum, {each} each; of one seed (0)" in page.text


def test_figures_are_shown_with_interval_and_n(drawn: Path) -> None:
    html = (drawn / "report.html").read_text("utf-8")
    assert "By training step" not in html  # it trains nothing
    text = " ".join(_Page(html).text.split())
    assert re.search(r"Accuracy ?\d+\.\d % ?95 % interval \d+\.\d to \d+\.\d %; n = 9", text)
    assert re.search(r"COLLEGE ?\d+\.\d % ?\d+\.\d to \d+\.\d % ?3", text)


@pytest.mark.usefixtures("without_figures")
def test_a_report_that_cannot_be_written_is_one_clear_error(tmp_path: Path) -> None:
    run = write_run(tmp_path / "run", RunSpec(problems=1))
    (run / "report.html").mkdir()
    with pytest.raises(RunDirectoryError, match=r"report\.html"):
        write_report(run)
    assert not list(run.glob(".evorun-*"))


@pytest.mark.nightly
def test_importing_reports_loads_nothing_heavy() -> None:
    check = "import sys, evorun.reports; print({'matplotlib', 'jinja2', 'scipy', 'torch'} & set(sys.modules))"
    result = subprocess.run([sys.executable, "-c", check], capture_output=True, text=True, check=True)
    assert result.stdout.strip() == "set()"


@pytest.mark.nightly
def test_a_methods_own_figures_and_its_pool_are_drawn_by_step(tmp_path: Path, draw_only: Callable[..., None]) -> None:
    draw_only("method_figures")
    run = write_run(tmp_path / "run", RunSpec(problems=2, generations=2))
    lines = [json.loads(line) for line in (run / "steps.jsonl").read_text().splitlines()]
    for index, line in enumerate(lines):
        line["pool"] = 6 - 2 * line["step"]
        line["extra"] = {"left_<i>out": line["step"] + index // 3, "still": 7, "texts": 30 - index, "migrants": index}
    (run / "steps.jsonl").write_text("".join(json.dumps(line) + "\n" for line in lines))
    report = make_report(run)
    (table,) = [table for table in report.tables if table.name == "method_figures"]
    assert table.rows == [
        *[("pool", step, 6 - 2 * step, 2) for step in range(3)],
        *[("left_<i>out", step, step + 0.5, 2) for step in range(3)],
        *[("still", step, 7, 2) for step in range(3)],
    ]
    section = _Page(report.page.partition("<h2>Figures of the method</h2>")[2].partition("</section>")[0]).text
    assert "left <i>out" in section
    assert "still" in section  # which never changes, so that it has a row and no panel
    (drawing,) = [drawing for drawing in report.drawings if drawing.name == "method_figures"]
    assert ("pool" in drawing.svg, "still" in drawing.svg) == (True, False)
    assert "dotted" not in section


@pytest.mark.nightly
def test_a_methods_own_figures_are_dotted_where_few_problems_have_them(
    tmp_path: Path, draw_only: Callable[..., None]
) -> None:
    draw_only("method_figures")
    run = write_run(tmp_path / "run", RunSpec(problems=3, generations=2))
    lines = [json.loads(line) for line in (run / "steps.jsonl").read_text().splitlines()]
    kept = [line for index, line in enumerate(lines) if line["step"] < 2 or index < 3]
    for line in kept:
        line["extra"] = {"groups": 3 * line["step"]}
    (run / "steps.jsonl").write_text("".join(json.dumps(line) + "\n" for line in kept))
    page = make_report(run).page
    assert "lines are dotted where fewer than half of the problems have the figure" in page
    (panel,) = [panel for panel in panels_of(page, "Figures of the method by generation") if panel.title == "groups"]
    dotted, solid = panel.lines
    assert np.array(dotted) == pytest.approx(np.array([(0, 0), (1, 3), (2, 6)]), abs=0.05)
    assert solid == dotted[:2]


@pytest.mark.nightly
def test_training_steps_are_drawn_and_their_names_escaped(tmp_path: Path, draw_only: Callable[..., None]) -> None:
    draw_only("training")
    run = write_run(tmp_path / "run", RunSpec(problems=2))
    lines = [
        {"step": n, "calls": n, "tokens": n, "figures": {"reward": n / 4, "<b>loss</b>": 1 / n}, "problem": "*"}
        for n in (1, 2, 3)
    ]
    (run / "training.jsonl").write_text("".join(json.dumps(line) + "\n" for line in lines))
    page = write_report(run).read_text("utf-8")
    assert "By training step" in page
    assert "<b>loss</b>" not in page
    assert "&lt;b&gt;loss&lt;/b&gt;" in page


def test_a_run_that_trains_speaks_of_training_steps_and_of_the_whole_runs_calls(tmp_path: Path) -> None:
    run = write_method(tmp_path / "run", [True, False, True], method="grpo", steps=3, calls={"evaluate": 2})
    assert "calls of the run" not in write_report(run).read_text()
    steps = [{"step": n, "calls": 6 * n, "tokens": 9, "figures": {"reward": n / 4}} for n in (1, 2, 3)]
    (run / "training.jsonl").write_text("".join(json.dumps(line) + "\n" for line in steps))
    points = [json.loads(line) for line in (run / "metrics.jsonl").open()]
    dearer = [{**point, "calls": point["calls"] * (5 if "/" in point["name"] else 1)} for point in points]
    (run / "metrics.jsonl").write_text("".join(json.dumps(point) + "\n" for point in dearer))
    page = write_report(run).read_text()
    curves = make_report(run).export(tmp_path / "files")
    for name in ("training step", "Calls of the run", "Tokens of the run"):
        assert name in page
    assert "er generation" not in page
    assert "calls per problem" not in page
    assert "Intervals are over test problems, for this one training run" in page
    (table,) = [path for path in curves if path.name == "curves.csv"]
    rows = list(csv.DictReader(table.open()))
    overall = [(row["training_step"], row["calls_of_the_run"]) for row in rows if row["stratum"] == "all"]
    assert overall == [("0", "6.0"), ("1", "12.0"), ("2", "18.0")]  # 2 calls a step for each of 3 problems
    of_strata = {(row["training_step"], row["calls_of_the_run"]) for row in rows if row["stratum"] != "all"}
    assert of_strata == set(overall)  # what serves all problems is spent for each stratum alike


@pytest.mark.usefixtures("without_figures")
def test_the_search_is_taken_apart_with_what_it_dropped(tmp_path: Path) -> None:
    run = write_run(tmp_path / "run")
    assert "<h2>Search</h2>" not in write_report(run).read_text()  # its results, an older run's, have none of it
    steps = [json.loads(line) for line in (run / "steps.jsonl").open()]
    counted = [{**step, "extra": {"pruned": 2, "capped": 1, "texts": 4, "unparsable_texts": 1}} for step in steps]
    (run / "steps.jsonl").write_text("".join(json.dumps(step) + "\n" for step in counted))
    write_results(run, (ACCURACY,), {})
    page = write_report(run).read_text()
    assert f"Dropped from the pools: {2 * len(steps)} by the confidence rule, {len(steps)} by max_pool." in page
    right = {json.loads(line)["problem"] for line in (run / "candidates.jsonl").open() if json.loads(line)["correct"]}
    assert f'<td>A right candidate in the pool</td><td class="num">{100 * len(right) / 9:.1f} %</td>' in page
    assert '<td>Parsable texts</td><td class="num">75.0 %</td>' in page


@pytest.mark.usefixtures("without_figures")
def test_what_the_search_lost_is_said_where_a_choice_was_made(tmp_path: Path) -> None:
    run = write_run(tmp_path / "run", RunSpec(problems=3))
    steps = [json.loads(line) for line in (run / "steps.jsonl").open()]
    lines = "".join(json.dumps({**step, "extra": {"texts": 4}}) + "\n" for step in steps)
    (run / "steps.jsonl").write_text(lines)
    write_results(run, (ACCURACY,), {})
    lost, over = (
        "A problem is lost if no right candidate was proposed",
        "Intervals are over problems, whatever n counts",
    )
    page = write_report(run).read_text()
    assert lost in page
    assert over in page
    (run / "training.jsonl").write_text('{"step": 1, "calls": 1, "tokens": 1, "figures": {"reward": 1}}\n')
    write_results(run, (ACCURACY,), {})
    page = write_report(run).read_text()
    assert over in page
    assert lost not in page  # each problem is answered anew at the end


@pytest.mark.usefixtures("without_figures")
def test_refusals_of_the_judge_and_cost_of_the_gold_judge_have_lines_of_their_own(tmp_path: Path) -> None:
    run = write_run(tmp_path / "run")
    duels = [json.loads(line) for line in (run / "comparisons.jsonl").open()]
    refused = {"verdicts": ["invalid", "invalid"], "reasons": ["rejected: HTTP 400"] * 2, "outcome": None}
    lines = "".join(json.dumps({**duel, **(refused if i < 36 else {})}) + "\n" for i, duel in enumerate(duels))
    (run / "comparisons.jsonl").write_text(lines)
    write_results(run, (ACCURACY,), {})
    path = run / "results.json"
    results = json.loads(path.read_text())
    results["cost"]["gold"] = {"calls": 30, "prompt_tokens": 10, "completion_tokens": 10, "seconds": 1.0}
    path.write_text(json.dumps(results))
    page = write_report(run).read_text()
    assert '<td>Judgments that the engine refused</td><td class="num">10.0 %</td>' in page  # 36 of 9 times 40 duels
    rest = [verdict for duel in duels[36:] for verdict in duel["verdicts"]]
    unread = 100 * rest.count("invalid") / len(rest)
    assert f'<td>Unparsable verdicts</td><td class="num">{unread:.1f} %</td>' in page
    assert '<td>gold (grading), not in the total</td><td class="num">30</td>' in page


@pytest.mark.usefixtures("without_figures")
def test_a_score_without_an_interval_has_none_in_its_tile(tmp_path: Path) -> None:
    run = write_run(tmp_path / "run")
    results = json.loads((run / "results.json").read_text())
    assert "95 % interval" in write_report(run).read_text().partition("</dl>")[0]
    results["metrics"]["accuracy"]["ci95"] = None
    (run / "results.json").write_text(json.dumps(results))
    tile = write_report(run).read_text().partition("</dl>")[0]
    assert "95 % interval" not in tile
    assert "n = 9" in tile


@pytest.mark.usefixtures("without_figures")
def test_every_setting_is_in_a_folded_table_with_what_it_decides(tmp_path: Path) -> None:
    config = {
        "method": {"name": "m", "generations": 7, "note": "<b>"},
        "task": {"name": "t", "sampling": {"top_p": None}},
        "engine": {"name": "vllm", "base_urls": ["http://a/v1"]},
        "reported": {"source": "a paper"},
    }
    run = write_run(tmp_path / "run", RunSpec(problems=1, manifest={"config": config}))
    (table,) = [path for path in make_report(run).export(tmp_path / "files") if path.name == "settings.csv"]
    assert list(csv.reader(table.open())) == [
        ["setting", "value", "decides"],
        ["method.name", "m", "results"],
        ["method.generations", "7", "results"],
        ["method.note", "<b>", "results"],
        ["task.name", "t", "results"],
        ["task.sampling.top_p", "null", "defaults of method"],
        ["engine.name", "vllm", "execution"],
        ["engine.base_urls.0", "http://a/v1", "execution"],
    ]
    page = write_report(run).read_text()
    assert "All 7 settings" in page
    assert "<td>&lt;b&gt;</td>" in page
