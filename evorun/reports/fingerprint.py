"""What a run's page is made of, as a digest: a page that carries it says what a new one would say."""

import hashlib
from collections.abc import Sequence
from functools import cache
from importlib.resources import files
from pathlib import Path

from evorun.runs.directory import MANIFEST

ATTRIBUTE = "data-made-from"
"""Of a page's first element."""

_HEAD = 200
"""Bytes of a page that hold the attribute."""


def fingerprint(run_dir: Path, problems: Sequence[str] | None) -> str:
    """Return a digest of the run's records, of the problems asked for, and of the code that makes the page."""
    digest = hashlib.blake2b(repr((_code(), problems)).encode(), digest_size=16)
    for path in sorted([run_dir / MANIFEST, run_dir / "results.json", *run_dir.glob("*.jsonl")]):
        if path.is_file():
            with path.open("rb") as file:
                digest.update(path.name.encode() + hashlib.file_digest(file, "blake2b").digest())
    return digest.hexdigest()


def page_made_from(page: Path, made_from: str) -> str | None:
    """Return the page's text if it carries that digest, else None."""
    try:
        content = page.read_bytes()
    except OSError:
        return None
    return content.decode("utf-8", "replace") if f'{ATTRIBUTE}="{made_from}"'.encode() in content[:_HEAD] else None


@cache
def _code() -> str:
    """Return a digest of the modules, templates and styles that make a page."""
    digest = hashlib.blake2b()
    for package in ("evorun.reports", "evorun.runs"):
        for file in sorted(files(package).iterdir(), key=lambda file: file.name):
            if file.is_file():
                digest.update(file.name.encode() + file.read_bytes())
    return digest.hexdigest()
