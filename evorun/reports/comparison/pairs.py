"""Each run of a comparison beside the reference of its group, and how each pair comes out."""

from collections import defaultdict
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from typing import TypeVar

from evorun.reports.comparison.groups import Groups, same_settings
from evorun.reports.comparison.paired import (
    Paired,
    PairedScores,
    difference_interval,
    holm,
    mcnemar,
    paired,
    paired_scores,
    pooled_interval,
    pooled_p,
    pooled_scores,
)
from evorun.reports.comparison.runs import SEED, Run, policy, simulated_model
from evorun.reports.comparison.seeds import name_over_seeds

T = TypeVar("T")


@dataclass(frozen=True)
class Pair:
    """A run beside its reference on the same problems; or the runs of several seeds, each beside that of its seed."""

    name: str
    reference: str
    counts: Paired
    """Outcomes of the run (ours) beside the reference's (theirs), over all seeds."""
    ci95: tuple[float, float] | None
    """Of the difference in accuracy; None when no problem is discordant."""
    p: float
    """Two-sided and exact: McNemar's, over several seeds that of exchanged problems."""
    p_holm: float
    """The same, adjusted for the number of comparisons."""
    scores: Mapping[str, PairedScores]
    """The scores that both have, by name."""
    remark: str
    """What the reader must know of this pair; mostly nothing."""


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
    references: Sequence[str]
    """Names of all references that a run is paired with, in order."""
    pairs: Sequence[Pair]
    """By reference."""
    pooled: Sequence[Pair]
    """Over the seeds of one set-up."""
    unpaired: Sequence[Unpaired]

    @property
    def shown(self) -> list[Pair]:
        """All comparisons that are made."""
        return [*self.pairs, *self.pooled]


@dataclass(frozen=True)
class _Match:
    run: Run
    reference: Run


def pair_all(groups: Groups, seeds: Sequence[Sequence[Run]]) -> Pairs:
    """Pair every run with the reference of its group and seed; pool what `seeds` says to be seeds of one set-up."""
    matches = _matches(groups)
    pools = [pool for members in seeds if len(pool := _pool(members, matches)) > 1]
    found = [*map(_pair, matches), *map(_pooled_pair, pools)]
    adjusted = holm([pair.p for pair in found])
    found = [replace(pair, p_holm=p_holm) for pair, p_holm in zip(found, adjusted, strict=True)]
    involved = {run.name for match in matches for run in (match.run, match.reference)} | {groups.main.name}
    return Pairs(
        reference=groups.main,
        references=list(dict.fromkeys(match.reference.name for match in matches)),
        pairs=found[: len(matches)],
        pooled=found[len(matches) :],
        unpaired=[
            Unpaired(run, _reason(run, groups.main))
            for group in groups.groups
            for run in group.runs
            if run.name not in involved
        ],
    )


def _matches(groups: Groups) -> list[_Match]:
    """Return the runs that can be paired, those of one reference together."""
    by_reference: dict[str, list[_Match]] = defaultdict(list)
    for group in groups.groups:
        for run in group.runs:
            reference = group.reference_of(run)
            if reference is not None and run.correct.keys() & reference.correct.keys():
                by_reference[reference.name].append(_Match(run, reference))
    return [match for matches in by_reference.values() for match in matches]


def _pair(match: _Match) -> Pair:
    counts = _counts(match)
    p = mcnemar(counts)
    return Pair(
        name=match.run.name,
        reference=match.reference.name,
        counts=counts,
        ci95=difference_interval(counts),
        p=p,
        p_holm=p,
        scores={name: paired_scores(*_on_common(*both)) for name, both in _scores(match).items()},
        remark="; ".join(_remarks(match, counts.n)),
    )


def _pool(members: Sequence[Run], matches: Sequence[_Match]) -> list[_Match]:
    """Return the matches of runs that differ by their seeds, each within its seed and with one set-up's reference."""
    names = {run.name for run in members}
    found = [m for m in matches if m.run.name in names and m.run.manifest.seed == m.reference.manifest.seed]
    return [match for match in found if same_settings(match.reference, found[0].reference)]


def _pooled_pair(pool: Sequence[_Match]) -> Pair:
    each = [_counts(match) for match in pool]
    by_problem: dict[str, list[int]] = defaultdict(list)
    for match in pool:
        for problem, ours in match.run.correct.items():
            if problem in match.reference.correct:
                by_problem[problem].append(ours - match.reference.correct[problem])
    differences = list(by_problem.values())
    p = pooled_p([sum(values) for values in differences])
    remarks = [remark for match, counts in zip(pool, each, strict=True) for remark in _remarks(match, counts.n)]
    return Pair(
        name=name_over_seeds([match.run for match in pool]),
        reference=name_over_seeds([match.reference for match in pool]),
        counts=sum(each[1:], each[0]),
        ci95=pooled_interval(differences),
        p=p,
        p_holm=p,
        scores=_pooled_scores(pool),
        remark="; ".join(dict.fromkeys(remarks)),
    )


def _pooled_scores(pool: Sequence[_Match]) -> dict[str, PairedScores]:
    by_score: dict[str, dict[str, list[float]]] = defaultdict(lambda: defaultdict(list))
    for match in pool:
        for name, (ours, theirs) in _scores(match).items():
            for problem in ours.keys() & theirs.keys():
                by_score[name][problem].append(ours[problem] - theirs[problem])
    # a set has no order, and the draws of a bootstrap follow it
    return {name: pooled_scores([found[problem] for problem in sorted(found)]) for name, found in by_score.items()}


def _reason(run: Run, reference: Run) -> str:
    """Return why a run cannot be paired with a reference, in a line."""
    ours, theirs = run.manifest, reference.manifest
    if ours.task != theirs.task:
        return f"another task: {ours.task}, not {theirs.task}"
    if ours.simulated != theirs.simulated or policy(ours).id != policy(theirs).id:
        return f"another model: {_model(run)}, not {_model(reference)}"
    if simulated_model(ours) != simulated_model(theirs):
        return f"another simulated model: {_settings(run, reference)}"
    if ours.provenance.digest != theirs.provenance.digest:
        common = len(run.problems & reference.problems)
        return f"other problems: {len(run.problems)} vs {len(reference.problems)}, {common} in common"
    if same_settings(run, reference):
        return "the method and settings of the reference, with another seed"
    return "no problem yet that both have ended"


def _model(run: Run) -> str:
    return "a simulated one" if run.manifest.simulated else policy(run.manifest).name


def _settings(run: Run, reference: Run) -> str:
    ours, theirs = simulated_model(run.manifest) or {}, simulated_model(reference.manifest) or {}
    keys = [key for key in {**ours, **theirs} if ours.get(key) != theirs.get(key)]
    return ", ".join(f"{key} {ours.get(key)}, not {theirs.get(key)}" for key in keys)


def _counts(match: _Match) -> Paired:
    return paired(*_on_common(match.run.correct, match.reference.correct))


def _scores(match: _Match) -> dict[str, tuple[dict[str, float], dict[str, float]]]:
    """Return the scores that both have on some problem, by name and problem."""
    both = {name: (match.run.score(name), match.reference.score(name)) for name in match.run.outcome.scores}
    return {name: (ours, theirs) for name, (ours, theirs) in both.items() if ours.keys() & theirs.keys()}


def _on_common(ours: Mapping[str, T], theirs: Mapping[str, T]) -> tuple[list[T], list[T]]:
    """Return the values of the problems that both have, in one order."""
    common = [problem for problem in ours if problem in theirs]
    return [ours[problem] for problem in common], [theirs[problem] for problem in common]


def _remarks(match: _Match, n: int) -> list[str]:
    run, reference = match.run, match.reference
    remarks = []
    if n < len(run.problems | reference.problems):
        remarks.append(f"the {n} problems that both have ended")
    if run.manifest.regime != reference.manifest.regime:
        remarks.append(f"{run.manifest.regime}, not {reference.manifest.regime}")
    if run.manifest.seed != reference.manifest.seed:
        remarks.append(f"{SEED} {run.manifest.seed}, not {reference.manifest.seed}")
    return remarks
