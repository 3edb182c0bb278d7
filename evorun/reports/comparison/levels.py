"""Methods at several levels of one setting: differences within each level, and whether they differ between levels.

A difference of differences is the interaction of two factors, methods and levels, in a factorial design.
"""

import math
from collections import defaultdict
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from statistics import fmean

from evorun.reports.comparison.arms import Arm
from evorun.reports.comparison.names import (
    SEED,
    TASK,
    drop_parts,
    drop_setting,
    explain_other_model,
    find_shared_parts,
    get_grading_code,
    join_parts,
)
from evorun.reports.comparison.paired import compare_pooled_scores, compare_scores
from evorun.reports.comparison.pairs import Match, Pair, Pairs, adjust, compute_p, find_max_difference, make_pair
from evorun.reports.comparison.rows import make_row

_NO_LEVELS = ("experiment", "study")
"""Keys that choose other settings, and are no setting of their own."""

_BUDGET = "budget"


@dataclass(frozen=True)
class Factorial:
    """The arms on one task that are the full product of methods and the levels of one setting."""

    task: str
    key: str
    """The setting, such as `budget`."""
    levels: Sequence[str]
    """In order: of numbers their own, of budgets that of the calls, of others that in which they began."""
    arms: Mapping[str, Sequence[Arm]]
    """By the method's name: its arm at each level."""
    baselines: Mapping[str, Sequence[Arm]]
    """The same of random baselines that ran at each level."""

    @property
    def places(self) -> Mapping[str, Sequence[float]] | None:
        """The place of each arm on an axis, by the method's name: the level's number, or the calls that it took.

        None where the levels are words of another setting than the budget.
        """
        numbers = [_read_number(level) for level in self.levels]
        rows = {**self.arms, **self.baselines}
        if None not in numbers:
            return {name: [number for number in numbers if number is not None] for name in rows}
        return {name: [_count_calls(arm) for arm in arms] for name, arms in rows.items()} if self.by_calls else None

    @property
    def by_calls(self) -> bool:
        """True where the levels are named budgets, whose size is the calls that they allow."""
        return self.key == _BUDGET


@dataclass(frozen=True)
class LevelPair:
    """A method beside the reference at one level; or the difference at the last level less that at the first."""

    task: str
    key: str
    level: str
    minus_level: str | None
    """The level whose difference is subtracted; None for a difference at one level."""
    pair: Pair


def find_factorials(arms: Sequence[Arm]) -> list[Factorial]:
    """Return the product of methods and levels of each task that is one; none where two settings would do as well."""
    tasks: dict[str, list[Arm]] = defaultdict(list)
    for arm in arms:
        tasks[arm.task].append(arm)
    factorials = []
    for task, own in tasks.items():
        settings = [arm.settings for arm in own if not arm.is_baseline]
        keys = [key for key in (settings or [{}])[0] if key not in _NO_LEVELS and all(key in of for of in settings)]
        found = [factorial for key in keys if (factorial := _make_factorial(task, key, own)) is not None]
        factorials += found if len(found) == 1 else []
    return factorials


def _make_factorial(task: str, key: str, arms: Sequence[Arm]) -> Factorial | None:
    """Return the product of methods and the levels of a setting; None unless each method has one arm at each level."""
    began = sorted(arms, key=lambda arm: (arm.started, arm.name))
    cells: dict[tuple[object, ...], dict[str, list[Arm]]] = defaultdict(lambda: defaultdict(list))
    for arm in began:
        settings = arm.settings
        if key in settings:
            others = frozenset((other, value) for other, value in settings.items() if other != key)
            cells[arm.is_baseline, arm.runs[0].manifest.method, others][settings[key]].append(arm)
    methods = [by_level for (is_baseline, *_), by_level in cells.items() if not is_baseline]
    levels = list(dict.fromkeys(level for by_level in methods for level in by_level))
    if len(methods) < 2 or len(levels) < 2 or any(not _is_whole(by_level, levels) for by_level in methods):
        return None
    numbers = [_read_number(level) for level in levels]
    if None not in numbers:
        levels.sort(key=float)
    elif key == _BUDGET:
        levels.sort(key=lambda level: fmean(_count_calls(by_level[level][0]) for by_level in methods))
    named: tuple[dict[str, list[Arm]], dict[str, list[Arm]]] = ({}, {})
    for (is_baseline, *_), by_level in cells.items():
        if _is_whole(by_level, levels):
            row = [by_level[level][0] for level in levels]
            named[bool(is_baseline)][_name_method(row, key, levels)] = row
    return Factorial(task, key, levels, *named) if len(named[False]) == len(methods) else None


def _is_whole(by_level: Mapping[str, Sequence[Arm]], levels: Sequence[str]) -> bool:
    return all(len(by_level.get(level, ())) == 1 for level in levels)


def _name_method(arms: Sequence[Arm], key: str, levels: Sequence[str]) -> str:
    """Return the name that the arms of a method share."""
    parts = [
        drop_setting(drop_parts(arm.parts, TASK, SEED), key, level) for arm, level in zip(arms, levels, strict=True)
    ]
    # arms may have names of their own, which share nothing
    return join_parts(find_shared_parts(parts)) or arms[0].runs[0].manifest.method


def _read_number(level: str) -> float | None:
    try:
        number = float(level)
    except ValueError:
        return None
    return number if math.isfinite(number) else None


def _count_calls(arm: Arm) -> float:
    total = make_row(arm).cost.get("total")
    return 0.0 if total is None else total.calls


def pair_by_level(factorials: Sequence[Factorial], pairs: Pairs) -> list[LevelPair]:
    """Return each method beside the reference's method at each level, and the last difference less the first.

    p is adjusted by Holm for all of these together. A task without the reference's method has none, and so has one
    whose arms of one level have other problems or models.
    """
    references = {run.name for run in (pairs.reference, *pairs.references)}
    found = [pair for factorial in factorials for pair in _pair_methods(factorial, references)]
    adjusted = adjust([level_pair.pair for level_pair in found])
    return [replace(level_pair, pair=pair) for level_pair, pair in zip(found, adjusted, strict=True)]


def _pair_methods(factorial: Factorial, references: set[str]) -> list[LevelPair]:
    reference = next(
        (
            name
            for name, arms in factorial.arms.items()
            if any(run.name in references for arm in arms for run in arm.runs)
        ),
        None,
    )
    if reference is None:
        return []
    found: list[LevelPair] = []
    levels = factorial.levels
    for name, arms in factorial.arms.items():
        if name == reference:
            continue
        matches = [_match(arm, other) for arm, other in zip(arms, factorial.arms[reference], strict=True)]
        if not all(matches):
            return []
        pairs: list[tuple[str, str | None, Pair | None]] = [
            *((level, None, make_pair(of_level)) for level, of_level in zip(levels, matches, strict=True)),
            (levels[-1], levels[0], _subtract(matches[-1], matches[0])),
        ]
        found += [
            LevelPair(factorial.task, factorial.key, level, minus, replace(pair, name=name, reference=reference))
            for level, minus, pair in pairs
            if pair is not None
        ]
    return found


def _match(arm: Arm, reference: Arm) -> list[Match]:
    """Return an arm's runs beside the reference's of the same seed, or two single runs, where they can be compared."""
    single = len(arm.runs) == len(reference.runs) == 1
    matches = [
        Match(run, other)
        for run in arm.runs
        for other in reference.runs
        if single or run.manifest.seed == other.manifest.seed
    ]
    return [match for match in matches if _is_comparable(match) and match.list_differences(match.run.primary)]


def _is_comparable(match: Match) -> bool:
    ours, theirs = match.run.manifest, match.reference.manifest
    return (
        explain_other_model(ours, theirs) is None
        and ours.provenance.digest == theirs.provenance.digest
        and get_grading_code(ours) == get_grading_code(theirs)
    )


def _subtract(last: Sequence[Match], first: Sequence[Match]) -> Pair | None:
    """Return the differences of one level less those of another, by seed and problem; None where none is shared."""
    primary = last[0].run.primary
    digests = {match.run.manifest.provenance.digest for match in (*last, *first)}
    by_seed = {match.run.manifest.seed: match.list_differences(primary) for match in first}
    seeds = []
    for match in last:
        before = by_seed.get(match.run.manifest.seed, {})
        after = match.list_differences(primary)
        seeds.append({problem: after[problem] - before[problem] for problem in after if problem in before})
    seeds = [seed for seed in seeds if seed]
    if len(digests) > 1 or not seeds:  # problems of other data may have the same names
        return None
    span = find_max_difference(primary)
    if len(seeds) > 1:
        compared = compare_pooled_scores(seeds, None if span is None else 2 * span)
    else:
        compared = compare_scores(list(seeds[0].values()), [0.0] * len(seeds[0]))
    p = compute_p(compared)
    return Pair("", "", primary, compared, p, p, comparisons=1, others={}, remark="")
