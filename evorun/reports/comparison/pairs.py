"""Each run of a comparison beside the reference of its group, and the differences of each pair."""

from collections import defaultdict
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace

from evorun.reports.comparison.arms import Arm
from evorun.reports.comparison.groups import Group, Groups, same_settings
from evorun.reports.comparison.names import (
    SEED,
    explain_other_model,
    find_shared_parts,
    get_grading_code,
    join_parts,
)
from evorun.reports.comparison.paired import (
    Interval,
    PairedScores,
    adjust_by_holm,
    compare_pooled_scores,
    compare_rates,
    compare_scores,
    count_paired_outcomes,
    excludes_0,
    mcnemar_p,
)
from evorun.reports.comparison.runs import Run
from evorun.runs.crossed import LEVEL
from evorun.runs.scores import Score


@dataclass(frozen=True)
class Pair:
    """A run beside its reference on the same problems; or the runs of several seeds, each beside that of its seed."""

    name: str
    reference: str
    primary: Score
    compared: PairedScores
    """The primary score of the run (ours) beside the reference's (theirs), over all seeds."""
    p: float | None
    """Two-sided: of a rate with one seed by McNemar's exact test, else by `CrossedMean`; None where all problems differ
    by the same amount."""
    p_holm: float | None
    """The same, adjusted within its family: see `Pairs.main_pairs` and `Pairs.seed_pairs`."""
    comparisons: int
    """Tests of the family."""
    others: Mapping[Score, PairedScores]
    """The other scores that both have."""
    remark: str
    """A caveat on this pair; mostly empty."""

    @property
    def ci95(self) -> Interval:
        """The unadjusted interval of the difference that goes with `p`."""
        return self.compared.tested_ci95

    @property
    def is_shown(self) -> bool:
        """True where the adjusted test finds a difference, and its interval agrees."""
        return self.p_holm is not None and self.p_holm < LEVEL and excludes_0(self.ci95)

    @property
    def gained(self) -> int:
        """Problems on which the run is better than the reference."""
        return self.compared.higher if self.primary.higher_is_better else self.compared.lower

    @property
    def lost(self) -> int:
        """Problems on which it is worse."""
        return self.compared.lower if self.primary.higher_is_better else self.compared.higher


@dataclass(frozen=True)
class StratumPair:
    """A pair on the problems of one stratum alone."""

    stratum: str
    pair: Pair


@dataclass(frozen=True)
class Match:
    """A run and its reference."""

    run: Run
    reference: Run

    def list_differences(self, score: Score) -> dict[str, float]:
        """Return ours minus theirs by problem, of the problems for which both have the score."""
        ours, theirs = self.run.values(score), self.reference.values(score)
        return {problem: ours[problem] - theirs[problem] for problem in ours if problem in theirs}

    def restrict_to(self, stratum: str) -> "Match":
        """Return both on the problems of one stratum, with the primary score alone."""
        return Match(self.run.restrict_to(stratum), self.reference.restrict_to(stratum))


@dataclass(frozen=True)
class Unpaired:
    """A run that is not paired with any reference."""

    run: Run
    reason: str


@dataclass(frozen=True)
class Pairs:
    """All runs beside their references."""

    reference: Run
    """The one that was named, or the best of the chosen ones."""
    references: Sequence[Run]
    """All references that a run is paired with, in order."""
    pooled: Sequence[Pair]
    """Of arms with several seeds."""
    pairs: Sequence[Pair]
    """By reference."""
    unpaired: Sequence[Unpaired]

    pooled_names: frozenset[tuple[str, str]]
    """Names of each run in a pool and of its reference."""
    main_matches: Sequence[Sequence[Match]]
    """The runs of each of the main pairs, each with its reference."""

    @property
    def main_pairs(self) -> list[Pair]:
        """The comparisons over seeds, and those of runs that have none."""
        return [*self.pooled, *(pair for pair in self.pairs if not self.is_of_pool(pair))]

    @property
    def seed_pairs(self) -> list[Pair]:
        """The comparisons of single runs that are in a pool."""
        return [pair for pair in self.pairs if self.is_of_pool(pair)]

    def is_of_pool(self, pair: Pair) -> bool:
        """Tell whether a pair of single runs is in a comparison over seeds."""
        return (pair.name, pair.reference) in self.pooled_names

    @property
    def all_pairs(self) -> list[Pair]:
        """All comparisons that are made, those over seeds first."""
        return [*self.pooled, *self.pairs]


def pair_all(groups: Groups, arms: Sequence[Arm]) -> Pairs:
    """Pair every run with the reference of its group and seed; pool the runs of each arm."""
    # only runs that share problems with their reference, grouped by reference
    by_reference: dict[str, list[Match]] = defaultdict(list)
    for group in groups.groups:
        for run in group.runs:
            reference = group.find_reference(run)
            if reference is not None and run.values(run.primary).keys() & reference.values(run.primary).keys():
                by_reference[reference.name].append(Match(run, reference))
    matches = [match for group in by_reference.values() for match in group]
    pools: list[list[Match]] = []
    for arm in arms:
        names = {run.name for run in arm.runs}
        # each run within its seed, and all against one set-up: a pool over several references has no reference
        by_arm: dict[bytes, list[Match]] = defaultdict(list)
        for match in matches:
            if match.run.name in names and match.run.manifest.seed == match.reference.manifest.seed:
                by_arm[match.reference.arm_key].append(match)
        pools += [pool for pool in by_arm.values() if len(pool) > 1]
    pools.sort(key=lambda pool: list(by_reference).index(pool[0].reference.name))
    found = [*map(_make_pooled_pair, pools), *map(_make_pair, matches)]
    # with what an arm of several seeds leaves out: a second run of a seed, and an unfinished one
    pooled_arms = {(match.run.arm_key, match.reference.arm_key) for pool in pools for match in pool}
    pooled_names = frozenset(
        (match.run.name, match.reference.name)
        for match in matches
        if (match.run.arm_key, match.reference.arm_key) in pooled_arms
    )
    # Two families, as two tables: were the single seeds of a pool in its own, each further seed would raise its p.
    for of_seeds in (False, True):
        family = [
            index
            for index, pair in enumerate(found)
            if (index >= len(pools) and (pair.name, pair.reference) in pooled_names) == of_seeds
        ]
        for index, adjusted in zip(family, adjust([found[index] for index in family]), strict=True):
            found[index] = adjusted
    involved = {run.name for match in matches for run in (match.run, match.reference)}
    if not matches:  # the others are told apart from the reference, which has nothing to say of itself
        involved = {run.name for group in groups.groups for run in group.runs if run.arm_key == groups.main.arm_key}
    # with every arm as a reference, a run is in several groups; the first is that of the chosen reference
    home: dict[str, tuple[Run, Group]] = {}
    for group in groups.groups:
        for run in group.runs:
            home.setdefault(run.name, (run, group))
    return Pairs(
        reference=groups.main,
        references=[group[0].reference for group in by_reference.values()],
        pooled=found[: len(pools)],
        pairs=found[len(pools) :],
        pooled_names=pooled_names,
        main_matches=[
            *pools,
            *([match] for match in matches if (match.run.name, match.reference.name) not in pooled_names),
        ],
        unpaired=[
            *(
                Unpaired(run, _explain_unpaired(run, group, groups))
                for run, group in home.values()
                if run.name not in involved
            ),
            *(Unpaired(run, "a replay of a run that is compared, too") for run in groups.replays),
        ],
    )


def pair_by_stratum(pairs: Pairs, strata: Sequence[str]) -> list[StratumPair]:
    """Return the main pairs on each stratum's problems alone; p is adjusted by Holm for all of these together.

    Runs whose problems have a single stratum have none.
    """
    found = []
    for stratum in strata:
        for matches in pairs.main_matches:
            if all(len(match.run.outcome.by_stratum) < 2 for match in matches):
                continue
            restricted = [match.restrict_to(stratum) for match in matches]
            common = [match for match in restricted if _list_common_values(match, match.run.primary)[0]]
            if common:
                found.append(StratumPair(stratum, make_pair(common)))
    adjusted = adjust([stratum_pair.pair for stratum_pair in found])
    return [replace(stratum_pair, pair=pair) for stratum_pair, pair in zip(found, adjusted, strict=True)]


def make_pair(matches: Sequence[Match]) -> Pair:
    """Return the pair of one run, or the pool of several seeds; each run shares problems with its reference."""
    return _make_pooled_pair(matches) if len(matches) > 1 else _make_pair(matches[0])


def adjust(pairs: Sequence[Pair]) -> list[Pair]:
    """Return the pairs with p adjusted by Holm for all that have one."""
    tested = [pair.p for pair in pairs if pair.p is not None]
    adjusted = iter(adjust_by_holm(tested))
    return [pair if pair.p is None else replace(pair, p_holm=next(adjusted), comparisons=len(tested)) for pair in pairs]


def _make_pair(match: Match) -> Pair:
    primary, *others = match.run.outcome.scores
    p: float | None
    ours, theirs = _list_common_values(match, primary)
    if primary.rate:
        counts = count_paired_outcomes([bool(value) for value in ours], [bool(value) for value in theirs])
        compared, p = compare_rates(counts), mcnemar_p(counts)
    else:
        compared = compare_scores(ours, theirs)
        p = compute_p(compared)
    both = [(score, _list_common_values(match, score)) for score in others]
    return Pair(
        name=match.run.name,
        reference=match.reference.name,
        primary=primary,
        compared=compared,
        p=p,
        p_holm=p,  # until its family is known
        comparisons=1,
        others={score: compare_scores(*values) for score, values in both if values[0]},
        remark="; ".join(_list_remarks(match, compared.n)),
    )


def _make_pooled_pair(pool: Sequence[Match]) -> Pair:
    primary = pool[0].run.primary
    compared = compare_pooled_scores(_list_differences(pool, primary), find_max_difference(primary))
    p = compute_p(compared)
    remarks = [remark for match in pool for remark in _list_remarks(match, len(_list_common_values(match, primary)[0]))]
    remarks += ["all seeds differ by the same amount"] if compared.seeds_agree else []
    scores = list(dict.fromkeys(score for match in pool for score in match.run.outcome.other_scores))
    both = [(score, _list_differences(pool, score)) for score in scores]
    return Pair(
        name=join_parts(find_shared_parts([match.run.parts for match in pool])),
        reference=join_parts(find_shared_parts([match.reference.parts for match in pool])),
        primary=primary,
        compared=compared,
        p=p,
        p_holm=p,
        comparisons=1,
        others={score: compare_pooled_scores(found, find_max_difference(score)) for score, found in both if found},
        remark="; ".join(dict.fromkeys(remarks)),
    )


def compute_p(compared: PairedScores) -> float | None:
    """Return the two-sided p-value of no difference; 1 where nothing differs."""
    if compared.crossed is not None:
        return compared.crossed.p_differs()
    return None if compared.difference else 1.0


def find_max_difference(score: Score) -> float | None:
    """Return the largest possible difference of a score; None where it has no bounds."""
    return None if score.low is None or score.high is None else score.high - score.low


def _list_differences(pool: Sequence[Match], score: Score) -> list[dict[str, float]]:
    """Return ours minus theirs by problem, for each seed that has any."""
    return [seed for match in pool if (seed := match.list_differences(score))]


def _explain_unpaired(run: Run, group: Group, groups: Groups) -> str:
    """Return why a run of a group is not paired with a reference; of several reasons the most fundamental."""
    reference = _find_nearest_reference(run, group, groups)
    ours, theirs = run.manifest, reference.manifest
    if ours.task != theirs.task:
        return f"another task: {ours.task}, not {theirs.task}"
    if (reason := explain_other_model(ours, theirs)) is not None:
        return reason
    if get_grading_code(ours) != get_grading_code(theirs):
        return "graded by other code"
    if ours.provenance.digest != theirs.provenance.digest:
        common = len(run.problems & reference.problems)
        return f"other problems: {len(run.problems)} vs {len(reference.problems)}, {common} in common"
    if same_settings(run, reference):
        seeds = "another" if ours.seed != theirs.seed else "the same"
        return f"method and settings are the reference's, with {seeds} seed"
    if group.references and ours.seed not in group.references:
        return f"the reference has no finished run with seed {ours.seed}"
    return "no problem has ended in both yet"


def _find_nearest_reference(run: Run, group: Group, groups: Groups) -> Run:
    """Return the reference that a run comes closest to a pair with: of its own group, unless nothing else is in it."""

    def list_shared(reference: Run) -> tuple[bool, ...]:
        ours, theirs = run.manifest, reference.manifest
        return (
            ours.task == theirs.task,
            explain_other_model(ours, theirs) is None,
            get_grading_code(ours) == get_grading_code(theirs),
            ours.provenance.digest == theirs.provenance.digest,
            ours.seed == theirs.seed,
        )

    own = [reference for reference in group.references.values() if reference is not run]
    has_others = any(other.arm_key != reference.arm_key for other in group.runs for reference in own)
    outside = [reference for other in groups.groups if other is not group for reference in other.references.values()]
    outside.sort(key=lambda reference: reference is not groups.main)  # named where others are as near
    return max(own if own and (has_others or not outside) else outside, key=list_shared)


def _list_common_values(match: Match, score: Score) -> tuple[list[float], list[float]]:
    """Return both runs' scores of the problems for which both have one, in the same order."""
    ours, theirs = match.run.values(score), match.reference.values(score)
    common = [problem for problem in ours if problem in theirs]
    return [ours[problem] for problem in common], [theirs[problem] for problem in common]


def _list_remarks(match: Match, n: int) -> list[str]:
    run, reference = match.run, match.reference
    remarks = []
    if n < len(run.problems | reference.problems):
        all_scored = n == len(run.ended & reference.ended)
        remarks.append(f"the {n} problems that {'ended' if all_scored else 'have a score'} in both")
    if run.manifest.regime != reference.manifest.regime:
        remarks.append(f"{run.manifest.regime}, not {reference.manifest.regime}")
    if run.manifest.seed != reference.manifest.seed:
        remarks.append(f"{SEED} {run.manifest.seed}, not {reference.manifest.seed}")
    return remarks
