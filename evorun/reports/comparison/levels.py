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

_Level = tuple[str, ...]
"""The values of settings that vary together."""


@dataclass(frozen=True)
class Factorial:
    """The arms on one task that are the full product of methods and the levels of one setting."""

    task: str
    keys: Sequence[str]
    """The setting, such as `budget`, and those that vary with it one to one, such as `budget.calls_per_problem`."""
    levels: Sequence[str]
    """In order: of numbers their own, of budgets that of the calls, of others that in which they began."""
    arms: Mapping[str, Sequence[Arm]]
    """By the method's name: its arm at each level."""
    baselines: Mapping[str, Sequence[Arm]]
    """The same of random baselines that ran at each level."""

    @property
    def key(self) -> str:
        """The name of the setting; of several that vary together, the one that has the others as details, or all."""
        return " and ".join(_drop_details(self.keys))

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
        return _BUDGET in self.keys


@dataclass(frozen=True)
class LevelPair:
    """A method beside the reference at one level; or the difference at the last level less that at the first."""

    task: str
    key: str
    level: str
    """The setting's value; where several vary together, each with its value, as in `k=2 width=4`."""
    minus_level: str | None
    """The level whose difference is subtracted; None for a difference at one level."""
    pair: Pair


def find_factorials(arms: Sequence[Arm]) -> list[Factorial]:
    """Return the product of methods and levels of each task that is one; none where two settings would do as well."""
    found = [_list_factorials(task, own) for task, own in _group_by_task(arms).items()]
    return [factorials[0] for factorials in found if len(factorials) == 1]


def explain_missing_levels(arms: Sequence[Arm]) -> list[str]:
    """Say on which tasks methods are not compared within levels since each ran with several values of two settings."""
    tasks: dict[str, list[str]] = defaultdict(list)
    for task, own in _group_by_task(arms).items():
        settings: dict[str, list[Mapping[str, str]]] = defaultdict(list)
        for arm in own:
            if not arm.is_baseline:
                settings[arm.runs[0].manifest.method].append(arm.settings)
        factors = [
            " with ".join(keys)
            for keys in _find_varying(own)
            if all(len({of[keys[0]] for of in of_method}) > 1 for of_method in settings.values())
        ]
        if len(settings) > 1 and len(factors) > 1 and len(_list_factorials(task, own)) != 1:
            tasks[", ".join(factors)].append(task)
    return [
        f"Methods are not compared within each level on {', '.join(on)}, since several settings vary ({factors}): "
        "give a report the runs with one value of all but one of them."
        for factors, on in tasks.items()
    ]


def _group_by_task(arms: Sequence[Arm]) -> dict[str, list[Arm]]:
    tasks: dict[str, list[Arm]] = defaultdict(list)
    for arm in arms:
        tasks[arm.task].append(arm)
    return tasks


def _list_factorials(task: str, arms: Sequence[Arm]) -> list[Factorial]:
    return [found for keys in _find_varying(arms) if (found := _make_factorial(task, keys, arms)) is not None]


def _find_varying(arms: Sequence[Arm]) -> list[list[str]]:
    """Return the settings of all arms, baselines aside, that vary: together those that vary one to one."""
    settings = [arm.settings for arm in arms if not arm.is_baseline]
    groups: dict[tuple[int, ...], list[str]] = defaultdict(list)
    for key in (settings or [{}])[0]:
        if key not in _NO_LEVELS and all(key in of for of in settings):
            values = [of[key] for of in settings]
            groups[tuple(map(values.index, values))].append(key)
    return [keys for places, keys in groups.items() if any(places)]


def _drop_details(keys: Sequence[str]) -> list[str]:
    """Return the settings that are no detail of another one: `budget` says which `budget.calls_per_problem` it has."""
    return [key for key in keys if not any(key.startswith(f"{other}.") for other in keys)]


def _make_factorial(task: str, keys: Sequence[str], arms: Sequence[Arm]) -> Factorial | None:
    """Return the product of methods and the levels of a setting; None unless each method has one arm at each level.

    keys: the setting, or several that vary one to one.
    """
    began = sorted(arms, key=lambda arm: (arm.started, arm.name))
    cells: dict[tuple[object, ...], dict[_Level, list[Arm]]] = defaultdict(lambda: defaultdict(list))
    for arm in began:
        settings = arm.settings
        if all(key in settings for key in keys):
            others = frozenset((other, value) for other, value in settings.items() if other not in keys)
            level = tuple(settings[key] for key in keys)
            cells[arm.is_baseline, arm.runs[0].manifest.method, others][level].append(arm)
    methods = [by_level for (is_baseline, *_), by_level in cells.items() if not is_baseline]
    levels = list(dict.fromkeys(level for by_level in methods for level in by_level))
    if len(methods) < 2 or len(levels) < 2 or any(not _is_whole(by_level, levels) for by_level in methods):
        return None
    if all(_read_number(_name_level(keys, level)) is not None for level in levels):
        levels.sort(key=lambda level: float(_name_level(keys, level)))
    elif _BUDGET in keys:
        levels.sort(key=lambda level: fmean(_count_calls(by_level[level][0]) for by_level in methods))
    named: tuple[dict[str, list[Arm]], dict[str, list[Arm]]] = ({}, {})
    for (is_baseline, *_), by_level in cells.items():
        if _is_whole(by_level, levels):
            row = [by_level[level][0] for level in levels]
            named[bool(is_baseline)][_name_method(row, keys, levels)] = row
    names = [_name_level(keys, level) for level in levels]
    return Factorial(task, keys, names, *named) if len(named[False]) == len(methods) else None


def _name_level(keys: Sequence[str], level: _Level) -> str:
    """Return the value of the setting that names the level; of several, each with its value."""
    values = dict(zip(keys, level, strict=True))
    shown = _drop_details(keys)
    return values[shown[0]] if len(shown) == 1 else " ".join(f"{key}={values[key]}" for key in shown)


def _is_whole(by_level: Mapping[_Level, Sequence[Arm]], levels: Sequence[_Level]) -> bool:
    return all(len(by_level.get(level, ())) == 1 for level in levels)


def _name_method(arms: Sequence[Arm], keys: Sequence[str], levels: Sequence[_Level]) -> str:
    """Return the name that the arms of a method share."""
    names = []
    for arm, level in zip(arms, levels, strict=True):
        parts = drop_parts(arm.parts, TASK, SEED)
        for key, value in zip(keys, level, strict=True):
            parts = drop_setting(parts, key, value)
        names.append(parts)
    # arms may have names of their own, which share nothing
    return join_parts(find_shared_parts(names)) or arms[0].runs[0].manifest.method


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
