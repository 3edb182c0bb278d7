"""report.html and comparison.html in a real browser, from disk, with hostile model texts and names in them."""

import json
import re
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from comparison_fixture import write_method

from browsing import MARKS, click, settle, texts, visible
from evorun.reports import write_report
from evorun.reports.comparison import compare, write_comparison
from evorun.runs.directory import REPORT
from run_fixture import HOSTILE, RunSpec, write_run

pytestmark = MARKS

METHODS = (
    HOSTILE[0],
    "feedback_descent",
    "gepa",
    "best_of_n",
    "self_consistency",
    "few_shot",
    f"{HOSTILE[3]}{'long' * 12}",
)


@pytest.fixture(name="hostile_run", scope="module")
def _hostile_run(tmp_path_factory: pytest.TempPathFactory, drawing_only: Callable[..., Any]) -> Path:
    manifest = {"error": "".join(HOSTILE), "status": "failed", "method": HOSTILE[0], "command": list(HOSTILE)}
    spec = RunSpec(problems=8, candidates=16, duels=150, hostile=True, strata=HOSTILE[:4], manifest=manifest)
    run = write_run(tmp_path_factory.mktemp("hostile"), spec)
    candidates = [json.loads(line) for line in (run / "candidates.jsonl").open()]
    (run / "candidates.jsonl").write_text("".join(json.dumps(_noted(i, c)) + "\n" for i, c in enumerate(candidates)))
    with drawing_only("accuracy-strata", "calibration"):
        write_report(run)
    return run


def _noted(index: int, candidate: dict[str, Any]) -> dict[str, Any]:
    """Give a candidate a memory and feedback of hostile texts, and every fourth one neither."""
    if index % 4 == 0:
        return candidate
    text = HOSTILE[index % len(HOSTILE)].encode("utf-8", "replace").decode()
    feedback = {"text": f"{index % 4 - 1} of 3 passed\n- 1 -> {text}", "score": (index % 4 - 1) / 3}
    return {**candidate, "memory": f"memory {index}: {text}", "feedback": feedback}


@pytest.fixture(name="page")
def _page(chromium: Any, hostile_run: Path) -> Any:
    for log in ("browser", "performance"):
        chromium.get_log(log)
    chromium.get((hostile_run / "report.html").as_uri())
    settle(chromium)
    return chromium


def _selected(page: Any) -> str:
    (title,) = texts(page, "#candidate h3")
    return title.split()[1]


def test_the_page_opens_without_errors_or_requests(page: Any) -> None:
    click(page, "#candidate-rows tr:nth-child(5) button")
    assert page.get_log("browser") == []
    events = [json.loads(entry["message"])["message"] for entry in page.get_log("performance")]
    requests = [e["params"]["request"]["url"] for e in events if e["method"] == "Network.requestWillBeSent"]
    assert any(url.startswith("file://") for url in requests)
    assert [url for url in requests if not url.startswith(("file://", "data:"))] == []


def test_the_policy_forbids_scripts_and_requests(page: Any) -> None:
    attempt = """
      const done = arguments[0];
      const script = document.createElement("script");
      script.textContent = "window.injected = 1";
      document.body.append(script);
      fetch("http://127.0.0.1:9/").then(() => done("fetched"), () => done(String(window.injected)));
    """
    assert page.execute_async_script(attempt) == "undefined"
    assert any("Content Security Policy" in entry["message"] for entry in page.get_log("browser"))


def test_every_hostile_text_is_shown_as_text_and_runs_nothing(page: Any) -> None:
    everything = page.execute_script(
        """
        const shown = [];
        for (let row = 1; row <= 16; row++) {
          document.querySelector(`#candidate-rows tr:nth-child(${row}) button`).click();
          document.querySelectorAll("#duels details").forEach((d) => { d.open = true; });
          document.querySelectorAll("#candidate pre, #duels pre").forEach((node) => shown.push(node.textContent));
        }
        return shown.join("\\n");
        """
    )
    for text in HOSTILE:
        assert visible(text) in everything
    assert page.execute_script("return window.pwned") is None
    foreign = "main img, main iframe, main script:not([type]) ~ script, [onload], [onerror]"
    assert page.execute_script("return document.querySelectorAll(arguments[0]).length", foreign) == 0


def test_memory_and_public_tests_are_folded_texts_under_what_they_say(page: Any, hostile_run: Path) -> None:
    candidates = [json.loads(line) for line in (hostile_run / "candidates.jsonl").open()]
    (problem,) = texts(page, "#problem-outcome-line strong")
    own = {c["id"]: c for c in candidates if c["problem"] == problem}
    each = """
        const texts = (selector) => [...document.querySelectorAll(selector)].map((node) => node.textContent);
        return [...document.querySelectorAll("#candidate-rows button")].map((button) => {
          button.click();
          const open = document.querySelectorAll("#candidate details[open]").length;
          return [texts("#candidate h3")[0], texts("#candidate summary"), open, texts("#candidate details pre")];
        });
    """
    seen = page.execute_script(each)
    assert len(seen) == len(own)
    for title, summaries, opened, folded in seen:
        candidate = own[title.split()[1]]
        feedback = candidate.get("feedback")
        share = {None: None, 0.0: "0 %", 1 / 3: "33 %", 2 / 3: "67 %"}[feedback and feedback["score"]]
        expected = [f"Public tests: {share} passed"] if feedback else []
        expected += ["Changes, line by line"] if candidate["parents"] else []
        expected += ["Reasoning, as parsed"] if candidate["reasoning"] != candidate["text"] else []
        expected += ["Memory left to its children"] if candidate.get("memory") else []
        assert (summaries, opened) == (expected, 0)
        if feedback:
            assert (folded[0], folded[-1]) == (visible(feedback["text"]), visible(candidate["memory"]))
    assert page.execute_script("return window.pwned") is None


def test_choosing_a_problem_shows_its_candidates(page: Any) -> None:
    options = texts(page, "#problem-list option")
    assert len(options) == 8
    page.execute_script("document.querySelector('#problem-list').focus()")
    page.find_element("css selector", "#problem-list").send_keys("\ue015")  # arrow down
    (line,) = texts(page, "#problem-outcome-line p:first-child strong")
    assert line in options[1]
    assert len(texts(page, "#candidate-rows tr")) == 16
    assert len(texts(page, "#lineage [data-node]")) == 16


def test_the_question_stands_above_the_candidates_as_text(page: Any, hostile_run: Path) -> None:
    data = {r["problem"]: r["data"] for r in map(json.loads, (hostile_run / "problems.jsonl").open())}
    for position in range(2):
        page.execute_script(
            "const list = document.querySelector('#problem-list'); list.value = arguments[0];"
            "list.dispatchEvent(new Event('change'))",
            str(position),
        )
        (problem,) = texts(page, "#problem-outcome-line strong")
        shown = data[problem]
        assert texts(page, "#problem-data dt") == ["question", "options", "time"]
        assert texts(page, "#problem-data dd:nth-of-type(1)") == [shown["question"]]
        options = texts(page, "#problem-data ol > li")
        assert options[:6] == shown["options"][:6]
        assert len(options) == len(HOSTILE)
        assert texts(page, "#problem-data ul > li") == ["minutes: 3"]
    above = "return document.querySelector('#problem-data').getBoundingClientRect().bottom"
    below = "return document.querySelector('#candidate-rows').getBoundingClientRect().top"
    assert page.execute_script(above) < page.execute_script(below)
    assert page.execute_script("return window.pwned") is None


def test_problems_are_found_by_search_and_outcome(page: Any) -> None:
    search = page.find_element("css selector", "#problem-search")
    search.send_keys("problem-007")
    assert ["problem-007" in option for option in texts(page, "#problem-list option")] == [True]
    assert texts(page, "#problem-outcome-line strong") == ["problem-007"]
    search.send_keys(" no such")
    assert texts(page, "#problem-list option") == []
    assert page.find_element("css selector", "#problem-none").is_displayed()


def test_lineage_links_lead_to_parents_and_back(page: Any, hostile_run: Path) -> None:
    records = [json.loads(line) for line in (hostile_run / "candidates.jsonl").open()]
    (problem,) = texts(page, "#problem-outcome-line strong")
    parents = {r["id"]: r["parents"] for r in records if r["problem"] == problem}
    child = next(candidate for candidate, ids in parents.items() if ids)
    position = list(parents).index(child)
    click(page, f"#candidate-rows [data-candidate='{position}']")
    assert _selected(page) == child
    assert texts(page, "#candidate dd.links:nth-of-type(5) button") == parents[child]
    assert len(texts(page, "#lineage .edge.parent")) == len(parents[child])
    click(page, "#candidate dd.links:nth-of-type(5) button")
    parent = parents[child][0]
    assert _selected(page) == parent
    children = [candidate for candidate, ids in parents.items() if parent in ids]
    assert texts(page, "#candidate dd.links:nth-of-type(6) button") == children
    click(page, f"#lineage [data-node='{position}']")
    assert _selected(page) == child


def test_the_lineage_has_each_candidate_in_its_generation_at_the_height_of_its_posterior(
    page: Any, hostile_run: Path
) -> None:
    (problem,) = texts(page, "#problem-outcome-line strong")
    records = [json.loads(line) for line in (hostile_run / "candidates.jsonl").open()]
    own = [record for record in records if record["problem"] == problem]
    boxes = page.execute_script(
        "return [...document.querySelectorAll('#lineage [data-node]')].sort((a, b) => a.dataset.node - b.dataset.node)"
        ".map((node) => node.getBBox()).map((box) => [box.x + box.width / 2, box.y + box.height / 2])"
    )
    slope, zero = np.polyfit([one["mean"] for one in own], [y for _, y in boxes], 1)
    assert slope < 0  # upwards
    assert [y for _, y in boxes] == pytest.approx([zero + slope * one["mean"] for one in own], abs=0.5)
    columns: dict[int, list[float]] = {}
    for one, (x, _) in zip(own, boxes, strict=True):
        columns.setdefault(one["generation"], []).append(x)
    assert all(max(columns[at]) < min(columns[at + 1]) for at in range(len(columns) - 1))
    child = next(i for i, one in enumerate(own) if one["parents"])
    click(page, f"#candidate-rows [data-candidate='{child}']")
    drawn = page.execute_script(
        "return [...document.querySelectorAll('#lineage .edge.parent')].map((edge) => edge.getAttribute('d'))"
    )
    ends = [[float(part) for part in re.findall(r"-?[\d.]+", edge)] for edge in drawn]
    positions = [[one["id"] for one in own].index(parent) for parent in own[child]["parents"]]
    assert [end[:2] for end in ends] == [pytest.approx(boxes[at], abs=0.5) for at in positions]
    assert [end[-2:] for end in ends] == [pytest.approx(boxes[child], abs=0.5)] * len(positions)


@pytest.mark.nightly
def test_arrow_keys_walk_through_the_candidates(page: Any) -> None:
    order = texts(page, "#candidate-rows button")
    click(page, "#candidate-rows tr:nth-child(3) button")
    page.switch_to.active_element.send_keys("\ue015")
    assert _selected(page) == order[3]
    page.switch_to.active_element.send_keys("\ue013")
    assert _selected(page) == order[2]


def test_the_duels_of_a_candidate_are_its_own(page: Any, hostile_run: Path) -> None:
    records = [json.loads(line) for line in (hostile_run / "comparisons.jsonl").open()]
    (problem,) = texts(page, "#problem-outcome-line strong")
    chosen = _selected(page)
    own = [r for r in records if r["problem"] == problem and chosen in (r["first"], r["second"])]
    winners = [r[r["outcome"]] if r["outcome"] else None for r in own]
    results = ["undecided" if w is None else "won" if w == chosen else "lost" for w in winners]
    opponents = [r["second"] if r["first"] == chosen else r["first"] for r in own]
    assert {"won", "lost"} <= set(results)
    assert {r["first"] == chosen for r in own} == {True, False}
    assert texts(page, "#duels .result") == results
    assert texts(page, "#duels li button") == opponents
    click(page, "#duels li button")
    assert _selected(page) == opponents[0]


def test_an_answer_of_several_lines_keeps_them(chromium: Any, tmp_path: Path, draw_only: Callable[..., None]) -> None:
    draw_only()
    run = write_run(tmp_path / "run", RunSpec(problems=1, candidates=1, generations=0, duels=0))
    program = "def f(n):\n    return n"
    for name in ("candidates", "predictions"):
        (record,) = [json.loads(line) for line in (run / f"{name}.jsonl").open()]
        (run / f"{name}.jsonl").write_text(json.dumps({**record, "answer": program}) + "\n")
    chromium.get(write_report(run).as_uri())
    assert texts(chromium, "#candidate h4 + pre")[0] == program
    assert texts(chromium, "#candidate dd")[0] == "below"
    assert "see the one returned" in texts(chromium, "#problem-outcome-line p")[0]


@pytest.mark.sample(1)
@pytest.mark.parametrize("width", [420, 1024, 1920])
def test_nothing_scrolls_sideways_and_no_column_is_a_letter_wide(page: Any, width: int) -> None:
    page.execute_cdp_cmd(
        "Emulation.setDeviceMetricsOverride", {"width": width, "height": 800, "deviceScaleFactor": 1, "mobile": False}
    )
    try:
        assert page.execute_script("return document.documentElement.scrollWidth <= window.innerWidth")
        cut = (
            "return [...document.querySelectorAll('main *')].filter((e) => e.scrollWidth > e.clientWidth + 1 &&"
            " ['hidden', 'clip'].includes(getComputedStyle(e).overflowX) && !e.matches('.clip, option')).length"
        )
        assert page.execute_script(cut) == 0
        letters = (
            "return Math.min(...[...document.querySelectorAll('figure svg text')].map((t) => t.getBoundingClientRect())"
            ".filter((box) => box.width > box.height).map((box) => box.height))"
        )
        assert page.execute_script(letters) > 9
        first = "[...document.querySelectorAll('.table td:first-child')].filter((cell) => cell.offsetParent)"
        assert page.execute_script(f"return Math.min(...{first}.map((cell) => cell.offsetWidth))") >= 100
    finally:
        page.execute_cdp_cmd("Emulation.clearDeviceMetricsOverride", {})


@pytest.mark.nightly
def test_what_is_believed_of_candidates_has_its_methods_name(
    chromium: Any, tmp_path: Path, draw_only: Callable[..., None]
) -> None:
    draw_only()
    run = write_run(tmp_path / "run", RunSpec(problems=1, candidates=4, duels=0))
    records = [json.loads(line) for line in (run / "candidates.jsonl").open()]
    fit, estimated = ({"fitness": 61.5, "mean": 61.5, "sd": None}, {"mean": 3.0, "sd": None})
    for name, belief in (("Posterior", {}), ("Fitness", fit), ("Estimate", estimated)):
        lines = "".join(json.dumps({**record, **belief}) + "\n" for record in records)
        (run / "candidates.jsonl").write_text(lines)
        chromium.get(write_report(run).as_uri())
        assert texts(chromium, "#head-belief") == [name]
        assert texts(chromium, "#candidate dt")[1] == name
        assert name.lower() in texts(chromium, "#lineage text")
    assert texts(chromium, "#candidate dd")[1] == "3.00"


@pytest.mark.nightly
def test_light_and_dark_follow_the_reader(page: Any) -> None:
    colours = []
    for scheme in ("light", "dark"):
        feature = {"name": "prefers-color-scheme", "value": scheme}
        page.execute_cdp_cmd("Emulation.setEmulatedMedia", {"features": [feature]})
        style = "const s = getComputedStyle(arguments[0]); return [s.backgroundColor, s.color]"
        colours.append(page.execute_script(style, page.find_element("css selector", "body")))
    assert colours[0] != colours[1]


@pytest.mark.nightly
def test_the_page_works_without_candidates_or_duels(
    chromium: Any, tmp_path: Path, draw_only: Callable[..., None]
) -> None:
    draw_only()
    chromium.get_log("browser")
    spec = RunSpec(problems=0, finished=False, manifest={"status": "interrupted"})
    chromium.get(write_report(write_run(tmp_path / "empty", spec)).as_uri())
    assert "Unfinished" in chromium.page_source
    judging = {"config": {"method": {"name": "duel_evolve", "judge_temperature": 0.7}}}
    spec = RunSpec(duels=0, candidates=1, generations=0, manifest=judging)
    chromium.get(write_report(write_run(tmp_path / "judging", spec)).as_uri())
    assert texts(chromium, "#duels .note") == ["no duels"]
    chromium.get(write_report(write_run(tmp_path / "single", RunSpec(duels=0, candidates=1, generations=0))).as_uri())
    assert not chromium.find_element("css selector", "#duels").is_displayed()
    (tmp_path / "single" / "problems.jsonl").unlink()
    chromium.get(write_report(tmp_path / "single").as_uri())
    assert texts(chromium, "#problem-data") == [""]
    assert chromium.get_log("browser") == []


# --- comparison.html ---


@pytest.fixture(name="comparison", scope="module")
def _comparison(
    chromium: Any, tmp_path_factory: pytest.TempPathFactory, drawing_only: Callable[..., Any]
) -> Iterator[Any]:
    folder = tmp_path_factory.mktemp("compared")
    runs = [
        write_method(
            folder / f"run {i}",
            [problem % (i + 2) > 0 for problem in range(30)],
            method=method,
            steps=1 if i > 3 else 10,
            regime=HOSTILE[5],
            calls={HOSTILE[1]: 1 + 5 * i},
        )
        for i, method in enumerate(METHODS)
    ]
    for run in runs:
        (run / REPORT).write_text("<h2>Accuracy</h2>")  # the page links to it
    with drawing_only("final-*", "accuracy-step*", "swatch-*"):
        target = write_comparison(compare(runs), folder / "comparison.html")
    for log in ("browser", "performance"):
        chromium.get_log(log)
    chromium.get(target.as_uri())
    yield chromium
    chromium.execute_cdp_cmd("Emulation.clearDeviceMetricsOverride", {})


def test_the_page_opens_without_errors_requests_or_foreign_code(comparison: Any) -> None:
    assert comparison.get_log("browser") == []
    events = [json.loads(entry["message"])["message"] for entry in comparison.get_log("performance")]
    requests = [e["params"]["request"]["url"] for e in events if e["method"] == "Network.requestWillBeSent"]
    assert any(url.startswith("file://") for url in requests)
    assert [url for url in requests if not url.startswith(("file://", "data:"))] == []
    assert comparison.execute_script("return window.pwned") is None
    assert comparison.execute_script("return document.body.innerText").count(HOSTILE[0]) > 1


@pytest.mark.sample(1)
@pytest.mark.parametrize("width", [420, 800, 1400])
def test_nothing_but_a_table_scrolls_sideways_and_words_stay_whole(comparison: Any, width: int) -> None:
    metrics = {"width": width, "height": 900, "deviceScaleFactor": 1, "mobile": False}
    comparison.execute_cdp_cmd("Emulation.setDeviceMetricsOverride", metrics)
    assert comparison.execute_script("return document.documentElement.scrollWidth") <= width
    cells = "[...document.querySelectorAll('td, th')].filter((c) => c.textContent.trim().length > 7)"
    assert comparison.execute_script(f"return {cells}.length") > 50
    assert comparison.execute_script(f"return Math.min(...{cells}.map((c) => c.getBoundingClientRect().width))") > 50
    # of a method's name, each word is on one line: as many boxes as words at most
    broken = (
        "return [...document.querySelectorAll('td:first-child a')].filter((a) => a.textContent === 'feedback_descent')"
        ".map((a) => a.getClientRects().length)"
    )
    assert set(comparison.execute_script(broken)) == {1}
    sizes = (
        "return [...document.querySelectorAll('figure svg text')].map((t) => t.getBoundingClientRect().height)"
        ".filter((height) => height > 0)"
    )
    assert min(comparison.execute_script(sizes)) > 9  # readable: drawn for the width that it has


@pytest.mark.parametrize("scheme", ["light", "dark"])
def test_lines_stand_out_from_the_card_and_from_one_another(comparison: Any, scheme: str) -> None:
    feature = {"name": "prefers-color-scheme", "value": scheme}
    comparison.execute_cdp_cmd("Emulation.setEmulatedMedia", {"features": [feature]})
    strokes = comparison.execute_script(
        "return [...document.querySelectorAll('td .swatch svg path')].map((p) => getComputedStyle(p).stroke)"
        ".filter((c) => c.startsWith('rgb'))"
    )
    card = comparison.execute_script("return getComputedStyle(document.querySelector('figure')).backgroundColor")
    colours = set(strokes) - {card}
    assert len(colours) == len(METHODS)
    assert all(_contrast(colour, card) >= 3 for colour in colours)


@pytest.mark.nightly
def test_a_run_leads_to_its_own_page(comparison: Any) -> None:
    here = comparison.current_url
    comparison.find_element("css selector", "tbody a").click()
    assert comparison.current_url.endswith("/report.html")
    assert comparison.find_element("css selector", "h2").text == "Accuracy"
    comparison.get(here)


def _contrast(*colours: str) -> float:
    """Return the contrast ratio of two colours `rgb(r, g, b)`. Source: WCAG 2.2."""
    low, high = sorted(_luminance(colour) for colour in colours)
    return (high + 0.05) / (low + 0.05)


def _luminance(colour: str) -> float:
    parts = [int(part) / 255 for part in colour.removeprefix("rgb(").removesuffix(")").split(",")]
    linear = [part / 12.92 if part <= 0.04045 else ((part + 0.055) / 1.055) ** 2.4 for part in parts]
    return 0.2126 * linear[0] + 0.7152 * linear[1] + 0.0722 * linear[2]
