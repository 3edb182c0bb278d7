"""report.html in a real browser, from disk, with hostile model texts in it."""

import json
import random
import shutil
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from evorun.reports import write_report
from run_fixture import HOSTILE, RunSpec, write_lines, write_run

webdriver = pytest.importorskip("selenium.webdriver", reason="selenium is not installed")
WebDriverWait = pytest.importorskip("selenium.webdriver.support.ui", reason="selenium is not installed").WebDriverWait

CHROMIUM = shutil.which("chromium") or shutil.which("chromium-browser") or shutil.which("google-chrome")
DRIVER = shutil.which("chromedriver")
pytestmark = [
    pytest.mark.chromium,
    pytest.mark.skipif(not (CHROMIUM and DRIVER), reason="no Chromium with its chromedriver on the PATH"),
]
FLAGS = [
    "--headless=new",
    "--no-sandbox",
    "--disable-gpu",
    "--disable-quic",
    "--no-first-run",
    "--disable-background-networking",
    "--disable-component-update",
    "--disable-sync",
    "--disable-dev-shm-usage",
    "--window-size=1366,900",
]


@pytest.fixture(name="chromium", scope="module")
def _chromium(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Any]:
    options = webdriver.ChromeOptions()
    options.binary_location = CHROMIUM
    for flag in [*FLAGS, f"--user-data-dir={tmp_path_factory.mktemp('profile')}"]:
        options.add_argument(flag)
    options.set_capability("goog:loggingPrefs", {"browser": "ALL", "performance": "ALL"})
    driver = webdriver.Chrome(options=options, service=webdriver.ChromeService(DRIVER))
    driver.get("about:blank")  # the browser's own start page makes requests
    yield driver
    driver.quit()


@pytest.fixture(name="hostile_run", scope="module")
def _hostile_run(tmp_path_factory: pytest.TempPathFactory) -> Path:
    manifest = {"error": "".join(HOSTILE), "status": "failed", "method": HOSTILE[0], "command": list(HOSTILE)}
    spec = RunSpec(problems=12, candidates=36, duels=300, hostile=True, strata=HOSTILE[:4], manifest=manifest)
    run = write_run(tmp_path_factory.mktemp("hostile"), spec)
    candidates = [json.loads(line) for line in (run / "candidates.jsonl").open()]
    (run / "candidates.jsonl").write_text("".join(json.dumps(_noted(i, c)) + "\n" for i, c in enumerate(candidates)))
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
    _settle(chromium)
    return chromium


def _settle(page: Any) -> None:
    """Wait until the chosen problem is shown: its data is unpacked first."""
    shown = "const l = document.querySelector('#problem-list'); return !l || !l.value || l.dataset.shown === l.value"
    WebDriverWait(page, 60, poll_frequency=0.01).until(lambda driver: driver.execute_script(shown))


def _texts(page: Any, selector: str) -> list[str]:
    _settle(page)
    nodes = "return [...document.querySelectorAll(arguments[0])].map((n) => n.textContent)"
    result: list[str] = page.execute_script(nodes, selector)
    return result


def _visible(text: str) -> str:
    """Return a hostile text as the page should show it."""
    shown = text.replace("\x00", "\u2400").replace("\x1b", "\u241b").replace("\x07", "\u2407")
    for direction in "\u202e\u202c\u2066\u2069":
        shown = shown.replace(direction, "\ufffd")
    return shown.replace("\ud800", "?")


def _selected(page: Any) -> str:
    (title,) = _texts(page, "#candidate h3")
    return title.split()[1]


def _click(page: Any, selector: str) -> None:
    _settle(page)
    page.execute_script("document.querySelector(arguments[0]).scrollIntoView({block: 'center'})", selector)
    page.find_element("css selector", selector).click()


def test_the_page_opens_without_errors_or_requests(page: Any) -> None:
    _click(page, "#candidate-rows tr:nth-child(5) button")
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
    shown = []
    for row in range(1, 37):
        page.execute_script(f"document.querySelector('#candidate-rows tr:nth-child({row}) button').click()")
        page.execute_script("document.querySelectorAll('#duels details').forEach((d) => { d.open = true; })")
        shown += _texts(page, "#candidate pre, #duels pre")
    everything = "\n".join(shown)
    for text in HOSTILE:
        assert _visible(text) in everything
    assert page.execute_script("return window.pwned") is None
    foreign = "main img, main iframe, main script:not([type]) ~ script, [onload], [onerror]"
    assert page.execute_script("return document.querySelectorAll(arguments[0]).length", foreign) == 0


def test_memory_and_public_tests_are_folded_texts_under_what_they_say(page: Any, hostile_run: Path) -> None:
    candidates = [json.loads(line) for line in (hostile_run / "candidates.jsonl").open()]
    (problem,) = _texts(page, "#problem-outcome-line strong")
    own = {c["id"]: c for c in candidates if c["problem"] == problem}
    for row in range(1, len(own) + 1):
        page.execute_script(f"document.querySelector('#candidate-rows tr:nth-child({row}) button').click()")
        candidate = own[_selected(page)]
        feedback = candidate.get("feedback")
        share = {None: None, 0.0: "0 %", 1 / 3: "33 %", 2 / 3: "67 %"}[feedback and feedback["score"]]
        expected = [f"Public tests: {share} passed"] if feedback else []
        expected += ["Changes, line by line"] if candidate["parents"] else []
        expected += ["Reasoning, as parsed"] if candidate["reasoning"] != candidate["text"] else []
        expected += ["Memory left to its children"] if candidate.get("memory") else []
        assert _texts(page, "#candidate summary") == expected
        assert page.execute_script("return document.querySelectorAll('#candidate details[open]').length") == 0
        texts = _texts(page, "#candidate details pre")
        if feedback:
            assert (texts[0], texts[-1]) == (_visible(feedback["text"]), _visible(candidate["memory"]))
    assert page.execute_script("return window.pwned") is None


def test_choosing_a_problem_shows_its_candidates(page: Any) -> None:
    options = _texts(page, "#problem-list option")
    assert len(options) == 12
    page.execute_script("document.querySelector('#problem-list').focus()")
    page.find_element("css selector", "#problem-list").send_keys("\ue015")  # arrow down
    (line,) = _texts(page, "#problem-outcome-line p:first-child strong")
    assert line in options[1]
    assert len(_texts(page, "#candidate-rows tr")) == 36
    assert len(_texts(page, "#lineage [data-node]")) == 36


def test_the_question_stands_above_the_candidates_as_text(page: Any, hostile_run: Path) -> None:
    data = {r["problem"]: r["data"] for r in map(json.loads, (hostile_run / "problems.jsonl").open())}
    for position in range(2):
        page.execute_script(
            "const list = document.querySelector('#problem-list'); list.value = arguments[0];"
            "list.dispatchEvent(new Event('change'))",
            str(position),
        )
        (problem,) = _texts(page, "#problem-outcome-line strong")
        shown = data[problem]
        assert _texts(page, "#problem-data dt") == ["question", "options", "time"]
        assert _texts(page, "#problem-data dd:nth-of-type(1)") == [shown["question"]]
        options = _texts(page, "#problem-data ol > li")
        assert options[:6] == shown["options"][:6]
        assert len(options) == len(HOSTILE)
        assert _texts(page, "#problem-data ul > li") == ["minutes: 3"]
    above = "return document.querySelector('#problem-data').getBoundingClientRect().bottom"
    below = "return document.querySelector('#candidate-rows').getBoundingClientRect().top"
    assert page.execute_script(above) < page.execute_script(below)
    assert page.execute_script("return window.pwned") is None


def test_problems_are_found_by_search_and_outcome(page: Any) -> None:
    search = page.find_element("css selector", "#problem-search")
    search.send_keys("problem-007")
    assert ["problem-007" in option for option in _texts(page, "#problem-list option")] == [True]
    assert _texts(page, "#problem-outcome-line strong") == ["problem-007"]
    search.send_keys(" no such")
    assert _texts(page, "#problem-list option") == []
    assert page.find_element("css selector", "#problem-none").is_displayed()


def test_lineage_links_lead_to_parents_and_back(page: Any, hostile_run: Path) -> None:
    records = [json.loads(line) for line in (hostile_run / "candidates.jsonl").open()]
    (problem,) = _texts(page, "#problem-outcome-line strong")
    parents = {r["id"]: r["parents"] for r in records if r["problem"] == problem}
    child = next(candidate for candidate, ids in parents.items() if ids)
    position = list(parents).index(child)
    _click(page, f"#candidate-rows [data-candidate='{position}']")
    assert _selected(page) == child
    assert _texts(page, "#candidate dd.links:nth-of-type(5) button") == parents[child]
    assert len(_texts(page, "#lineage .edge.parent")) == len(parents[child])
    _click(page, "#candidate dd.links:nth-of-type(5) button")
    parent = parents[child][0]
    assert _selected(page) == parent
    children = [candidate for candidate, ids in parents.items() if parent in ids]
    assert _texts(page, "#candidate dd.links:nth-of-type(6) button") == children
    _click(page, f"#lineage [data-node='{position}']")
    assert _selected(page) == child


def test_arrow_keys_walk_through_the_candidates(page: Any) -> None:
    order = _texts(page, "#candidate-rows button")
    _click(page, "#candidate-rows tr:nth-child(3) button")
    page.switch_to.active_element.send_keys("\ue015")
    assert _selected(page) == order[3]
    page.switch_to.active_element.send_keys("\ue013")
    assert _selected(page) == order[2]


def test_the_duels_of_a_candidate_are_its_own(page: Any, hostile_run: Path) -> None:
    records = [json.loads(line) for line in (hostile_run / "comparisons.jsonl").open()]
    (problem,) = _texts(page, "#problem-outcome-line strong")
    chosen = _selected(page)
    own = [r for r in records if r["problem"] == problem and chosen in (r["first"], r["second"])]
    winners = [r[r["outcome"]] if r["outcome"] else None for r in own]
    results = ["undecided" if w is None else "won" if w == chosen else "lost" for w in winners]
    opponents = [r["second"] if r["first"] == chosen else r["first"] for r in own]
    assert {"won", "lost"} <= set(results)
    assert {r["first"] == chosen for r in own} == {True, False}
    assert _texts(page, "#duels .result") == results
    assert _texts(page, "#duels li button") == opponents
    _click(page, "#duels li button")
    assert _selected(page) == opponents[0]


@pytest.fixture(name="prompts", scope="module")
def _prompts() -> list[dict[str, Any]]:
    """A lineage of 200 hostile system prompts; each child keeps its parent's first line and brings two of its own."""
    seed = [{"id": "s0", "generation": 0, "operator": "seed", "parents": [], "text": "Be brief.\nseed\nend"}]
    children = [
        {
            "id": f"s{i} {HOSTILE[i % len(HOSTILE)]}" if i == 199 else f"s{i}",
            "generation": i,
            "operator": "reflect",
            "parents": [f"s{i - 1}", *(["s0"] if i == 199 else [])],
            "text": f"Be brief.\n{HOSTILE[i % len(HOSTILE)]}\nown {i}\nend",
        }
        for i in range(1, 200)
    ]
    return [{**one, "problem": "*", "kind": "system_prompt", "answer": None} for one in seed + children]


@pytest.fixture(name="shared_page", scope="module")
def _shared_page(chromium: Any, prompts: list[dict[str, Any]], tmp_path_factory: pytest.TempPathFactory) -> Any:
    run = write_run(tmp_path_factory.mktemp("shared") / "run", RunSpec(problems=2))
    with (run / "candidates.jsonl").open("ab") as file:
        write_lines(file, prompts)
    ratings = [{"step": i, "candidate": "s7", "mean": 20.0 + i, "sd": 1.0, "survivor": True} for i in range(3)]
    (run / "ratings.jsonl").write_text("".join(json.dumps(rating) + "\n" for rating in ratings))
    chromium.get_log("browser")
    chromium.get(write_report(run).as_uri())
    return chromium


def test_what_serves_all_problems_has_a_long_lineage(shared_page: Any, prompts: list[dict[str, Any]]) -> None:
    page = shared_page
    assert _texts(page, "#problem-list option")[0].split("   ")[0].endswith("all problems")
    assert _texts(page, "#problem-outcome-line strong") == ["all problems"]
    assert len(_texts(page, "#candidate-rows tr")) == 200
    assert _texts(page, "th[id]") == ["Text", "Operator", "Rating"]
    _click(page, "#candidate-rows [data-candidate='199']")
    assert len(_texts(page, "#lineage .edge.far")) == 198
    assert _texts(page, "#candidate dd.links:nth-of-type(5) button") == ["s198", "s0"]
    _click(page, "#candidate dd.links:nth-of-type(5) button")
    assert _selected(page) == "s198"
    assert _texts(page, "#candidate dd.links:nth-of-type(6) button") == [_visible(prompts[199]["id"])]
    _click(page, "#lineage [data-node='7']")
    assert _selected(page) == "s7"
    assert _texts(page, "#candidate dd")[1] == "22.00 ± 1.00"
    assert "step 0: 20.00" in _texts(page, "#candidate details:last-of-type pre")[-1]
    page.execute_script(
        "const list = document.querySelector('#problem-list'); list.value = 1; list.dispatchEvent(new Event('change'))"
    )
    assert _texts(page, "th[id]") == ["Answer", "Grade", "Posterior"]
    page.execute_script(
        "const list = document.querySelector('#problem-list'); list.value = 0; list.dispatchEvent(new Event('change'))"
    )
    assert page.execute_script("return window.pwned") is None
    assert page.get_log("browser") == []


def test_changes_are_shown_against_the_chosen_parent_as_texts(shared_page: Any, prompts: list[dict[str, Any]]) -> None:
    page = shared_page
    _click(page, "#candidate-rows [data-candidate='199']")
    own, before = (prompts[i]["text"].split("\n") for i in (199, 198))
    shown = ["  Be brief.", f"- {before[1]}", f"- {before[2]}", f"+ {own[1]}", f"+ {own[2]}", "  end"]
    assert _texts(page, "#candidate .diff span") == [_visible(line) + "\n" for line in shown]
    page.execute_script(
        "const choice = document.querySelector('#candidate .changes select'); choice.value = 0;"
        "choice.dispatchEvent(new Event('change'))"
    )
    shown = ["  Be brief.", "- seed", f"+ {own[1]}", f"+ {own[2]}", "  end"]
    assert _texts(page, "#candidate .diff span") == [_visible(line) + "\n" for line in shown]
    _click(page, "#candidate-rows [data-candidate='0']")
    assert _texts(page, "#candidate .diff") == []
    assert page.execute_script("return window.pwned") is None


def test_line_differences_lead_from_one_text_to_the_other_and_keep_all_they_can(shared_page: Any) -> None:
    rng = random.Random(0)
    texts = ["\n".join(rng.choices("abc", k=rng.randrange(9))) for _ in range(400)]
    pairs = [*zip(texts[::2], texts[1::2], strict=True), ("", ""), ("a", "a"), ("", "a\nb")]
    for (before, after), lines in zip(pairs, shared_page.execute_script(DIFFS, pairs), strict=True):
        assert [line for sign, line in lines if sign != "+"] == before.split("\n")
        assert [line for sign, line in lines if sign != "-"] == after.split("\n")
        assert sum(sign == " " for sign, _ in lines) == _longest_common(before.split("\n"), after.split("\n"))


DIFFS = "return arguments[0].map(([before, after]) => lineDiff(before, after))"


def _longest_common(left: list[str], right: list[str]) -> int:
    """Return the length of the longest common subsequence, by trying every choice."""
    if not left or not right:
        return 0
    if left[0] == right[0]:
        return 1 + _longest_common(left[1:], right[1:])
    return max(_longest_common(left[1:], right), _longest_common(left, right[1:]))


def test_an_answer_of_several_lines_keeps_them(chromium: Any, tmp_path: Path) -> None:
    run = write_run(tmp_path / "run", RunSpec(problems=1, candidates=1, generations=0, duels=0))
    program = "def f(n):\n    return n"
    for name in ("candidates", "predictions"):
        (record,) = [json.loads(line) for line in (run / f"{name}.jsonl").open()]
        (run / f"{name}.jsonl").write_text(json.dumps({**record, "answer": program}) + "\n")
    chromium.get(write_report(run).as_uri())
    assert _texts(chromium, "#candidate h4 + pre")[0] == program
    assert _texts(chromium, "#candidate dd")[0] == "below"
    assert "see the one returned" in _texts(chromium, "#problem-outcome-line p")[0]


@pytest.mark.parametrize("width", [420, 1024, 1920])
def test_nothing_scrolls_sideways_and_no_column_is_a_letter_wide(page: Any, width: int) -> None:
    page.execute_cdp_cmd(
        "Emulation.setDeviceMetricsOverride", {"width": width, "height": 800, "deviceScaleFactor": 1, "mobile": False}
    )
    try:
        assert page.execute_script("return document.documentElement.scrollWidth <= window.innerWidth")
        first = "[...document.querySelectorAll('.table td:first-child')].filter((cell) => cell.offsetParent)"
        assert page.execute_script(f"return Math.min(...{first}.map((cell) => cell.offsetWidth))") >= 100
    finally:
        page.execute_cdp_cmd("Emulation.clearDeviceMetricsOverride", {})


def test_what_is_believed_of_candidates_has_its_methods_name(chromium: Any, tmp_path: Path) -> None:
    run = write_run(tmp_path / "run", RunSpec(problems=1, candidates=4, duels=0))
    records = [json.loads(line) for line in (run / "candidates.jsonl").open()]
    fit, estimated = ({"fitness": 61.5, "mean": 61.5, "sd": None}, {"mean": 3.0, "sd": None})
    for name, belief in (("Posterior", {}), ("Fitness", fit), ("Estimate", estimated)):
        lines = "".join(json.dumps({**record, **belief}) + "\n" for record in records)
        (run / "candidates.jsonl").write_text(lines)
        chromium.get(write_report(run).as_uri())
        assert _texts(chromium, "#head-belief") == [name]
        assert _texts(chromium, "#candidate dt")[1] == name
        assert name.lower() in _texts(chromium, "#lineage text")
    assert _texts(chromium, "#candidate dd")[1] == "3.00"


def test_light_and_dark_follow_the_reader(page: Any) -> None:
    colours = []
    for scheme in ("light", "dark"):
        feature = {"name": "prefers-color-scheme", "value": scheme}
        page.execute_cdp_cmd("Emulation.setEmulatedMedia", {"features": [feature]})
        style = "const s = getComputedStyle(arguments[0]); return [s.backgroundColor, s.color]"
        colours.append(page.execute_script(style, page.find_element("css selector", "body")))
    assert colours[0] != colours[1]


def test_the_page_works_without_candidates_or_duels(chromium: Any, tmp_path: Path) -> None:
    chromium.get_log("browser")
    spec = RunSpec(problems=0, finished=False, manifest={"status": "interrupted"})
    chromium.get(write_report(write_run(tmp_path / "empty", spec)).as_uri())
    assert "Unfinished" in chromium.page_source
    chromium.get(write_report(write_run(tmp_path / "single", RunSpec(duels=0, candidates=1, generations=0))).as_uri())
    assert _texts(chromium, "#duels .note") == ["no duels"]
    (tmp_path / "single" / "problems.jsonl").unlink()
    chromium.get(write_report(tmp_path / "single").as_uri())
    assert _texts(chromium, "#problem-data") == [""]
    assert chromium.get_log("browser") == []
