"""Sentences around the tables of a comparison: the same on the page and in a terminal."""

from evorun.reports import text
from evorun.reports.comparison.comparison import MARKS, Comparison
from evorun.reports.comparison.pairs import Unpaired
from evorun.reports.comparison.seeds import common_name

SCORE_PAIRS_NOTE = (
    "Difference: mean of the run less that of the reference, with a paired bootstrap interval over problems (BCa, over "
    "several seeds percentile; none where all problems differ by the same amount), not adjusted for the number of "
    "comparisons. Higher, lower: problems on which the run's score is the higher or the lower one, whichever is better."
)
"""Explains the columns of the scores of pairs."""
WORDING = "The runs' prompts are evorun's own wording of the paper's, or the user's, not the paper's texts."
"""Stands beside every reported figure: prompts alone can move a score by more than many a method does."""


def shared_line(comparison: Comparison) -> str:
    """Say what all runs share, but for the marks, which the warnings above all tables spell out."""
    shared = comparison.shared_facts
    return "; ".join(f"{name} {value}" for name, value in shared.items() if value and name != MARKS)


def intervals_note(comparison: Comparison) -> str:
    """Say what the intervals of the primary score are."""
    rates = [score.rate for score in comparison.primaries]
    wilson, bootstrap = "are Wilson's, for one draw of problems", "draw problems again (BCa bootstrap)"
    kinds = {(True, False): wilson, (False, True): bootstrap}.get((any(rates), not all(rates)))
    over_seeds = (
        "; those of means over seeds draw whole problems, with all their runs, again" if comparison.means else ""
    )
    return f"Intervals of single runs {kinds or f'of rates {wilson}, of other scores {bootstrap}'}{over_seeds}."


def primary_words(comparison: Comparison) -> str:
    """Name the primary score; where the tasks have several, what it is."""
    primaries = comparison.primaries
    return text.words(primaries[0].name) if len(primaries) == 1 else "primary score"


def pairs_heading(comparison: Comparison) -> str:
    """Say what the pairs are compared with."""
    references = comparison.pairs.references or [comparison.pairs.reference.name]
    one_method = len({name.split(", ")[0] for name in references}) == 1
    name = common_name(references) if one_method else "each group's reference"
    return f"Against {name}, on the same problems{' with the same model' if len(references) > 1 else ''}"


def pairs_note(comparison: Comparison) -> str:
    """Say how the pairs were compared, how many there are, and how their reference was chosen."""
    pairs = comparison.pairs.shown
    tested = [pair for pair in pairs if pair.p is not None]
    several = len(comparison.pairs.references) > 1
    units = " in percentage points" if tested else ""
    without = "where no problem tells the two apart"
    if len(tested) < len(pairs):
        units = ", of rates in percentage points" if tested else ""
        without = "where all problems differ by the same amount"
    sentences = [
        f"{len(pairs)} {'comparison' if len(pairs) == 1 else 'comparisons'}.",
        f"Difference: {primary_words(comparison)} of the run less that of the reference{units}, with a paired "
        f"bootstrap interval over problems (none {without}).",
    ]
    if tested:
        sentences.append(
            "p: McNemar's exact test, two-sided, over the problems gained (only the run has them right) and lost (only "
            "the reference has)."
        )
    else:
        sentences.append("Better, worse: problems on which the run's score is the better or the worse one.")
    # of one comparison the adjusted p is the p
    if len(tested) > 1:
        sentences.append(f"p (Holm) is adjusted for the {len(tested)} comparisons made here.")
    if comparison.pairs.pooled:
        sentences.append(
            "Over several seeds: each run against the reference of its seed; whole problems, with all their seeds, are "
            f"drawn again for the interval{' and exchanged for p' if tested else ''}."
        )
    if several:
        sentences.append(
            "Each run is compared with the reference of its group: the runs that share task, problems, model and, "
            "where the reference has several, the seed."
        )
    if not comparison.chosen:
        sentences.append(
            f"The reference is the {_best(comparison, several)}, chosen on these problems, which favours it; "
            "--against=RUN names another."
        )
    return " ".join(sentences)


def _best(comparison: Comparison, several: bool) -> str:
    """Say which run, or which method of several groups, has become the reference."""
    directions = {score.higher_is_better for score in comparison.primaries}
    highest = "best" if len(directions) > 1 else "highest" if True in directions else "lowest"
    primary, second = primary_words(comparison), comparison.second
    then = (
        f", then the {'highest' if second.higher_is_better else 'lowest'} {text.words(second.name)}" if second else ""
    )
    if several:
        return f"method that most runs can be paired with, of these the one with the {highest} mean {primary}{then}"
    return f"run with the {highest} {primary}{then}"


def unpaired_line(unpaired: Unpaired) -> str:
    """Say why a run has no pair."""
    return f"{unpaired.run.name} is not paired: {unpaired.reason}"


def source_line(source: str, note: str) -> str:
    """Say where reported figures come from, and that no run has asked in the same words."""
    figures = ". ".join(part.rstrip(".") for part in (source or "no source given", note) if part)
    return f"Reported: {figures}. {WORDING}"
