import io
from pathlib import Path

from rich.console import Console

from evorun.reports import print_summary, write_report
from run_fixture import HOSTILE, RunSpec, write_run


def _summary(run: Path) -> str:
    output = io.StringIO()
    print_summary(run, Console(file=output, width=110, force_terminal=True, color_system=None))
    return output.getvalue()


def test_the_summary_shows_strata_cost_and_report(tmp_path: Path) -> None:
    run = write_run(tmp_path / "run")
    write_report(run)
    summary = _summary(run)
    for expected in ("Sample set", "COLLEGE", "HIGH", "MIDDLE", "generate", "judge", "total", str(run / "report.html")):
        assert expected in summary
    (row,) = [line for line in summary.splitlines() if line.split()[:1] == ["all"]]
    assert row.split()[-1] == "9"


def test_an_unfinished_run_says_so(tmp_path: Path) -> None:
    spec = RunSpec(finished=False, manifest={"status": "interrupted"})
    summary = _summary(write_run(tmp_path / "run", spec))
    assert "Unfinished" in summary
    assert "all so far" in summary
    assert "none yet: evorun report" in summary


def test_an_empty_run_has_a_summary(tmp_path: Path) -> None:
    spec = RunSpec(problems=0, finished=False, manifest={"status": "failed", "error": "no server"})
    assert "Error: no server" in _summary(write_run(tmp_path / "run", spec))


def test_hostile_texts_cannot_steer_the_terminal(tmp_path: Path) -> None:
    manifest = {"error": "".join(HOSTILE), "method": HOSTILE[6], "task": HOSTILE[7]}
    summary = _summary(write_run(tmp_path / "run", RunSpec(strata=HOSTILE, problems=12, manifest=manifest)))
    assert not {"\x1b[31m", "\x07", "\x00", "\u202e"} & {
        summary[i : i + n] for n in (1, 5) for i in range(len(summary))
    }
    assert "[red]markup[/red] [/]" in summary
