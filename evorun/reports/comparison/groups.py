"""References for comparisons: groups of runs that can be paired, and the references of each.

A group is the runs that share task, grader, problems and model, with or without an adapter: a student beside its base
model. Within it each seed has a reference of its own where the reference method ran with that seed.
"""

from collections import defaultdict
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from itertools import pairwise
from statistics import fmean

import msgspec

from evorun.reports.comparison.names import (
    GRADES,
    get_base_model,
    get_grading_code,
    get_setup,
    get_simulated_settings,
    is_fork,
    is_student,
)
from evorun.reports.comparison.runs import Run

_SHARED_SETTINGS = ("model", "engine", *GRADES)
"""Parts of a set-up that the runs of a group share: they are not the method's settings."""


@dataclass(frozen=True)
class Group:
    """Runs on the same problems with the same model."""

    runs: Sequence[Run]
    references: Mapping[int, Run]
    """By seed; empty when the reference method did not run in this group."""

    def find_reference(self, run: Run) -> Run | None:
        """Return the reference of the run's seed; None without one, and for the references' own method.

        A single run of a method is paired with a single reference whatever their seeds.
        """
        references = list(self.references.values())
        if any(run.arm_key == reference.arm_key for reference in references):
            return None
        single = len(references) == 1 and sum(run.arm_key == other.arm_key for other in self.runs) == 1
        return references[0] if single else self.references.get(run.manifest.seed)

    @property
    def has_pairs(self) -> bool:
        """True where any run has a reference."""
        return any(self.find_reference(run) is not None for run in self.runs)


@dataclass(frozen=True)
class Groups:
    """All runs, by group."""

    groups: Sequence[Group]
    """In the order of their first runs."""
    main: Run
    """The reference that was named, or the best of those that were chosen."""
    replays: Sequence[Run]
    """Replays of other runs of the comparison: they are in no group, since they are no second sample."""


def make_groups(runs: Sequence[Run], against: Run | None) -> Groups:
    """Group the runs and find the references: `against` and, in other groups, the same method and settings.

    Without `against` it is the method, with its settings, that most others can be paired with, of these the one with
    the highest mean primary score, then second score, in the groups where it has pairs. A fork or a student is a
    reference only where there is nothing else. Groups without it get theirs by the same rule among themselves.
    Random baselines are in no group, since no run has their model. If one is the reference, its group has all models.
    """
    replays = [run for run in runs if run is not against and _is_repeated(run, runs)]
    runs = [run for run in runs if run not in replays]
    members: dict[bytes, list[Run]] = defaultdict(list)
    against_baseline = against is not None and against.is_baseline
    for run in runs if against_baseline else [run for run in runs if not run.is_baseline] or runs:
        manifest = run.manifest
        model = (
            None
            if against_baseline
            else (get_base_model(manifest), manifest.simulated, get_simulated_settings(manifest))
        )
        same = (manifest.task, model, manifest.provenance.digest, get_grading_code(manifest))
        members[msgspec.json.encode(same, order="deterministic")].append(run)
    groups = list(members.values())
    if against is not None:
        return Groups([Group(group, _find_references(group, against, groups)) for group in groups], against, replays)
    found: list[Mapping[int, Run]] = [{} for _ in groups]
    mains: list[Run] = []
    # a method need not have run in every group: the groups without it choose again among themselves
    while remaining := [index for index, references in enumerate(found) if not references]:
        chosen = _choose_references([groups[index] for index in remaining])
        offered = [Group(groups[index], references) for index, references in zip(remaining, chosen, strict=True)]
        mains.append(max(_list_compared_references(offered), key=lambda run: run.rank))
        for index, references in zip(remaining, chosen, strict=True):
            found[index] = references
    return Groups([Group(*item) for item in zip(groups, found, strict=True)], mains[0], replays)


def refer_to_every_arm(groups: Groups) -> Groups:
    """Return each group once for each of its arms, as the reference of the arms after it: every two arms meet once.

    The arms of the group's references come first, the others in the order of its runs.
    """
    found = []
    for group in groups.groups:
        arms: dict[bytes, list[Run]] = {reference.arm_key: [] for reference in group.references.values()}
        for run in group.runs:
            arms.setdefault(run.arm_key, []).append(run)
        chosen: dict[bytes, dict[int, Run]] = defaultdict(dict)
        for seed, reference in group.references.items():
            chosen[reference.arm_key][seed] = reference
        members = list(arms.items())
        for at, (key, own) in enumerate(members):
            after = [run for _, arm in members[at:] for run in arm]
            found.append(Group(after, chosen.get(key) or _choose_by_seed(own)))
    return replace(groups, groups=found)


def _is_repeated(run: Run, runs: Sequence[Run]) -> bool:
    """Tell whether a run replays another one with the same settings and the same grader."""
    return run.recording is not None and any(
        run.recording == other.outcome.run_dir.resolve()
        and same_settings(run, other)
        and get_grading_code(run.manifest) == get_grading_code(other.manifest)
        for other in runs
    )


def same_settings(ours: Run, theirs: Run) -> bool:
    """Return True for two runs of one method with the same settings, whatever their task, model and seed."""
    both = [
        {key: value for key, value in get_setup(run.manifest).items() if key.partition(".")[0] not in _SHARED_SETTINGS}
        for run in (ours, theirs)
    ]
    same_method = ours.manifest.method == theirs.manifest.method and ours.is_baseline == theirs.is_baseline
    return same_method and both[0] == both[1]


def _choose_references(groups: Sequence[list[Run]]) -> list[dict[int, Run]]:
    """Return the references of the method that is chosen for these groups, by seed; none where it did not run."""
    kinds: list[Run] = []
    kinds_by_run: dict[str, int] = {}
    for run in (run for group in groups for run in group):
        kinds_by_run[run.name] = next((i for i, other in enumerate(kinds) if same_settings(run, other)), len(kinds))
        if kinds_by_run[run.name] == len(kinds):
            kinds.append(run)
    eligible = dict.fromkeys(kinds_by_run[run.name] for group in groups for run in select_eligible(group))
    offers = ([_find_references(select_eligible(group), kinds[kind], groups) for group in groups] for kind in eligible)
    return max(
        offers, key=lambda offer: _rate_offer([Group(*item) for item in zip(groups, offer, strict=True)], kinds_by_run)
    )


def _rate_offer(groups: Sequence[Group], kinds_by_run: Mapping[str, int]) -> tuple[int, float, float]:
    """Return the number of others that would have a reference, and the mean ranks of the references with pairs.

    Others are methods with their settings (`kinds_by_run`, by the names of runs), group by group. Runs do not count:
    the reference's own have no pair, so the method with the fewest seeds would have the most.
    """
    others = 0
    for group in groups:
        own = {kinds_by_run[run.name] for run in group.references.values()}
        others += len({kinds_by_run[run.name] for run in group.runs if group.find_reference(run) is not None} - own)
    primary, second = zip(*(run.rank for run in _list_compared_references(groups)), strict=True)
    return others, fmean(primary), fmean(second)


def _list_compared_references(groups: Sequence[Group]) -> list[Run]:
    """Return the references of groups with pairs; all where none has any.

    A method's runs on another task say nothing about how good it is where it is compared.
    """
    paired = [group for group in groups if group.has_pairs] or groups
    return [run for group in paired for run in group.references.values()]


def select_eligible(group: Sequence[Run]) -> list[Run]:
    """Return the runs that may become a reference: finished ones, no forks and no students, as far as there are any."""
    eligible = [run for run in group if run.outcome.finished] or list(group)
    for is_other in (is_fork, is_student):
        eligible = [run for run in eligible if not is_other(run.manifest)] or eligible
    return eligible


def _find_references(group: Sequence[Run], main: Run, groups: Sequence[Sequence[Run]]) -> dict[int, Run]:
    """Return the group's runs of the method and settings of a run, the best of each seed; of its own, itself."""
    found = [run for run in group if same_settings(run, main)]
    if not found and group[0].manifest.task != main.manifest.task:
        # a method's defaults follow the task: where it ran in one way only on each, that is the same method
        method = (main.manifest.method, main.is_baseline)
        own = [run for runs in groups for run in runs if (run.manifest.method, run.is_baseline) == method]
        one_way = all(
            same_settings(*two)
            for task in (main.manifest.task, group[0].manifest.task)
            for two in pairwise(run for run in own if run.manifest.task == task)
        )
        found = [run for run in group if (run.manifest.method, run.is_baseline) == method] if one_way else []
    references = _choose_by_seed(found)
    return {**references, main.manifest.seed: main} if any(run is main for run in group) else references


def _choose_by_seed(runs: Sequence[Run]) -> dict[int, Run]:
    """Return the best run of each seed, of finished ones if there are any."""
    best: dict[int, Run] = {}
    # an unfinished run is ranked by the problems that happened to end early
    for run in sorted([run for run in runs if run.outcome.finished] or runs, key=lambda run: run.rank, reverse=True):
        best.setdefault(run.manifest.seed, run)
    return best
