r"""Draw the parts of reports as PNG files, as docs/guides/report.md shows them: one picture for each heading.

    evorun task.source=sample engine=simulated task.limit=30 method.generations=10 hydra.run.dir=outputs/duels
    evorun rejudge outputs/duels judge=qwen2_5_7b judge_engine=simulated judge_engine.judge_skill=0.9
    evorun experiment=espl/simulated_study method.transplant=true hydra.mode=RUN hydra.run.dir=outputs/espl
    evorun delete-one outputs/espl
    evorun experiment=mpo/simulated_study engine.meta_skill=0.02 hydra.mode=RUN hydra.run.dir=outputs/mpo
    evorun method=islands task=circle_packing engine=simulated method.generations=12 hydra.run.dir=outputs/islands
    evorun method=lyria task=sudoku engine=simulated task.limit=10 method.generations=8 hydra.run.dir=outputs/lyria
    evorun -m method=zero_shot,best_of_n,duel_evolve task.source=sample engine=simulated task.limit=12 \
           budget=calls_300 seed=0,1,2 hydra.sweep.dir=outputs/first_sweep
    evorun report outputs/first_sweep
    evorun -m method=zero_shot,duel_evolve engine.judge_skill=0.6,0.9 task.source=sample engine=simulated \
           task.limit=12 budget=calls_300 seed=0,1,2 hydra.sweep.dir=outputs/levels
    evorun report outputs/levels
    evorun -m method=espl_evolution,gepa task=arithmetic task.test_problems=10 engine=simulated budget=calls_150 \
           hydra.sweep.dir=outputs/prompts
    evorun report outputs/prompts
    python scripts/draw_report_pictures.py outputs docs/images/report

Needs Chromium and its driver on the PATH.
"""

import argparse
import base64
import io
import shutil
from pathlib import Path
from typing import Any, NamedTuple

from draw_page_pictures import find_browser, save_small
from PIL import Image
from selenium import webdriver

WIDTH, MARGIN = 1100, 12
"""Pixels: of the window, and around a part."""
FIND_PART = """
const headings = [...document.querySelectorAll("h1, h2")];
const name = (heading) => heading.textContent.trim().replace(/^CSV/, "");  // of a link to its table
const at = headings.findIndex((heading) => heading.firstChild && name(heading).startsWith(arguments[0]));
if (at < 0) throw new Error("no heading " + arguments[0]);
const section = headings[at].closest("section");
const next = headings.slice(at + 1).find((heading) => !heading.closest("h2 *"));
const top = headings[at].getBoundingClientRect().top + scrollY;
const inside = section ? section.getBoundingClientRect().bottom + scrollY : Infinity;
const below = next ? next.getBoundingClientRect().top + scrollY - arguments[1] : document.body.scrollHeight;
const bottom = Math.min(inside, below);
return [top, bottom];
"""


class Picture(NamedTuple):
    """A part of a page: its heading, and how many pixels of it are shown at most."""

    name: str
    run: str
    heading: str
    height: int
    page: str = "report.html"


PICTURES = (
    Picture("score", "duels", "Accuracy", 560),
    Picture("cost", "duels", "Accuracy against cost", 444),
    Picture("roles", "duels", "Cost by role", 400),
    Picture("search", "duels", "Search", 764),
    Picture("judge", "duels", "Judge", 760),
    Picture("candidates", "duels", "Candidates", 922),
    Picture("prompts", "espl", "System prompts", 1034),
    Picture("training", "espl", "Training", 624),
    Picture("reward", "mpo", "Reward", 527),
    Picture("rollouts", "mpo", "Rollouts", 700),
    Picture("strata", "duels", "Accuracy by stratum", 420),
    Picture("islands", "islands", "Islands", 515),
    Picture("ratings", "espl", "Evidence for ratings", 560),
    Picture("edits", "espl", "Edits", 420),
    Picture("transplants", "espl", "Prompts and weights", 528),
    Picture("principles", "espl", "The worth of each principle", 438),
    Picture("rejudged", "duels", "Judged again", 514),
    Picture("arms", "first_sweep", "Accuracy and cost", 700, "comparison.html"),
    Picture("curves", "first_sweep", "Accuracy during the runs", 480, "comparison.html"),
    Picture("pairs", "first_sweep", "Against", 560, "comparison.html"),
    Picture("warnings", "mpo", "mpo on essay", 386),
    Picture("method", "lyria", "Figures of the method", 430),
    Picture("methods", "first_sweep", "Figures of the methods", 520, "comparison.html"),
    Picture("search_and_judge", "first_sweep", "Search and judge", 400, "comparison.html"),
    Picture("strata_of_arms", "first_sweep", "Accuracy by stratum", 560, "comparison.html"),
    Picture("levels", "levels", "Within each level", 560, "comparison.html"),
    Picture("texts", "prompts", "Final texts", 700, "comparison.html"),
    Picture("run_cost", "first_sweep", "Cost of whole runs", 460, "comparison.html"),
    Picture("runs", "first_sweep", "Runs", 460, "comparison.html"),
)


def open_browser() -> Any:
    """Return headless Chromium with a light page of `WIDTH` pixels."""
    options = webdriver.ChromeOptions()
    for flag in ("--headless=new", "--no-sandbox", "--hide-scrollbars", f"--window-size={WIDTH},1000"):
        options.add_argument(flag)
    options.add_argument("--blink-settings=preferredColorScheme=1")
    options.binary_location = find_browser()
    return webdriver.Chrome(options=options, service=webdriver.ChromeService(shutil.which("chromedriver")))


def draw(browser: Any, picture: Picture, outputs: Path, folder: Path) -> Path:
    """Write the picture of a part, and return its file."""
    browser.get((outputs / picture.run / picture.page).resolve().as_uri())
    top, bottom = browser.execute_script(FIND_PART, picture.heading, 3 * MARGIN)
    height = min(bottom - top, picture.height) + 2 * MARGIN
    clip = {"x": 0, "y": max(0, top - MARGIN), "width": WIDTH, "height": height, "scale": 1}
    shot = browser.execute_cdp_cmd("Page.captureScreenshot", {"clip": clip, "captureBeyondViewport": True})
    file = folder / f"{picture.name}.png"
    save_small(Image.open(io.BytesIO(base64.b64decode(shot["data"]))), file)
    return file


if __name__ == "__main__":
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("outputs", type=Path, help="folder of these runs")
    parser.add_argument("folder", type=Path, help="where the pictures go")
    given = parser.parse_args()
    given.folder.mkdir(parents=True, exist_ok=True)
    browser = open_browser()
    try:
        for picture in PICTURES:
            file = draw(browser, picture, given.outputs, given.folder)
            print(f"{file}: {file.stat().st_size // 1000} kB")
    finally:
        browser.quit()
