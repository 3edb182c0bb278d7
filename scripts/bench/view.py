"""`evorun view` over many finished runs, copies of one real run: how soon its page shows them.

    python scripts/bench/run.py view                     200 runs
    python scripts/bench/run.py view --size runs=1000

A real browser opens the page of a real process, three times; the times are the shortest. Without Chromium, only what
the server does is measured.
"""

import shutil
import subprocess
import sys
import tempfile
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import msgspec

from dry_run import run
from evorun.runs.sweeps import JobInSweep, new_sweep, write_sweep
from evorun.viewer.index import Index
from evorun_bench import Row

TINY = {"runs": 3}
ALLOWED_MS = 1_000.0
LOADS = 3
_SHOWN = """
const done = arguments[arguments.length - 1];
const answer = () => done([performance.getEntriesByName("first-contentful-paint")[0].startTime, performance.now()]);
const shown = () => document.querySelectorAll("#runs tr[data-id]").length >= arguments[0];
const look = () => requestAnimationFrame(shown() ? answer : look);
look();
"""


def measure(runs: int = 200) -> list[Row]:
    """Return the time of the first paint and of the whole table, and the CPU of looking at all folders again."""
    with tempfile.TemporaryDirectory() as name:
        folder = Path(name)
        run(folder / "run", {"task.source": "sample", "task.limit": 2, "method.generations": 1})
        copy_run(folder / "run", folder / "sweep", runs)
        shutil.rmtree(folder / "run")
        rows = measure_index(folder, runs)
        browser = shutil.which("chromium") or shutil.which("chromium-browser")
        if browser is not None and shutil.which("chromedriver") is not None:
            rows += measure_page(folder, runs, browser)
    return rows


def copy_run(run_dir: Path, sweep: Path, runs: int) -> None:
    """Make a sweep of copies of a run, each with a seed of its own."""
    manifest = msgspec.json.decode((run_dir / "manifest.json").read_bytes())
    for seed in range(runs):
        copy = Path(shutil.copytree(run_dir, sweep / f"job_{seed}"))
        changed = {**manifest, "seed": seed, "config": {**manifest["config"], "seed": seed}}
        (copy / "manifest.json").write_bytes(msgspec.json.encode(changed))
    jobs = [JobInSweep(f"job_{seed}", (f"seed={seed}", "method=duel_evolve")) for seed in range(runs)]
    write_sweep(sweep, new_sweep(["evorun", "-m"], "basic", jobs))


def measure_index(folder: Path, runs: int) -> list[Row]:
    """Return the CPU of the first look at the folders, and of one that finds nothing new."""
    index = Index([folder])
    costs = []
    for _ in range(5):
        started = time.process_time()
        index.refresh()
        costs.append(1e3 * (time.process_time() - started))
    return [
        Row(f"CPU of the first look at {runs} runs", costs[0], "ms", "", None),
        Row(f"CPU of a look at {runs} runs that finds nothing new", min(costs[1:]), "ms", "", None),
    ]


def measure_page(folder: Path, runs: int, browser: str) -> list[Row]:
    """Return the milliseconds from asking for the page to its first paint, and to all rows."""
    with serve(folder) as address, open_browser(browser, folder / "profile") as page:
        times = []
        for _ in range(LOADS):
            page.get("about:blank")
            page.get(address)
            times.append(page.execute_async_script(_SHOWN, runs))
    paint, table = (min(each) for each in zip(*times, strict=True))
    target = f"< {ALLOWED_MS:g}"
    return [
        Row(f"first paint, {runs} runs", paint, "ms", target, paint < ALLOWED_MS),
        Row(f"all {runs} rows on the page", table, "ms", target, table < ALLOWED_MS),
    ]


@contextmanager
def serve(folder: Path) -> Iterator[str]:
    """Yield the address of a page over a folder."""
    command = [sys.executable, "-m", "evorun", "view", str(folder), "--no-browser"]
    with subprocess.Popen(command, stdout=subprocess.PIPE, text=True) as process:
        try:
            yield next(line.strip() for line in process.stdout or () if line.startswith("http"))
        finally:
            process.terminate()


@contextmanager
def open_browser(browser: str, profile: Path) -> Iterator[Any]:
    """Yield headless Chromium."""
    from selenium import webdriver

    options = webdriver.ChromeOptions()
    options.binary_location = browser
    for flag in (
        "--headless=new",
        "--no-sandbox",
        "--disable-gpu",
        "--disable-dev-shm-usage",
        f"--user-data-dir={profile}",
    ):
        options.add_argument(flag)
    page = webdriver.Chrome(options=options, service=webdriver.ChromeService(shutil.which("chromedriver")))
    try:
        page.set_script_timeout(60)
        yield page
    finally:
        page.quit()
