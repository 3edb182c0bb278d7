"""Configuration of the documentation's site: `make docs` builds it and fails on any warning."""

import tomllib
from pathlib import Path

_PROJECT = tomllib.loads((Path(__file__).parents[1] / "pyproject.toml").read_text())["project"]

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
