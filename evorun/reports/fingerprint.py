"""A digest of all that a run's page is made of: a page that carries the digest is still up to date."""

import hashlib
from collections.abc import Sequence
from functools import cache
from importlib.resources import files
from pathlib import Path

from evorun.runs.directory import MANIFEST

ATTRIBUTE = "data-made-from"
"""The attribute of a page's first element that holds the digest."""

_HEAD = 200
"""Bytes of a page that hold the attribute."""


def fingerprint(run_dir: Path, problems: Sequence[str] | None) -> str:
    """Return a digest of the run's records, of the problems asked for, and of the code that makes the page."""
    # contents, not modification times: a copied or resumed run has new times and the same figures
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
    # the code, not the version: a page must be drawn again after an edit of a template in a checkout
    digest = hashlib.blake2b()
    for package in ("evorun.reports", "evorun.runs"):
        for file in sorted(files(package).iterdir(), key=lambda file: file.name):
            if file.is_file():
                digest.update(file.name.encode() + file.read_bytes())
    return digest.hexdigest()
