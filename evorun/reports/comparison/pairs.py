"""Each run of a comparison beside the reference of its group, and the differences of each pair."""

from collections import defaultdict
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace

from evorun.reports.comparison.arms import Arm
from evorun.reports.comparison.groups import Groups, same_settings
from evorun.reports.comparison.names import SEED, joined, policy, shared, simulated_model
from evorun.reports.comparison.paired import (
    PairedScores,
    holm,
    mcnemar,
    paired,
    paired_rates,
    paired_scores,
    pooled_p,
    pooled_scores,
)
from evorun.reports.comparison.runs import Run
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
    """Two-sided and exact: McNemar's, over several seeds that of exchanged problems; None unless it is a rate."""
    p_holm: float | None
    """The same, adjusted for the number of comparisons."""
    others: Mapping[Score, PairedScores]
    """The other scores that both have."""
    remark: str
    """A caveat on this pair; mostly empty."""

    @property
    def gained(self) -> int:
        """Problems on which the run is better than the reference."""
        return self.compared.higher if self.primary.higher_is_better else self.compared.lower

    @property
    def lost(self) -> int:
        """Problems on which it is worse."""
        return self.compared.lower if self.primary.higher_is_better else self.compared.higher


@dataclass(frozen=True)
class Unpaired:
    """A run that is not paired with any reference."""

    run: Run
    reason: str


@dataclass(frozen=True)
class Pairs:
    """All runs beside their references."""

    reference: Run
    """The one that was named, or the best of those that were chosen."""
    references: Sequence[Run]
    """All references that a run is paired with, in order."""
    pooled: Sequence[Pair]
    """Of arms with several seeds."""
    pairs: Sequence[Pair]
    """By reference."""
    unpaired: Sequence[Unpaired]

    pooled_runs: frozenset[str]
    """Names of the runs that are in a pool."""

    @property
    def first(self) -> list[Pair]:
        """The comparisons over seeds, and those of runs that have none."""
        return [*self.pooled, *(pair for pair in self.pairs if pair.name not in self.pooled_runs)]

    @property
    def of_seeds(self) -> list[Pair]:
        """The comparisons of single runs that are in a pool."""
        return [pair for pair in self.pairs if pair.name in self.pooled_runs]

    @property
    def shown(self) -> list[Pair]:
        """All comparisons that are made, those over seeds first."""
        return [*self.pooled, *self.pairs]


@dataclass(frozen=True)
class _Match:
    run: Run
    reference: Run


def pair_all(groups: Groups, arms: Sequence[Arm]) -> Pairs:
    """Pair every run with the reference of its group and seed; pool the runs of each arm."""
    # only runs that share problems with their reference; those of one reference together
    by_reference: dict[str, list[_Match]] = defaultdict(list)
    for group in groups.groups:
        for run in group.runs:
            reference = group.reference_of(run)
            if reference is not None and run.values(run.primary).keys() & reference.values(run.primary).keys():
                by_reference[reference.name].append(_Match(run, reference))
    matches = [match for of_reference in by_reference.values() for match in of_reference]
    pools = []
    for arm in arms:
        names = {run.name for run in arm.runs}
        # each run within its seed, and all beside one set-up: a pool over several references would compare with none
        pool = [m for m in matches if m.run.name in names and m.run.manifest.seed == m.reference.manifest.seed]
        pool = [match for match in pool if same_settings(match.reference, pool[0].reference)]
        if len(pool) > 1:
            pools.append(pool)
    found = [*map(_pooled_pair, pools), *map(_pair, matches)]
    # one family of tests: every p-value that is printed counts, those over seeds too
    adjusted = iter(holm([pair.p for pair in found if pair.p is not None]))
    found = [pair if pair.p is None else replace(pair, p_holm=next(adjusted)) for pair in found]
    involved = {run.name for match in matches for run in (match.run, match.reference)} | {groups.main.name}
    return Pairs(
        reference=groups.main,
        references=[of_reference[0].reference for of_reference in by_reference.values()],
        pooled=found[: len(pools)],
        pairs=found[len(pools) :],
        pooled_runs=frozenset(match.run.name for pool in pools for match in pool),
        unpaired=[
            Unpaired(run, _reason(run, groups.main))
            for group in groups.groups
            for run in group.runs
            if run.name not in involved
        ],
    )


def _pair(match: _Match) -> Pair:
    primary, *others = match.run.outcome.scores
    ours, theirs = _on_common(match, primary)
    if primary.rate:
        counts = paired([bool(value) for value in ours], [bool(value) for value in theirs])
        compared, p = paired_rates(counts), mcnemar(counts)
    else:
        compared, p = paired_scores(ours, theirs), None
    both = [(score, _on_common(match, score)) for score in others]
    return Pair(
        name=match.run.name,
        reference=match.reference.name,
        primary=primary,
        compared=compared,
        p=p,
        p_holm=p,  # until all comparisons are known
        others={score: paired_scores(*values) for score, values in both if values[0]},
        remark="; ".join(_remarks(match, compared.n)),
    )


def _pooled_pair(pool: Sequence[_Match]) -> Pair:
    primary = pool[0].run.primary
    differences = _differences(pool, primary)
    sums: dict[str, float] = defaultdict(float)
    for problem, difference in (item for of_seed in differences for item in of_seed.items()):
        sums[problem] += difference
    p = pooled_p([round(total) for total in sums.values()]) if primary.rate else None
    remarks = [remark for match in pool for remark in _remarks(match, len(_on_common(match, primary)[0]))]
    scores = list(dict.fromkeys(score for match in pool for score in match.run.outcome.other_scores))
    both = [(score, _differences(pool, score)) for score in scores]
    return Pair(
        name=joined(shared([match.run.parts for match in pool])),
        reference=joined(shared([match.reference.parts for match in pool])),
        primary=primary,
        compared=pooled_scores(differences, _largest_difference(primary)),
        p=p,
        p_holm=p,
        others={score: pooled_scores(found, _largest_difference(score)) for score, found in both if found},
        remark="; ".join(dict.fromkeys(remarks)),
    )


def _largest_difference(score: Score) -> float | None:
    return None if score.low is None or score.high is None else score.high - score.low


def _differences(pool: Sequence[_Match], score: Score) -> list[dict[str, float]]:
    """Return ours less theirs by problem, of each seed that has any."""
    seeds = []
    for match in pool:
        ours, theirs = match.run.values(score), match.reference.values(score)
        seeds.append({problem: ours[problem] - theirs[problem] for problem in ours if problem in theirs})
    return [of_seed for of_seed in seeds if of_seed]


def _reason(run: Run, reference: Run) -> str:
    """Return the reason that a run cannot be paired with a reference, the most fundamental one first."""
    ours, theirs = run.manifest, reference.manifest
    if ours.task != theirs.task:
        return f"another task: {ours.task}, not {theirs.task}"
    if ours.simulated != theirs.simulated or policy(ours).id != policy(theirs).id:
        names = ["a simulated one" if one.simulated else policy(one).name for one in (ours, theirs)]
        return f"another model: {names[0]}, not {names[1]}"
    our_model, their_model = simulated_model(ours) or {}, simulated_model(theirs) or {}
    if our_model != their_model:
        keys = [key for key in {**our_model, **their_model} if our_model.get(key) != their_model.get(key)]
        settings = ", ".join(f"{key} {our_model.get(key)}, not {their_model.get(key)}" for key in keys)
        return f"another simulated model: {settings}"
    if ours.provenance.digest != theirs.provenance.digest:
        common = len(run.problems & reference.problems)
        return f"other problems: {len(run.problems)} vs {len(reference.problems)}, {common} in common"
    if same_settings(run, reference):
        return "the method and settings of the reference, with another seed"
    return "no problem yet that both have ended"


def _on_common(match: _Match, score: Score) -> tuple[list[float], list[float]]:
    """Return a score of the problems that both have it of, in one order."""
    ours, theirs = match.run.values(score), match.reference.values(score)
    common = [problem for problem in ours if problem in theirs]
    return [ours[problem] for problem in common], [theirs[problem] for problem in common]


def _remarks(match: _Match, n: int) -> list[str]:
    run, reference = match.run, match.reference
    remarks = []
    if n < len(run.problems | reference.problems):
        all_scored = n == len(run.ended & reference.ended)
        remarks.append(f"the {n} problems that both have {'ended' if all_scored else 'a score of'}")
    if run.manifest.regime != reference.manifest.regime:
        remarks.append(f"{run.manifest.regime}, not {reference.manifest.regime}")
    if run.manifest.seed != reference.manifest.seed:
        remarks.append(f"{SEED} {run.manifest.seed}, not {reference.manifest.seed}")
    return remarks
