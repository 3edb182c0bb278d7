"""Configuration of the documentation's site: `make docs` builds it and fails on any warning."""

import sys
import tomllib
from pathlib import Path

_DOCS = Path(__file__).parent
sys.path.insert(0, str(_DOCS))
import settings_page  # noqa: E402

_PROJECT = tomllib.loads((_DOCS.parent / "pyproject.toml").read_text())["project"]
settings_page.write(_DOCS.parent / "conf", _DOCS / "generated" / "settings.md")

project = _PROJECT["name"]
copyright = "the evorun authors"
extensions = ["myst_parser", "sphinx_copybutton"]
exclude_patterns = ["requirements.txt"]

nitpicky = True
myst_heading_anchors = 4  # links to headings, named as GitHub names them
highlight_language = "bash"  # of blocks that name no language: nearly all are commands
copybutton_exclude = ".linenos, .gp, .go, .c1"  # a command's comment is not copied

html_theme = "furo"
html_title = "evorun"
html_show_sphinx = False
html_copy_source = False
html_show_sourcelink = False
