"""Draw the top of a report or a comparison as two PNG files, light and dark, as the README shows it.

    evorun report outputs/first_sweep
    python scripts/draw_page_pictures.py outputs/first_sweep/comparison.html docs/images/comparison --height 1090

Needs Chromium on the PATH. The README's sweep makes the page of its picture.
"""

import argparse
import shutil
import subprocess
import tempfile
from pathlib import Path

from PIL import Image

SCHEMES = {"light": 1, "dark": 0}
"""The names of Chromium's setting `preferredColorScheme`."""
COLORS = 256
"""Of the palette: a page has few colours, and a picture without a palette is three times as large."""


def draw(page: Path, output: Path, width: int, height: int) -> list[Path]:
    """Write OUTPUT_light.png and OUTPUT_dark.png: the top of a page, `width` x `height` pixels."""
    browser, drawn = find_browser(), []
    for scheme, number in SCHEMES.items():
        file = output.with_name(f"{output.name}_{scheme}.png")
        with tempfile.TemporaryDirectory() as folder:
            shot = Path(folder) / "page.png"
            flags = [f"--window-size={width},{height}", f"--blink-settings=preferredColorScheme={number}"]
            command = [
                browser,
                "--headless=new",
                "--no-sandbox",
                "--hide-scrollbars",
                f"--user-data-dir={folder}/profile",
            ]
            subprocess.run(
                [*command, *flags, f"--screenshot={shot}", page.resolve().as_uri()], check=True, capture_output=True
            )
            save_small(Image.open(shot), file)
        drawn.append(file)
    return drawn


def find_browser() -> str:
    """Return the path of Chromium. Raises SystemExit where there is none."""
    browser = shutil.which("chromium") or shutil.which("chromium-browser") or shutil.which("google-chrome")
    if browser is None:
        raise SystemExit("expected Chromium on the PATH; on Debian: apt install chromium")
    return browser


def save_small(image: Image.Image, file: Path) -> None:
    """Write a picture of a page as a PNG file with a palette."""
    # median cut, the default, turns small marks grey; k-means gives large areas their own colours again
    image.convert("RGB").quantize(COLORS, method=Image.Quantize.MAXCOVERAGE, kmeans=3).save(file, optimize=True)


if __name__ == "__main__":
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("page", type=Path, help="report.html or comparison.html")
    parser.add_argument("output", type=Path, help="where the pictures go: OUTPUT_light.png, OUTPUT_dark.png")
    parser.add_argument("--width", type=int, default=1200)
    parser.add_argument("--height", type=int, default=1000)
    given = parser.parse_args()
    print(*draw(given.page, given.output, given.width, given.height), sep="\n")
