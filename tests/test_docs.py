"""The README and the pages of docs/: what they name is there, and they stay short enough to read.

`make docs` builds the site and fails on a page that its index does not name, and on links within it that lead nowhere.
"""

import ast
import re
from collections.abc import Iterator
from pathlib import Path
from statistics import median

import check_style
import pytest

ROOT = Path(__file__).parents[1]
DOCS = ROOT / "docs"
TOP_LEVEL = [ROOT / name for name in ("README.md", "CONTRIBUTING.md", "SECURITY.md", "CHANGELOG.md", "SKILL.md")]
PAPERS = sorted((DOCS / "papers").glob("*.md"))
PAGES = sorted(page for page in DOCS.rglob("*.md") if page.parent.name != "generated")
EXAMPLES = [ROOT / "examples" / "README.md", *sorted(ROOT.glob("examples/*/README.md"))]
TEXTS = [*TOP_LEVEL, *PAGES, *EXAMPLES]
LONGEST, MEDIAN, USUAL = 35, 18, 25
"""Words of a sentence: at most, in the median of a page, and of all but a tenth."""


def anchors(page: Path) -> set[str]:
    """Return the names by which GitHub links to a page's headings."""
    headings = re.findall(r"^#+ (.+)$", re.sub(r"```.*?```", "", page.read_text(), flags=re.DOTALL), re.MULTILINE)
    return {re.sub(r"[^\w\- ]", "", heading.lower()).replace(" ", "-") for heading in headings}


def sentences(text: str) -> Iterator[str]:
    """Yield the sentences of paragraphs and list items; code, tables and headings have none."""
    text = re.sub(r"```.*?```", "", text, flags=re.DOTALL)
    text = re.sub(r"^(    |#|\s*\|).*$", "", text, flags=re.MULTILINE)
    for block in re.split(r"\n\s*\n|\n(?=\s*(?:[-*]|\d+\.) )", text):
        yield from split_sentences(block)


def cell_sentences(text: str) -> Iterator[str]:
    """Yield the sentences of a page's table cells."""
    text = re.sub(r"```.*?```", "", text, flags=re.DOTALL)
    for row in re.findall(r"^ {0,3}\|(.*)\|\s*$", text, re.MULTILINE):
        for cell in re.split(r"(?<!\\)\|", re.sub(r"`[^`]*`", "x", row)):
            yield from split_sentences(cell)


def split_sentences(block: str) -> list[str]:
    words = re.sub(r"`[^`]*`|\]\([^)]*\)", "x", " ".join(block.split()))
    return re.split(r"(?<=[.!?])\s+(?=[A-Z\[*x0-9]|evorun|vLLM)", words)


def is_defined(module: str, name: str) -> bool:
    """Say whether a module's source defines a class, a function, or a function of a class."""
    file = ROOT / f"{module.replace('.', '/')}.py"
    tree: ast.AST = ast.parse(file.read_text() if file.is_file() else "")
    for part in name.split("."):
        kinds = (ast.ClassDef, ast.FunctionDef, ast.AsyncFunctionDef)
        named = {one.name: one for one in ast.iter_child_nodes(tree) if isinstance(one, kinds)}
        if part not in named:
            return False
        tree = named[part]
    return True


def test_sentences_end_at_full_stops_and_list_items() -> None:
    text = "# No\n\nOne two. Three `a. B` four\nfive.\n\n- Six\n- [Seven](a.md): eight\n\n| no |\n\n    no\n"
    assert [len(one.split()) for one in sentences(text) if one] == [2, 4, 2, 3]


def test_cells_have_sentences_too() -> None:
    text = "No.\n\n| One | Two `a | b` three. Four |\n| --- | --- |\n\n    | no |\n"
    assert [len(one.split()) for one in cell_sentences(text)] == [1, 3, 1, 1, 1]


def test_the_readme_is_one_page() -> None:
    text = (ROOT / "README.md").read_text()
    assert len(text.splitlines()) <= 130
    assert len(text.split()) <= 1200


@pytest.mark.parametrize("page", TEXTS, ids=lambda page: page.relative_to(ROOT).as_posix())
def test_no_sentence_is_longer_than_35_words(page: Path) -> None:
    text = page.read_text()
    assert [one for one in [*sentences(text), *cell_sentences(text)] if len(one.split()) > LONGEST] == []


@pytest.mark.parametrize("page", PAGES, ids=lambda page: page.relative_to(ROOT).as_posix())
def test_a_page_begins_with_a_sentence(page: Path) -> None:
    title, first, *_ = filter(None, page.read_text().splitlines())
    assert title.startswith("# ")
    assert re.match(r"[A-Z\[*`e]", first)  # no block of code, table or picture


@pytest.mark.parametrize("page", TEXTS, ids=lambda page: page.relative_to(ROOT).as_posix())
def test_most_sentences_are_short(page: Path) -> None:
    lengths = [len(one.split()) for one in sentences(page.read_text()) if one.strip()]
    assert median(lengths) <= MEDIAN
    assert sum(length > USUAL for length in lengths) <= max(1, len(lengths) / 10)


def test_the_style_check_finds_words_and_not_those_of_code(tmp_path: Path) -> None:
    check_style.register()
    found = check_style.find(tmp_path, "# One\n\nSix calls a\nproblem, `calls a problem`.\n\n    calls a run\n")
    assert found == [f"{tmp_path}:3: words: Write 'calls per ...' instead of 'calls a\nproblem'."]
    assert check_style.find(tmp_path, "It is very good.\nThe same is very unique.\n")[0].startswith(f"{tmp_path}:2: ")


@pytest.mark.parametrize("page", TOP_LEVEL, ids=lambda page: page.name)
def test_links_of_top_level_files_lead_somewhere(page: Path) -> None:
    text = page.read_text()
    for target in re.findall(r"\]\(([^)\s]+)\)", text) + re.findall(r'(?:src|srcset)="([^"]+)"', text):
        if not target.startswith("https://"):
            path, _, anchor = target.partition("#")
            assert (ROOT / path).is_file(), target
            assert not anchor or anchor in anchors(ROOT / path), target


@pytest.mark.parametrize("page", PAPERS, ids=lambda page: page.stem)
def test_the_functions_of_a_papers_equations_are_there(page: Path) -> None:
    named = re.findall(r"`(evorun\.[\w.]+):([\w.]+)`", page.read_text())
    assert len(named) > 8
    assert [f"{module}:{name}" for module, name in named if not is_defined(module, name)] == []


@pytest.mark.parametrize("page", [*TOP_LEVEL, *PAGES], ids=lambda page: page.relative_to(ROOT).as_posix())
def test_python_files_that_a_page_names_are_there(page: Path) -> None:
    named = set(re.findall(r"(?<![\w./-])((?:\w+/)+\w+\.py)\b", page.read_text()))
    assert [
        name for name in sorted(named) if not any((base / name).is_file() for base in (ROOT, ROOT / "evorun"))
    ] == []


def test_every_experiment_of_a_paper_is_on_its_page() -> None:
    printed = {name for page in PAPERS for name in re.findall(r"experiment=([\w/]+)", page.read_text())}
    names = [file.relative_to(ROOT / "conf" / "experiment") for file in (ROOT / "conf" / "experiment").glob("*/*.yaml")]
    papers = [
        name.with_suffix("").as_posix()
        for name in names
        if name.parts[0] not in ("training", "reasoning_gym", "rivals", "stopping")
    ]
    assert len(papers) > 20
    assert sorted(set(papers) - printed) == []


@pytest.mark.parametrize("group", ["method", "task"])
def test_the_readme_names_every_method_and_task(group: str) -> None:
    text = (ROOT / "README.md").read_text()
    assert not [file.stem for file in (ROOT / "conf" / group).glob("*.yaml") if f"`{file.stem}`" not in text]


def test_each_part_of_a_report_has_a_picture_and_a_worry() -> None:
    text = (DOCS / "guides" / "report.md").read_text()
    parts = re.split(r"^##+ ", text, flags=re.MULTILINE)[1:]
    assert len(parts) > 20
    for title, _, part in (part.partition("\n") for part in parts):
        if title != "The page of several runs":  # which has parts of its own
            assert part.startswith("\n!["), title
            assert "**Worry**" in part, title
    shown = re.findall(r"images/report/(\w+)\.png", text)
    script = (ROOT / "scripts" / "draw_report_pictures.py").read_text()
    assert sorted(shown) == sorted(re.findall(r'^    Picture\("(\w+)"', script, re.MULTILINE))
    assert sorted(shown) == sorted(file.stem for file in (DOCS / "images" / "report").glob("*.png"))


def test_the_glossary_has_each_word_once_and_in_order() -> None:
    words = re.findall(r"^\| ([^|]+) \|", (DOCS / "glossary.md").read_text(), re.MULTILINE)[2:]
    assert len(words) > 40
    assert words == sorted(set(words))
