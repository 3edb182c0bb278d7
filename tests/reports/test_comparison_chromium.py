"""comparison.html in a real browser, from disk, with hostile names in it."""

import json
from collections.abc import Iterator
from typing import Any

import pytest
from comparison_fixture import write_method

from browsing import MARKS
from evorun.reports.comparison import compare, write_comparison
from evorun.runs.directory import REPORT
from run_fixture import HOSTILE

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


@pytest.fixture(name="page", scope="module")
def _page(chromium: Any, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Any]:
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
    target = write_comparison(compare(runs), folder / "comparison.html")
    for log in ("browser", "performance"):
        chromium.get_log(log)
    chromium.get(target.as_uri())
    yield chromium
    chromium.execute_cdp_cmd("Emulation.clearDeviceMetricsOverride", {})


def test_the_page_opens_without_errors_requests_or_foreign_code(page: Any) -> None:
    assert page.get_log("browser") == []
    events = [json.loads(entry["message"])["message"] for entry in page.get_log("performance")]
    requests = [e["params"]["request"]["url"] for e in events if e["method"] == "Network.requestWillBeSent"]
    assert any(url.startswith("file://") for url in requests)
    assert [url for url in requests if not url.startswith(("file://", "data:"))] == []
    assert page.execute_script("return window.pwned") is None
    assert page.find_element("css selector", "body").text.count(HOSTILE[0]) > 1


@pytest.mark.sample(2)
@pytest.mark.parametrize("width", [420, 800, 1400])
def test_nothing_but_a_table_scrolls_sideways_and_words_stay_whole(page: Any, width: int) -> None:
    metrics = {"width": width, "height": 900, "deviceScaleFactor": 1, "mobile": False}
    page.execute_cdp_cmd("Emulation.setDeviceMetricsOverride", metrics)
    assert page.execute_script("return document.documentElement.scrollWidth") <= width
    cells = "[...document.querySelectorAll('td, th')].filter((c) => c.textContent.trim().length > 7)"
    assert page.execute_script(f"return {cells}.length") > 50
    assert page.execute_script(f"return Math.min(...{cells}.map((c) => c.getBoundingClientRect().width))") > 50
    # of a method's name, each word is on one line: as many boxes as words at most
    broken = (
        "return [...document.querySelectorAll('td:first-child a')].filter((a) => a.textContent === 'feedback_descent')"
        ".map((a) => a.getClientRects().length)"
    )
    assert set(page.execute_script(broken)) == {1}
    sizes = (
        "return [...document.querySelectorAll('figure svg text')].map((t) => t.getBoundingClientRect().height)"
        ".filter((height) => height > 0)"
    )
    assert min(page.execute_script(sizes)) > 9  # readable: drawn for the width that it has


@pytest.mark.parametrize("scheme", ["light", "dark"])
def test_lines_stand_out_from_the_card_and_from_one_another(page: Any, scheme: str) -> None:
    feature = {"name": "prefers-color-scheme", "value": scheme}
    page.execute_cdp_cmd("Emulation.setEmulatedMedia", {"features": [feature]})
    strokes = page.execute_script(
        "return [...document.querySelectorAll('td .swatch svg path')].map((p) => getComputedStyle(p).stroke)"
        ".filter((c) => c.startsWith('rgb'))"
    )
    card = page.execute_script("return getComputedStyle(document.querySelector('figure')).backgroundColor")
    colours = set(strokes) - {card}
    assert len(colours) == len(METHODS)
    assert all(_contrast(colour, card) >= 3 for colour in colours)


def test_a_run_leads_to_its_own_page(page: Any) -> None:
    here = page.current_url
    page.find_element("css selector", "tbody a").click()
    assert page.current_url.endswith("/report.html")
    assert page.find_element("css selector", "h2").text == "Accuracy"
    page.get(here)


def _contrast(*colours: str) -> float:
    """Return the contrast ratio of two colours `rgb(r, g, b)`. Source: WCAG 2.2."""
    low, high = sorted(_luminance(colour) for colour in colours)
    return (high + 0.05) / (low + 0.05)


def _luminance(colour: str) -> float:
    parts = [int(part) / 255 for part in colour.removeprefix("rgb(").removesuffix(")").split(",")]
    linear = [part / 12.92 if part <= 0.04045 else ((part + 0.055) / 1.055) ** 2.4 for part in parts]
    return 0.2126 * linear[0] + 0.7152 * linear[1] + 0.0722 * linear[2]
