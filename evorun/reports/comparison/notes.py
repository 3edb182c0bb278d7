"""Sentences around the tables of a comparison: the same on the page and in a terminal."""

import math
from collections import defaultdict
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

from evorun.reports import text
from evorun.reports.axes import Axis
from evorun.reports.comparison.arms import Arm
from evorun.reports.comparison.comparison import (
    MAX_BANDS,
    ComparedRuns,
    Panel,
    find_shared_facts,
    name_runs,
    shorten_names,
)
from evorun.reports.comparison.groups import same_settings, select_eligible
from evorun.reports.comparison.names import (
    SEED,
    find_shared_parts,
    format_model,
    is_fork,
    is_student,
    join_parts,
    name_models,
)
from evorun.reports.comparison.pairs import Pair
from evorun.reports.comparison.rows import CAVEATS, Row
from evorun.reports.comparison.runs import Run, find_tasks_with_baseline
from evorun.runs.crossed import LEVEL, POWER
from evorun.runs.paths import display
from evorun.runs.scores import Score, primary_score
from evorun.runs.spending import EXPERT, GOLD
from evorun.runs.statistics import ENOUGH_SEEDS, MIN_SEEDS
from evorun.runs.sweeps import is_sweep

_SEEDS = "With several seeds, a figure is the mean over the seeds; n is seeds x problems."
_SEEDS_AND_PROBLEMS = (
    "Over seeds and problems: about other seeds and other problems of the same kind, by Student's t for crossed random "
    "effects. There is no interval where it would be the whole range, or all values are equal."
)

_THIN_LINES = ("Thin lines are single runs.", "Thin dashed lines are single runs.")
"""For a panel of one arm, and of several, whose lines are dashed so that none hides another."""
_OVER_SEEDS = (
    f" by Student's t over the seeds, from {MIN_SEEDS} on; they have no width where all seeds agree, and there "
    "is none where it would be the whole range"
)
STRATA_CURVES_NOTE = (
    "Means over seeds; a run that has ended counts with its last point. Bars and bands are 95 % intervals" + _OVER_SEEDS
)
"""Explains the curves of a single arm in each stratum."""

SCORE_PAIRS_NOTE = (
    "Difference: the run's mean minus the reference's. Intervals are as above, not adjusted for multiple comparisons; "
    "of single runs they are BCa bootstraps over problems. There is none where all problems differ by the same amount. "
    "Higher, lower: the number of problems, counted for each seed, on which the run's score is higher or lower, "
    "whichever is better."
)
"""Explains the columns of the scores of pairs."""
SEQUENTIAL_NOTE = (
    "Sequential tokens: completion tokens that are written one after another; of calls issued together, those of the "
    "longest."
)
"""Explains a column of the first table."""
WORDING = (
    "The runs' prompts are evorun's own wording, or the user's, not the paper's texts; budget and number of "
    "problems may differ from the paper's, too."
)
"""Stands beside every reported figure: each of these can move a score by more than many a method does."""


def describe_place_of_reported(comparison: ComparedRuns) -> str | None:
    """Say beside which scores a paper's figures stand where none is of the primary one; None elsewhere."""
    reported = {name for row in comparison.rows if row.reported is not None for name in row.reported.metrics}
    scores = [text.name_score(score) for score in comparison.other_scores if score.name in reported]
    if not scores or any(score.name in reported for score in comparison.primaries):
        return None
    named = " and ".join(scores)
    tested = next(score for score in comparison.other_scores if score.name in reported)
    return (
        f"The paper's figures are of {named}, not of {primary_words(comparison)}: the table of scores has them, and "
        f"--score={tested.name} tests {text.name_score(tested)} instead of {primary_words(comparison)}."
    )


def describe_gold_score(comparison: ComparedRuns) -> str | None:
    """Say whose score it is where a rubric rewards runs and a gold judge grades them; None for others."""
    hacking = next((run.outcome.hacking for run in comparison.runs if GOLD in run.outcome.cost), None)
    if hacking is None:
        return None
    gold, single = hacking.gold, primary_score(comparison.runs[0].manifest.scores)
    said = (
        f"{text.sentence(text.name_score(single))}: the gold judge's score of one response per problem, by the task's "
        "own rubric and not by one that evolves."
    )
    if gold.name == single.name:
        return said
    is_tested = any(score.name == gold.name for score in comparison.primaries)
    leads = "" if is_tested else f" --score={gold.name} tests it instead."
    return f"{said} {text.sentence(text.name_score(gold))}: the mean of several, as in gold curves.{leads}"


def shared_line(comparison: ComparedRuns) -> str:
    """Say what all arms share, except for the caveats, which the warnings spell out."""
    facts = {name: value for name, value in find_shared_facts(comparison.rows).items() if value and name != CAVEATS}
    if "model" in facts:
        sharing = (run.manifest for run in comparison.runs if format_model(run.manifest) == facts["model"])
        facts["model"] = name_models([next(sharing)])[0]
    line = "; ".join(f"{name}{'s' if name == SEED and ',' in value else ''} {value}" for name, value in facts.items())
    baselines = [row.is_baseline for row in comparison.rows]
    return f"{line} (random baselines aside)" if line and any(baselines) and not all(baselines) else line


def intervals_note(comparison: ComparedRuns) -> str:
    """Say what the intervals of the primary score are."""
    rates = [score.rate for score in comparison.primaries]
    wilson, bootstrap = "are Wilson's, over problems", "are bootstrap intervals (BCa) over problems"
    kinds = {(True, False): wilson, (False, True): bootstrap}.get((any(rates), not all(rates)))
    single = f"Intervals of single runs {kinds or f'of rates {wilson}; of other scores they {bootstrap}'}."
    if not comparison.has_seeds:
        return single
    return " ".join([*seeds_notes(comparison), single])


def strata_note(comparison: ComparedRuns) -> str:
    """Say what the intervals of the table by stratum are over, and why any of them is missing."""
    cells = [
        (arm, stratum, metric)
        for arm, row in zip(comparison.arms, comparison.rows, strict=True)
        for stratum, metric in row.by_stratum.items()
        if metric.value is not None
    ]
    missing = dict.fromkeys(
        _explain_missing_interval(arm.restrict_to(stratum)) for arm, stratum, metric in cells if metric.ci95 is None
    )
    sentences = [f"In brackets: {name_intervals(comparison.arms)}."] if any(cell[2].ci95 for cell in cells) else []
    return " ".join([*sentences, *([f"There is no interval where {' or '.join(missing)}."] if missing else [])])


def _explain_missing_interval(arm: Arm) -> str:
    """Say why the mean of the primary score of an arm in a stratum has no interval."""
    values = [run.values(arm.primary) for run in arm.runs]
    if len({problem for of_run in values for problem in of_run}) < 2:
        return "a stratum has a single problem"
    if len({value for of_run in values for value in of_run.values()}) < 2:
        return "all values are equal"
    if arm.seed_share(arm.primary) is None:
        return "neither the means of seeds nor those of problems differ"
    return "it would be the whole range"


def strata_pairs_note(comparison: ComparedRuns) -> str:
    """Say that the differences by stratum are exploratory, what their intervals are over, and how p is adjusted."""
    pairs = [stratum_pair.pair for stratum_pair in comparison.strata_pairs]
    both, problems = "over seeds and problems", "over problems (a paired bootstrap)"
    several = frozenset(bool(pair.compared.problems_per_seed) for pair in pairs)
    over = {frozenset({True}): both, frozenset({False}): problems}.get(several, f"{problems}, of several seeds {both}")
    tests = sum(pair.p is not None for pair in pairs)
    sentences = [
        "Exploratory: the main test is over all problems.",
        f"Intervals are {over}, not adjusted for the number of comparisons.",
        f"p (Holm) is adjusted for all {tests} tests of this table.",
    ]
    if any(pair.ci95 is None for pair in pairs):
        sentences.append(
            "There is no interval where a stratum has a single problem, all its problems differ by the same amount, or "
            "it would be the whole range."
        )
    return " ".join(sentences)


def describe_place_of_strata_pairs(comparison: ComparedRuns) -> str | None:
    """Say in a terminal where the differences by stratum are; None without any."""
    if not comparison.strata_pairs:
        return None
    files = "as strata_pairs.csv with --export=FOLDER"
    return f"Differences by stratum, which are exploratory: on the page below, and {files}."


def seeds_notes(comparison: ComparedRuns) -> list[str]:
    """Explain means over seeds and their intervals, and what is to be known of those of these runs."""
    return [
        f"{_SEEDS} {_SEEDS_AND_PROBLEMS}",
        *width_notes(comparison.rows),
        *narrower_notes(comparison),
        *seed_share_notes(comparison),
    ]


def width_notes(rows: Sequence[Row]) -> list[str]:
    """Say which of the rows' intervals are cut."""
    of_seeds = [(row.primary, row.get_interval(row.primary.name)) for row in rows if row.seeds > 1]
    ends = dict.fromkeys(
        text.value(score, bound)
        for score, ci95 in of_seeds
        if ci95 is not None
        for bound, end in zip((score.low, score.high), ci95, strict=True)
        if end == bound
    )
    return (
        [f"Intervals over seeds and problems that would go beyond {' or '.join(ends)} are cut there."] if ends else []
    )


def narrower_notes(comparison: ComparedRuns) -> list[str]:
    """Say why intervals over seeds and problems, which are about more, are narrower than those over seeds alone."""
    of_arms = [
        (row.seeds, row.get_metric(row.primary.name).ci95, row.two_way_ci95.get(row.primary.name), row.seed_share)
        for row in comparison.rows
        if not row.is_baseline
    ]
    of_pairs = [
        (len(found.problems_per_seed), found.seeds_ci95, found.two_way_ci95, found.seed_share)
        for found in (pair.compared for pair in comparison.pairs.pooled)
    ]
    # a share of 1: problems have no part in it, and the two may differ by the weights of seeds alone
    narrower = {
        kind: [seeds for seeds, alone, both, share in found if _is_narrower(both, alone) and share != 1]
        for kind, found in (("arm", of_arms), ("difference", of_pairs))
    }
    counts = sorted({seeds for found in narrower.values() for seeds in found})
    if not counts:
        return []
    of = " and ".join(f"{len(found)} {kind}{'s' * (len(found) > 1)}" for kind, found in narrower.items() if found)
    return [
        f"An interval over seeds and problems may be narrower than that over seeds alone (here of {of}): Student's "
        f"factor for {' or '.join(map(str, counts))} seeds is larger than for the problems, and over both the two are "
        "weighted by the variances."
    ]


def _is_narrower(interval: tuple[float, float] | None, other: tuple[float, float] | None) -> bool:
    """Tell whether both exist and the first is narrower, by more than rounding."""
    return interval is not None and other is not None and interval[1] - interval[0] < other[1] - other[0] - 1e-9


def seed_share_notes(comparison: ComparedRuns) -> list[str]:
    """Say how much of the variance over seeds and problems is the seeds', of arms and of differences, and what follows.

    The share is of the primary score, and the weight of the seeds' degrees of freedom: their part in the sum of both
    variances.
    """
    of_arms = [(row.primary, row.seed_share) for row in comparison.rows if not row.is_baseline]
    of_pairs = [(pair.primary, pair.compared.seed_share) for pair in comparison.pairs.pooled]
    lines = [
        f"Seeds make up {_format_shares(shares)} of the variance behind the arms' intervals of {name}, problems the "
        "rest."
        for name, shares in _group_shares(of_arms).items()
    ]
    for name, shares in _group_shares(of_pairs).items():
        advice = "above one half, more seeds narrow a difference most; below it, more problems do"
        if min(shares) > 0.5 or max(shares) < 0.5:
            advice = f"so more {'seeds' if min(shares) > 0.5 else 'problems'} would narrow a difference most"
        lines.append(
            f"Behind differences in {name}, in which the difficulty of problems cancels, they make up "
            f"{_format_shares(shares)}: {advice}."
        )
    return lines


def _group_shares(shares: Sequence[tuple[Score, float | None]]) -> dict[str, list[float]]:
    """Return the known shares by the name of their score."""
    found: dict[str, list[float]] = defaultdict(list)
    for score, share in shares:
        if share is not None:
            found[text.name_score(score)].append(share)
    return found


def _format_shares(shares: Sequence[float]) -> str:
    """Format a share, or the range of several."""
    low, high = text.percent(min(shares)), text.percent(max(shares))
    return low if low == high else text.interval((min(shares), max(shares)))


def name_intervals(arms: Sequence[Arm], drawn: Score | None = None) -> str:
    """Say in the legend of a figure what the intervals of the arms' final scores are over.

    drawn: the score of a figure, whose legend also says that an arm of several seeds has none.
    """
    several = {len(arm.runs) > 1 for arm in arms}
    over = {frozenset({True}): "over seeds and problems", frozenset({False}): "over problems"}.get(frozenset(several))
    intervals = f"95 % intervals {over or 'over problems, of several seeds over seeds and problems'}"
    none = drawn is not None and any(arm.two_way_interval(drawn) is None for arm in arms if len(arm.runs) > 1)
    return intervals + " (none where it would be the whole range, or all values are equal)" * none


def few_seeds_lines(comparison: ComparedRuns) -> list[str]:
    """Say which arms have too few seeds for claims about other seeds."""
    arms = [arm for arm in comparison.arms if not arm.is_baseline]
    few = {arm.name: len(arm.runs) for arm in arms if 1 < len(arm.runs) < ENOUGH_SEEDS}
    single = [arm.name for arm in arms if len(arm.runs) == 1 and arm.runs[0].outcome.trained]
    lines = []
    if few:
        counts = set(few.values())
        alike = 1 < len(few) == len(arms) and len(counts) == 1
        no_interval = f"; over seeds alone, there is none below {MIN_SEEDS} seeds" if min(counts) < MIN_SEEDS else ""
        which = f"all have {min(counts)}" if alike else "; ".join(f"{arm}: {seeds}" for arm, seeds in few.items())
        lines.append(f"Fewer than {ENOUGH_SEEDS} seeds ({which}): intervals over seeds are rough{no_interval}.")
    if single:
        lines.append(
            f"Trained with one seed ({'; '.join(single)}): intervals are over test problems and say nothing about "
            "training with another seed."
        )
    return lines


def list_cautions(comparison: ComparedRuns) -> list[str]:
    """Return what limits the comparison's claims, a line each."""
    return [
        *few_seeds_lines(comparison),
        *ceiling_lines(comparison),
        *describe_equal_answers(comparison.arms),
        *gold_rubric_lines(comparison.arms),
        *shared_steps_lines(comparison),
    ]


def gold_rubric_lines(arms: Sequence[Arm]) -> list[str]:
    """Say which arms train under the rubric by which they are graded."""
    marked = [arm.name for arm in arms if any(run.trains_by_gold_rubric for run in arm.runs)]
    if not marked:
        return []
    return [
        f"Trained under the gold judge's own rubric (method.rubric={EXPERT}): {'; '.join(marked)}. From the start the "
        "reward asks for what the gold score measures, which favours such an arm over those with another rubric."
    ]


def ceiling_lines(comparison: ComparedRuns) -> list[str]:
    """Say which arms have the best possible score on each problem, so that they could be no better."""
    full = [row for row in comparison.rows if not row.is_baseline and _is_full(row)]
    if not full or len(comparison.rows) < 2:
        return []
    names = "; ".join(row.name for row in full)
    value = text.value(full[0].primary, full[0].get_metric(full[0].primary.name).value)
    remedy = "Harder problems could."
    if all(run.manifest.simulated for run in comparison.runs):
        remedy = "A less able simulated model could: lower engine.skill or engine.improvement."
    return [
        f"At the ceiling ({names}): {primary_words(comparison)} is {value} on every problem, the best possible. Such "
        f"problems cannot show how good a method is. {remedy}"
    ]


def describe_equal_answers(arms: Sequence[Arm]) -> list[str]:
    """Say which arms of a task gave the same answers, so that nothing shows what their settings do."""
    alike: dict[Any, list[Arm]] = defaultdict(list)
    for arm in arms:
        answers = {
            (run.manifest.seed, ended.problem): (ended.answer, ended.correct, *sorted(ended.scores.items()))
            for run in arm.runs
            for ended in run.outcome.predictions
        }
        answered = sum(answer is not None for answer, *_ in answers.values())
        if answered > 1 and not arm.is_baseline:
            alike[arm.task, frozenset(answers.items())].append(arm)
    return [
        f"Same answers ({'; '.join(arm.name for arm in equal)}): to every problem, with each seed. What these arms "
        "differ in had no effect on their answers here."
        for equal in alike.values()
        if len(equal) > 1
    ]


def _is_full(row: Row) -> bool:
    best = row.primary.high if row.primary.higher_is_better else row.primary.low
    value = row.get_metric(row.primary.name).value
    return best is not None and value is not None and math.isclose(value, best, rel_tol=1e-9, abs_tol=1e-9)


def find_source_folder(run: Run) -> Path | None:
    """Return the folder of the run that a run is a fork of; None for another run."""
    origin = run.manifest.origin
    return None if origin is None or origin.at is None else Path(origin.run).resolve()


def shared_steps_lines(comparison: ComparedRuns) -> list[str]:
    """Say which runs are forks or extensions of others among them: their first steps are no independent draws."""
    folders = {str(run.outcome.run_dir.resolve()): run.name for run in comparison.runs}
    lines = []
    for run in comparison.runs:
        origin = run.manifest.origin
        source = None if origin is None else folders.get(str(Path(origin.run).resolve()))
        if origin is None or source is None:
            continue
        number = "" if origin.used_calls is None else f"{origin.used_calls:,} "
        shared = f"{number}calls{' and updates of the weights' if origin.updates else ''}"
        if origin.at is None:
            lines.append(f"{run.name} is an extension of {source}: it goes on from its {shared}.")
        else:
            lines.append(f"{run.name} is a fork of {source}: they share all {shared} before step {origin.at}.")
    return lines


def lines_note(panels: Sequence[Panel], axes: Sequence[Axis], *, has_marks: bool) -> str:
    """Explain the lines of curves on these panels against these axes. has_marks: any method is a mark."""
    has_seeds = any(panel.has_seeds for panel in panels)
    costs = [axis for axis in axes if axis.name != "step"]
    sentences = []
    dashed = sum(not arm.is_baseline for panel in panels for arm in panel.arms) > len(panels)
    with_bands = any(panel.has_bands for panel in panels)
    if has_seeds:
        at = ", of both cost and score" if costs else ""
        sentences.append(
            f"Thick lines are means over seeds at each step{at}; a run that has ended counts with its last point."
        )
        sentences += [_THIN_LINES[dashed]] if with_bands else []
    if dashed:
        sentences.append("A line that others run over is drawn wider below them, so that it shows.")
    if len(costs) < len(axes) and (said := describe_batches([run for panel in panels for run in panel.runs])):
        sentences.append(said)
    if with_bands:
        bands = "Bands with dotted edges" if dashed else "Bands"
        sentences.append(f"{bands} are 95 % intervals{_OVER_SEEDS if has_seeds else ''}.")
    if not all(panel.has_bands for panel in panels):
        sentences.append(f"Figures of more than {MAX_BANDS} methods have neither bands nor thin lines.")
    if has_marks:
        over = " over seeds and problems" if has_seeds else ""
        steps = [axis.label for axis in axes if axis.name == "step"]
        beside = "".join(f"; against {step}s it stands beside them, on a dotted line" for step in steps)
        single = "A method with a single step"
        if "training step" in steps:
            single += ", or beside those that train one that does not,"
        interval = f" with its 95 % interval{over}" if with_bands else ""
        sentences.append(f"{single} is a mark{interval}{beside}.")
    if has_seeds:
        sentences.append("Intervals in tables are over seeds and problems: they are about other problems, too.")
    if any(arm.is_baseline for panel in panels for arm in panel.arms):
        sentences.append("Grey dashed lines are random baselines: the final scores of random answers.")
    return " ".join([*sentences, *(["Calls and tokens so far include all roles."] if costs else [])])


def describe_batches(runs: Sequence[Run]) -> str:
    """Say what the steps of samples are among which an oracle chooses; empty where no run has them."""
    settings = [run.manifest.config.get("method") for run in runs]
    drawn = [own for own in settings if isinstance(own, Mapping) and own.get("choose") == "oracle" and "batches" in own]
    if not drawn:
        return ""
    return (
        f"Steps of {drawn[0].get('name')}: batches that its samples are drawn in (method.batches), of evorun's making."
    )


def shared_lines_note(panel: Panel, places: str, *, bands: bool = True) -> str:
    """Explain lines of training or of rubrics.

    places: the steps or refinements of their horizontal axis. bands: means may have bands.
    """
    if not panel.has_seeds:
        return ""
    drawn = [arm for arm in panel.arms if not arm.is_baseline]
    sentences = [f"Thick lines are means over seeds, at the {places} that all runs of an arm have."]
    if panel.has_bands:
        sentences.append(_THIN_LINES[len(drawn) > 1])
        if not bands:
            sentences.append("There are no bands: means over a step's few rollouts vary too much from step to step.")
        elif any(len(arm.runs) >= MIN_SEEDS for arm in drawn):
            sentences.append(f"Bands are 95 % intervals{_OVER_SEEDS}.")
    return " ".join(sentences)


def cost_note(comparison: ComparedRuns) -> str:
    """Say what the costs in the first table are."""
    trained = any(run.outcome.trained for run in comparison.runs)
    gold = ", except for the gold judge that grades" if any(GOLD in row.cost for row in comparison.rows) else ""
    sentences = [f"Calls and tokens are means over problems and include all roles{gold}."]
    if len(comparison.arms) > 1:
        sentences.append("Equal calls are not equal tokens.")
    if any(row.sequential_tokens is not None for row in comparison.rows):
        sentences.append(SEQUENTIAL_NOTE)
    if trained:
        sentences.append("For a run that trains, they are the run's total divided by its number of problems.")
    if any(not run.outcome.finished for run in comparison.runs):
        sentences.append("For unfinished runs, they are over the problems that have ended.")
    return " ".join(sentences)


def run_cost_note(comparison: ComparedRuns) -> str:
    """Say what the costs of whole runs are."""
    times = (
        "Model time adds up over concurrent calls. Wall-clock time is of runs that went through without a stop; "
        "compare times on equal machines only."
    )
    return f"Means over the runs of all seeds. {times}" if comparison.has_seeds else times


def describe_missing_baselines(comparison: ComparedRuns) -> str | None:
    """Say how to make the random baselines that tasks lack, or which folder has them; None when each has one."""
    lacking = comparison.tasks_without_baseline
    if not lacking:
        return None
    sweeps = {run.outcome.run_dir.parent: None for run in comparison.runs if is_sweep(run.outcome.run_dir.parent)}
    places = {task: folder for folder in sweeps for task in find_tasks_with_baseline(folder)}
    lines = [
        f"Random baselines for {task} are in {display(places[task])}, but not in this report."
        for task in lacking
        if task in places
    ]
    if none := [task for task in lacking if task not in places]:
        same = f" and hydra.sweep.dir={display(next(iter(sweeps)))}" if len(sweeps) == 1 else ""
        lines.append(
            f"No random baseline for {', '.join(none)}: the same command with model=random{same} shows what each "
            "method scores on random answers."
        )
    return " ".join(lines)


def primary_words(comparison: ComparedRuns) -> str:
    """Name the primary score; where the tasks have several, what it is."""
    primaries = comparison.primaries
    return text.name_score(primaries[0]) if len(primaries) == 1 else "primary score"


def pairs_heading(comparison: ComparedRuns) -> str:
    """Say what the pairs are compared with."""
    if comparison.every_two:
        return "Between every two arms, on the same problems with the same model"
    references = comparison.pairs.references or [comparison.pairs.reference]
    common = find_shared_parts([run.parts for run in references])
    name = join_parts(common) if "method" in common else "each group's reference"
    model = "base model" if any(is_student(run.manifest) for run in comparison.runs) else "model"
    same_model = len(references) > 1 and not references[0].is_baseline  # whose model nothing else has
    return f"Against {name}, on the same problems{f' with the same {model}' if same_model else ''}"


def pairs_note(comparison: ComparedRuns) -> str:
    """Say how the pairs were compared, how many there are, and how their reference was chosen."""
    return " ".join(pairs_notes(comparison))


def pairs_notes(comparison: ComparedRuns) -> list[str]:
    """Return the same as a line for each column or test that it explains; the reference first."""
    pairs = comparison.pairs.all_pairs
    tested = [pair for pair in pairs if pair.p is not None]
    rates = [pair for pair in pairs if pair.primary.rate]
    units = "percentage points" if len(rates) == len(pairs) else "percentage points for rates"
    alike = (
        "each problem has the same outcome" if len(rates) == len(pairs) else "all problems differ by the same amount"
    )
    sentences = []
    if comparison.every_two:
        sentences.append(
            "The reference of a row is the arm that would be the only one by default, or else that of the two which "
            "stands further up in the table of arms. --against=RUN compares with one alone."
        )
    elif not comparison.reference_given:
        sentences.append(f"The reference is {_describe_choice(comparison)}; --against=RUN names another.")
    of_seeds = len(comparison.pairs.seed_pairs)
    sizes = f": {len(pairs) - of_seeds} main and {of_seeds} seed by seed" if 0 < of_seeds < len(pairs) else ""
    pooled = [pair.compared for pair in comparison.pairs.pooled]
    sentences += [
        f"{len(pairs)} {'comparison' if len(pairs) == 1 else 'comparisons'}{sizes}. Difference: "
        f"{primary_words(comparison)} of the run minus that of the reference{f', in {units}' if rates else ''}.",
        f"{'Over problems' if pooled else '95 % interval over problems'}: a paired bootstrap, about these very runs on "
        f"other problems, not about other seeds. There is none where {alike}.",
    ]
    if any(compared.seeds_ci95 for compared in pooled):
        sentences.append(
            "Over seeds: Student's t over the seeds' differences, about other seeds on these problems. There is none "
            f"below {MIN_SEEDS} seeds, where all seeds differ by the same amount, or where it would be the whole range."
        )
    if any(compared.two_way_ci95 for compared in pooled):
        lacks = ""
        if any(compared.seeds_agree for compared in pooled):
            lacks = " Where all seeds differ by the same amount, the interval contains no variance between seeds."
        sentences.append(f"{_SEEDS_AND_PROBLEMS}{lacks} This interval goes with the test; the others do not decide.")
    sentences += _describe_tests(pairs)
    of_seeds = sum(pair.p is not None for pair in comparison.pairs.seed_pairs)
    if of_seeds:
        main = f"{len(tested) - of_seeds} main {'comparison' if len(tested) - of_seeds == 1 else 'comparisons'}"
        sentences.append(f"p (Holm) is adjusted for the {main} and, separately, for the {of_seeds} made seed by seed.")
    # of one comparison the adjusted p is the p
    elif len(tested) > 1:
        sentences.append(f"p (Holm) is adjusted for the {len(tested)} comparisons made here.")
    if comparison.pairs.pooled:
        sentences.append(
            "With several seeds, each run is paired with the reference of its seed, or with none. The bootstrap "
            "resamples whole problems with all their seeds."
        )
    if len({run.arm_key for run in comparison.pairs.references}) > 1 and not comparison.every_two:
        sentences.append(
            "Each run is compared with the reference of its group: the runs that share task, problems, model and seed."
        )
    return sentences


def _describe_tests(pairs: Sequence[Pair]) -> list[str]:
    """Say what the tests are, what is counted beside them, and what they could have shown."""
    tested = [pair for pair in pairs if pair.p is not None]
    single = [pair for pair in tested if not pair.compared.problems_per_seed]
    sentences = []
    if any(pair.primary.rate for pair in single):
        sentences.append("p of one seed: McNemar's exact test, two-sided, over the problems gained and lost.")
    if not all(pair.primary.rate for pair in single):
        sentences.append("p of one seed: Student's paired t test over problems, two-sided.")
    if len(single) < len(tested):
        sentences.append("p of several seeds: Student's t over seeds and problems, as for that interval, two-sided.")
    counted = "" if len(single) == len(tested) else ", counted for each seed"
    if any(pair.primary.rate for pair in pairs):
        sentences.append(f"Gained, lost: problems that only the run, or only the reference, has right{counted}.")
    else:
        sentences.append(f"Better, worse: problems on which the run's score is better or worse{counted}.")
    if any(pair.compared.crossed for pair in pairs):
        sentences.append(
            f"Could show: the smallest true difference that such data would show with probability {POWER:g}, at a "
            f"two-sided level of {LEVEL:g} without Holm's adjustment."
        )
    return sentences


def _describe_choice(comparison: ComparedRuns) -> str:
    """Say which run, or which method of several seeds or groups, has become the reference, and why."""
    pairs, runs = comparison.pairs, comparison.compared_runs
    eligible = select_eligible(runs)
    forks = [run for run in runs if is_fork(run.manifest)]
    has_methods = comparison.has_seeds or len(pairs.references) > 1
    without_forks = bool(forks) and not any(is_fork(run.manifest) for run in eligible)
    no_fork = " that is no fork" if without_forks else ""
    unfinished = any(not run.outcome.finished for run in runs)
    finished = "finished " if unfinished and eligible[0].outcome.finished else ""
    if all(same_settings(run, pairs.reference) for run in eligible):  # nothing was chosen by its score
        folder = pairs.reference.outcome.run_dir.resolve()
        if len(forks) == len(runs) - 1 and all(find_source_folder(run) == folder for run in forks):
            return f"the run that the other{' is a fork' if len(forks) == 1 else 's are forks'} of"
        return f"the only {finished}{'method' if has_methods else 'run'}{no_fork}"
    directions = {score.higher_is_better for score in comparison.primaries}
    highest = "best" if len(directions) > 1 else "highest" if True in directions else "lowest"
    primary, second = primary_words(comparison), comparison.second
    tie_break = ""
    if second is not None:
        tie_break = f", then the {'highest' if second.higher_is_better else 'lowest'} {text.name_score(second)}"
    favoured = "It was chosen on these problems, which favours it"
    if has_methods or pairs.unpaired:
        best = f"the one whose mean of {primary} is {highest}{tie_break}"
        return f"the method{no_fork} that most others can be paired with, of these {best}. {favoured}"
    which = f"of the {finished}runs that are no forks, the one" if without_forks else f"the {finished}run"
    return f"{which} with the {highest} {primary}{tie_break}. {favoured}"


def unpaired_lines(comparison: ComparedRuns) -> list[str]:
    """Say why runs have no pair, a line for each reason."""
    reasons: dict[str, set[str]] = defaultdict(set)
    for unpaired in comparison.pairs.unpaired:
        reasons[unpaired.reason].add(unpaired.run.name)
    lines = []
    for reason, runs in reasons.items():
        names = shorten_names(name_runs(comparison.arms, runs))
        who = f"{names} is" if len(runs) == 1 else f"{len(runs):,} runs are"
        lines.append(f"{who} not paired: {reason}{f' ({names})' if len(runs) > 1 else ''}")
    return lines


def source_line(source: str, note: str) -> str:
    """Say where reported figures come from, and that the runs' prompts are not the paper's."""
    figures = ". ".join(part.rstrip(".") for part in (source or "no source given", note) if part)
    return f"Reported: {figures}. {WORDING}"
