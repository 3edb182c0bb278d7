"""Rubrics of several keys on a run's page, in a real browser, with hostile texts in all of them."""

from typing import Any

import pytest
from rubric_fixture import RubricSpec, write_rubric_run

from browsing import MARKS, WebDriverWait, click, texts, visible
from evorun.reports import write_report
from run_fixture import HOSTILE

pytestmark = MARKS
KEYS = ("algebra 1", HOSTILE[0])


@pytest.fixture(name="page", scope="module")
def _page(chromium: Any, tmp_path_factory: pytest.TempPathFactory) -> Any:
    spec = RubricSpec(keys=KEYS, hostile=True, hacked=True)
    run = write_rubric_run(tmp_path_factory.mktemp("mpo") / "run", spec)
    chromium.get(write_report(run).as_uri())
    ready = "return 'ready' in document.querySelector('#rollouts').dataset"
    WebDriverWait(chromium, 60, poll_frequency=0.01).until(lambda driver: driver.execute_script(ready))
    return chromium


def _listed(page: Any) -> list[str]:
    return texts(page, "#member-rows tr:not([hidden]) td:first-child button")


def test_the_table_shows_one_key_at_a_time_and_the_diff_to_the_rubric_before(page: Any) -> None:
    assert _listed(page) == [visible(f"{KEYS[1]}#{number}") for number in range(4)]
    choose = (
        "const s = document.querySelector('#member-key'); s.value = arguments[0]; s.dispatchEvent(new Event('change'))"
    )
    page.execute_script(choose, KEYS[0])
    assert _listed(page) == [f"algebra 1#{number}" for number in range(4)]
    click(page, "#member-rows tr[data-row='2'] button")
    (title,) = texts(page, "#member h3")
    assert title == "rubric algebra 1#1"
    assert any(visible(HOSTILE[1]) in line for line in texts(page, "#member .diff .added"))
    assert "- Judge how the text hangs together.\n" in texts(page, "#member .diff .gone")
    assert len(texts(page, "#member .blamed button")) == 2
    # a mark in the tree that belongs to the other key brings its table
    page.execute_script("document.querySelector('#prompt-3').dispatchEvent(new Event('click'))")
    assert _listed(page) == [visible(f"{KEYS[1]}#{number}") for number in range(4)]
    assert page.execute_script("return window.pwned") is None


def test_rollouts_name_the_rubric_that_scored_them(page: Any) -> None:
    first = texts(page, "#rollout-list summary")[0]
    assert "rubric algebra 1#0" in first
