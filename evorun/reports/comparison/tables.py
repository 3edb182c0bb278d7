"""The tables of a comparison: as the page and a terminal show them, and figures for other programs."""

from collections.abc import Callable, Collection, Sequence
from statistics import fmean

from evorun.reports import text
from evorun.reports.comparison.comparison import ComparedRuns, find_shared_facts
from evorun.reports.comparison.level_notes import describe_level
from evorun.reports.comparison.levels import LevelPair
from evorun.reports.comparison.names import PAPER, format_model, name_models
from evorun.reports.comparison.notes import primary_words
from evorun.reports.comparison.paired import Interval, PairedScores
from evorun.reports.comparison.pairs import Pair, StratumPair
from evorun.reports.comparison.rows import AGREEMENT, AUC, CHOICE, POOLED, Row, find_reported_model
from evorun.reports.comparison.runs import ANSWERED, Cost
from evorun.reports.run_tables import format_score, list_ends
from evorun.reports.tables import Cell, Table, figure_columns, make_data_table, make_table, word_columns
from evorun.runs.crossed import POWER
from evorun.runs.prices import UNKNOWN
from evorun.runs.reading import read_training
from evorun.runs.scores import Score
from evorun.runs.spending import GOLD
from evorun.runs.statistics import t_interval

_SEARCH = {
    ANSWERED: "candidates\nanswered",
    "parsable_rate": "parsable\ntexts",
    "pool_coverage": "pool\ncoverage",
    CHOICE: "choice given\ncoverage",
    AGREEMENT: "judge\nagreement",
    AUC: "posterior\nAUC",
}
"""Figures of results.json, and the headings of their columns."""
_POOLED_INTERVALS = {
    CHOICE: "95 % interval\nof choice",
    AGREEMENT: "95 % interval\nof agreement",
    AUC: "95 % interval\nof AUC",
}
"""Headings of the columns of their intervals over problems."""

ARMS = "arms"
"""Name of the table of arms, which every comparison has."""
_TOTAL = "total"
_INTERVAL = "95 % interval"
_OVER_PROBLEMS = f"{_INTERVAL}\nover problems"
_TWO_WAY = f"{_INTERVAL}\nover seeds\nand problems"


def make_main_table(
    comparison: ComparedRuns,
    rows: Sequence[Row],
    strata: Sequence[str],
    scores: Sequence[Score],
    title: str = "",
    *,
    with_cost: bool = True,
) -> Table:
    """Return a row per arm or run: the primary score, other scores and cost.

    What all rows share or have in their names has no column, except for the information regime.
    """
    # figures with and without labels must never be compared unawares, so the information regime keeps its column
    known = {*find_shared_facts(rows), *set.intersection(*(set(row.parts) for row in rows))} if rows else set()
    facts = [name for row in rows[:1] for name in row.facts if name not in known]
    primaries = comparison.primaries
    with_interval = {primary.name for primary in primaries if any(row.get_interval(primary.name) for row in rows)}
    columns = [*word_columns("run", *facts), *figure_columns("n")]
    for primary in primaries:
        heading = _head_interval(rows, [primary])
        columns += figure_columns(text.label(primary), *([heading] if primary.name in with_interval else []))
    columns += [*word_columns("information"), *figure_columns(*strata, verbatim=True)]
    columns += figure_columns(*(text.name_score(score).replace(" ", "\n") for score in scores))
    priced = with_cost and _has_prices(rows)
    columns += figure_columns("calls per\nproblem", "tokens per\nproblem") if with_cost else []
    with_tools = with_cost and _has_tools(rows)
    columns += figure_columns("tool calls\nper problem") if with_tools else []
    sequential = with_cost and any(row.sequential_tokens is not None for row in rows)
    columns += figure_columns("sequential\ntokens", format=text.compact) if sequential else []
    columns += figure_columns("price per\nproblem", format=text.dollars) if priced else []
    # a paper's figure is of no single run
    reported = rows is not comparison.run_rows and any(row.get_reported(row.primary.name) is not None for row in rows)
    of_model = _head_reported(rows)
    columns += figure_columns(of_model, *(["difference"] if can_differ(rows) else [])) if reported else []
    table = Table(columns, title=title)
    manifests = [run.manifest for run in comparison.runs]
    models = dict(zip(map(format_model, manifests), name_models(manifests), strict=True))
    for row in rows:
        shown = {**row.facts, "model": models.get(row.facts["model"], row.facts["model"])}
        cells: list[Cell] = [row.name, *(shown[name] or None for name in facts), row.n]
        for primary in primaries:
            cells += [text.value(primary, row.get_metric(primary.name).value)]
            if primary.name in with_interval:
                cells.append(text.value_interval(primary, row.get_interval(primary.name)))
        cells.append(row.information_regime)
        cells += [format_score(row.primary, row.by_stratum.get(stratum))[0] for stratum in strata]
        cells += [text.value(score, row.get_metric(score.name).value) for score in scores]
        if with_cost:
            total = row.cost.get(_TOTAL)
            cells += [total.calls, text.compact(total.tokens)] if total else [None, None]
            cells += [total.tool_calls if total else None] if with_tools else []
            cells += [row.sequential_tokens] if sequential else []
            cells += [(UNKNOWN if total.price is None else total.price) if total else None] if priced else []
        if reported:
            metric, of_paper = row.get_metric(row.primary.name), row.get_reported(row.primary.name)
            beside = _beside_reported(row, row.primary, metric.value, of_paper, of_model)
            cells += list(beside.values())[: 1 + can_differ(rows)]
        table.rows.append(cells)
    return table


def make_search_table(rows: Sequence[Row], step: str = "generation") -> Table:
    """Return the step reached, and shares that tell a failed search from a failed choice.

    step: the word for the rows' steps.
    """
    records = []
    for row in rows:
        reached = (text.count if row.generation == int(row.generation) else text.number)(row.generation)
        if row.planned is not None and row.generation < row.planned:
            reached += f" of {text.count(row.planned)}"
        cells: dict[str, Cell] = {}
        for name, heading in _SEARCH.items():
            metric = row.get_metric(name)
            of = f" of {text.count(metric.n)}" if name in POOLED else ""
            cells[heading] = None if metric.value is None else f"{text.percent(metric.value)}{of}"
            if name in POOLED:
                cells[_POOLED_INTERVALS[name]] = None if metric.ci95 is None else text.interval(metric.ci95)
        records.append(
            {
                "run": row.name,
                f"{step}\nreached": reached if row.generation > 0 else None,
                "crossovers\nper run": None if row.crossovers is None else f"{row.crossovers:.3g}",
                **cells,
                "best of\npool": None if row.best_of_pool is None else text.value(row.primary, row.best_of_pool),
            }
        )
    table = make_table(records, words=("run",), title="search and judge")
    return table if len(table.columns) > 1 else make_table([])


def make_scores_table(rows: Sequence[Row], left_out: Collection[str] = ()) -> Table:
    """Return the means of the secondary scores with their intervals, beside reported ones if there are any.

    left_out: names of scores that repeat others.
    """
    records = []
    heading = _head_interval(rows, [score for row in rows for score in row.scores[1:]])
    of_model = _head_reported(rows)
    for row in rows:
        for score in row.scores[1:]:
            if score.name in left_out and row.get_reported(score.name) is None:
                continue
            metric = row.get_metric(score.name)
            records.append(
                {
                    "run": row.name,
                    "score": text.label(score),
                    "mean": text.value(score, metric.value),
                    heading: text.value_interval(score, row.get_interval(score.name)),
                    "n": row.trials.get(score.name),
                    **_beside_reported(row, score, metric.value, row.get_reported(score.name), of_model),
                }
            )
    return make_table(records, words=("run", "score"), title="scores", grouped=1)


def _head_interval(rows: Sequence[Row], scores: Sequence[Score]) -> str:
    """Return the heading of the intervals of these scores, with what they are over unless that differs."""
    over = {row.interval_is_over(score) for row in rows for score in scores if row.get_interval(score.name) is not None}
    return f"{_INTERVAL}\n{over.pop()}" if len(over) == 1 else _INTERVAL


def _head_reported(rows: Sequence[Row]) -> str:
    """Return the heading of reported figures, with the model that they are of unless that differs."""
    model = find_reported_model(rows)
    return "reported" if model is None else f"reported\n({model})"


def _beside_reported(
    row: Row, score: Score, measured: float | None, reported: float | None, heading: str
) -> dict[str, Cell]:
    """Return the cells of a reported figure, under its heading, and of the difference; None for both without one."""
    if reported is None:
        return {heading: None, "difference": None}
    difference = row.subtract_reported(measured, reported)
    shown = None if difference is None else text.difference(score, difference)
    return {heading: text.value(score, reported), "difference": shown}


def can_differ(rows: Sequence[Row]) -> bool:
    """Tell whether any row's figures may be compared with a paper's."""
    return any(row.has_reported and row.incomparable_reason is None for row in rows)


def make_strata_table(comparison: ComparedRuns, rows: Sequence[Row], *, with_intervals: bool) -> Table:
    """Return a row per arm or run: the primary score by stratum. with_intervals: all cells have one, or none has."""
    cells = [
        [format_score(row.primary, row.by_stratum.get(stratum))[:2] for stratum in comparison.strata] for row in rows
    ]
    bracketed = with_intervals and any(interval != text.MISSING for row in cells for _, interval in row)

    def format_cell(mean: str, interval: str) -> str:
        return f"{mean} [{interval}]" if bracketed and mean != text.MISSING else mean

    return Table(
        [*word_columns("run"), *figure_columns(*comparison.strata, verbatim=True)],
        [[row.name, *(format_cell(*cell) for cell in of_row)] for row, of_row in zip(rows, cells, strict=True)],
        title=f"{primary_words(comparison)} by stratum",
    )


def make_reported_strata_table(comparison: ComparedRuns) -> Table:
    """Return measured beside reported figures, for the strata that a paper reports."""
    heading = _head_reported(comparison.rows)
    records: list[dict[str, Cell]] = [
        {
            "run": row.name,
            "stratum": stratum,
            primary_words(comparison): text.value(row.primary, metric.value),
            **_beside_reported(row, row.primary, metric.value, reported, heading),
        }
        for row in comparison.rows
        for stratum, metric in row.by_stratum.items()
        if (reported := row.get_reported_stratum(stratum)) is not None
    ]
    return make_table(records, words=("run", "stratum"), title="reported by stratum", grouped=1)


def make_reported_steps_table(comparison: ComparedRuns) -> Table:
    """Return training figures beside those that a paper reports of the same steps; of several seeds their means."""
    heading = _head_reported(comparison.rows)
    records: list[dict[str, Cell]] = []
    for arm in comparison.arms:
        reported = arm.runs[0].reported
        for figure, points in reported.steps.items() if reported else ():
            by_run = [
                {record.step: record.figures.get(figure) for record in read_training(run.outcome.run_dir)}
                for run in arm.runs
            ]
            for step, value in points:
                measured = [found for of_run in by_run if (found := of_run.get(step)) is not None]
                interval = t_interval(measured)
                records.append(
                    {
                        "run": arm.name,
                        "figure": text.words(figure),
                        "step": text.count(step),
                        "measured": text.precise(fmean(measured) if measured else None),
                        f"{_INTERVAL}\nover seeds": None if interval is None else text.number_interval(interval),
                        "seeds": text.count(len(measured)) if len(arm.runs) > 1 else None,
                        heading: text.precise(value),
                    }
                )
    return make_table(records, words=("run", "figure"), title="reported by training step", grouped=1)


def make_pairs_table(pairs: Sequence[Pair], title: str = "") -> Table:
    """Return each arm or run beside the reference of its group, group after group."""
    better, worse = ("gained", "lost") if any(pair.primary.rate for pair in pairs) else ("better", "worse")
    several, describe = _has_references(pairs), _describe_differences([pair.compared for pair in pairs])
    records = [
        {
            "reference": pair.reference if several else None,
            "run": pair.name,
            **describe(pair.primary, pair.compared),
            better: text.count(pair.gained),
            worse: text.count(pair.lost),
            "p": None if pair.p is None else text.p_value(pair.p),
            "p (Holm)": None if pair.p_holm is None else text.p_value(pair.p_holm),
            f"could show\n(power {POWER:g})": _format_smallest(pair),
            "remark": pair.remark or None,
        }
        for pair in pairs
    ]
    return make_table(records, words=("reference", "run", "remark"), title=title, grouped=int(several))


def make_strata_pairs_table(strata_pairs: Sequence[StratumPair]) -> Table:
    """Return each arm or run beside its reference on each stratum's problems alone."""
    pairs = [stratum_pair.pair for stratum_pair in strata_pairs]
    several, describe = _has_references(pairs), _describe_tested(pairs)
    records = [
        {
            "stratum": stratum_pair.stratum,
            "reference": pair.reference if several else None,
            "run": pair.name,
            **describe(pair),
        }
        for stratum_pair, pair in zip(strata_pairs, pairs, strict=True)
    ]
    return make_table(records, words=("stratum", "reference", "run"), grouped=1)


def make_level_pairs_table(level_pairs: Sequence[LevelPair], title: str = "") -> Table:
    """Return each method beside the reference's at each level of a setting, and the change from the first to the last.

    One change is a difference of differences.
    """
    pairs = [level_pair.pair for level_pair in level_pairs]
    several, describe = _has_references(pairs), _describe_tested(pairs)
    tasks, keys = ({getattr(level_pair, name) for level_pair in level_pairs} for name in ("task", "key"))
    heading = keys.pop() if len(keys) == 1 else "level"
    records = [
        {
            "task": level_pair.task if len(tasks) > 1 else None,
            "reference": pair.reference if several else None,
            "run": pair.name,
            heading: describe_level(level_pair),
            **describe(pair),
            f"could show\n(power {POWER:g})": _format_smallest(pair),
        }
        for level_pair, pair in zip(level_pairs, pairs, strict=True)
    ]
    grouped = 1 + (len(tasks) > 1) + several
    return make_table(records, words=("task", "reference", "run", heading), title=title, grouped=grouped)


def _describe_tested(pairs: Sequence[Pair]) -> Callable[[Pair], dict[str, Cell]]:
    """Return the function that makes the cells of a pair's difference and test, for a table of all these."""
    pooled = {bool(pair.compared.problems_per_seed) for pair in pairs}
    heading = {frozenset({True}): _TWO_WAY, frozenset({False}): _OVER_PROBLEMS}.get(frozenset(pooled), _INTERVAL)

    def describe(pair: Pair) -> dict[str, Cell]:
        return {
            "n": text.trials(pair.compared.problems_per_seed or [pair.compared.n]),
            "difference": text.difference(pair.primary, pair.compared.difference),
            heading: text.difference_interval(pair.primary, pair.ci95),
            "p": text.MISSING if pair.p is None else text.p_value(pair.p),
            "p (Holm)": text.MISSING if pair.p_holm is None else text.p_value(pair.p_holm),
        }

    return describe


def _format_smallest(pair: Pair) -> str | None:
    """Format the smallest difference that a pair could have shown."""
    crossed = pair.compared.crossed
    return None if crossed is None else text.smallest_difference(pair.primary, crossed.smallest_difference())


def make_score_pairs_table(pairs: Sequence[Pair], left_out: Collection[str] = ()) -> Table:
    """Return the secondary scores of each arm or run beside those of the reference of its group."""
    several = _has_references(pairs)
    describe = _describe_differences([compared for pair in pairs for compared in pair.others.values()])
    records = [
        {
            "reference": pair.reference if several else None,
            "run": pair.name,
            "score": text.name_score(score),
            **describe(score, compared),
            "higher": text.count(compared.higher),
            "lower": text.count(compared.lower),
        }
        for pair in pairs
        for score, compared in pair.others.items()
        if score.name not in left_out
    ]
    return make_table(
        records, words=("reference", "run", "score"), title="other scores of these pairs", grouped=2 if several else 1
    )


def _has_references(pairs: Sequence[Pair]) -> bool:
    """Tell whether the pairs have several references, which need a column."""
    return len({pair.reference for pair in pairs}) > 1


def _describe_differences(all_compared: Sequence[PairedScores]) -> Callable[[Score, PairedScores], dict[str, Cell]]:
    """Return the function that makes the cells of a difference, for a table of all these."""
    of_seeds = any(compared.seeds_ci95 or compared.problems_per_seed for compared in all_compared)
    over_problems = _OVER_PROBLEMS if of_seeds else _INTERVAL

    def describe(score: Score, compared: PairedScores) -> dict[str, Cell]:
        def format_interval(ci95: Interval) -> str | None:
            return None if ci95 is None else text.difference_interval(score, ci95)

        return {
            "n": text.trials(compared.problems_per_seed or [compared.n]),
            "difference": text.difference(score, compared.difference),
            f"{_INTERVAL}\nover seeds": format_interval(compared.seeds_ci95),
            over_problems: text.difference_interval(score, compared.ci95),
            _TWO_WAY: format_interval(compared.two_way_ci95),
        }

    return describe


def make_run_cost_table(comparison: ComparedRuns) -> Table:
    """Return calls, tokens, model time and wall-clock time of whole runs; over several seeds the mean of a run.

    A run that stopped in between has no wall-clock time, which would be that of its stops and starts.
    """
    table = Table(
        [
            *word_columns("run"),
            *figure_columns("calls", format=text.count),
            *figure_columns("tokens", format=text.compact),
            *(figure_columns("tool calls", format=text.count) if (with_tools := _has_tools(comparison.rows)) else []),
            *(figure_columns("price", format=text.dollars) if (priced := _has_prices(comparison.rows)) else []),
            *figure_columns("model time", "wall-clock time", format=text.duration),
        ]
    )
    for arm in comparison.arms:
        totals = [run.outcome.cost[_TOTAL] for run in arm.runs if _TOTAL in run.outcome.cost]
        figures: list[list[float | None]] = [
            [total.calls for total in totals],
            [total.tokens for total in totals],
            *([[run.outcome.price for run in arm.runs]] if priced else []),
            [total.seconds for total in totals],
            [run.manifest.seconds for run in arm.runs if run.outcome.finished and not run.manifest.resumes],
        ]
        if with_tools:
            figures.insert(2, [total.tool_calls for total in totals])
        known = [[value for value in values if value is not None] for values in figures]
        table.rows.append([arm.name, *(fmean(values) if values else None for values in known)])
    return table


def make_cost_table(comparison: ComparedRuns) -> Table:
    """Return the mean cost per problem by run and role."""
    priced, with_tools = _has_prices(comparison.rows), _has_tools(comparison.rows)

    def make_cells(cost: Cost) -> list[Cell]:
        tool_calls: list[Cell] = [cost.tool_calls or None] if with_tools else []
        price: list[Cell] = [cost.price] if priced else []
        return [cost.calls, *tool_calls, cost.prompt_tokens, cost.completion_tokens, *price]

    return Table(
        [
            *word_columns("run"),
            *word_columns("role", format=text.role_words),
            *figure_columns("calls", *(["tool calls"] if with_tools else [])),
            *figure_columns("prompt tokens", "completion tokens", format=text.count),
            *(figure_columns("price", format=text.dollars) if priced else []),
        ],
        [
            [row.name, role, *make_cells(cost)]
            for row in comparison.rows
            for role, cost in row.cost.items()
            if role != _TOTAL or len(row.cost.keys() - {GOLD}) > 2  # with one role the total would repeat it
        ],
        title="cost per problem, by role",
        grouped=1,
    )


def _has_prices(rows: Sequence[Row]) -> bool:
    """Tell whether any row has a known price."""
    return any(cost.price is not None for row in rows for cost in row.cost.values())


def _has_tools(rows: Sequence[Row]) -> bool:
    """Tell whether any row's turns called tools."""
    return any(cost.tool_calls for row in rows for cost in row.cost.values())


# --- figures for other programs ---


def make_data_tables(comparison: ComparedRuns) -> list[Table]:
    """Return the figures of arms (means over seeds), runs, strata and roles; the pairs, also by stratum and level."""
    runs = [_make_figures_table("runs", comparison.run_rows)] if comparison.has_seeds else []
    return [
        _make_figures_table(ARMS, comparison.rows),
        *runs,
        _make_strata_data_table(comparison.rows),
        _make_roles_data_table(comparison.rows),
        _make_pairs_data_table(comparison),
        _make_strata_pairs_data_table(comparison.strata_pairs),
        _make_level_pairs_data_table(comparison.level_pairs),
    ]


def _make_figures_table(name: str, rows: Sequence[Row]) -> Table:
    """Return a row for each row, with three columns for each figure that any of them has."""
    figures = list(dict.fromkeys(figure for row in rows for figure in row.metrics))
    reported = [figure for figure in figures if any(row.get_reported(figure) is not None for row in rows)]
    # the plain name is the printed interval's, which of several seeds is over both
    over_seeds = [figure for figure in figures if any(row.seeds > 1 and figure in row.two_way_scores for row in rows)]
    named = any(PAPER in row.parts for row in rows)
    typed = dict.fromkeys(key for row in rows for key in row.settings)
    settings = [key for key in typed if len({row.settings.get(key) for row in rows}) > 1]
    columns = [
        "run",
        *(["name_in_paper"] if named else []),
        "method",
        *rows[0].facts,
        *(f"setting.{key}" for key in settings),
        "random_baseline",
        "information",
        "n",
        "generation",
    ]
    columns += [
        "calls_per_problem",
        "tokens_per_problem",
        *(["tool_calls_per_problem"] if (with_tools := _has_tools(rows)) else []),
        *(["price_per_problem"] if (priced := _has_prices(rows)) else []),
    ]
    columns += ["sequential_tokens"] if (sequential := any(row.sequential_tokens is not None for row in rows)) else []
    columns += ["crossovers_per_run"] if (crossed := any(row.crossovers is not None for row in rows)) else []
    pooled = [figure for figure in POOLED if figure in figures]
    columns += [f"{figure}_n" for figure in pooled]
    columns += [f"{figure}{end}" for figure in figures for end in ("", "_low", "_high")]
    columns += [f"{figure}_{end}_over_seeds" for figure in over_seeds for end in ("low", "high")]
    shared = any(row.seed_share is not None for row in rows)
    columns += ["seed_share"] if shared else []
    columns += [f"{figure}_reported" for figure in reported]
    table = make_data_table(name, columns, [])
    for row in rows:
        total = row.cost.get(_TOTAL)
        cells: list[Cell] = [row.name, *([row.parts.get(PAPER)] if named else []), row.method, *row.facts.values()]
        cells += [row.settings.get(key) for key in settings]
        cells += ["yes" if row.is_baseline else "no", row.information_regime]
        cells += [row.n, row.generation or None, total.calls if total else None, total.tokens if total else None]
        cells += [total.tool_calls if total else None] if with_tools else []
        cells += [total.price if total else None] if priced else []
        cells += [row.sequential_tokens] if sequential else []
        cells += [row.crossovers] if crossed else []
        cells += [row.get_metric(figure).n or None for figure in pooled]
        for figure in figures:
            cells += [row.get_metric(figure).value, *list_ends(row.get_interval(figure))]
        seeds_ci95 = [row.get_metric(figure).ci95 if row.seeds > 1 else None for figure in over_seeds]
        cells += [end for ci95 in seeds_ci95 for end in list_ends(ci95)]
        cells += [row.seed_share] if shared else []
        table.rows.append([*cells, *(row.get_reported(figure) for figure in reported)])
    return table


def _make_strata_data_table(rows: Sequence[Row]) -> Table:
    columns = ("run", "stratum", "score", "mean", "low", "high", "n", "seeds", "reported")
    cells = [
        (row.name, stratum, row.primary.name, metric.value, *list_ends(metric.ci95), metric.n, row.seeds, reported)
        for row in rows
        for stratum, metric in row.by_stratum.items()
        for reported in (row.get_reported_stratum(stratum),)
    ]
    return make_data_table("strata", columns, cells)


def _make_roles_data_table(rows: Sequence[Row]) -> Table:
    priced, with_tools = _has_prices(rows), _has_tools(rows)
    figures = ("calls", *(["tool_calls"] if with_tools else []), "prompt_tokens", "completion_tokens")
    figures += ("price",) if priced else ()
    cells = [
        [row.name, role, *(getattr(cost, figure) for figure in figures)]
        for row in rows
        for role, cost in row.cost.items()
    ]
    return make_data_table("roles", ("run", "role", *(f"{figure}_per_problem" for figure in figures)), cells)


def _make_pairs_data_table(comparison: ComparedRuns) -> Table:
    columns = ["run", "reference", "score", "n", "difference", "low", "high", "higher", "lower", "p", "p_holm"]
    columns += ["remark", "seeds"]
    sources = ("problems", "seeds", "seeds_and_problems")
    columns += [f"{end}_over_{source}" for source in sources for end in ("low", "high")]
    columns += ["comparisons", "smallest_difference", "kind", "seed_share"]
    table = make_data_table("pairs", columns, [])
    pairs = comparison.pairs
    kinds = ["over_seeds"] * len(pairs.pooled)
    kinds += ["seed" if pairs.is_of_pool(pair) else "run" for pair in pairs.pairs]
    for pair, kind in zip(pairs.all_pairs, kinds, strict=True):
        for score, compared in ((pair.primary, pair.compared), *pair.others.items()):
            cells: list[Cell] = [pair.name, pair.reference, score.name, compared.n, compared.difference]
            cells += [*list_ends(compared.tested_ci95), compared.higher, compared.lower]
            cells += [pair.p, pair.p_holm] if score is pair.primary else [None, None]
            cells += [pair.remark, len(compared.problems_per_seed) or 1]
            for interval in (compared.ci95, compared.seeds_ci95, compared.two_way_ci95):
                cells += list_ends(interval)
            crossed = compared.crossed
            cells += [pair.comparisons if score is pair.primary else None]
            cells += [None if crossed is None else crossed.smallest_difference(), kind, compared.seed_share]
            table.rows.append(cells)
    return table


def _make_strata_pairs_data_table(strata_pairs: Sequence[StratumPair]) -> Table:
    cells = [
        [by.pair.name, by.pair.reference, by.stratum, by.pair.primary.name, *_list_tested(by.pair)]
        for by in strata_pairs
    ]
    return make_data_table("strata_pairs", ("run", "reference", "stratum", "score", *_TESTED), cells)


def _make_level_pairs_data_table(level_pairs: Sequence[LevelPair]) -> Table:
    cells = [
        [pair.name, pair.reference, by.task, by.key, by.level, by.minus_level, pair.primary.name, *_list_tested(pair)]
        for by in level_pairs
        for pair in (by.pair,)
    ]
    columns = ("run", "reference", "task", "setting", "level", "minus_level", "score", *_TESTED)
    return make_data_table("level_pairs", columns, cells)


_TESTED = ("n", "difference", "low", "high", "p", "p_holm", "comparisons", "remark", "seeds")


def _list_tested(pair: Pair) -> list[Cell]:
    """Return the figures of a pair's primary score, by `_TESTED`."""
    compared = pair.compared
    figures = [compared.n, compared.difference, *list_ends(pair.ci95), pair.p, pair.p_holm, pair.comparisons]
    return [*figures, pair.remark, len(compared.problems_per_seed) or 1]
