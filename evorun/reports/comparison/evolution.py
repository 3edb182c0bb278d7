"""What serves all problems (system prompts, rubrics), its training and its cost, several runs side by side."""

from collections import defaultdict
from collections.abc import Mapping, Sequence
from contextlib import closing
from difflib import SequenceMatcher
from pathlib import Path
from statistics import fmean
from typing import NamedTuple

from evorun.errors import JournalError, RunDirectoryError
from evorun.reports import text
from evorun.reports.comparison.arms import Point
from evorun.reports.comparison.comparison import Comparison, Panel
from evorun.reports.comparison.reported import RELATIVE_RUN_TIME
from evorun.reports.comparison.runs import Run
from evorun.reports.figures import TRAINING
from evorun.reports.hacking import REWARD
from evorun.reports.packing import cut
from evorun.reports.population import Length, Population, lengths, load_population, parse_key, rubric_scores
from evorun.reports.tables import Table, figure_columns, word_columns
from evorun.reports.text import words
from evorun.runs.reading import read_records
from evorun.runs.recording import open_effects
from evorun.runs.schema import CandidateRecord, RubricScore

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


REFINEMENT = ("analyse", "refine", "merge", "calibrate", "rescore")
"""Call roles of refinement."""
BEYOND_UPDATE = "beyond_update"
"""Names, in a journal, the time that refinement took beyond the update beside it."""

OVERHEAD_NOTE = (
    "Refinement: the calls of analyses, refinements and mergers. They go by beside updates: beyond updates is the part "
    "that made the run longer. Beside fixed: the run's time, over that of the run with the same trainer under a rubric "
    "that stays; times compare on equal machines only."
)


def rubric_lengths(run: Run) -> list[Point]:
    """Return the mean words of an item of a run's rubrics by refinement (figure 5a); empty where no rubric rewards."""
    return [Point(one.number, one.number, one.words, None) for one in _mean_lengths(_versions(run))]


def rubric_strictness(run: Run) -> list[Point]:
    """Return what a run's rubrics give the same responses by refinement (figure 5b); empty before `evorun rescore`."""
    return _mean_scores(run, _versions(run))


def overhead_table(comparison: Comparison) -> Table:
    """Return what refinement added to each run that refined: calls, tokens and time, beside a run that did not."""
    columns = ["calls", "of\nrefinement", "tokens", "of\nrefinement", "model time", "of\nrefinement"]
    columns += ["beyond\nupdates", "run time", "beside\nfixed"]
    papers = {run.name: run.reported.metrics.get(RELATIVE_RUN_TIME) for run in comparison.runs if run.reported}
    with_reported = any(figure is not None for figure in papers.values())
    columns += ["reported"] if with_reported else []
    table = Table([*word_columns("run"), *figure_columns(*columns)], title="cost of refinement")
    for run in comparison.runs:
        cost = run.outcome.cost
        added = [cost[role] for role in REFINEMENT if role in cost]
        if not added or "total" not in cost:
            continue
        total, seconds = cost["total"], run.manifest.seconds
        beside = _fixed(run, comparison.runs)
        ratio = seconds / beside if seconds is not None and beside else None
        beyond = seconds_beyond_updates(run.outcome.run_dir)
        table.rows.append(
            [
                run.name,
                text.count(total.calls),
                _share(sum(one.calls for one in added), total.calls),
                text.compact(total.tokens),
                _share(sum(one.tokens for one in added), total.tokens),
                _time(total.seconds),
                _share(sum(one.seconds or 0 for one in added), total.seconds),
                _time(beyond),
                _time(seconds),
                _ratio(ratio),
                *([_ratio(papers.get(run.name))] if with_reported else []),
            ]
        )
    return table


def seconds_beyond_updates(run: Path) -> float | None:
    """Return for how long refinements went on when the updates beside them had ended; None where no journal says."""
    try:
        with closing(open_effects(run)) as reader:
            numbers = [
                number for number, (key, _) in enumerate(reader.index()) if key.split("|")[-3:-2] == [BEYOND_UPDATE]
            ]
            return sum(reader.effect(number).seconds for number in numbers) if numbers else None
    except (JournalError, RunDirectoryError):
        return None


def _versions(run: Run) -> Mapping[str, Sequence[Length]]:
    if run.outcome.hacking is None:
        return {}
    return lengths(read_records(run.outcome.run_dir / "candidates.jsonl", CandidateRecord))


def _mean_lengths(by_key: Mapping[str, Sequence[Length]]) -> list[Length]:
    by_number: dict[int, list[Length]] = defaultdict(list)
    for one in (one for of_key in by_key.values() for one in of_key):
        by_number[one.number].append(one)
    return [found[0]._replace(words=fmean(one.words for one in found)) for _, found in sorted(by_number.items())]


def _mean_scores(run: Run, versions: Mapping[str, Sequence[Length]]) -> list[Point]:
    """Return what the rubrics of each number gave the responses of the last evaluation."""
    number = {one.rubric: one.number for of_key in versions.values() for one in of_key}
    scores = [one for one in rubric_scores(run.outcome.run_dir) if one.rubric in number and one.score is not None]
    last = max((one.step for one in scores), default=0)
    by_number: dict[int, list[RubricScore]] = defaultdict(list)
    for one in scores:
        if one.step == last:
            by_number[number[one.rubric]].append(one)
    points = []
    for at, found in sorted(by_number.items()):
        low, high = (found[0].low, found[0].high) if len(found) == 1 else (None, None)
        # an interval over problems holds for one rubric, and for no mean of several
        interval = None if low is None or high is None else (low, high)
        points.append(Point(at, at, fmean(one.score for one in found if one.score is not None), interval))
    return points


def _fixed(run: Run, runs: Sequence[Run]) -> float | None:
    """Return the mean seconds of the runs with the same trainer, task and models under a rubric that stays."""
    method = run.manifest.config.get("method")
    trainer = method.get("trainer") if isinstance(method, Mapping) else None
    seconds = [
        one.manifest.seconds
        for one in runs
        if one.manifest.method == trainer
        and one.outcome.hacking is not None
        and one.manifest.task == run.manifest.task
        and one.manifest.models.get("policy") == run.manifest.models.get("policy")
        and one.manifest.seconds is not None
    ]
    return fmean(seconds) if seconds else None


def _share(part: float, whole: float | None) -> str:
    return text.percent(part / whole if whole else None)


def _ratio(value: float | None) -> str:
    return text.MISSING if value is None else f"{value:.2f}"


def _time(seconds: float | None) -> str:
    return text.MISSING if seconds is None else text.duration(seconds)
