"""System prompts, rubrics and rollouts on a run's page, in a real browser, with hostile texts in all of them."""

import json
import random
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from evolution_fixture import EvolutionSpec, write_evolution
from rubric_fixture import RubricSpec, write_rubric_run

from browsing import MARKS, WebDriverWait, click, texts, visible
from evorun.reports import write_report
from run_fixture import HOSTILE

pytestmark = MARKS
SPEC = EvolutionSpec(steps=13, hostile=True)
KEYS = ("algebra 1", HOSTILE[0])


@pytest.fixture(name="run", scope="module")
def _run(tmp_path_factory: pytest.TempPathFactory) -> Path:
    run = write_evolution(tmp_path_factory.mktemp("espl") / "run", SPEC)
    (run / "artifacts").mkdir()
    effects = [{"principle": HOSTILE[0], "effect": 0.05, "low": -0.01, "high": 0.11, "n": 64}]
    (run / "artifacts" / "delete_one.json").write_text(json.dumps(effects))
    cells = [{"step": step, "candidate": who, "score": 0.5, "n": 64} for step in (0, 9) for who in ("0.0", "9.0")]
    (run / "artifacts" / "transplant.json").write_text(json.dumps(cells))
    return run


@pytest.fixture(name="page", scope="module")
def _page(chromium: Any, run: Path, drawing_only: Callable[..., Any]) -> Any:
    for log in ("browser", "performance"):
        chromium.get_log(log)
    with drawing_only("tree", "ratings"):
        chromium.get(write_report(run).as_uri())
    ready = "return 'ready' in document.querySelector('#rollouts').dataset"
    WebDriverWait(chromium, 60, poll_frequency=0.01).until(lambda driver: driver.execute_script(ready))
    return chromium


@pytest.fixture(name="prompts", scope="module")
def _prompts(run: Path) -> list[dict[str, Any]]:
    records = [json.loads(line) for line in (run / "candidates.jsonl").open()]
    return [record for record in records if record["problem"] == "*"]


@pytest.fixture(name="rollouts", scope="module")
def _rollouts(run: Path) -> list[dict[str, Any]]:
    return [json.loads(line) for line in (run / "rollouts.jsonl").open()]


def _shown(page: Any) -> str:
    (title,) = texts(page, "#member h3")
    return title.split()[2].removesuffix("best").removesuffix("latest")


def _press(page: Any, key: str) -> None:
    page.switch_to.active_element.send_keys(key)


def _set(page: Any, control: str, value: str) -> list[str]:
    """Fill a control of the rollouts and return the summaries that match."""
    page.execute_script(
        "const [name, value] = arguments, control = document.querySelector('#rollout-' + name); control.value = value;"
        "control.dispatchEvent(new Event(name === 'search' ? 'input' : 'change'))",
        control,
        value,
    )
    return texts(page, "#rollout-list summary")


def test_a_click_on_the_tree_shows_text_changes_reflection_and_blamed_rollouts(
    page: Any, prompts: list[dict[str, Any]], rollouts: list[dict[str, Any]]
) -> None:
    for position in (5, 8, 0):
        prompt = prompts[position]
        click(page, f"#prompt-{position} .target")
        assert _shown(page) == prompt["id"]
        assert texts(page, "#member pre.text") == [visible(prompt["text"])]
        family = texts(page, "#member dd.links:nth-of-type(n + 3) button")
        assert sorted(family[: len(prompt["parents"])]) == sorted(prompt["parents"])
        if position == 0:
            assert texts(page, "#member .diff, #member .blamed") == []
            continue
        parent = next(one for one in prompts if one["id"] == prompt["parents"][0])
        changed = [line for line in texts(page, "#member .diff span") if line[0] != " "]
        expected = [f"+ {line}" for line in prompt["text"].split("\n") if line not in parent["text"].split("\n")]
        assert [line for line in changed if line[0] == "+"] == [visible(line) + "\n" for line in expected]
        assert visible(prompt["note"]) in texts(page, "#member dd")
        assert visible(prompt["note"]) in texts(page, f"#member-rows [data-row='{position}'] td")
        assert visible(prompt["reflection"]) in texts(page, "#member details pre")
        blamed = texts(page, "#member .blamed button")
        assert blamed == prompt["blamed"][:8]
        page.execute_script("document.querySelector('#member .blamed').open = true")
        # in one script: the text is there when it is scrolled to, before any event comes
        details = page.execute_script(
            "arguments[0].click(); return document.querySelector('#rollout-list details[open] pre').textContent",
            page.find_element("css selector", f"#member [data-call='{blamed[0]}']"),
        )
        own = next(one for one in rollouts if one["call"] == blamed[0])
        assert details.startswith(f"rollout {own['step']}/{own['index']} of {own['problem']}")
    assert page.execute_script("return window.pwned") is None


def test_the_tree_is_walked_by_keys(page: Any, prompts: list[dict[str, Any]]) -> None:
    click(page, "#prompt-0 .target")
    page.execute_script("document.querySelector('#prompt-0').focus()")
    reached = page.execute_script(
        "return [...document.querySelectorAll('.member')].filter((n) => n.tabIndex === 0).length"
    )
    assert reached == 1
    _press(page, "\ue014")  # right: the first child
    child = next(one for one in prompts if one["parents"][:1] == ["0.0"])
    assert _shown(page) == child["id"]
    siblings = [one["id"] for one in prompts if one["parents"][:1] == ["0.0"]]
    if len(siblings) > 1:
        _press(page, "\ue015")  # down: the next of the same parent
        assert _shown(page) == siblings[1]
    _press(page, "\ue012")  # left: back to the parent
    assert _shown(page) == "0.0"
    assert page.execute_script("return document.activeElement.id") == "prompt-0"
    (label,) = texts(page, "#prompt-0 title")
    assert label.startswith("0.0: ")


def test_the_table_ranks_them_and_the_arrow_keys_walk_through_it(page: Any) -> None:
    ratings = [float(text.split()[0]) for text in texts(page, "#member-rows td:nth-child(4)")]
    assert len(ratings) == 1 + SPEC.steps
    assert ratings == sorted(ratings, reverse=True)
    assert texts(page, "#member-rows td:nth-child(6)").count("kept") == SPEC.window
    click(page, "#member-rows tr:nth-child(2) button")
    second = _shown(page)
    _press(page, "\ue015")
    _press(page, "\ue013")
    assert _shown(page) == second
    assert texts(page, "#member-rows tr.selected button") == [second]


def test_the_best_prompt_is_copied_as_it_is(page: Any, prompts: list[dict[str, Any]]) -> None:
    page.execute_script(
        "Object.defineProperty(navigator, 'clipboard',"
        " { configurable: true, value: { writeText: async (text) => { window.copied = text; } } })"
    )
    (heading,) = texts(page, ".best h3")
    best = next(one for one in prompts if f": {one['id']}, " in heading)
    assert "best" in heading
    assert texts(page, "#best-text") == [visible(best["text"])]
    click(page, "#copy-best")
    assert page.execute_script("return window.copied") == best["text"]
    assert texts(page, "#copy-best") == ["Copied"]


def test_rollouts_are_found_by_step_prompt_outcome_and_words(page: Any, rollouts: list[dict[str, Any]]) -> None:
    assert len(_set(page, "search", "")) == 40
    assert texts(page, "#rollout-count")[0].startswith(f"{len(rollouts)} of {len(rollouts)} match, of which")
    in_step = [one for one in rollouts if one["step"] == 4]
    assert len(_set(page, "step", "4")) == len(in_step)
    wrong = [one for one in in_step if one["correct"] is False]
    assert len(_set(page, "outcome", "wrong")) == len(wrong)
    prompt = wrong[0]["candidate"]
    value = page.execute_script(
        "return [...document.querySelector('#rollout-prompt').options].find((o) => o.text === arguments[0]).value",
        prompt,
    )
    found = _set(page, "prompt", value)
    assert len(found) == sum(one["candidate"] == prompt for one in wrong)
    assert all(f"prompt {prompt}" in summary for summary in found)
    for control in ("step", "prompt", "outcome"):
        _set(page, control, "")
    (found,) = _set(page, "search", "ROLLOUT 7/13 OF")
    assert " step 7 " in found
    assert _set(page, "search", "no such words") == []
    assert len(_set(page, "search", HOSTILE[0])) > 3  # texts, not markup


def test_hostile_texts_are_texts_and_nothing_is_loaded(page: Any, prompts: list[dict[str, Any]]) -> None:
    shown = []
    for position in range(len(prompts)):
        page.execute_script(f"document.querySelector('#member-rows [data-member=\"{position}\"]').click()")
        shown += texts(page, "#member pre")
    filled = "return document.querySelectorAll('#rollout-list details > summary:only-child').length === 0"
    for search in HOSTILE[:3]:
        _set(page, "search", search.lower())
        page.execute_script("document.querySelectorAll('#rollout-list details').forEach((d) => { d.open = true; })")
        WebDriverWait(page, 60, poll_frequency=0.01).until(lambda driver: driver.execute_script(filled))
    everything = "\n".join([*shown, *texts(page, "#principles td")])
    for text in HOSTILE:
        assert visible(text) in everything
    assert page.execute_script("return window.pwned") is None
    foreign = "main img, main iframe, main script:not([type]), [onload], [onerror]"
    assert page.execute_script("return document.querySelectorAll(arguments[0]).length", foreign) == 0
    assert page.get_log("browser") == []
    events = [json.loads(entry["message"])["message"] for entry in page.get_log("performance")]
    requests = [e["params"]["request"]["url"] for e in events if e["method"] == "Network.requestWillBeSent"]
    assert [url for url in requests if not url.startswith(("file://", "data:"))] == []


def test_figures_and_tables_can_be_saved(page: Any) -> None:
    saved = page.execute_script("return [...document.querySelectorAll('a[download]')].map((link) => link.download)")
    figures = ["tree", "ratings", "reward-by-prompt", "rating-score", "transplant", "principles", "training"]
    tables = ["population", "rewards_by_prompt", "edits", "transplant", "principles"]
    assert {*(f"{name}.svg" for name in figures), *(f"{name}.csv" for name in tables)} <= set(saved)


@pytest.mark.sample(1)
@pytest.mark.parametrize("width", [400, 1366])
def test_nothing_but_what_is_meant_to_scrolls_sideways(page: Any, width: int) -> None:
    metrics = {"width": width, "height": 800, "deviceScaleFactor": 1, "mobile": False}
    page.execute_cdp_cmd("Emulation.setDeviceMetricsOverride", metrics)
    try:
        assert page.execute_script("return document.documentElement.scrollWidth <= window.innerWidth")
        mark = "const r = document.querySelector('#prompt-3 .target').getBoundingClientRect(); return r.width"
        assert page.execute_script(mark) > 12  # a finger hits it
    finally:
        page.execute_cdp_cmd("Emulation.clearDeviceMetricsOverride", {})


def test_changes_are_shown_against_the_parent_that_is_chosen(page: Any, prompts: list[dict[str, Any]]) -> None:
    position, child = next((i, one) for i, one in enumerate(prompts) if len(one["parents"]) > 1)
    click(page, f"#member-rows [data-member='{position}']")
    shown = texts(page, "#member .changes option")
    assert sorted(shown) == sorted(child["parents"])
    for order, parent in enumerate(shown):
        page.execute_script(
            "const choice = document.querySelector('#member .changes select'); choice.value = arguments[0];"
            "choice.dispatchEvent(new Event('change'))",
            order,
        )
        lines = texts(page, "#member .diff span")
        before = [line[2:].removesuffix("\n") for line in lines if line[0] != "+"]
        after = [line[2:].removesuffix("\n") for line in lines if line[0] != "-"]
        text = next(one["text"] for one in prompts if one["id"] == parent)
        assert (before, after) == (visible(text).split("\n"), visible(child["text"]).split("\n"))


@pytest.mark.nightly  # the changes of one prompt are read by day
def test_line_differences_lead_from_one_text_to_the_other_and_keep_all_they_can(page: Any) -> None:
    rng = random.Random(0)
    made = ["\n".join(rng.choices("abc", k=rng.randrange(9))) for _ in range(400)]
    pairs = [*zip(made[::2], made[1::2], strict=True), ("", ""), ("a", "a"), ("", "a\nb")]
    diffs = "return arguments[0].map(([before, after]) => lineDiff(before, after))"
    for (before, after), lines in zip(pairs, page.execute_script(diffs, pairs), strict=True):
        assert [line for sign, line in lines if sign != "+"] == before.split("\n")
        assert [line for sign, line in lines if sign != "-"] == after.split("\n")
        assert sum(sign == " " for sign, _ in lines) == _longest_common(before.split("\n"), after.split("\n"))


def _longest_common(left: list[str], right: list[str]) -> int:
    """Return the length of the longest common subsequence, by trying every choice."""
    if not left or not right:
        return 0
    if left[0] == right[0]:
        return 1 + _longest_common(left[1:], right[1:])
    return max(_longest_common(left[1:], right), _longest_common(left, right[1:]))


# --- rubrics of several keys ---


@pytest.fixture(name="rubrics", scope="module")
def _rubrics(chromium: Any, tmp_path_factory: pytest.TempPathFactory, drawing_only: Callable[..., Any]) -> Any:
    spec = RubricSpec(keys=KEYS, hostile=True, hacked=True)
    run = write_rubric_run(tmp_path_factory.mktemp("mpo") / "run", spec)
    with drawing_only("tree"):
        chromium.get(write_report(run).as_uri())
    ready = "return 'ready' in document.querySelector('#rollouts').dataset"
    WebDriverWait(chromium, 60, poll_frequency=0.01).until(lambda driver: driver.execute_script(ready))
    return chromium


def _listed(rubrics: Any) -> list[str]:
    return texts(rubrics, "#member-rows tr:not([hidden]) td:first-child button")


@pytest.mark.nightly
def test_the_table_shows_one_key_at_a_time_and_the_diff_to_the_rubric_before(rubrics: Any) -> None:
    assert _listed(rubrics) == [visible(f"{KEYS[1]}#{number}") for number in range(4)]
    choose = (
        "const s = document.querySelector('#member-key'); s.value = arguments[0]; s.dispatchEvent(new Event('change'))"
    )
    rubrics.execute_script(choose, KEYS[0])
    assert _listed(rubrics) == [f"algebra 1#{number}" for number in range(4)]
    click(rubrics, "#member-rows tr[data-row='2'] button")
    (title,) = texts(rubrics, "#member h3")
    assert title == "rubric algebra 1#1"
    assert any(visible(HOSTILE[1]) in line for line in texts(rubrics, "#member .diff .added"))
    assert "- Judge how the text hangs together.\n" in texts(rubrics, "#member .diff .gone")
    assert len(texts(rubrics, "#member .blamed button")) == 2
    # a mark in the tree that belongs to the other key brings its table
    rubrics.execute_script("document.querySelector('#prompt-3').dispatchEvent(new Event('click'))")
    assert _listed(rubrics) == [visible(f"{KEYS[1]}#{number}") for number in range(4)]
    assert rubrics.execute_script("return window.pwned") is None


@pytest.mark.nightly
def test_rollouts_name_the_rubric_that_scored_them(rubrics: Any) -> None:
    first = texts(rubrics, "#rollout-list summary")[0]
    assert "rubric algebra 1#0" in first
