"""Pages are drawn from what a run has counted at its end, and never from counts of other records."""

from pathlib import Path
from typing import Any

import msgspec
import pytest

from evorun.reports import html, text
from evorun.reports.comparison import compare
from evorun.reports.comparison.notes import search_note
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
from evorun.runs.statistics import Proportion, pooled_share
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
    column = table.headings.index("95 % interval\nover problems")
    assert table.headings[column - 1] == "judge\nagreement"
    assert table.shown()[0][column] == text.interval(expected.ci95)
    assert "draws problems again" in search_note(comparison)
    # of single runs it is their own
    single = load_outcome(runs[0]).metrics["judge_agreement"]
    assert comparison.run_rows[0].get_metric("judge_agreement") == single
    # counts of an older run, which has none by problem
    stored = msgspec.json.decode((runs[1] / AGGREGATES).read_bytes())
    del stored["agreement"]
    write_json(runs[1] / AGGREGATES, stored)
    (row,) = compare([runs[0], noted(runs[1])]).rows
    assert row.get_metric("judge_agreement") == Metric(pytest.approx(expected.value), None, expected.n)


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
    runs = [run, ended(tmp_path / "other", seed=1)]
    opened: list[str] = []
    real = files.open_regular

    def noting(path: Path) -> Any:
        opened.append(path.name)
        return real(path)

    for module in (reading, checksums):
        monkeypatch.setattr(module, "open_regular", noting)
    found = compare(runs)
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
