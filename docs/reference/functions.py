"""The page of the functions that the papers' pages name beside each equation, as their source has them."""

import re
from pathlib import Path

PAPERS = Path(__file__).parents[1] / "papers"
NAMED = re.compile(r"(evorun\.[\w.]+):([\w.]+)")
"""A module, and a function or class in it: `evorun.ratings.elo:rate`."""

HEAD = """
# Functions of the equations

The code behind each equation and algorithm of the papers, in the order of their pages.
"""


def anchor(name: str) -> str:
    """Return the name of a function's place on the page."""
    return re.sub(r"\W", "-", name)


def functions_page() -> str:
    """Return the page; Sphinx reads the code itself, and warns where a function is gone."""
    parts, seen = [HEAD], set[str]()
    for paper in sorted(PAPERS.glob("*.md")):
        text = paper.read_text()
        parts.append(f"## {text.splitlines()[0].removeprefix('# ')}\n")
        for module, function in NAMED.findall(text):
            name = f"{module}:{function}"
            if name not in seen:
                seen.add(name)
                parts.append(_section(name, f"{module.replace('.', '/')}.py", function))
    return "\n".join(parts)


def _section(name: str, file: str, function: str) -> str:
    return f"""({anchor(name)})=
### {function}

`{file}`

```{{literalinclude}} ../../{file}
:language: python
:pyobject: {function}
:lineno-match:
```
"""
