"""A run's rubrics by refinement: how long their items are, and how strict they are (MPO, figures 5a and 5b)."""

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
    """Refinements before it."""
    refined: int
    """The step after which it was made."""
    words: float
    """Mean words of an item; of a rubric in free text, all of its words."""


def lengths(candidates: Iterable[CandidateRecord]) -> dict[str, list[Length]]:
    """Return the rubrics of each key in the order of their making; "" where there is one for all problems."""
    by_key: dict[str, list[Length]] = {}
    for one in candidates:
        if one.kind == "rubric":
            of_key = by_key.setdefault(key_of(one.id), [])
            of_key.append(Length(one.id, len(of_key), one.generation, item_words(one.text)))
    return by_key


def key_of(rubric: CandidateId) -> str:
    """Return the key of a rubric by its id, `KEY#NUMBER`; "" for that of all problems."""
    name = rubric.rpartition("#")[0]
    return "" if name == "rubric" else name


def item_words(text: str) -> float:
    """Return the mean number of words of a rubric's items, without their tags; of free text, of all of it."""
    # Items stand side by side, each between its own tags: `evorun.tasks.rubrics` has read or written them so.
    items = [one.partition("</item>")[0] for one in text.split("<item>")[1:]] or [text]
    return sum(len(one.split()) for one in items) / len(items)


def rubric_scores(run: Path) -> Sequence[RubricScore]:
    """Return what each rubric gives the responses to the test problems; empty before `evorun rescore`."""
    return read_artifact(run, RUBRIC_SCORES, list[RubricScore]) or ()
