"""The findings of a comparison, in sentences for each pair: the same in a terminal, on a page and in every export."""

from collections.abc import Sequence

from evorun.reports import text
from evorun.reports.comparison.levels import LevelPair
from evorun.reports.comparison.paired import excludes_0
from evorun.reports.comparison.pairs import Pair
from evorun.runs.crossed import LEVEL, POWER


def describe_finding(pair: Pair) -> str:
    """Say what a pair shows, by which test, why other intervals do not decide, and what could have been shown.

    A difference is claimed only where the adjusted test finds it.
    """
    score, difference, crossed = pair.primary, pair.compared.difference, pair.compared.crossed
    about = f"{text.name_score(score)}{'' if score.higher_is_better else ' (lower is better)'}"
    if pair.is_shown:
        side, size = "above" if difference > 0 else "below", text.size(score, difference)
        claim = f"{pair.name} is {side} {pair.reference} by {size} in {about} ({_describe_p(pair)})."
        return f"{claim} {_describe_test(pair)}: {_describe_interval(pair)}."
    none = f"No difference in {about} between {pair.name} and {pair.reference} is shown"
    if crossed is None:
        same = "each problem has the same outcome" if not difference else "all problems differ by the same amount"
        return f"{none}: {same} ({_describe_design(pair)})."
    test = f"{_describe_test(pair)}: difference {text.difference(score, difference)}, {_describe_interval(pair)}."
    smallest = text.smallest_difference(score, crossed.smallest_difference())
    power = f"show a true difference of {smallest}"
    if smallest.startswith("> "):
        power = f"not show even a true difference of {smallest[2:]}"
    adjusted = ", without Holm's adjustment" if pair.comparisons > 1 else ""
    power = f"Such data would {power} with probability {POWER:g}{adjusted}."
    return " ".join([f"{none} ({_describe_p(pair)}).", test, *_describe_disagreement(pair), power])


def describe_changes(level_pairs: Sequence[LevelPair]) -> list[str]:
    """Say which differences are shown to differ between two levels; one is claimed only where its test finds it."""
    return [_describe_change(level_pair) for level_pair in level_pairs if level_pair.minus_level is not None]


def _describe_change(level_pair: LevelPair) -> str:
    pair, score, key = level_pair.pair, level_pair.pair.primary, level_pair.key
    name = "" if " " in key else f"{key}="  # levels of several settings have their names
    about = f"the difference in {text.name_score(score)} of {pair.name} from {pair.reference}"
    levels = f"from {name}{level_pair.minus_level} to {name}{level_pair.level} on {level_pair.task}"
    changed = text.difference(score, pair.compared.difference)
    if pair.is_shown:
        said = f"{text.sentence(levels)}, {about} changes by {changed} ({_describe_p(pair)})"
    else:
        said = f"No change in {about} is shown {levels} ({_describe_p(pair)}): {changed}"
    return f"{said}, {_describe_interval(pair)}."


def _describe_p(pair: Pair) -> str:
    if pair.p_holm is None:
        return "no test"
    p = text.p_equation(pair.p_holm)
    return p if pair.comparisons < 2 else f"{p}, Holm-adjusted for {pair.comparisons} comparisons"


def _describe_test(pair: Pair) -> str:
    over = "seeds and problems" if pair.compared.problems_per_seed else "problems, not seeds"
    return f"The test is over {over} ({_describe_design(pair)})"


def _describe_design(pair: Pair) -> str:
    """Count the seeds and problems of a pair."""
    per_seed = pair.compared.problems_per_seed or [pair.compared.n]
    problems = f"{'' if len(set(per_seed)) == 1 else 'up to '}{text.count(max(per_seed))}"
    nested = pair.compared.crossed is not None and pair.compared.crossed.is_nested
    own = "problems of their own" if nested else "shared problems"
    return f"{len(per_seed)} seed{'' if len(per_seed) == 1 else 's'} x {problems} {own}"


def _describe_interval(pair: Pair) -> str:
    if pair.ci95 is None:
        return "no interval, since it would be the whole range"
    adjusted = "unadjusted " if pair.comparisons > 1 else ""
    return f"{adjusted}95 % interval {text.difference_interval(pair.primary, pair.ci95)}"


def _describe_disagreement(pair: Pair) -> list[str]:
    """Say why nothing is claimed although the test finds a difference, or an interval excludes 0."""
    if pair.p_holm is not None and pair.p_holm < LEVEL:
        return [f"A claim needs both p < {LEVEL:g} and an interval that excludes 0."]
    if excludes_0(pair.ci95):
        if pair.p is not None and pair.p < LEVEL:
            return ["The interval excludes 0, but it is not adjusted for the number of comparisons; p is."]
        return ["The interval excludes 0, but it is a bootstrap, which is too narrow for few problems; p decides."]
    if not pair.compared.problems_per_seed:
        return []
    seeds, problems = excludes_0(pair.compared.seeds_ci95), excludes_0(pair.compared.ci95)
    if seeds and problems:
        return ["The intervals over seeds alone and over problems alone exclude 0, but each takes the other as fixed."]
    if seeds:
        return ["The interval over seeds alone excludes 0, but it takes the problems as fixed."]
    return ["The interval over problems alone excludes 0, but it takes the seeds as fixed."] if problems else []
