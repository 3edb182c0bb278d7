"""Write the pages of the reference into a folder: `python -m reference FOLDER`, with docs/ and evorun on the path."""

import sys
from pathlib import Path

from reference.command_line import command_line_page
from reference.examples import examples_page
from reference.frames import frames_page
from reference.functions import functions_page
from reference.pairs import pairs_page
from reference.records import records_page
from reference.scores import scores_page
from reference.settings import settings_pages


def main(folder: Path) -> None:
    """Write each page as a Markdown file."""
    folder.mkdir(exist_ok=True)
    pages = {
        **dict(settings_pages()),
        "records": records_page(),
        "frames": frames_page(),
        "pairs": pairs_page(),
        "scores": scores_page(),
        "command_line": command_line_page(),
        "functions": functions_page(),
        "examples": examples_page(),
    }
    for name, text in pages.items():
        (folder / f"{name}.md").write_text(text)


if __name__ == "__main__":
    main(Path(sys.argv[1]))
