r"""Draw the page of `evorun view` over the README's sweep as a PNG file, as docs/guides/view.md shows it.

    evorun -m method=zero_shot,best_of_n,duel_evolve task.source=sample engine=simulated task.limit=12 \
           budget=calls_300 seed=0,1,2 hydra.sweep.dir=outputs/first_sweep
    python scripts/draw_view_picture.py outputs/first_sweep docs/images/view.png

Needs Chromium and its driver on the PATH. With --width, other widths too, such as that of a telephone.
"""

import argparse
import base64
import io
import subprocess
import sys
from pathlib import Path

from draw_page_pictures import save_small
from draw_report_pictures import open_browser
from PIL import Image
from selenium.webdriver.support.ui import WebDriverWait

READY = "return document.querySelector('#panel svg') !== null"
PREPARE = """
for (const [id, value] of [["group", "method"], ["sort", "score"], ["order", "descending"]]) {
  const select = document.getElementById(id);
  select.value = value;
  select.dispatchEvent(new Event("change"));
}
"""
"""The choices that a reader would make first."""


def draw(folder: Path, file: Path, width: int, height: int) -> None:
    """Write the picture of the page over a folder's runs."""
    command = [sys.executable, "-m", "evorun", "view", str(folder), "--no-browser"]
    with subprocess.Popen(command, stdout=subprocess.PIPE, text=True) as process:
        browser = open_browser()
        try:
            size = {"width": width, "height": height, "deviceScaleFactor": 1, "mobile": False}
            browser.execute_cdp_cmd("Emulation.setDeviceMetricsOverride", size)
            browser.get(next(line.strip() for line in process.stdout or () if line.startswith("http")))
            WebDriverWait(browser, 60).until(lambda page: page.execute_script(READY))
            browser.execute_script(PREPARE)
            browser.execute_script(
                "document.body.dispatchEvent(new KeyboardEvent('keydown', {key: 'Home', bubbles: true}))"
            )
            WebDriverWait(browser, 60).until(lambda page: page.execute_script(READY))
            shot = browser.execute_cdp_cmd("Page.captureScreenshot", {})
            save_small(Image.open(io.BytesIO(base64.b64decode(shot["data"]))), file)
        finally:
            browser.quit()
            process.terminate()


if __name__ == "__main__":
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("folder", type=Path, help="folder of runs")
    parser.add_argument("file", type=Path, help="where the picture goes")
    parser.add_argument("--width", type=int, default=1400)
    parser.add_argument("--height", type=int, default=800)
    given = parser.parse_args()
    draw(given.folder, given.file, given.width, given.height)
