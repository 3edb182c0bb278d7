"""Write the page of all settings from the files of conf/: each key with its default and the source that it names."""

import re
from collections.abc import Iterator
from pathlib import Path

GROUPS = ("method", "method_parts", "task", "engine", "training", "budget", "student")
"""The groups whose files hold settings with their sources; the others only choose."""
_LINE = re.compile(r"(?P<indent> *)(?P<key>[\w]+):(?: (?P<value>[^#]*?))?(?:\s+# (?P<source>.*))?$")


def write(conf: Path, page: Path) -> None:
    """Write the page as Markdown, a section for each file."""
    parts = ["# Settings", "Each key of `conf/` with its default. The source is a paper's section, or `ours`.\n"]
    for group in GROUPS:
        for file in sorted((conf / group).glob("*.yaml")):
            rows = list(read_rows(file.read_text()))
            if rows:
                parts += [f"## {group}={file.stem}\n", "| key | default | source |", "| --- | --- | --- |", *rows, ""]
    page.parent.mkdir(exist_ok=True)
    page.write_text("\n".join(parts))


def read_rows(text: str) -> Iterator[str]:
    """Yield a table's row for each key of a YAML file; a nested key has those above it in front."""
    above: list[tuple[int, str]] = []
    for line in text.splitlines():
        found = _LINE.fullmatch(line)
        if found is None:
            continue
        indent = len(found["indent"])
        if not indent and found["key"] in ("name", "description"):  # of the choice itself
            continue
        above = [(depth, key) for depth, key in above if depth < indent]
        above.append((indent, found["key"]))
        if found["value"] is not None or found["source"]:
            cells = (".".join(key for _, key in above), found["value"] or "", found["source"] or "")
            key, value, source = (cell.strip().replace("|", "\\|") for cell in cells)
            source = re.sub(r"([<>*_\[\]`~$])", r"\\\1", source)
            yield f"| `{key}` | {f'`{value}`' if value else ''} | {source} |"
