"""A run whose files have lost records says so, in the terminal and on its page."""

import io
import json
from pathlib import Path

import pytest

from evorun.reports import print_summary, write_report
from evorun.reports.overview import load_outcome
from evorun.runs.terminal import Terminal
from run_fixture import RunSpec, write_run


def _shortened(path: Path, lines: int) -> None:
    """Leave so many lines, and the beginning of the next."""
    kept = path.read_bytes().splitlines(keepends=True)
    path.write_bytes(b"".join(kept[:lines]) + kept[lines][:20])


def test_a_whole_run_misses_nothing(tmp_path: Path) -> None:
    for name, spec in (
        ("finished", RunSpec()),
        ("stopped", RunSpec(finished=False, manifest={"status": "interrupted"})),
    ):
        assert load_outcome(write_run(tmp_path / name, spec)).missing == []


@pytest.mark.sample(1)
@pytest.mark.parametrize("finished", [True, False])
def test_records_that_are_gone_are_named_in_the_terminal_and_on_the_page(tmp_path: Path, *, finished: bool) -> None:
    status = {"status": "completed" if finished else "interrupted"}
    run = write_run(tmp_path / "run", RunSpec(problems=3, finished=finished, manifest=status))
    (run / "candidates.jsonl").unlink()
    _shortened(run / "steps.jsonl", 7)
    expected = ["steps.jsonl has 7 of 15 steps", "candidates.jsonl is missing; it had 60 candidates"]
    assert load_outcome(run).missing == expected
    page, terminal = write_report(run).read_text(), io.StringIO()
    print_summary(run, Terminal(file=terminal, width=110))
    for line in expected:
        assert f"Missing: {line}." in page
        assert f"Missing: {line}." in terminal.getvalue()


def test_a_file_that_was_cut_within_its_last_record_is_named(tmp_path: Path) -> None:
    run = write_run(tmp_path / "run", RunSpec(problems=2, finished=False, manifest={"status": "failed"}))
    # of a problem that was under way: no prediction counts its steps
    (run / "predictions.jsonl").write_bytes((run / "predictions.jsonl").read_bytes().splitlines(keepends=True)[0])
    _shortened(run / "steps.jsonl", 8)
    assert load_outcome(run).missing == ["steps.jsonl ends within a record, which is omitted"]


def test_of_a_completed_run_the_files_of_figures_may_be_gone_too(tmp_path: Path) -> None:
    run = write_run(tmp_path / "run")
    (run / "metrics.jsonl").unlink()
    assert load_outcome(run).missing == ["metrics.jsonl is missing: curves come from steps.jsonl"]
    (run / "results.json").unlink()
    assert load_outcome(run).missing == ["results.json is missing: figures come from the other files"]
    (run / "results.json").write_text(
        json.dumps({"metrics": {}, "by_stratum": {}, "cost": {}, "counts": {"problems": 9}})
    )
    (run / "predictions.jsonl").unlink()
    assert "predictions.jsonl is missing; it had 9 predictions" in load_outcome(run).missing
