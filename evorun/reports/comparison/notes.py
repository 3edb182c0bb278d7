"""Sentences around the tables of a comparison: the same on the page and in a terminal."""

from evorun.reports import text
from evorun.reports.comparison.comparison import Comparison, shared_facts
from evorun.reports.comparison.names import SEED, joined, shared
from evorun.reports.comparison.pairs import Unpaired
from evorun.reports.comparison.rows import MARKS
from evorun.reports.comparison.runs import ANSWERED
from evorun.runs.spending import GOLD
from evorun.runs.statistics import MIN_BOOTSTRAP_SEEDS, MIN_SEEDS

_SEEDS = (
    "Over several seeds the figure is the mean of the seeds' figures, and its interval is Student's t over the seeds, "
    "cut at the score's range: it is about other seeds on these problems. There is none where all seeds agree, or "
    "where it would be the whole range."
)
_BOTH = (
    "Over seeds and problems: a percentile bootstrap that resamples both, given at least "
    f"{MIN_BOOTSTRAP_SEEDS} seeds. It is about other seeds on similar problems; none where it would be the whole range."
)

SCORE_PAIRS_NOTE = (
    "Difference: mean of the run less that of the reference. Intervals as above (over problems, of single runs: BCa), "
    "none where all problems differ by the same amount, not adjusted for the number of comparisons. Higher, lower: "
    "problems on which the run's score is the higher or the lower one, whichever is better."
)
"""Explains the columns of the scores of pairs."""
WORDING = "The runs' prompts are evorun's own wording of the paper's, or the user's, not the paper's texts."
"""Stands beside every reported figure: prompts alone can move a score by more than many a method does."""


def search_note(comparison: Comparison) -> str:
    """Explain the columns of the search and the judge."""
    explained = {
        ANSWERED: "Candidates answered: of all candidates, those whose request the engine refused included.",
        "parsable_rate": "Texts that parse: of all texts that came, those asked for again included.",
        "pool_coverage": "Pool coverage: problems with any right candidate; choice given coverage: of these, the "
        "problems whose final answer was right.",
        "judge_agreement": "Judge agreement: decisive duels of unequal candidates that the better one won.",
        "posterior_auc": "Posterior AUC: how often a right candidate's posterior mean is above that of a wrong one of "
        "the same problem.",
    }
    shown = {name for row in comparison.rows for name, figure in row.metrics.items() if figure.value is not None}
    return " ".join(sentence for name, sentence in explained.items() if name in shown)


def shared_line(comparison: Comparison) -> str:
    """Say what all arms share, but for the marks, which the warnings above all tables spell out."""
    shared = {name: value for name, value in shared_facts(comparison.rows).items() if value and name != MARKS}
    line = "; ".join(f"{name}{'s' if name == SEED and ',' in value else ''} {value}" for name, value in shared.items())
    aside = any(row.floor for row in comparison.rows) and not all(row.floor for row in comparison.rows)
    return f"{line} (floors aside)" if line and aside else line


def intervals_note(comparison: Comparison) -> str:
    """Say what the intervals of the primary score are."""
    rates = [score.rate for score in comparison.primaries]
    wilson, bootstrap = "are Wilson's, for one draw of problems", "draw problems again (BCa bootstrap)"
    kinds = {(True, False): wilson, (False, True): bootstrap}.get((any(rates), not all(rates)))
    single = f"Intervals of single runs {kinds or f'of rates {wilson}, of other scores {bootstrap}'}."
    return f"{seeds_note(comparison)} {single}" if comparison.has_seeds else single


def seeds_note(comparison: Comparison) -> str:
    """Explain means over seeds and their intervals."""
    return f"{_SEEDS} {_BOTH}" if any(row.over_both for row in comparison.rows) else _SEEDS


def few_seeds_lines(comparison: Comparison) -> list[str]:
    """Say which arms have too few seeds for claims about other seeds."""
    arms = [arm for arm in comparison.arms if not arm.floor]
    few = {arm.name: len(arm.runs) for arm in arms if 1 < len(arm.runs) < MIN_BOOTSTRAP_SEEDS}
    once = [arm.name for arm in arms if len(arm.runs) == 1 and arm.runs[0].outcome.trained]
    lines = []
    if few:
        counts = set(few.values())
        alike = 1 < len(few) == len(arms) and len(counts) == 1
        no_interval = f", and fewer than {MIN_SEEDS} have none" if min(counts) < MIN_SEEDS else ""
        which = f"all have {min(counts)}" if alike else "; ".join(f"{arm}: {seeds}" for arm, seeds in few.items())
        lines.append(f"Fewer than {MIN_BOOTSTRAP_SEEDS} seeds ({which}): intervals over them are rough{no_interval}.")
    if once:
        lines.append(
            f"Trained with one seed ({'; '.join(once)}): intervals are over test problems and say nothing about what "
            "training with another seed would give."
        )
    return lines


def lines_note(comparison: Comparison) -> str:
    """Explain the lines of the curves."""
    seeds = (
        "Thick lines are means over seeds at each step, of cost as of score; a run that has ended counts with its last "
        "point. Thin lines are runs."
    )
    crowded = any(not panel.has_bands for panel in comparison.panels)
    bands = "Bands and bars are 95 % intervals" + ("; figures of many methods have no bands." if crowded else ".")
    if comparison.has_seeds:
        bands += f" Over seeds they begin with {MIN_SEEDS} seeds."
    levels = "A method of one step is a mark: against generations marks stand side by side, on dotted levels."
    floors = "Grey dashes are floors: what random answers ended with."
    sentences = [seeds] if comparison.has_seeds else []
    sentences += [bands, levels]
    sentences += [floors] if any(row.floor for row in comparison.rows) else []
    return " ".join([*sentences, "Calls and tokens so far are of all roles together."])


def cost_note(comparison: Comparison) -> str:
    """Say what the costs in the first table are."""
    trained = any(run.outcome.trained for run in comparison.runs)
    shared_out = ", of a run that trains the whole run's divided by its problems" if trained else ""
    gold = ", the gold judge that grades aside" if any(GOLD in row.cost for row in comparison.rows) else ""
    so_far = any(not run.outcome.finished for run in comparison.runs)
    ended = " Of unfinished runs they are over the problems that have ended." if so_far else ""
    return f"Calls and tokens are means over problems, all roles together{gold}{shared_out}.{ended}"


def floor_line(comparison: Comparison) -> str | None:
    """Say how to make the floor rows that tasks lack; None when each has one."""
    lacking = comparison.without_floor
    if not lacking:
        return None
    return (
        f"No floor for {', '.join(lacking)}: the same command with model=random shows what each method scores on "
        "random answers."
    )


def primary_words(comparison: Comparison) -> str:
    """Name the primary score; where the tasks have several, what it is."""
    primaries = comparison.primaries
    return text.words(primaries[0].name) if len(primaries) == 1 else "primary score"


def pairs_heading(comparison: Comparison) -> str:
    """Say what the pairs are compared with."""
    references = comparison.pairs.references or [comparison.pairs.reference]
    common = shared([run.parts for run in references])
    name = joined(common) if "method" in common else "each group's reference"
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
        f"This interval{' and p hold' if tested else ' holds'} the seeds fixed: {'they are' if tested else 'it is'} "
        "about these very runs on other problems, not about other seeds.",
    ]
    pooled = [pair.compared for pair in comparison.pairs.pooled]
    if any(compared.over_seeds for compared in pooled):
        sentences.append("Over seeds: Student's t over the differences of the seeds, cut at what is possible.")
    if any(compared.over_both for compared in pooled):
        sentences.append("Over both: seeds and problems are drawn again (bootstrap, percentiles).")
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
            f"The reference is the {_best(comparison)}, chosen on these problems, which favours it; "
            "--against=RUN names another."
        )
    return " ".join(sentences)


def _best(comparison: Comparison) -> str:
    """Say which run, or which method of several seeds or groups, has become the reference."""
    directions = {score.higher_is_better for score in comparison.primaries}
    highest = "best" if len(directions) > 1 else "highest" if True in directions else "lowest"
    primary, second = primary_words(comparison), comparison.second
    then = (
        f", then the {'highest' if second.higher_is_better else 'lowest'} {text.words(second.name)}" if second else ""
    )
    pairs = comparison.pairs
    if comparison.has_seeds or len(pairs.references) > 1 or pairs.unpaired:
        return f"method that most others can be paired with, of these the one with the {highest} mean {primary}{then}"
    finished = "finished run" if any(not run.outcome.finished for run in comparison.runs) else "run"
    return f"{finished} with the {highest} {primary}{then}"


def unpaired_line(unpaired: Unpaired) -> str:
    """Say why a run has no pair."""
    return f"{unpaired.run.name} is not paired: {unpaired.reason}"


def source_line(source: str, note: str) -> str:
    """Say where reported figures come from, and that no run has asked in the same words."""
    figures = ". ".join(part.rstrip(".") for part in (source or "no source given", note) if part)
    return f"Reported: {figures}. {WORDING}"
