"""Configuration of the documentation's site: `make docs` builds it and fails on any warning.

The reference is written first, by the interpreter that has evorun: types, bounds and defaults are then those of the
classes themselves, and no written page is kept that could go stale.
"""

import os
import re
import subprocess
import sys
import tomllib
from pathlib import Path

from docutils import nodes
from sphinx import addnodes
from sphinx.application import Sphinx
from sphinx.ext.napoleon import Config, GoogleDocstring

_DOCS = Path(__file__).parent
sys.path.insert(0, str(_DOCS))
from reference.functions import NAMED, anchor  # noqa: E402

_ROOT = _DOCS.parent
_PROJECT = tomllib.loads((_ROOT / "pyproject.toml").read_text())["project"]
_PYTHON = os.environ.get("EVORUN_PYTHON", str(_ROOT / ".venv" / "bin" / "python"))
if not Path(_PYTHON).exists():
    raise SystemExit(
        f"expected an interpreter with evorun, found none at {_PYTHON}; run make setup, or set EVORUN_PYTHON"
    )
subprocess.run(
    [_PYTHON, "-B", "-m", "reference", str(_DOCS / "generated")],
    env={**os.environ, "PYTHONPATH": f"{_ROOT}{os.pathsep}{_DOCS}"},
    check=True,
)

project = _PROJECT["name"]
copyright = "the evorun authors"
extensions = ["myst_parser", "sphinx_copybutton", "autoapi.extension"]
exclude_patterns = ["requirements.txt"]

nitpicky = True
nitpick_ignore_regex = [("py:.*", ".*")]  # the API names types that are not on its page
myst_heading_anchors = 4  # links to headings, named as GitHub names them
highlight_language = "bash"  # of blocks that name no language: nearly all are commands
copybutton_exclude = ".linenos, .gp, .go, .c1"  # a command's comment is not copied

# python_api.md names what is public; autoapi reads those modules from their source, without importing them.
_PUBLIC = re.findall(r"autoapi\w+:: ([\w.]+)", (_DOCS / "python_api.md").read_text())
_EXPORTING = {name.rpartition(".")[0] for name in _PUBLIC}  # a package exports what its modules define
autoapi_dirs = [str(_ROOT / "evorun")]
autoapi_ignore = [
    str(file)
    for file in (_ROOT / "evorun").rglob("*.py")
    for module in [".".join(file.relative_to(_ROOT).with_suffix("").parts).removesuffix(".__init__")]
    if module.rpartition(".")[0] not in _EXPORTING and not any(name.startswith(f"{module}.") for name in _PUBLIC)
]
suppress_warnings = [
    "misc.highlighting_failure",  # an indented block may be a listing rather than commands
    "autoapi.python_import_resolution",  # of the modules left out
    "ref.python",  # a duel and a comparison of runs are both a `Comparison`; names of types link to either
]
_API = ("evorun.api.runs", "evorun.api.comparing")
_FRAMES = [
    name
    for module in _API
    for name in re.findall(
        r"^    (\w+) = (?:FrameOf|TableOf|_of_file)\(",
        (_ROOT / f"{module.replace('.', '/')}.py").read_text(),
        re.MULTILINE,
    )
]
autoapi_generate_api_docs = False
autoapi_options = ["members", "undoc-members"]
autodoc_typehints = "signature"
default_role = "code"  # of names between backticks in docstrings

html_theme = "furo"
html_static_path = ["_static"]
html_css_files = ["tables.css"]
html_title = "evorun"
html_show_sphinx = False
html_copy_source = False
html_show_sourcelink = False


def setup(app: Sphinx) -> None:
    """Have each docstring and each page changed once it is read."""
    app.connect("autodoc-process-docstring", _list_arguments)
    app.connect("doctree-read", _name_language)
    app.connect("doctree-read", _link_functions)
    app.connect("doctree-read", _show_frames_as_calls)


def _list_arguments(_: Sphinx, kind: str, name: str, of: object, options: object, lines: list[str]) -> None:
    """Make lists of `Args:` and `Raises:`; before a colon in a field's docstring Napoleon itself would find a type."""
    if kind in ("class", "exception", "function", "method"):
        lines[:] = GoogleDocstring(lines, Config(), what=kind).lines()


def _name_language(_: Sphinx, doctree: nodes.document) -> None:
    """Highlight indented blocks, to which MyST gives the language `none`, as all others without a language."""
    for block in doctree.findall(nodes.literal_block):
        if block.get("language") == "none":
            block["language"] = highlight_language


def _show_frames_as_calls(_: Sphinx, doctree: nodes.document) -> None:
    """Add parentheses to the data frames of runs and comparisons, which autoapi takes for plain attributes."""
    for signature in doctree.findall(addnodes.desc_signature):
        if signature["module"] in _API and signature["fullname"].rpartition(".")[2] in _FRAMES:
            (name,) = signature.findall(addnodes.desc_name)
            name.parent.insert(name.parent.index(name) + 1, addnodes.desc_parameterlist())


def _link_functions(app: Sphinx, doctree: nodes.document) -> None:
    """Lead from the functions that a paper's page names to their code."""
    if not app.env.docname.startswith("papers/"):
        return
    page = app.builder.get_relative_uri(app.env.docname, "generated/functions")
    for name in [*doctree.findall(nodes.literal)]:
        if NAMED.fullmatch(name.astext()):
            link = nodes.reference("", "", refuri=f"{page}#{nodes.make_id(anchor(name.astext()))}")
            name.replace_self(link)
            link += name
