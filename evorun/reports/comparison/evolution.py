"""What serves all problems (system prompts, rubrics) and its training, several runs side by side."""

from collections.abc import Mapping, Sequence
from difflib import SequenceMatcher
from typing import NamedTuple

from evorun.reports.comparison.arms import Point
from evorun.reports.comparison.comparison import Comparison, Panel
from evorun.reports.comparison.runs import Run
from evorun.reports.figures import TRAINING
from evorun.reports.hacking import REWARD
from evorun.reports.lineage import parse_key
from evorun.reports.packing import cut
from evorun.reports.population import Population, load_population
from evorun.reports.text import words
from evorun.runs.schema import CandidateRecord

MAX_TEXTS = 60
"""Of a page (ours); each run's own page has all of its own."""
_LONGEST, _MOST_LINES = 6000, 150
"""Characters and lines of a text that is shown or compared: the time of a comparison grows faster than its lines."""

_FIGURES = (
    {REWARD: "normalised reward", "reward": "reward"},
    {"kl": TRAINING["kl"]},
    {"sampler_kl": TRAINING["sampler_kl"]},
)
"""Figures of training steps that are drawn, with the words for them: of each group the first that any run has."""


class Line(NamedTuple):
    """A line of a text beside another text."""

    kind: str
    """`added`, `gone` or `common`."""
    text: str


class Difference(NamedTuple):
    """How a text differs from another."""

    other: str
    """The words for the other."""
    lines: Sequence[Line]


class Evolved(NamedTuple):
    """The text that a run ended with."""

    run: str
    title: str
    text: str
    differences: Sequence[Difference]


def evolved_texts(comparison: Comparison) -> list[Evolved]:
    """Return the best system prompt and the last rubrics of each run, beside what they began as and the first run's.

    At most `MAX_TEXTS` of them, in the order of the runs; those of floors say nothing.
    """
    firsts: dict[tuple[str, str], tuple[str, str]] = {}
    found: list[Evolved] = []
    for run in [run for run in comparison.runs if not run.floor] or comparison.runs:
        population = None if run.outcome.unread else load_population(run.outcome.run_dir)
        for root, last, title in _ends(population) if population is not None and len(found) < MAX_TEXTS else ():
            which = last.kind, parse_key(last.id) if last.kind == "rubric" else ""
            differences = [Difference(f"{root.id}, which it began as", compare_lines(root.text, last.text))]
            first = firsts.setdefault(which, (run.name, last.text))
            if first[0] != run.name:
                differences.append(Difference(f"that of {first[0]}", compare_lines(first[1], last.text)))
            found.append(Evolved(run.name, title, cut(last.text, _LONGEST) or "", differences))
    return found[:MAX_TEXTS]


def _ends(population: Population) -> list[tuple[CandidateRecord, CandidateRecord, str]]:
    """Return of each kind, and of each key of rubrics, the first text, the best or the last one, and its title."""
    lines: dict[tuple[str, str], list[CandidateRecord]] = {}
    for one in population.members:
        lines.setdefault((one.kind, parse_key(one.id) if one.kind == "rubric" else ""), []).append(one)
    best = None if population.best is None else population.members[population.best]
    ends = []
    for (kind, key), members in lines.items():
        last = best if best is not None and best in members else members[-1]
        rated = f", rating {last.mean:.2f}" if last is best and last.mean is not None else ""
        about = f" for {key}" if key else ""
        title = (
            f"{'best' if last is best else 'last'} {words(kind)}{about}: {last.id}, of step {last.generation}{rated}"
        )
        ends.append((members[0], last, title))
    return ends


def compare_lines(before: str, after: str) -> list[Line]:
    """Return the lines of two texts, as far as they are shown, in the order of the second one."""
    old, new = ((cut(text, _LONGEST) or "").split("\n")[:_MOST_LINES] for text in (before, after))
    lines: list[Line] = []
    for _, old_from, old_to, new_from, new_to in SequenceMatcher(None, old, new, autojunk=False).get_opcodes():
        same = old[old_from:old_to] == new[new_from:new_to]
        lines += [Line("gone", line) for line in old[old_from:old_to] if not same]
        lines += [Line("common" if same else "added", line) for line in new[new_from:new_to]]
    return lines


def training_lines(panel: Panel) -> Mapping[str, Mapping[str, Sequence[Point]]]:
    """Return reward and KL divergence by training step, of each run by its name, under the words for them."""
    runs = panel.runs
    found: dict[str, Mapping[str, Sequence[Point]]] = {}
    for group in _FIGURES:
        for name, label in group.items():
            lines = {run.name: line for run in runs if (line := _line(run, name))}
            if lines:
                found[label] = lines
                break
    return found


def _line(run: Run, name: str) -> list[Point]:
    points = run.training.get(name, ())
    return [Point(point.step, point.step, point.value, None) for point in points if point.value is not None]
