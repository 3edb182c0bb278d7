"""Agreement of two judges on the same duels: overall, by order of presentation, length, difficulty and step."""

import math
from collections import defaultdict
from collections.abc import Callable, Iterable, Mapping, Sequence
from typing import NamedTuple

from evorun.runs.candidates import CandidateId, Outcome, Verdict
from evorun.runs.schema import ComparisonRecord, Metric
from evorun.runs.scores import find_better
from evorun.runs.statistics import MIN_PROBLEMS, Proportion, pooled_share
from evorun.runs.studies import RejudgedFigure

LENGTH_RATIOS = (1.1, 1.5)
"""Bounds between groups of duels, by how many times longer one text is than the other (ours)."""
SHARES_RIGHT = (1 / 3, 2 / 3)
"""Bounds between groups of problems, by the share of candidates that are right (ours)."""
RESAMPLES = 1_999
"""Resamples of an interval here (ours): a table has dozens, read to two figures."""
ALL_DUELS, WON_BY_BETTER = "all duels", "duels won by the better candidate"
SHOWN_AS_A, WON_BY_LONGER = "verdicts for the text shown as A", "duels won by the longer text"
"""Groups whose figures stand for a judge."""
ORDERS = ("first candidate shown as A", "first candidate shown as B")


class JudgedTwice(NamedTuple):
    """A duel by both judges."""

    recorded: ComparisonRecord
    now: ComparisonRecord
    log_ratio: float
    """Logarithm of the first text's length over the second's."""
    better: Outcome | None
    """The candidate with the better grade; None for equal or missing ones."""
    share_right: float | None
    """Of the problem's candidates; None where the task has no right and wrong."""


def pair_duels(
    recorded: Sequence[ComparisonRecord],
    now: Sequence[ComparisonRecord | None],
    lengths: Mapping[tuple[str, CandidateId], int],
    utilities: Mapping[tuple[str, CandidateId], float | None],
    shares_right: Mapping[str, float],
) -> list[JudgedTwice]:
    """Return the duels that both judges have judged; `now` has one for each of `recorded`, or None, in the same order.

    lengths: in characters, by problem and candidate. utilities: of the grades, higher for better ones. shares_right: of
    the candidates of each problem; empty where the task has no right and wrong.
    """
    return [
        JudgedTwice(
            before,
            after,
            math.log((1 + lengths[before.problem, before.first]) / (1 + lengths[before.problem, before.second])),
            find_better(utilities.get((before.problem, before.first)), utilities.get((before.problem, before.second))),
            shares_right.get(before.problem),
        )
        for before, after in zip(recorded, now, strict=True)
        if after is not None
    ]


def measure_agreement(duels: Sequence[JudgedTwice]) -> list[RejudgedFigure]:
    """Return shares of decided duels by each judge, and the share of equal winners among those that both decided.

    Rows by order count single judgments in place of duels. Intervals resample problems.
    """
    rows = [_compare("all", ALL_DUELS, duels)]
    for order, group in enumerate(ORDERS):
        judged = [duel for duel in duels if len(duel.recorded.verdicts) > order]
        if judged and max(len(duel.recorded.verdicts) for duel in duels) > 1:
            rows.append(_compare_judgments(group, judged, order))
    rows += [_measure_accuracy(duels)] if any(duel.better for duel in duels) else []
    rows += [_measure_position(duels), _measure_length(duels)]
    rows += _split("length", duels, lambda duel: _length_group(duel.log_ratio), _LENGTH_GROUPS)
    if all(duel.share_right is not None for duel in duels):
        rows += _split("difficulty", duels, lambda duel: _difficulty_group(duel.share_right or 0.0), _DIFFICULTY_GROUPS)
    steps = sorted({duel.recorded.step for duel in duels})
    if len(steps) > 1:
        rows += _split("step", duels, lambda duel: f"step {duel.recorded.step}", [f"step {step}" for step in steps])
    return rows


def _split(
    by: str, duels: Sequence[JudgedTwice], key: Callable[[JudgedTwice], str], groups: Sequence[str]
) -> list[RejudgedFigure]:
    members: dict[str, list[JudgedTwice]] = defaultdict(list)
    for duel in duels:
        members[key(duel)].append(duel)
    return [_compare(by, group, members[group]) for group in groups if members[group]]


def _compare(by: str, group: str, duels: Sequence[JudgedTwice]) -> RejudgedFigure:
    outcomes = [(duel.recorded.problem, duel.recorded.outcome, duel.now.outcome) for duel in duels]
    return _compare_opinions(by, group, outcomes)


def _compare_judgments(group: str, duels: Sequence[JudgedTwice], order: int) -> RejudgedFigure:
    verdicts = [
        (duel.recorded.problem, _decided(duel.recorded.verdicts[order]), _decided(duel.now.verdicts[order]))
        for duel in duels
    ]
    return _compare_opinions("order", group, verdicts)


def _compare_opinions(by: str, group: str, opinions: Sequence[tuple[str, str | None, str | None]]) -> RejudgedFigure:
    """Compare opinions on the duels of problems, None for an undecided one."""
    return RejudgedFigure(
        by=by,
        group=group,
        n=len(opinions),
        problems=len({problem for problem, _, _ in opinions}),
        recorded=_share((problem, before is not None) for problem, before, _ in opinions),
        now=_share((problem, after is not None) for problem, _, after in opinions),
        agreement=_share(
            (problem, before == after)
            for problem, before, after in opinions
            if before is not None and after is not None
        ),
    )


def _measure_accuracy(duels: Sequence[JudgedTwice]) -> RejudgedFigure:
    """Return how often each judge decides for the candidate with the better grade."""
    return _measure_wins("accuracy", WON_BY_BETTER, [(duel, duel.better) for duel in duels if duel.better])


def _measure_position(duels: Sequence[JudgedTwice]) -> RejudgedFigure:
    """Return how often each judge decides for the text that it sees as A: one half without a position bias."""

    def shares(comparisons: Iterable[ComparisonRecord]) -> Metric:
        return _share(
            (duel.problem, verdict == "A") for duel in comparisons for verdict in duel.verdicts if _decided(verdict)
        )

    return RejudgedFigure(
        by="position",
        group=SHOWN_AS_A,
        n=sum(len(duel.recorded.verdicts) for duel in duels),
        problems=_count_problems(duels),
        recorded=shares(duel.recorded for duel in duels),
        now=shares(duel.now for duel in duels),
    )


def _measure_length(duels: Sequence[JudgedTwice]) -> RejudgedFigure:
    """Return how often each judge decides for the longer text, among pairs whose lengths differ."""
    uneven = [duel for duel in duels if duel.log_ratio]
    return _measure_wins(
        "length", WON_BY_LONGER, [(duel, "first" if duel.log_ratio > 0 else "second") for duel in uneven]
    )


def _measure_wins(by: str, group: str, favoured: Sequence[tuple[JudgedTwice, Outcome]]) -> RejudgedFigure:
    """Return how often each judge decides for one side of each duel."""

    def shares(outcomes: Iterable[tuple[JudgedTwice, Outcome | None, Outcome]]) -> Metric:
        return _share((duel.recorded.problem, won == side) for duel, won, side in outcomes if won is not None)

    return RejudgedFigure(
        by=by,
        group=group,
        n=len(favoured),
        problems=_count_problems(duel for duel, _ in favoured),
        recorded=shares((duel, duel.recorded.outcome, side) for duel, side in favoured),
        now=shares((duel, duel.now.outcome, side) for duel, side in favoured),
    )


def _count_problems(duels: Iterable[JudgedTwice]) -> int:
    return len({duel.recorded.problem for duel in duels})


_LENGTH_GROUPS = (
    f"lengths within a factor of {LENGTH_RATIOS[0]}",
    f"lengths up to {LENGTH_RATIOS[1]} times apart",
    f"lengths further apart than {LENGTH_RATIOS[1]} times",
)


def _length_group(log_ratio: float) -> str:
    return _LENGTH_GROUPS[sum(abs(log_ratio) > math.log(bound) for bound in LENGTH_RATIOS)]


_DIFFICULTY_GROUPS = (
    "problems with less than a third of the candidates right",
    "problems with a third to two thirds right",
    "problems with more than two thirds right",
)


def _difficulty_group(share_right: float) -> str:
    return _DIFFICULTY_GROUPS[sum(share_right > bound for bound in SHARES_RIGHT)]


def _decided(verdict: Verdict) -> str | None:
    return verdict if verdict in ("A", "B") else None


def _share(outcomes: Iterable[tuple[str, bool]]) -> Metric:
    """Return the share of outcomes that are true, pooled over problems; below `MIN_PROBLEMS` without an interval."""
    shares: dict[str, Proportion] = defaultdict(Proportion)
    for problem, outcome in outcomes:
        shares[problem].add(outcome)
    if not shares:
        return Metric(None, None, 0)
    found = pooled_share(list(shares.values()), RESAMPLES)
    return found if len(shares) >= MIN_PROBLEMS else Metric(found.value, None, found.n)
