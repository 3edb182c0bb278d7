"""References for comparisons: groups of runs that can be paired, and the references of each.

A group is the runs that share task, problems and model, with or without an adapter: a student beside its base model.
Within it each seed has a reference of its own where the reference method ran with that seed.
"""

from collections import defaultdict
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from itertools import pairwise
from statistics import fmean

import msgspec

from evorun.reports.comparison.names import policy, setup, simulated_model
from evorun.reports.comparison.runs import Run

_ADAPTER = "+adapter:"
"""Precedes the digest of an adapter in a model's id (`ModelConfig.identity`)."""

_OF_THE_GROUP = ("task", "model", "engine")
"""Parts of a set-up that are not the method's settings."""


@dataclass(frozen=True)
class Group:
    """Runs on the same problems with the same model."""

    runs: Sequence[Run]
    references: Mapping[int, Run]
    """By seed; empty when the reference method did not run in this group."""

    def reference_of(self, run: Run) -> Run | None:
        """Return the reference of the run's seed, else of the lowest seed; None for a reference and without any."""
        if not self.references or any(run is reference for reference in self.references.values()):
            return None
        return self.references.get(run.manifest.seed) or self.references[min(self.references)]


@dataclass(frozen=True)
class Groups:
    """All runs, by group."""

    groups: Sequence[Group]
    """In the order of their first runs."""
    main: Run
    """The reference that was named, or the best of those that were chosen."""


def make_groups(runs: Sequence[Run], against: Run | None) -> Groups:
    """Group the runs and find the references: `against` and, in other groups, the same method and settings.

    Without `against` it is the method, with its settings, that most others can be paired with, of these the one with
    the highest mean primary score, then second score. Groups without it get theirs by the same rule among themselves.
    Floors are in no group, for their model is no run's, unless one is the reference: then all models are in its group.
    """
    members: dict[bytes, list[Run]] = defaultdict(list)
    against_floor = against is not None and against.floor
    for run in runs if against_floor else [run for run in runs if not run.floor] or runs:
        manifest = run.manifest
        base = policy(manifest).id.partition(_ADAPTER)[0]
        model = None if against_floor else (base, manifest.simulated, simulated_model(manifest))
        same = (manifest.task, model, manifest.provenance.digest)
        members[msgspec.json.encode(same, order="deterministic")].append(run)
    groups = list(members.values())
    if against is not None:
        return Groups([Group(group, _references(group, against, groups)) for group in groups], against)
    found: list[Mapping[int, Run]] = [{} for _ in groups]
    mains: list[Run] = []
    # a method need not have run in every group: the groups without it choose again among themselves
    while remaining := [index for index, references in enumerate(found) if not references]:
        chosen = _chosen([groups[index] for index in remaining])
        mains.append(max((run for references in chosen for run in references.values()), key=lambda run: run.rank))
        for index, references in zip(remaining, chosen, strict=True):
            found[index] = references
    return Groups([Group(*of) for of in zip(groups, found, strict=True)], mains[0])


def same_settings(ours: Run, theirs: Run) -> bool:
    """Return True for two runs of one method with the same settings, whatever their task, model and seed."""
    both = [
        {key: value for key, value in setup(run.manifest).items() if key not in _OF_THE_GROUP} for run in (ours, theirs)
    ]
    of_one_kind = ours.manifest.method == theirs.manifest.method and ours.floor == theirs.floor
    return of_one_kind and both[0] == both[1]


def _chosen(groups: Sequence[list[Run]]) -> list[dict[int, Run]]:
    """Return the references of the method that is chosen for these groups, by seed; none where it did not run."""
    kinds: list[Run] = []
    kind_of: dict[str, int] = {}
    for run in (run for group in groups for run in group):
        kind_of[run.name] = next((i for i, other in enumerate(kinds) if same_settings(run, other)), len(kinds))
        if kind_of[run.name] == len(kinds):
            kinds.append(run)
    fit = dict.fromkeys(kind_of[run.name] for group in groups for run in _fit(group))
    offers = ([_references(_fit(group), kinds[kind], groups) for group in groups] for kind in fit)
    return max(offers, key=lambda offer: _merit([Group(*of) for of in zip(groups, offer, strict=True)], kind_of))


def _merit(groups: Sequence[Group], kind_of: Mapping[str, int]) -> tuple[int, float, float]:
    """Return the number of others that would have a reference, and the references' mean ranks.

    Others are methods with their settings (`kind_of`, by the names of runs), group by group. Runs do not count: those
    of the reference itself are paired with none, so that the method with the fewest seeds would have the most.
    """
    others = 0
    for group in groups:
        own = {kind_of[run.name] for run in group.references.values()}
        others += len({kind_of[run.name] for run in group.runs if group.reference_of(run) is not None} - own)
    ranks = [run.rank for group in groups for run in group.references.values()]
    primary, second = zip(*ranks, strict=True)
    return others, fmean(primary), fmean(second)


def _fit(group: Sequence[Run]) -> list[Run]:
    """Return the runs that may become a reference: the finished ones, where there are any."""
    return [run for run in group if run.outcome.finished] or list(group)


def _references(group: Sequence[Run], of: Run, groups: Sequence[Sequence[Run]]) -> dict[int, Run]:
    """Return the group's runs of the method and settings of a run, the best of each seed; `of` itself for its own."""
    found = [run for run in group if same_settings(run, of)]
    if not found and group[0].manifest.task != of.manifest.task:
        # a method's defaults follow the task: where it ran in one way only on each, that is the same method
        method = (of.manifest.method, of.floor)
        of_method = [run for runs in groups for run in runs if (run.manifest.method, run.floor) == method]
        one_way = all(
            same_settings(*two)
            for task in (of.manifest.task, group[0].manifest.task)
            for two in pairwise(run for run in of_method if run.manifest.task == task)
        )
        found = [run for run in group if (run.manifest.method, run.floor) == method] if one_way else []
    references: dict[int, Run] = {}
    # finished runs first: the rank of one under way is over the problems that happened to end early
    for run in sorted(found, key=lambda run: (run.outcome.finished, run.rank), reverse=True):
        references.setdefault(run.manifest.seed, run)
    return {**references, of.manifest.seed: of} if any(run is of for run in group) else references
