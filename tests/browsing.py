"""A Chromium for tests of pages, and the means to read and click in it."""

import shutil
from pathlib import Path
from typing import Any

import pytest

webdriver = pytest.importorskip("selenium.webdriver", reason="selenium is not installed")
WebDriverWait = pytest.importorskip("selenium.webdriver.support.ui", reason="selenium is not installed").WebDriverWait

CHROMIUM = shutil.which("chromium") or shutil.which("chromium-browser") or shutil.which("google-chrome")
DRIVER = shutil.which("chromedriver")
MARKS = [
    pytest.mark.chromium,
    pytest.mark.skipif(not (CHROMIUM and DRIVER), reason="no Chromium with its chromedriver on the PATH"),
    pytest.mark.usefixtures("drawn_figures"),
]
FLAGS = [
    "--headless=new",
    "--no-sandbox",
    "--disable-gpu",
    "--no-zygote",  # pages take a fifth less CPU time
    "--disable-quic",
    "--no-first-run",
    "--disable-background-networking",
    "--disable-component-update",
    "--disable-sync",
    "--disable-dev-shm-usage",
    "--window-size=1366,900",
]


def start(profile: Path) -> Any:
    """Start a Chromium that records what it logs and asks of the network."""
    options = webdriver.ChromeOptions()
    options.binary_location = CHROMIUM
    for flag in [*FLAGS, f"--user-data-dir={profile}"]:
        options.add_argument(flag)
    options.set_capability("goog:loggingPrefs", {"browser": "ALL", "performance": "ALL"})
    driver = webdriver.Chrome(options=options, service=webdriver.ChromeService(DRIVER))
    driver.get("about:blank")  # the browser's own start page makes requests
    return driver


def settle(page: Any) -> None:
    """Wait until the chosen problem is shown: its data is unpacked first."""
    shown = "const l = document.querySelector('#problem-list'); return !l || !l.value || l.dataset.shown === l.value"
    WebDriverWait(page, 60, poll_frequency=0.01).until(lambda driver: driver.execute_script(shown))


def texts(page: Any, selector: str) -> list[str]:
    settle(page)
    nodes = "return [...document.querySelectorAll(arguments[0])].map((n) => n.textContent)"
    result: list[str] = page.execute_script(nodes, selector)
    return result


def visible(text: str) -> str:
    """Return a hostile text as the page should show it."""
    shown = text.replace("\x00", "\u2400").replace("\x1b", "\u241b").replace("\x07", "\u2407")
    for direction in "\u202e\u202c\u2066\u2069":
        shown = shown.replace(direction, "\ufffd")
    return shown.replace("\ud800", "?")


def click(page: Any, selector: str) -> None:
    settle(page)
    page.execute_script("document.querySelector(arguments[0]).scrollIntoView({block: 'center'})", selector)
    page.find_element("css selector", selector).click()
