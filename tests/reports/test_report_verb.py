"""`evorun report` on several runs, as a user would type it."""

import json
from pathlib import Path
from typing import NamedTuple

import pytest
from comparison_fixture import write_method

from evorun.cli import main
from evorun.runs.sweeps import JobInSweep, new_sweep, write_sweep

pytestmark = pytest.mark.usefixtures("without_figures")

GOOD = [True] * 8 + [False] * 2
POOR = [True] * 3 + [False] * 7


@pytest.fixture(name="sweep")
def _sweep(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    write_method(tmp_path / "sweep" / "poor", POOR)
    write_method(tmp_path / "sweep" / "good", GOOD, method="duel_evolve", steps=3)
    monkeypatch.chdir(tmp_path)
    return tmp_path / "sweep"


class Done(NamedTuple):
    code: object
    stdout: str
    stderr: str


class Report:
    """Carries out `evorun report` in this process, as a process takes two seconds to start."""

    def __init__(self, capsys: pytest.CaptureFixture[str]) -> None:
        self._capsys = capsys

    def __call__(self, *arguments: str) -> Done:
        with pytest.raises(SystemExit) as ending:
            main(["report", *arguments])
        return Done(ending.value.code, *self._capsys.readouterr())

    def complaint(self, *arguments: str) -> str:
        done = self(*arguments)
        assert done.code == 1, done
        [line] = [line for line in done.stderr.splitlines() if not line.startswith("comparing ")]
        return line


@pytest.fixture(name="report")
def _report(capsys: pytest.CaptureFixture[str]) -> Report:
    return Report(capsys)


def test_a_sweep_is_compared_and_each_run_keeps_its_page(sweep: Path, report: Report) -> None:
    done = report("sweep")
    assert (done.code, done.stderr) == (0, "comparing 2 runs and drawing the pages of 2\n")
    assert "Against duel_evolve, on the same problems" in done.stdout
    assert "Comparison: sweep/comparison.html" in done.stdout
    assert "Comparison of 2 runs" in (sweep / "comparison.html").read_text()
    for run in ("good", "poor"):
        assert "<h2>Cost by role</h2>" in (sweep / run / "report.html").read_text()


def test_a_page_is_drawn_again_where_its_run_or_the_choice_has_changed(sweep: Path, report: Report) -> None:
    pages = [sweep / run / "report.html" for run in ("good", "poor")]
    for page in pages:
        page.write_text("kept")
    (sweep / "good" / "rejudge").mkdir()
    (sweep / "good" / "rejudge" / "results.json").write_text("{}")
    assert report("sweep").code == 0
    assert [page.read_text() == "kept" for page in pages] == [False, True]
    # only a page that is drawn can lack a problem
    assert "expected the id of a problem with candidates" in report.complaint("sweep", "--problem=nowhere")


def test_the_reference_and_the_file_can_be_chosen(sweep: Path, report: Report) -> None:
    done = report("sweep/good", "sweep/poor", "--against", "sweep/poor", "--output=chosen.html")
    assert done.code == 0, done.stderr
    assert "Against zero_shot, on the same problems" in done.stdout
    assert (sweep.parent / "chosen.html").exists()
    assert not (sweep / "comparison.html").exists()


def test_a_page_of_more_runs_is_replaced_only_where_asked(sweep: Path, report: Report) -> None:
    page = sweep / "comparison.html"
    assert report("sweep").code == 0
    write_method(sweep / 'it\'s & "new"', GOOD, method="lyria")
    for _ in range(2):  # a sweep that grew, and the same report again
        assert report("sweep").code == 0
    assert "Comparison of 3 runs" in page.read_text()
    subset = ("sweep/good", "sweep/poor")
    expected = (
        "error: sweep/comparison.html compares 1 run that this report leaves out; --output=FILE.html writes this "
        "report elsewhere, --overwrite replaces that file"
    )
    # before a run is read
    assert report.complaint(*subset, "--against=nobody", "--export=tables") == expected
    assert "Comparison of 3 runs" in page.read_text()
    assert not Path("tables").exists()
    assert report(*subset, "--output=two.html").code == 0
    assert report(*subset, "--overwrite").code == 0
    assert "Comparison of 2 runs" in page.read_text()
    page.write_text("my own")
    assert "comparison.html is no comparison of runs; --output=" in report.complaint("sweep")


def test_one_run_is_reported_as_ever(sweep: Path, report: Report) -> None:
    done = report("sweep/good", "sweep/good/")
    assert done.code == 0, done.stderr
    assert "duel_evolve on mathbench" in done.stdout
    assert "Report: sweep/good/report.html" in done.stdout
    assert "Against" not in done.stdout
    assert not list(sweep.rglob("comparison.html"))


@pytest.mark.sample(3)
@pytest.mark.parametrize(
    ("arguments", "expected"),
    [
        (
            ["sweep/good", "--output=c.html"],
            "expected several runs for --against, --score, --name and --output, got one",
        ),
        (["sweep", "--against=elsewhere"], "--against: expected one of the compared runs, by its folder, or "),
        (["sweep", "--score=nosuch"], "error: --score: expected a score of all runs, got nosuch; "),
        (["sweep", "--output=sweep/good/manifest.json"], "expected: evorun report RUN_DIR..."),
        (["sweep", "--sort=seed"], "expected: evorun report RUN_DIR..."),
        (["--output=c.html"], "expected: evorun report RUN_DIR..."),
    ],
)
def test_wrong_options_are_one_line(sweep: Path, report: Report, arguments: list[str], expected: str) -> None:
    assert expected in report.complaint(*arguments)
    assert not list(sweep.parent.rglob("*.html"))


def test_nothing_is_written_when_one_run_cannot_be_read(sweep: Path, report: Report) -> None:
    (sweep / "poor" / "steps.jsonl").write_text("[]\n")
    assert "poor/steps.jsonl, line 1" in report.complaint("sweep")
    assert not list(sweep.rglob("*.html"))
    assert json.loads((sweep / "good" / "manifest.json").read_text())["status"] == "completed"


def _make_sweep(folder: Path, *jobs: str) -> None:
    recorded = [JobInSweep(job, (f"name={job}",)) for job in jobs]
    write_sweep(folder, new_sweep(["evorun", "-m"], "basic", recorded))


@pytest.mark.nightly
def test_an_unfinished_sweep_says_at_the_head_how_many_of_its_jobs_are_done(sweep: Path, report: Report) -> None:
    write_method(sweep / "stopped", GOOD, method="lyria", status="interrupted")
    _make_sweep(sweep, "good", "poor", "stopped", "later", "last")
    said = "2 of the 5 jobs of sweep are done (2 waiting, 1 interrupted): these are figures so far."
    assert " ".join(report("sweep").stdout.split()).startswith(said)
    page = (sweep / "comparison.html").read_text()
    assert page.index(said) < page.index("<h2>")
    chosen = report("sweep/good", "sweep/poor", "--output=chosen.html")
    assert "jobs of sweep" not in chosen.stdout  # chosen, not what there is of the sweep
    _make_sweep(sweep, "good", "poor")
    assert "jobs of sweep" not in report("sweep").stdout


def test_a_wrong_reference_is_found_before_anything_is_drawn(
    sweep: Path, report: Report, monkeypatch: pytest.MonkeyPatch
) -> None:
    drawn: list[Path] = []
    monkeypatch.setattr("evorun.reports.html.render_report", lambda run, problems: drawn.append(run))
    assert "--against: expected one of" in report.complaint("sweep", "--against=nobody")
    assert drawn == []


@pytest.mark.nightly
def test_progress_is_shown_on_a_terminal_only(sweep: Path, report: Report, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("rich.console.Console.is_terminal", True)
    shown = report("sweep")
    assert "comparing 2 runs" not in shown.stderr
    for step in ("reading the runs", "drawing the page of each run", "2/2", "drawing the comparison"):
        assert step in shown.stderr
