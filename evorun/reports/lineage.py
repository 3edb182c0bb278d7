"""A run's rubrics by refinement: the length of their items, and their strictness (MPO, figures 5a and 5b)."""

from collections.abc import Iterable, Sequence
from pathlib import Path
from typing import NamedTuple

from evorun.runs.candidates import CandidateId
from evorun.runs.directory import RUBRIC_SCORES
from evorun.runs.reading import read_artifact
from evorun.runs.schema import CandidateRecord, RubricScore


class Length(NamedTuple):
    """A rubric's place in its lineage, and the length of its items."""

    rubric: CandidateId
    number: int
    """Number of refinements before it."""
    refined: int
    """The step after which it was made."""
    words: float
    """Mean words per item; for a rubric in free text, all its words."""


def lengths(candidates: Iterable[CandidateRecord]) -> dict[str, list[Length]]:
    """Return the rubrics of each key in order of creation; the key "" stands for a rubric of all problems."""
    by_key: dict[str, list[Length]] = {}
    for candidate in candidates:
        if candidate.kind == "rubric":
            versions = by_key.setdefault(parse_key(candidate.id), [])
            versions.append(Length(candidate.id, len(versions), candidate.generation, item_words(candidate.text)))
    return by_key


def parse_key(rubric: CandidateId) -> str:
    """Return the key of a rubric by its id, `KEY#NUMBER`; "" for that of all problems."""
    name = rubric.rpartition("#")[0]
    return "" if name == "rubric" else name


def item_words(text: str) -> float:
    """Return the mean number of words per item of a rubric, without tags; for free text, all its words."""
    # Items stand side by side, each between its own tags: `evorun.tasks.rubrics` reads and writes them so.
    items = [item.partition("</item>")[0] for item in text.split("<item>")[1:]] or [text]
    return sum(len(item.split()) for item in items) / len(items)


def rubric_scores(run: Path) -> Sequence[RubricScore]:
    """Return each rubric's scores of the responses to the test problems; empty before `evorun rescore`."""
    return read_artifact(run, RUBRIC_SCORES, list[RubricScore]) or ()
