"""Every Python block of the README, of docs/ and of the examples' READMEs runs: a page's in order, in one namespace.

The folder has a finished run in `RUN_DIR`, and the examples can be imported. A block whose first line says what it
needs is compiled only: `# needs a GPU`, `# needs a key`, `# needs a data set`.
"""

import re
from pathlib import Path

import pytest
from sybil import Sybil
from sybil.document import Document
from sybil.parsers.markdown import PythonCodeBlockParser

from prepared_runs import prepare

pytestmark = pytest.mark.usefixtures("_forked_children")

ROOT = Path(__file__).parents[1]
PAGES = [
    ROOT / "README.md",
    *sorted(page for page in (ROOT / "docs").rglob("*.md") if "generated" not in page.parts),
    *sorted(ROOT.glob("examples/*/README.md")),
]
NEEDS = re.compile(r"\s*# needs (?:a GPU|a key|a data set)")
SYBIL = Sybil(parsers=[PythonCodeBlockParser()], patterns=["*.md"])


def run_blocks(page: Path) -> int:
    """Run a page's Python blocks, and return how many there are."""
    document: Document = SYBIL.parse(page)
    examples = list(document.examples())
    for example in examples:
        if NEEDS.match(example.parsed):
            compile(example.parsed, str(page), "exec")
        else:
            example.evaluate()
    return len(examples)


@pytest.fixture(scope="module", name="folder")
def _folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("blocks")
    prepare(folder, "RUN_DIR")
    return folder


PAGES_WITH_BLOCKS = [page for page in PAGES if "```python\n" in page.read_text()]
LONG = ("python.md", "write_a_method.md", "write_a_task.md")
"""Pages whose blocks take long; tests of what they call take less."""


@pytest.mark.parametrize(
    "page",
    [pytest.param(page, marks=[pytest.mark.nightly] * (page.name in LONG)) for page in PAGES_WITH_BLOCKS],
    ids=[page.relative_to(ROOT).as_posix() for page in PAGES_WITH_BLOCKS],
)
def test_the_python_blocks_of_a_page_run(page: Path, folder: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(folder)
    for example in ROOT.glob("examples/*/pyproject.toml"):
        monkeypatch.syspath_prepend(example.parent)
    assert run_blocks(page) == page.read_text().count("```python\n")


def test_python_is_fenced() -> None:
    """Blocks by indentation are commands: they are coloured as such, and no test runs them as Python."""
    text = re.compile(r"^(?:    .*\n)*?    (?:async def|class|def|from \w\S* import|import) .*$", re.MULTILINE)
    fenced = re.compile(r"```.*?```", re.DOTALL)
    assert [(page.name, found) for page in PAGES for found in text.findall(fenced.sub("", page.read_text()))] == []


def test_blocks_share_a_namespace_and_those_that_need_something_are_compiled(tmp_path: Path) -> None:
    page = tmp_path / "page.md"
    page.write_text(
        "```python\na = 1\n```\n\n```python\n# needs a GPU\nraise SystemExit\n```\n\n```python\nassert a == 1\n```\n"
    )
    assert run_blocks(page) == 3
    page.write_text("```python\nassert False\n```\n")
    with pytest.raises(AssertionError):
        run_blocks(page)
    page.write_text("```python\n# needs a key\nthis is no Python\n```\n")
    with pytest.raises(SyntaxError):
        run_blocks(page)
