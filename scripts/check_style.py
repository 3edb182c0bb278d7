"""Check the style of README, docs/ and examples/ by proselint's checks of words, and evorun's own in docs/words.json.

    python scripts/check_style.py [FILE...]

Code is left out. Prints a line for each finding, and exits with 1 if there is any. docs/words.json maps a pattern to
what to write instead.
"""

import json
import re
import sys
from pathlib import Path

from proselint.checks import __register__
from proselint.config import DEFAULT
from proselint.registry import CheckRegistry
from proselint.registry.checks import Check, types
from proselint.tools import LintFile

ROOT = Path(__file__).parents[1]
WORDS = ROOT / "docs" / "words.json"
OFF = (
    "annotations",  # a table may say "not run"
    "lexical_illusions",  # figures in tables repeat
    "misc.but",  # a sentence may begin with it
    "social_awareness",  # about people, of whom these pages do not speak
    "spelling",  # the pages' English is British; codespell looks for mistakes
    "weasel_words.very",  # "this very run" is exact
    "typography",  # Sphinx sets quotation marks and dashes
)
ALL = {name: on for name, on in DEFAULT["checks"].items() if name not in OFF}
CODE = re.compile(r"```.*?```|^    .*?$|`[^`\n]*`|\]\([^)]*\)|<!--.*?-->", re.DOTALL | re.MULTILINE)


def prose(text: str) -> str:
    """Return a text with blanks in the place of code and of links' addresses; lines keep their numbers."""
    return CODE.sub(lambda code: re.sub(r"\S", "\u00a0", code.group()), text)


def find(file: Path, text: str) -> list[str]:
    """Return a line for each finding in a text."""
    found = LintFile(file, prose(text)).lint({**DEFAULT, "checks": {**dict.fromkeys(OFF, False), **ALL, "words": True}})
    return [
        f"{file}:{result.pos[0]}: {result.check_result.check_path}: {result.check_result.message}" for result in found
    ]


def register() -> None:
    """Register proselint's checks and evorun's own words."""
    words = {re.sub(" ", r"\\s+", pattern): instead for pattern, instead in json.loads(WORDS.read_text()).items()}
    own = Check(types.PreferredForms(words), path="words", message="Write '{}' instead of '{}'.")
    CheckRegistry().register_many((*__register__, own))


def pages() -> list[Path]:
    """Return the Markdown files of the root and of docs/, without generated ones, and the READMEs of examples/."""
    return [
        *ROOT.glob("*.md"),
        *ROOT.glob("examples/**/README.md"),
        *(page for page in sorted((ROOT / "docs").rglob("*.md")) if "generated" not in page.parts),
    ]


if __name__ == "__main__":
    register()
    findings = [line for file in map(Path, sys.argv[1:] or pages()) for line in find(file, file.read_text())]
    print(*findings, sep="\n")
    sys.exit(bool(findings))
