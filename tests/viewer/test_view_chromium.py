"""`evorun view` as a user meets it: a real process, its page in a real browser, the keyboard, and Ctrl-C."""

import http.client
import json
import os
import shutil
import signal
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any
from urllib.parse import urlsplit

import pytest
from selenium.common.exceptions import StaleElementReferenceException
from selenium.webdriver.common.keys import Keys

from browsing import MARKS, WebDriverWait, texts
from building import simulated_run
from evorun.runs.sweeps import JobInSweep, new_sweep, write_sweep
from evorun_process import environment
from prepared_runs import DUELS, SMALL_DUELS
from run_fixture import HOSTILE, RunSpec, write_run

pytestmark = MARKS

SEEDS = 8
SOONER = "const later = setTimeout; window.setTimeout = (what, ms, ...rest) => later(what, ms / 10, ...rest)"
"""Has the page look for changes ten times as often."""
PIPES: Any = {"stdout": subprocess.PIPE, "stderr": subprocess.PIPE}


@pytest.fixture(name="folder", scope="module")
def _folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Return a folder with a sweep of simulated runs, a hostile run, and one that failed."""
    folder = tmp_path_factory.mktemp("viewed") / "runs"
    simulated_run(folder / "sweep" / "seed_0", *DUELS, *SMALL_DUELS)
    manifest = json.loads((folder / "sweep" / "seed_0" / "manifest.json").read_text())
    for seed in range(1, SEEDS):
        run = Path(shutil.copytree(folder / "sweep" / "seed_0", folder / "sweep" / f"seed_{seed}"))
        changed = {**manifest, "seed": seed, "files": {}, "config": {**manifest["config"], "seed": seed}}
        (run / "manifest.json").write_text(json.dumps(changed))
    jobs = [JobInSweep(f"seed_{seed}", (f"seed={seed}",)) for seed in range(SEEDS)]
    write_sweep(folder / "sweep", new_sweep(["evorun"], "basic", jobs))
    error = "".join(text for text in HOSTILE if text.isprintable())
    planted = {
        "status": "failed",
        "error": error,
        "method": HOSTILE[2],
        "task": HOSTILE[0],
        "config": {HOSTILE[2]: HOSTILE[3]},
    }
    write_run(folder / "hostile", RunSpec(problems=2, hostile=True, finished=False, manifest=planted))
    return folder


@pytest.fixture(name="served", scope="module")
def _served(folder: Path) -> Iterator[str]:
    """Yield the address of the page; end its process as Ctrl-C does."""
    command = [sys.executable, "-m", "evorun", "view", folder.name, "--no-browser"]
    before = digest(folder)
    with subprocess.Popen(
        command, cwd=folder.parent, env=environment(), text=True, start_new_session=True, **PIPES
    ) as process:
        assert process.stdout is not None
        assert process.stdout.readline() == f"{SEEDS + 1} runs below runs; Ctrl-C ends this view, not the runs\n"
        yield process.stdout.readline().strip()
        os.killpg(process.pid, signal.SIGINT)  # as a terminal does
        _, said = process.communicate(timeout=60)
    assert (process.returncode, said) == (0, "")
    assert digest(folder) == before  # nothing was written, not even a report


def digest(folder: Path) -> dict[str, tuple[int, int]]:
    files = (file for file in folder.rglob("*") if file.is_file() and file.parent.name != "live")
    return {str(file): (file.stat().st_mtime_ns, file.stat().st_size) for file in files}


@pytest.fixture(name="page")
def _page(chromium: Any, served: str) -> Iterator[Any]:
    for log in ("browser", "performance"):
        chromium.get_log(log)
    added = chromium.execute_cdp_cmd("Page.addScriptToEvaluateOnNewDocument", {"source": SOONER})
    chromium.get("about:blank")  # an address that differs in its end alone would not be loaded again
    chromium.get(served)
    wait(chromium, "return document.querySelectorAll('#runs tr[data-id]').length > 0")
    yield chromium
    chromium.execute_cdp_cmd("Emulation.clearDeviceMetricsOverride", {})
    chromium.execute_cdp_cmd("Page.removeScriptToEvaluateOnNewDocument", added)


def wait(page: Any, condition: str, *arguments: Any) -> Any:
    return WebDriverWait(page, 60, poll_frequency=0.1).until(
        lambda driver: driver.execute_script(condition, *arguments)
    )


def names(page: Any) -> list[str]:
    return texts(page, "#runs tr[data-id] .name")


def press(page: Any, *keys: str) -> None:
    page.switch_to.active_element.send_keys(*keys)


def click(page: Any, by: str, selector: str) -> None:
    """Click an element; again if the live page has drawn it anew between finding and clicking it."""

    def found_and_clicked(driver: Any) -> bool:
        driver.find_element(by, selector).click()
        return True

    WebDriverWait(page, 60, poll_frequency=0.02, ignored_exceptions=[StaleElementReferenceException]).until(
        found_and_clicked
    )


def choose(page: Any, select: str, value: str) -> None:
    page.execute_script(
        "const s = document.getElementById(arguments[0]); s.value = arguments[1]; s.dispatchEvent(new Event('change'))",
        select,
        value,
    )


def chosen(page: Any) -> str:
    return str(page.execute_script("return document.querySelector('#runs tr.selected .name').textContent"))


def test_filter_sort_and_group_by_any_key(page: Any, folder: Path) -> None:
    assert names(page) == ["runs/hostile", *(f"seed={seed}" for seed in range(SEEDS))]
    press(page, "/", "seed>=3 seed!=5 duel", Keys.ENTER)
    assert names(page) == [f"seed={seed}" for seed in (3, 4, 6, 7)]
    choose(page, "sort", "seed")
    choose(page, "order", "descending")
    assert names(page) == [f"seed={seed}" for seed in (7, 6, 4, 3)]
    press(page, "/", Keys.CONTROL + "a" + Keys.NULL, "nothing_of_the_kind=1 state=done", Keys.ESCAPE)
    assert names(page) == []
    assert "no key nothing_of_the_kind differs among these runs" in texts(page, "#said")[0]
    assert "No run matches the filter." in texts(page, "#runs")[0]
    assert texts(page, "#panel") == ["No run is chosen."]
    click(page, "css selector", "#runs td.none button")
    assert len(names(page)) == SEEDS + 1
    click(page, "xpath", "//div[@id='states']/button[starts-with(., 'all')]")
    choose(page, "group", "method.name")
    groups = texts(page, "#runs tbody > tr > th")
    value = json.loads((folder / "sweep" / "seed_0" / "results.json").read_text())["metrics"]["accuracy"]["value"]
    assert groups == [
        f"method.name = duel_evolve: 8 done; mean accuracy {100 * value:.1f} % (n = 8)",
        "method.name = none: 1 failed",
    ]
    assert "method.name" in texts(page, "#runs thead th button")


@pytest.mark.nightly
def test_the_keyboard_chooses_and_ticks(page: Any) -> None:
    press(page, "j", Keys.ARROW_DOWN, "j", "k")
    assert chosen(page) == "seed=1"
    press(page, "c")
    redraw = "document.querySelector('#runs').parentElement.style.width = '600px'"
    page.execute_script(f"{redraw}; return new Promise((done) => requestAnimationFrame(() => setTimeout(done)))")
    assert texts(page, "#said") == ["Tick two runs or more to compare them."]
    press(page, " ", "j", "j", " ", "k", " ", " ")
    assert texts(page, "#runs tr:has(input:checked) .name") == ["seed=1", "seed=3"]
    assert texts(page, "#compare") == ["Compare 2"]


@pytest.mark.nightly
def test_a_hostile_runs_own_page_runs_nothing(page: Any, served: str) -> None:
    press(page, Keys.HOME)
    click(page, "css selector", "#panel h2 a")
    wait(page, "return document.querySelectorAll('#candidate-rows tr').length > 0")
    assert page.execute_script("return window.pwned") is None
    assert_asks_only(page, served)


@pytest.mark.nightly
def test_the_keyboard_opens_what_is_chosen_and_comes_back(page: Any, served: str) -> None:
    press(page, "j", "j", " ", "j", "j", " ", "k", "c")
    wait(page, "return document.title.startsWith('Comparison of 2 runs')")
    links = {link.get_attribute("href") for link in page.find_elements("css selector", "td a")}
    page.back()
    wait(page, "return document.querySelectorAll('#runs input:checked').length === 2")  # as it was left
    assert chosen(page) == "seed=2"
    opened = {row.get_attribute("href") for row in page.find_elements("css selector", "tr:has(input:checked) a")}
    assert links == opened
    press(page, Keys.ENTER)
    wait(page, "return document.title === 'duel_evolve on mathbench'")
    # its own script runs, and reaches nothing of the server
    wait(page, "return document.querySelectorAll('#candidate-rows tr').length > 0")
    refused = "return fetch(arguments[0]).then(() => 'answered', (error) => error.name)"
    assert page.execute_script(refused, f"{served}runs.json") == "TypeError"
    assert page.execute_script("return origin") == "null"


def test_hostile_texts_run_nothing_and_ask_for_nothing(page: Any, served: str) -> None:
    press(page, Keys.HOME)
    wait(page, "return document.querySelector('#panel dl') && document.querySelector('#panel svg')")
    choose(page, "column", HOSTILE[2])
    choose(page, "group", HOSTILE[2])
    shown = page.execute_script("return document.body.innerText")
    for text in (HOSTILE[0], HOSTILE[2], HOSTILE[3]):
        assert text in shown
    assert page.execute_script("return window.pwned") is None
    assert_asks_only(page, served)


def assert_asks_only(page: Any, served: str) -> None:
    assert page.get_log("browser") == []
    events = [json.loads(entry["message"])["message"] for entry in page.get_log("performance")]
    asked = [event["params"]["request"]["url"] for event in events if event["method"] == "Network.requestWillBeSent"]
    assert {urlsplit(url).netloc for url in asked if not url.startswith(("about:", "data:"))} == {
        urlsplit(served).netloc
    }


def test_a_run_appears_goes_on_and_ends(page: Any, folder: Path) -> None:
    run = write_run(folder / "live", RunSpec(problems=2, generations=1, finished=False, manifest={"status": "running"}))
    wait(page, "return [...document.querySelectorAll('#runs .name')].some((n) => n.textContent === 'runs/live')")
    press(page, "/", "folder=runs/live", Keys.ENTER)
    assert texts(page, "#runs tr[data-id] td.lost") == ["lost"]
    wait(page, "return document.querySelectorAll('#panel circle').length === 2")
    steps = [json.loads(line) for line in (run / "steps.jsonl").read_text().splitlines()]
    with (run / "steps.jsonl").open("a") as file:
        file.writelines(json.dumps({**step, "step": 2}) + "\n" for step in steps if step["step"] == 1)
    wait(page, "return document.querySelectorAll('#panel circle').length === 3")
    shutil.rmtree(run)
    wait(page, "return document.querySelectorAll('#runs tr[data-id]').length === 0")


@pytest.mark.nightly
def test_jobs_of_two_sweeps_and_what_was_made_of_runs_have_their_names(page: Any, folder: Path) -> None:
    other, run = folder / "other" / "sweep", folder / "sweep" / "seed_0"
    shutil.copytree(run, other / "seed_0")
    manifest = json.loads((run / "manifest.json").read_text())
    origin = {"verb": "fork", "run": str(run), "at": 1, "changes": [], "effects": 1, "calls": 1}
    (other / "seed_0" / "manifest.json").write_text(json.dumps({**manifest, "origin": origin}))
    jobs = [JobInSweep(f"seed_{seed}", (f"seed={seed}",)) for seed in (0, 1)]  # the other one has not begun
    write_sweep(other, new_sweep(["evorun"], "basic", jobs))
    appears = "return [...document.querySelectorAll('#runs .name a')].some((link) => link.textContent === arguments[0])"
    wait(page, appears, "seed=0 in other/sweep")
    links = texts(page, "#runs tr[data-id] .name a")
    assert len(set(links)) == len(links)
    assert {"seed=0 in other/sweep", "seed=0 in runs/sweep"} <= set(links)
    press(page, "/", "kind=fork", Keys.ENTER)
    assert names(page) == ["seed=0 in other/sweepfork"]
    assert "fork of " in texts(page, "#panel")[0]
    shutil.rmtree(other.parent)
    wait(page, "return document.querySelectorAll('#runs tr[data-id]').length === 0")


@pytest.mark.sample(1)
@pytest.mark.parametrize("width", [420, 1400])
def test_columns_without_room_are_named(page: Any, width: int) -> None:
    metrics = {"width": width, "height": 900, "deviceScaleFactor": 1, "mobile": False}
    page.execute_cdp_cmd("Emulation.setDeviceMetricsOverride", metrics)
    wait(page, "const box = document.querySelector('.list'); return box.scrollWidth <= box.clientWidth")
    heads = "return [...document.querySelectorAll('#runs th')].filter((h) => !h.offsetParent).map((h) => h.textContent)"
    hidden = page.execute_script(heads)
    said = texts(page, "#said")[0]
    assert (f"no room for {', '.join(hidden)}:" in said) == bool(hidden) == ("no room" in said)
    assert ("calls" in hidden) == (width == 420)
    if width == 420:
        choose(page, "sort", "calls")
        assert "calls ↑" in texts(page, "#runs thead th")
        assert not any("calls" in head for head in page.execute_script(heads))


@pytest.mark.sample(1)
@pytest.mark.parametrize("width", [420, 1400])
def test_nothing_but_the_table_scrolls_sideways(page: Any, width: int) -> None:
    metrics = {"width": width, "height": 900, "deviceScaleFactor": 1, "mobile": False}
    page.execute_cdp_cmd("Emulation.setDeviceMetricsOverride", metrics)
    wait(page, "return document.querySelector('#panel svg')")
    assert page.execute_script("return document.documentElement.scrollWidth") <= width
    seen = page.execute_script(
        "return [...document.querySelectorAll('#runs tr[data-id]:last-child td')].filter((c) => c.offsetParent).length"
    )
    assert (seen < 6) == (width == 420)


def test_only_this_machine_is_listened_to(served: str) -> None:
    port = urlsplit(served).port
    assert port is not None
    listening = [
        line.split() for table in ("tcp", "tcp6") for line in Path(f"/proc/net/{table}").read_text().splitlines()
    ]
    assert [line[1] for line in listening if line[3] == "0A" and line[1].endswith(f":{port:04X}")] == [
        f"0100007F:{port:04X}"
    ]
    connection = http.client.HTTPConnection("127.0.0.1", port)
    connection.request("GET", urlsplit(served).path, headers={"Host": "rebound.example"})
    assert connection.getresponse().status == 403
    connection.close()
