"""The findings of a comparison, a sentence for each pair: the same in a terminal, on a page and in every export."""

from evorun.reports import text
from evorun.reports.comparison.pairs import Pair
from evorun.runs.crossed import POWER


def describe_finding(pair: Pair) -> str:
    """Say what a pair shows, with its interval, its seeds and problems, and the adjusted test.

    A difference is claimed only where the adjusted test finds it.
    """
    score, difference = pair.primary, pair.compared.difference
    about = f"{text.words(score.name)}{'' if score.higher_is_better else ' (lower is better)'}"
    interval = _describe_interval(pair)
    if pair.is_shown:
        side, size = "above" if difference > 0 else "below", text.size(score, difference)
        return f"{pair.name} is {side} {pair.reference} by {size} in {about} ({interval}, {_describe_test(pair)})."
    none = f"No difference in {about} between {pair.name} and {pair.reference} is shown"
    point = f"difference {text.difference(score, difference)}"
    if pair.compared.crossed is None:
        same = "each problem has the same outcome" if not difference else "all problems differ by the same amount"
        return f"{none}: {same} ({_describe_design(pair)})."
    adjusted = "Holm-adjusted p" if pair.comparisons > 1 else "p"
    reason = f"{adjusted} is not below 0.05, although the interval excludes 0 ({point}, {interval}"
    if pair.ci95 is None:
        reason = f"the interval is the whole range ({point}, {_describe_design(pair)}"
    elif pair.ci95[0] <= 0 <= pair.ci95[1]:
        reason = f"the interval includes 0 ({point}, {interval}"
    smallest = text.smallest_difference(score, pair.compared.crossed.smallest_difference())
    shown = f"nothing, not even {smallest[2:]}" if smallest[0] == ">" else f"only a difference of {smallest} or more"
    power = f"This comparison could have shown {shown}"
    return f"{none}: {reason}, {_describe_test(pair)}). {power} (power {POWER:g})."


def _describe_interval(pair: Pair) -> str:
    adjusted = "unadjusted " if pair.comparisons > 1 else ""
    return f"{adjusted}95 % interval {text.difference_interval(pair.primary, pair.ci95)}, {_describe_design(pair)}"


def _describe_design(pair: Pair) -> str:
    """Say how many seeds and problems a pair has, and what one seed cannot tell."""
    per_seed = pair.compared.problems_per_seed or [pair.compared.n]
    problems = f"{'' if len(set(per_seed)) == 1 else 'up to '}{text.count(max(per_seed))}"
    if len(per_seed) == 1:
        return f"1 seed x {problems} shared problems: about other problems, not other seeds"
    nested = pair.compared.crossed is not None and pair.compared.crossed.is_nested
    return f"{len(per_seed)} seeds x {problems} {'problems of their own' if nested else 'shared problems'}"


def _describe_test(pair: Pair) -> str:
    if pair.p_holm is None:
        return "no test"
    p = text.p_equation(pair.p_holm)
    return p if pair.comparisons < 2 else f"Holm-adjusted {p} over {pair.comparisons} comparisons"
