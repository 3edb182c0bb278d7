"""The output of `evorun grade`: a record per response, and tables over all of them."""

from collections.abc import Iterator, Sequence
from itertools import product
from typing import Any

import msgspec
from msgspec import UNSET, UnsetType

from evorun.reports import text
from evorun.reports.tables import Cell, Table, figure_columns, make_table, word_columns
from evorun.runs.results import mean_over_problems, mean_score, recorded_scores
from evorun.runs.schema import Metric
from evorun.runs.scores import Score
from evorun.runs.statistics import pass_at
from evorun.runs.strata import sort_strata


class TestCount(msgspec.Struct):
    """The number of tests that a program passed, and of all tests; hidden ones stop at the first failure."""

    __test__ = False  # not for pytest to collect

    passed: int
    tests: int


class GradedResponse(msgspec.Struct):
    """A line of the output: a response, parsed and graded."""

    id: str
    sample: int
    """Number of the response among those to its problem, from 0 in the order given."""
    answer: str | None
    correct: bool | None
    """None on a task without right and wrong."""
    scores: dict[str, float | None]
    detail: str
    """The grader's reason (`wrong_answer at hidden test 3`), where the task gives one."""
    error: str | None
    stratum: str
    public_tests: TestCount | UnsetType = UNSET
    """Unset, like `hidden_tests`, where no program was tested. Public tests do not count towards `correct`."""
    hidden_tests: TestCount | UnsetType = UNSET

    @property
    def passes_public_tests(self) -> bool | None:
        """True when the program passes every public test; None where it was not run on any."""
        if isinstance(self.public_tests, UnsetType):
            return None
        return self.public_tests.passed == self.public_tests.tests


Graded = Sequence[GradedResponse]
Stratum = tuple[str, list[GradedResponse]]
"""The name of a stratum, or `all`, and its responses."""


def make_tables(graded: Graded, declared: Sequence[Score], title: str, stated: Sequence[str] = ()) -> Iterator[Table]:
    """Yield the tables to print: scores per response, the summary, and further means, each if it has content.

    declared: the task's scores. stated: its order of strata.
    """
    primary, *others = recorded_scores(graded, declared)
    strata = list(_group_strata(graded, stated))
    right_or_wrong = primary.is_correctness
    if others or not right_or_wrong:
        yield _make_responses_table(graded, others if right_or_wrong else [primary, *others], right_or_wrong)
    yield _make_summary(strata, primary, title)
    if others:
        yield _make_means_table(strata, others)
    if right_or_wrong and min(map(len, _by_problem(graded)), default=0) > 1:
        yield _make_pass_at_table(graded, strata)
    if any(record.passes_public_tests is not None for record in graded):
        yield _make_programs_table(strata)


def summarise(graded: Graded, declared: Sequence[Score], problems: int, stated: Sequence[str] = ()) -> dict[str, Any]:
    """Return counts, and the mean of each score over problems, in all and by stratum, as a JSON document.

    problems: of the task, with and without responses. stated: its order of strata.
    """

    def means(rows: Graded) -> dict[str, Any]:
        return {score.name: msgspec.to_builtins(_mean(score, rows)) for score in recorded_scores(rows, declared)}

    by_stratum = {stratum: means(rows) for stratum, rows in _group_strata(graded, stated)}
    return {
        "problems": problems,
        "answered": len(_by_problem(graded)),
        "responses": len(graded),
        "unparsable": sum(record.error is not None for record in graded),
        "metrics": by_stratum.pop("all"),
        "by_stratum": by_stratum,
    }


def _by_problem(graded: Graded) -> list[list[GradedResponse]]:
    grouped: dict[str, list[GradedResponse]] = {}
    for record in graded:
        grouped.setdefault(record.id, []).append(record)
    return list(grouped.values())


def _group_strata(graded: Graded, stated: Sequence[str]) -> Iterator[Stratum]:
    """Yield each stratum and its responses, then all responses; the only stratum of some tasks is called `all`."""
    for stratum in sort_strata({record.stratum for record in graded} - {"all"}, stated):
        yield stratum, [record for record in graded if record.stratum == stratum]
    yield "all", list(graded)


def _mean(score: Score, rows: Graded) -> Metric:
    return mean_over_problems(score, [[score.value_in(record) for record in records] for records in _by_problem(rows)])


def _make_summary(strata: Sequence[Stratum], primary: Score, title: str) -> Table:
    _, graded = strata[-1]
    right_or_wrong, several = primary.is_correctness, len(_by_problem(graded)) < len(graded)
    records: list[dict[str, Cell]] = []
    for stratum, rows in strata:
        counted = [record.correct if right_or_wrong else primary.value_in(record) is not None for record in rows]
        mean, interval = _shown(_mean(primary, rows), percent=primary.rate)
        records.append(
            {
                "stratum": stratum,
                "problems": len(_by_problem(rows)) if several else None,
                "responses": len(rows),
                "correct" if right_or_wrong else "scored": sum(map(bool, counted)),
                "pass rate" if several and right_or_wrong else text.label(primary): mean,
                "95 % interval": interval,
                "unparsable": sum(record.error is not None for record in rows),
            }
        )
    return make_table(records, words=("stratum",), title=title)


def _make_programs_table(strata: Sequence[Stratum]) -> Table:
    """Return the numbers of programs that pass all public and all hidden tests; the latter are correct."""
    records: list[dict[str, Cell]] = [
        {
            "stratum": stratum,
            "public": sum(bool(record.passes_public_tests) for record in rows),
            "hidden": sum(bool(record.correct) for record in rows),
            "hidden, not public": sum(bool(record.correct) and record.passes_public_tests is False for record in rows),
        }
        for stratum, rows in strata
    ]
    title = "programs that pass all tests of a kind; those that pass the hidden ones are correct"
    return make_table(records, words=("stratum",), title=title)


def _make_responses_table(graded: Graded, scores: Sequence[Score], right_or_wrong: bool) -> Table:
    several = len(_by_problem(graded)) < len(graded)
    columns = [*word_columns("problem", *(["response"] if several else []))]
    columns += figure_columns(*(["correct"] if right_or_wrong else []), *(score.shown_name for score in scores))
    table = Table(columns, title="each response")
    for record in graded:
        cells: list[Cell] = [record.id, *([str(record.sample)] if several else [])]
        cells += [("yes" if record.correct else "no")] if right_or_wrong else []
        values = (score.value_in(record) for score in scores)
        table.rows.append([*cells, *(None if value is None else f"{value:.6g}" for value in values)])
    return table


def _make_means_table(strata: Sequence[Stratum], scores: Sequence[Score]) -> Table:
    records: list[dict[str, Cell]] = []
    for stratum, rows in strata if len(strata) > 2 else strata[-1:]:
        for score in scores:
            known = sum(score.value_in(record) is not None for record in rows)
            mean, interval = _shown(_mean(score, rows), percent=score.rate)
            records.append(
                {
                    "stratum": stratum,
                    "score": score.shown_name,
                    "responses": known,
                    "mean": mean,
                    "95 % interval": interval,
                }
            )
    return make_table(records, words=("stratum", "score"), title="means of the scores")


def _make_pass_at_table(graded: Graded, strata: Sequence[Stratum]) -> Table:
    """Return the share of problems that one of k responses solves, for k up to the fewest responses per problem."""
    fewest = min(map(len, _by_problem(graded)))
    ks = sorted({fewest, *(2**power for power in range(1, fewest.bit_length()))})
    records: list[dict[str, Cell]] = []
    for (stratum, rows), k in product(strata, ks):
        problems = _by_problem(rows)
        shares = [pass_at(k, len(samples), sum(bool(record.correct) for record in samples)) for samples in problems]
        # If every share is 0 or 1, this is a rate, which has an interval even when all shares agree.
        score = Score("pass@k", 0.0, 1.0, rate=all(share in (0, 1) for share in shares))
        mean, interval = _shown(mean_score(score, shares), percent=True)
        records.append(
            {"stratum": stratum, "k": str(k), "problems": len(problems), "pass@k": mean, "95 % interval": interval}
        )
    return make_table(records, words=("stratum", "k"), title="pass@k: problems of which one of k responses is right")


def _shown(figure: Metric, *, percent: bool) -> tuple[str, str]:
    """Return a mean and its interval as text."""
    if percent:
        return text.percent(figure.value), text.interval(figure.ci95)
    value = text.MISSING if figure.value is None else f"{figure.value:.4g}"
    return value, text.MISSING if figure.ci95 is None else "{:.4g} to {:.4g}".format(*figure.ci95)
