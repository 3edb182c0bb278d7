"""Principles of the system prompts that evolution starts from: each a list or a file."""

import re
from pathlib import Path
from typing import Any

import msgspec

from evorun.errors import ConfigError
from evorun.methods.espl.system_prompts import OWN_ID, without_id
from evorun.runs.files import read_regular


def read_roots(given: Any, others: Any) -> list[tuple[str, ...]]:
    """Return the principles of each root: those of `method.root_principles`, then of each of `method.other_roots`.

    Raises ConfigError as `read_principles` does, and for two roots that are the same.
    """
    if others is not None and not isinstance(others, list):
        raise ConfigError(f"method.other_roots: expected a list of lists or files, got {others!r:.200}")
    named = [(f"method.other_roots[{number}]", one) for number, one in enumerate(others or ())]
    roots: list[tuple[str, ...]] = []
    for key, one in [("method.root_principles", given), *named]:
        principles = read_principles(one, key)
        if principles in roots:
            raise ConfigError(
                f"{key}: expected other principles than those of the roots before it; method.prompts "
                "draws one root several times"
            )
        roots.append(principles)
    return roots


def read_principles(given: Any, key: str) -> tuple[str, ...]:
    """Return the principles that a setting names, without ids in front of them.

    given: a list of texts, or the path of a file: a JSON list of them where its name ends in .json, else plain text
    with blank lines between principles. None: there are none. key: the setting, for what is wrong with it. Raises
    ConfigError for anything else, for a principle without words or with an id within its text, and for one that is
    there twice.
    """
    texts = _in_file(Path(given).expanduser(), key) if isinstance(given, str) else [] if given is None else given
    if not isinstance(texts, list) or not all(isinstance(one, str) for one in texts):
        raise ConfigError(f"{key}: expected a list of texts or a file with one, got {given!r:.200}")
    principles = tuple(without_id(one).strip() for one in texts)
    for number, one in enumerate(principles, 1):
        if not one or one in principles[: number - 1]:
            fault = "is there twice" if one else "has no words"
            raise ConfigError(f"{key}: expected principles that differ, number {number} {fault}")
        if found := OWN_ID.search(one):
            raise ConfigError(
                f"{key}: expected one principle an entry, number {number} has the id {found[0].strip()} in its text; "
                "make two entries of it, or leave the id out"
            )
    return principles


def _in_file(path: Path, key: str) -> Any:
    try:
        text = read_regular(path).decode()
        return msgspec.json.decode(text) if path.suffix == ".json" else re.split(r"\n[ \t\r]*\n", text.strip())
    except OSError as error:
        raise ConfigError(f"{key}: cannot read '{path}': {error.strerror}") from error
    except (UnicodeDecodeError, msgspec.DecodeError) as error:
        raise ConfigError(f"{key}: '{path}' is neither text nor a JSON list of texts: {error}") from error
