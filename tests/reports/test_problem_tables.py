"""A problem's candidates in the terminal."""

import json
from collections import Counter
from pathlib import Path

import pytest

from evorun.cli import main
from run_fixture import RunSpec, write_run

pytestmark = pytest.mark.usefixtures("without_figures")


def _report(run: Path, capsys: pytest.CaptureFixture[str], problem: str) -> str:
    with pytest.raises(SystemExit):
        main(["report", str(run), f"--problem={problem}"])
    return capsys.readouterr().out.partition(f"{problem}: ")[2]


def test_a_named_problem_shows_its_best_candidates_and_their_duels(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    run = write_run(tmp_path / "run", RunSpec(problems=2, candidates=30, duels=40))
    file = run / "candidates.jsonl"
    records = [json.loads(line) for line in file.open()]
    problem = records[0]["problem"]
    own = [record for record in records if record["problem"] == problem]
    best = max(own, key=lambda record: record["mean"] if record["mean"] is not None else -99)
    best |= {"answer": "12\n\x1b[31m\u202e", "mean": 9.5, "sd": 0.5}
    file.write_text("".join(json.dumps(record) + "\n" for record in records))
    heading, *lines = _report(run, capsys, problem).splitlines()
    assert heading == "30 candidates, the 20 highest rated here"
    rows = [line for line in lines if " ± " in line and "rating" not in line]
    assert len(rows) == 20
    assert rows[0].split()[0] == best["id"]
    assert "12 \u241b[31m\ufffd" in rows[0]
    assert "9.50 ± 0.500" in rows[0]
    duels = [json.loads(line) for line in (run / "comparisons.jsonl").open()]
    found = Counter(
        "undecided" if duel["outcome"] is None else "won" if duel[duel["outcome"]] == best["id"] else "lost"
        for duel in duels
        if duel["problem"] == problem and best["id"] in (duel["first"], duel["second"])
    )
    assert rows[0].split()[-3:] == [str(found[result]) for result in ("won", "lost", "undecided")]
    decided = sum(duel["outcome"] is not None for duel in duels if duel["problem"] == problem)
    assert f"40 duels in all: {decided} decided, {40 - decided} undecided." in lines
    assert sum("(returned)" in row for row in rows) == 1
