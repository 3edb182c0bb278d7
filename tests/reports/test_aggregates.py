"""Pages are drawn from what a run has counted at its end, and never from counts of other records."""

from pathlib import Path
from typing import Any

import msgspec
import pytest
from comparison_fixture import write_method
from scipy.stats import ttest_1samp

from evorun.reports import html, text
from evorun.reports.comparison import compare
from evorun.reports.comparison.search_notes import search_note
from evorun.reports.comparison.tables import make_search_table
from evorun.reports.overview import load_aggregates, load_outcome
from evorun.runs import checksums, files, reading
from evorun.runs.aggregates import AGGREGATES, Aggregates, count_aggregates
from evorun.runs.directory import load_manifest
from evorun.runs.journal import Journal
from evorun.runs.records import write_json
from evorun.runs.results import write_results
from evorun.runs.schema import Metric
from evorun.runs.scores import ACCURACY
from evorun.runs.statistics import Proportion, clustered_mean, pooled_share
from run_fixture import RunSpec, write_run

pytestmark = pytest.mark.usefixtures("without_figures")


def ended(folder: Path, seed: int = 0) -> Path:
    """Write a run as its end leaves it."""
    run = write_run(folder, RunSpec(problems=4, candidates=12, seed=seed))
    Journal(run / "journal.sqlite").close()
    write_results(run, [ACCURACY], {})
    return noted(run)


def noted(run: Path) -> Path:
    """Note the checksums of a run's files."""
    manifest = load_manifest(run)
    manifest.files = checksums.checksums(run)
    write_json(run / "manifest.json", manifest)
    return run


@pytest.fixture(name="run")
def _run(tmp_path: Path) -> Path:
    return ended(tmp_path / "run")


def store_another_number(run: Path) -> None:
    stored = count_aggregates(run, ACCURACY)
    stored.responses += 1_000
    write_json(run / AGGREGATES, stored)


def test_a_page_of_stored_counts_is_that_of_counted_ones(run: Path) -> None:
    stored = msgspec.json.decode((run / AGGREGATES).read_bytes(), type=Aggregates)
    assert stored == count_aggregates(run, ACCURACY)
    assert (stored.responses, stored.shared) == (48, 0)
    page = html.render_report(run)
    (run / AGGREGATES).unlink()
    assert html.render_report(noted(run)) == page


def test_a_judges_agreement_over_several_runs_has_an_interval_over_problems(tmp_path: Path) -> None:
    runs = [ended(tmp_path / str(seed), seed) for seed in range(2)]
    counts = [count_aggregates(run, ACCURACY).agreement for run in runs]
    by_problem = [
        Proportion(sum(own[problem].successes for own in counts), sum(own[problem].n for own in counts))
        for problem in counts[0]
    ]
    comparison = compare(runs)
    (row,) = comparison.rows
    expected = pooled_share(by_problem)
    assert expected.ci95 is not None
    assert row.get_metric("judge_agreement") == Metric(pytest.approx(expected.value), expected.ci95, expected.n)
    table = make_search_table([row])
    column = table.headings.index("95 % interval\nof agreement")
    assert table.headings[column - 1] == "judge\nagreement"
    assert table.shown()[0][column] == text.interval(expected.ci95)
    assert "intervals draw problems again, each with all its runs: they are about no other" in search_note(comparison)
    # of single runs it is their own
    single = load_outcome(runs[0]).metrics["judge_agreement"]
    assert comparison.run_rows[0].get_metric("judge_agreement") == single
    # counts of an older run, which has none by problem
    stored = msgspec.json.decode((runs[1] / AGGREGATES).read_bytes())
    del stored["agreement"]
    write_json(runs[1] / AGGREGATES, stored)
    (row,) = compare([runs[0], noted(runs[1])]).rows
    assert row.get_metric("judge_agreement") == Metric(pytest.approx(expected.value), None, expected.n)


def test_arms_that_decide_other_shares_of_their_duels_are_told_not_to_compare_judges(tmp_path: Path) -> None:
    runs = [write_method(tmp_path / method, [True, False], method=method) for method in ("both_orders", "one_order")]

    def note(*decisive: float) -> str:
        comparison = compare(runs)
        for row, share in zip(comparison.rows, decisive, strict=True):
            row.metrics["judge_agreement"] = Metric(0.7, None, 50)
            row.metrics["decisive_rate"] = Metric(share, None, 90)
        return search_note(comparison)

    assert "(both_orders 29.0 %, one_order 75.0 %)" in note(0.29, 0.75)
    assert "method.orders" not in note(0.29, 0.31)


def test_choice_and_auc_of_arms_have_n_interval_and_a_comparison_on_shared_problems(tmp_path: Path) -> None:
    runs = []
    for method in ("duel_evolve", "other"):
        for seed in range(2):
            run = write_run(
                tmp_path / f"{method}{seed}",
                RunSpec(problems=6, candidates=12, seed=seed, manifest={"method": method, "seed": seed}),
            )
            if method == "other":  # it finds nothing right for a problem, and rates the rest the other way round
                lines = [msgspec.json.decode(line) for line in (run / "candidates.jsonl").read_bytes().splitlines()]
                for line in lines:
                    line["correct"] &= line["problem"] != lines[0]["problem"]
                    line["mean"] = -line["mean"]
                (run / "candidates.jsonl").write_bytes(b"".join(msgspec.json.encode(line) + b"\n" for line in lines))
            Journal(run / "journal.sqlite").close()
            write_results(run, [ACCURACY], {})
            runs.append(noted(run))
    areas = [count_aggregates(run, ACCURACY).areas for run in runs]
    comparison = compare(runs)
    for row, of_runs in zip(comparison.rows, (areas[:2], areas[2:]), strict=True):
        values = [area for own in of_runs for area in own.values()]
        metric = row.get_metric("posterior_auc")
        assert (metric.value, metric.n) == (pytest.approx(sum(values) / len(values)), len(values))
        by_problem = {
            problem: [own[problem] for own in of_runs if problem in own] for own in of_runs for problem in own
        }
        assert metric.ci95 == clustered_mean(
            [sum(own) for own in by_problem.values()], [*map(len, by_problem.values())]
        )
    table = make_search_table(comparison.rows)
    shown = dict(zip(table.headings, table.shown()[1], strict=True))
    covered = sum(len(count_aggregates(run, ACCURACY).covered) for run in runs[2:])
    assert shown["choice given\ncoverage"].endswith(f" of {covered}")
    assert shown["95 % interval\nof choice"] is not None
    assert shown["posterior\nAUC"].endswith(f" of {len(areas[2]) + len(areas[3])}")
    assert shown["95 % interval\nof AUC"] == text.interval(comparison.rows[1].get_metric("posterior_auc").ci95)
    shared = [(seed, problem) for seed in range(2) for problem in areas[seed] if problem in areas[2 + seed]]
    assert 0 < len(shared) < len(areas[0]) + len(areas[1])
    means = [sum(areas[first + seed][problem] for seed, problem in shared) / len(shared) for first in (0, 2)]
    assert (
        f"Posterior AUC is over other problems in each arm. On those that all arms share ({len(shared)}, over all "
        f"seeds): duel_evolve {text.percent(means[0])}, other {text.percent(means[1])}."
    ) in search_note(comparison)


def test_a_page_does_not_count_again(run: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("evorun.reports.overview.count_aggregates", None)
    html.render_report(run)


@pytest.mark.parametrize("name", ["candidates.jsonl", AGGREGATES])
def test_counts_of_other_records_are_not_shown(run: Path, name: str) -> None:
    if name == AGGREGATES:
        store_another_number(run)
    else:
        (run / name).write_bytes((run / name).read_bytes() * 2)
    outcome = load_outcome(run)
    assert any(line.startswith(f"{name} is not as the run left it") for line in outcome.changed)
    assert load_aggregates(outcome, ACCURACY).responses == (48 if name == AGGREGATES else 96)


def test_counts_that_no_run_has_noted_are_not_shown(run: Path) -> None:
    (run / AGGREGATES).unlink()
    noted(run)
    store_another_number(run)
    assert load_aggregates(load_outcome(run), ACCURACY).responses == 48


def test_a_comparison_opens_no_records_with_texts(run: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    candidates = run / "candidates.jsonl"
    candidates.write_text(candidates.read_text().replace('"parents":', '"call":"p|1|generate|0|0","parents":'))
    write_results(run, [ACCURACY], {})
    noted(run)
    runs = [run, ended(tmp_path / "other", seed=1)]
    opened: list[str] = []
    real = files.open_regular

    def noting(path: Path) -> Any:
        opened.append(path.name)
        return real(path)

    for module in (reading, checksums):
        monkeypatch.setattr(module, "open_regular", noting)
    found = compare(runs)
    assert {one.outcome.run_dir.name: one.shows_responses for one in found.runs} == {"run": True, "other": False}
    assert {"metrics.jsonl", "predictions.jsonl", AGGREGATES} <= set(opened)
    assert not {"candidates.jsonl", "comparisons.jsonl", "steps.jsonl"} & set(opened)
    assert not any(one.outcome.changed or one.outcome.missing for one in found.runs)


def test_a_comparison_says_what_has_changed_of_what_it_shows_and_what_is_gone(run: Path, tmp_path: Path) -> None:
    (run / "candidates.jsonl").unlink()
    with (run / "metrics.jsonl").open("a") as metrics:
        metrics.write("\n")
    told = "\n".join(compare([run, ended(tmp_path / "other", seed=1)]).warnings)
    for name in ("candidates.jsonl", "metrics.jsonl"):
        assert f"{name} is not as the run left it" in told


def test_a_rank_correlation_of_an_arm_has_students_interval_down_to_minus_one(tmp_path: Path) -> None:
    values = [-0.515, -0.383, -0.564]
    runs = []
    for seed, value in enumerate(values):
        run = write_method(tmp_path / str(seed), [True, False], seed=seed)
        results = msgspec.json.decode((run / "results.json").read_bytes())
        results["metrics"]["birth_order_fitness"] = {"value": value, "ci95": [-1.0, 1.0], "n": 12}
        (run / "results.json").write_bytes(msgspec.json.encode(results))
        runs.append(run)
    [row] = compare(runs).rows
    expected = ttest_1samp(values, 0).confidence_interval(0.95)
    assert row.get_metric("birth_order_fitness").ci95 == pytest.approx((expected.low, expected.high))
    assert expected.high < 0
