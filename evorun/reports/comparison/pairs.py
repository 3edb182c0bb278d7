"""Which runs of a comparison can be paired with the reference, and how each pair comes out."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass

from evorun.reports.comparison.paired import (
    Paired,
    PairedScores,
    difference_interval,
    holm,
    mcnemar,
    paired,
    paired_scores,
)
from evorun.reports.comparison.runs import Run, policy, simulated_model


@dataclass(frozen=True)
class Pair:
    """A run beside the reference, on the same problems."""

    run: Run
    counts: Paired
    """The run's outcomes (ours) beside the reference's (theirs)."""
    ci95: tuple[float, float] | None
    """Of the difference in accuracy; None when no problem is discordant."""
    p: float
    """McNemar's exact two-sided p-value."""
    p_holm: float
    """The same, adjusted for the number of pairs."""
    scores: Mapping[str, PairedScores]
    """The scores that both have, by name."""
    remark: str
    """What the reader must know of this pair; mostly nothing."""


@dataclass(frozen=True)
class Unpaired:
    """A run that is not to be paired with the reference."""

    run: Run
    reason: str


@dataclass(frozen=True)
class Pairs:
    """All runs beside the reference."""

    reference: Run
    pairs: Sequence[Pair]
    unpaired: Sequence[Unpaired]


def pair_all(runs: Sequence[Run], reference: Run) -> Pairs:
    """Pair every run with the reference that has the same task, model and problems."""
    others = [run for run in runs if run is not reference]
    obstacles = {run.name: _obstacle(run, reference) for run in others}
    fitting = [run for run in others if obstacles[run.name] is None]
    counts = [_counts(run, reference) for run in fitting]
    p_values = [mcnemar(each) for each in counts]
    pairs = [
        Pair(
            run=run,
            counts=each,
            ci95=difference_interval(each),
            p=p,
            p_holm=adjusted,
            scores=_scores(run, reference),
            remark=_remark(run, reference, each.n),
        )
        for run, each, p, adjusted in zip(fitting, counts, p_values, holm(p_values), strict=True)
    ]
    unpaired = [Unpaired(run, reason) for run in others if (reason := obstacles[run.name]) is not None]
    return Pairs(reference, pairs, unpaired)


def _obstacle(run: Run, reference: Run) -> str | None:
    """Return why two runs cannot be paired, in a line; None when they can."""
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
    if not run.correct.keys() & reference.correct.keys():
        return "no problem yet that both have ended"
    return None


def _model(run: Run) -> str:
    return "a simulated one" if run.manifest.simulated else policy(run.manifest).name


def _settings(run: Run, reference: Run) -> str:
    ours, theirs = simulated_model(run.manifest) or {}, simulated_model(reference.manifest) or {}
    keys = [key for key in {**ours, **theirs} if ours.get(key) != theirs.get(key)]
    return ", ".join(f"{key} {ours.get(key)}, not {theirs.get(key)}" for key in keys)


def _counts(run: Run, reference: Run) -> Paired:
    ours, theirs = run.correct, reference.correct
    common = [problem for problem in ours if problem in theirs]
    return paired([ours[problem] for problem in common], [theirs[problem] for problem in common])


def _scores(run: Run, reference: Run) -> dict[str, PairedScores]:
    compared = {}
    for name in run.outcome.scores:
        ours, theirs = run.score(name), reference.score(name)
        common = [problem for problem in ours if problem in theirs]
        if common:
            compared[name] = paired_scores([ours[p] for p in common], [theirs[p] for p in common])
    return compared


def _remark(run: Run, reference: Run, n: int) -> str:
    remarks = []
    if n < len(run.problems | reference.problems):
        remarks.append(f"the {n} problems that both have ended")
    if run.manifest.regime != reference.manifest.regime:
        remarks.append(f"{run.manifest.regime}, not {reference.manifest.regime}")
    return "; ".join(remarks)
