"""The page of the examples: each one's README, and its Python modules, as examples/ has them."""

import posixpath
import re
from pathlib import Path

ROOT = Path(__file__).parents[2]
LISTED = re.compile(r"^\| \[(\w+)\]\(\1/README\.md\) \|", re.MULTILINE)
LINK = re.compile(r"\[([^\]]+)\]\((?!https?:|#)([^)\s]+)\)")

HEAD = """
# Examples

Each folder of `examples/` is small enough to copy. Run its commands there, after `pip install .` where it is a package.
"""


def examples_page() -> str:
    """Return the page, in the order of the examples' list."""
    names = LISTED.findall((ROOT / "examples" / "README.md").read_text())
    return "\n".join([HEAD, *map(_section, names)])


def _section(name: str) -> str:
    folder = ROOT / "examples" / name
    text = re.sub(r"^# ", "## ", (folder / "README.md").read_text(), count=1)
    text = LINK.sub(lambda link: _link(name, link[1], link[2]), text)
    modules = (f"`{file.name}`\n\n{_include(file)}" for file in sorted(folder.glob("*.py")))
    return "\n".join([f"(example-{name})=", text, *modules])


def _link(name: str, text: str, target: str) -> str:
    """Return a link of an example's README as it leads from the page; Markdown outside docs/ is only named."""
    path = posixpath.normpath(f"examples/{name}/{target}")
    if found := re.fullmatch(r"examples/(\w+)/README\.md", path):
        return f"[{text}](#example-{found[1]})"
    if path.startswith("docs/"):
        return f"[{text}](../{path.removeprefix('docs/')})"
    return f"`{text}`" if path.endswith(".md") else f"[{text}](../../{path})"


def _include(file: Path) -> str:
    return f"```{{literalinclude}} ../../{file.relative_to(ROOT).as_posix()}\n:language: python\n```\n"
