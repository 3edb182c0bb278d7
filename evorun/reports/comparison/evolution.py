"""Evolved system prompts and rubrics of several runs: their texts, training figures, and the cost of refinement."""

from collections.abc import Mapping, Sequence
from contextlib import closing
from difflib import SequenceMatcher
from pathlib import Path
from statistics import fmean
from typing import NamedTuple

from evorun.errors import JournalError, RunDirectoryError
from evorun.reports import text
from evorun.reports.comparison.arms import Point
from evorun.reports.comparison.comparison import ComparedRuns, Panel
from evorun.reports.comparison.reported import RELATIVE_RUN_TIME
from evorun.reports.comparison.runs import Run
from evorun.reports.figures import TRAINING
from evorun.reports.hacking import REWARD
from evorun.reports.packing import cut
from evorun.reports.population import (
    Length,
    Population,
    average_shared,
    load_population,
    measure_rubrics,
    parse_key,
    read_rubric_scores,
)
from evorun.reports.tables import Table, make_table
from evorun.reports.text import words
from evorun.runs.call_keys import read_role
from evorun.runs.reading import read_records
from evorun.runs.recording import open_effects
from evorun.runs.schema import CandidateRecord

MAX_TEXTS = 60
"""Maximum texts on a page (ours); each run's own page has all of its texts."""
_MAX_CHARACTERS, _MAX_LINES = 6000, 150
"""Maximum characters and lines of a text on the page: comparing texts takes more than linear time."""

_FIGURES = (
    {REWARD: "normalised reward", "reward": "reward"},
    {"kl": TRAINING["kl"]},
    {"sampler_kl": TRAINING["sampler_kl"]},
)
"""Figures of training steps with their labels: the first of each group that any run has is drawn."""


class Line(NamedTuple):
    """A line of a text beside another text."""

    kind: str
    """`added`, `gone` or `common`."""
    text: str


class Difference(NamedTuple):
    """The difference of a text from another."""

    other: str
    """The name of the other."""
    lines: Sequence[Line]


class EvolvedText(NamedTuple):
    """The text that a run ended with."""

    run: str
    title: str
    text: str
    differences: Sequence[Difference]


def collect_evolved_texts(comparison: ComparedRuns) -> list[EvolvedText]:
    """Return each run's best system prompt and last rubrics, beside their first versions and the first run's.

    At most `MAX_TEXTS` of them, in the order of the runs, without those of random baselines.
    """
    firsts: dict[tuple[str, str], tuple[str, str]] = {}
    found: list[EvolvedText] = []
    for run in comparison.compared_runs:
        population = None if run.outcome.unread else load_population(run.outcome.run_dir)
        for root, last, title in (
            _find_last_texts(population, run.outcome.step_name)
            if population is not None and len(found) < MAX_TEXTS
            else ()
        ):
            kind = last.kind, parse_key(last.id) if last.kind == "rubric" else ""
            differences = [Difference(f"{root.id}, its first version", compare_lines(root.text, last.text))]
            first = firsts.setdefault(kind, (run.name, last.text))
            if first[0] != run.name:
                differences.append(Difference(f"that of {first[0]}", compare_lines(first[1], last.text)))
            found.append(EvolvedText(run.name, title, cut(last.text, _MAX_CHARACTERS) or "", differences))
    return found[:MAX_TEXTS]


def _find_last_texts(population: Population, step: str) -> list[tuple[CandidateRecord, CandidateRecord, str]]:
    """Return the first text of each kind (and key of rubrics), the best or last one, and the latter's title.

    step: the word for the run's steps.
    """
    lines: dict[tuple[str, str], list[CandidateRecord]] = {}
    for member in population.members:
        lines.setdefault((member.kind, parse_key(member.id) if member.kind == "rubric" else ""), []).append(member)
    best = None if population.best is None else population.members[population.best]
    ends = []
    for (kind, key), members in lines.items():
        last = best if best is not None and best in members else members[-1]
        rated = f", rating {last.mean:.2f}" if last is best and last.mean is not None else ""
        about = f" for {key}" if key else ""
        name = f"{'best' if last is best else 'last'} {words(kind)}{about}: {last.id}"
        ends.append((members[0], last, f"{name}, made in {step} {last.generation}{rated}"))
    return ends


def compare_lines(before: str, after: str) -> list[Line]:
    """Return the lines of two texts, as far as they are shown, in the order of the second one."""
    old, new = ((cut(text, _MAX_CHARACTERS) or "").split("\n")[:_MAX_LINES] for text in (before, after))
    lines: list[Line] = []
    for _, old_from, old_to, new_from, new_to in SequenceMatcher(None, old, new, autojunk=False).get_opcodes():
        same = old[old_from:old_to] == new[new_from:new_to]
        lines += [Line("gone", line) for line in old[old_from:old_to] if not same]
        lines += [Line("common" if same else "added", line) for line in new[new_from:new_to]]
    return lines


def collect_training_lines(panel: Panel) -> Mapping[str, Mapping[str, Sequence[Point]]]:
    """Return reward and KL divergence by training step, by label and by the run's name."""
    found: dict[str, Mapping[str, Sequence[Point]]] = {}
    for group in _FIGURES:
        for name, label in group.items():
            lines = {run.name: line for run in panel.runs if (line := _list_points(run, name))}
            if lines:
                found[label] = lines
                break
    return found


def _list_points(run: Run, name: str) -> list[Point]:
    points = run.training.get(name, ())
    return [Point(point.step, point.step, point.value, None) for point in points if point.value is not None]


REFINEMENT = ("analyse", "refine", "merge", "calibrate", "rescore")
"""Call roles of refinement."""
BEYOND_UPDATE = "beyond_update"
"""The journal's name for the time that refinement took beyond the concurrent update."""

OVERHEAD_NOTE = (
    "Refinement: the calls that analyse, refine and merge. They run beside updates; beyond updates: the time by which "
    "they made the run longer. Relative to a fixed rubric: the run's time divided by that of the run with the same "
    "trainer and a fixed rubric. Compare times on equal machines only."
)
SHORT_RUN = 60
"""Minimum seconds of a run whose time is compared (ours): of a shorter one its start and other programs decide it."""


def compute_rubric_lengths(run: Run) -> list[Point]:
    """Return the mean words per item of a run's rubrics by refinement (figure 5a); empty without rubric rewards."""
    lineages = _read_lineages(run).values()
    means = average_shared([{version.number: version.words for version in lineage} for lineage in lineages])
    return [Point(number, number, mean, None) for number, mean in means.items()]


def compute_rubric_strictness(run: Run) -> list[Point]:
    """Return the scores by a run's rubrics of the same responses, by refinement (figure 5b).

    The responses are those of the last evaluation that was scored; empty before `evorun rescore`.
    """
    known = [score for score in read_rubric_scores(run.outcome.run_dir) if score.score is not None]
    last = max((score.step for score in known), default=0)
    by_rubric = {score.rubric: score for score in known if score.step == last}
    lines = [
        {version.number: by_rubric[version.rubric] for version in lineage if version.rubric in by_rubric}
        for lineage in _read_lineages(run).values()
    ]
    lines = [line for line in lines if line]
    means = average_shared([{number: found.score or 0.0 for number, found in line.items()} for line in lines])
    points = []
    for number, mean in means.items():
        low, high = (lines[0][number].low, lines[0][number].high) if len(lines) == 1 else (None, None)
        # an interval over problems holds for one rubric, and for no mean of several
        points.append(Point(number, number, mean, None if low is None or high is None else (low, high)))
    return points


def _read_lineages(run: Run) -> Mapping[str, Sequence[Length]]:
    if run.outcome.hacking is None or not run.outcome.hacking.by_rubric:
        return {}
    return measure_rubrics(read_records(run.outcome.run_dir / "candidates.jsonl", CandidateRecord))


def make_overhead_table(comparison: ComparedRuns) -> Table:
    """Return what refinement added to each run that refined: calls, tokens and time, beside a run without it."""
    records = []
    for run in comparison.runs:
        cost, seconds = run.outcome.cost, run.manifest.seconds
        added = [cost[role] for role in REFINEMENT if role in cost]
        if not added or "total" not in cost:
            continue
        total, fixed = cost["total"], _average_fixed_seconds(run, comparison.runs)
        ratio = None  # of seconds it would be noise
        if seconds is not None and fixed is not None and min(seconds, fixed) >= SHORT_RUN:
            ratio = seconds / fixed
        reported = run.reported.metrics.get(RELATIVE_RUN_TIME) if run.reported else None
        records.append(
            {
                "run": run.name,
                "calls": text.count(total.calls),
                "calls for\nrefinement": _format_share(sum(spent.calls for spent in added), total.calls),
                "tokens": text.compact(total.tokens),
                "tokens for\nrefinement": _format_share(sum(spent.tokens for spent in added), total.tokens),
                "model time": text.duration(total.seconds),
                "time for\nrefinement": _format_share(sum(spent.seconds or 0 for spent in added), total.seconds),
                "beyond\nupdates": text.duration(measure_seconds_beyond_updates(run.outcome.run_dir)),
                "run time": text.duration(seconds),
                "relative to a\nfixed rubric": _format_ratio(ratio),
                "reported": None if reported is None else _format_ratio(reported),
            }
        )
    return make_table(records, words=("run",), title="cost of refinement")


def describe_overhead(comparison: ComparedRuns) -> str:
    """Return the note on the cost of refinement, which says where runs are too short to compare their times."""
    seconds = [run.manifest.seconds for run in comparison.runs if run.manifest.seconds is not None]
    if not any(took < SHORT_RUN for took in seconds):
        return OVERHEAD_NOTE
    return f"{OVERHEAD_NOTE} There is none where either took less than a minute."


def measure_seconds_beyond_updates(run: Path) -> float | None:
    """Return how long refinements went on after the concurrent updates had ended; None if no journal tells."""
    try:
        with closing(open_effects(run)) as reader:
            numbers = [number for number, (key, _) in enumerate(reader.index()) if read_role(key) == BEYOND_UPDATE]
            return sum(reader.effect(number).seconds for number in numbers) if numbers else None
    except (JournalError, RunDirectoryError):
        return None


def _average_fixed_seconds(run: Run, runs: Sequence[Run]) -> float | None:
    """Return the mean seconds of the runs with the same trainer, task and policy, but a fixed rubric."""
    method = run.manifest.config.get("method")
    trainer = method.get("trainer") if isinstance(method, Mapping) else None
    seconds = [
        other.manifest.seconds
        for other in runs
        if other.manifest.method == trainer
        and other.outcome.hacking is not None
        and other.outcome.hacking.by_rubric
        and other.manifest.task == run.manifest.task
        and other.manifest.models.get("policy") == run.manifest.models.get("policy")
        and other.manifest.seconds is not None
    ]
    return fmean(seconds) if seconds else None


def _format_share(part: float, whole: float | None) -> str:
    return text.percent(part / whole if whole else None)


def _format_ratio(value: float | None) -> str:
    return text.MISSING if value is None else f"{value:.2f}"
