"""The verb's files and errors: what is written where, what `datasets` reads of it, and what a user is told."""

import io
import json
import os
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path

import pytest
from traces_fixture import Made, lines, make_run

from building import make_method
from evorun.cli.exporting import export_traces
from evorun.errors import EvorunError
from evorun.runs.journal_reader import read_journal
from evorun.runs.terminal import Terminal
from evorun_process import evorun_here
from journals import write_journal

MADE = [Made("a", fitness=40.0), Made("b", "mutation", 60.0, ("a",)), Made("c", "mutation", 30.0, ("a",))]

LOAD = """
import sys
from datasets import load_dataset
loaded = load_dataset("json", data_files=sys.argv[1], split="train", cache_dir=sys.argv[2])
print(loaded.num_rows, loaded.features["fitness"].dtype, loaded.features["parents_fitness"].feature.dtype)
print([len(row["parents_fitness"]) for row in loaded.select(range(2))], loaded[0]["messages"][-1]["role"])
"""


@pytest.fixture(scope="module")
def run(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return make_run(tmp_path_factory.mktemp("made") / "run", MADE)


def export(*arguments: str | Path) -> str:
    """Run the verb in this process and return what it prints."""
    printed = io.StringIO()
    assert export_traces([*map(str, arguments)], Terminal(file=printed, width=200)) == 0
    return printed.getvalue()


def complaint(*arguments: str | Path) -> str:
    with pytest.raises(EvorunError) as caught:
        export(*arguments)
    message = str(caught.value)
    assert "\n" not in message
    return message


def test_the_verb_prints_and_writes_the_counts(run: Path, tmp_path: Path) -> None:
    done = evorun_here("traces", run, "kind=laft", "output=laft.jsonl", cwd=tmp_path)
    assert done.returncode == 0, done.stderr
    assert sorted(path.name for path in tmp_path.iterdir()) == ["laft.counts.json", "laft.jsonl"]
    counts = json.loads((tmp_path / "laft.counts.json").read_text())
    assert counts["total"] == {"found": 3, "kept": 2, "dropped": {"not_fitter": 1}}
    rows = [line.split() for line in done.stdout.splitlines()]
    assert [row for row in rows if row[1:] and all(cell.isdecimal() for cell in row[1:])] == [
        ["init", "1", "1", "0"],
        ["mutation", "2", "1", "1"],
        ["all", "3", "2", "1"],
    ]
    assert "written: laft.jsonl, laft.counts.json" in done.stdout
    wrong = evorun_here("traces", run, "kind=laft", "output=laft.jsonl", "parsed_only=perhaps", cwd=tmp_path)
    assert (wrong.returncode, len(wrong.stderr.splitlines())) == (1, 1)


@pytest.mark.nightly
def test_datasets_loads_what_is_written(tmp_path: Path) -> None:
    """Even when so much has no parents and no fitness that a first block of lines could not tell their types."""
    pytest.importorskip("datasets")
    long = "x" * 100_000
    first = [Made(f"{i}", fitness=None, problem="first", text=f"{i} {long}") for i in range(150)]
    run = make_run(tmp_path / "run", [*first, *MADE])
    export(run, "kind=laft", f"output={tmp_path / 'out.jsonl'}")
    done = subprocess.run(
        [sys.executable, "-c", LOAD, str(tmp_path / "out.jsonl"), str(tmp_path / "cache")],
        env={**os.environ, "HF_HUB_OFFLINE": "1"},
        capture_output=True,
        text=True,
        timeout=120,
    )
    assert done.returncode == 0, done.stderr
    assert done.stdout.splitlines() == ["152 float64 float64", "[1, 0] assistant"]


def test_nothing_is_replaced_unasked(run: Path, tmp_path: Path) -> None:
    output = tmp_path / "out.jsonl"
    counts = tmp_path / "out.counts.json"
    export(run, "kind=laft", f"output={output}")
    written = output.read_bytes(), counts.read_bytes()
    export(run, "kind=laft", f"output={output}")
    for file in (output, counts):
        file.write_bytes(b"{}\n")
        assert f"{file.name} exists with other content; overwrite=true" in complaint(
            run, "kind=laft", f"output={output}"
        )
        assert file.read_bytes() == b"{}\n"
        export(run, "kind=laft", f"output={output}", "overwrite=true")
        assert (output.read_bytes(), counts.read_bytes()) == written
    assert sorted(path.name for path in tmp_path.iterdir()) == ["out.counts.json", "out.jsonl"]


def test_run_directories_are_only_read(run: Path) -> None:
    before = {path: path.read_bytes() for path in run.iterdir()}
    for name in ("candidates.jsonl", "new.jsonl"):
        line = complaint(run, "kind=laft", f"output={run / name}", "overwrite=true")
        assert "expected a place outside run directories" in line
    export(run, "kind=laft", f"output={run.parent / 'out.jsonl'}")
    assert {path: path.read_bytes() for path in run.iterdir()} == before


def test_a_sweeps_folder_stands_for_its_runs(tmp_path: Path) -> None:
    for name in ("seed=0", "seed=1"):
        make_run(tmp_path / "sweep" / name, [Made(name)])
    export(tmp_path / "sweep", "kind=laft", f"output={tmp_path / 'sweep.jsonl'}")
    export(*(tmp_path / "sweep" / f"seed={i}" for i in (0, 1)), "kind=laft", f"output={tmp_path / 'two.jsonl'}")
    assert (tmp_path / "sweep.jsonl").read_bytes() == (tmp_path / "two.jsonl").read_bytes()
    assert [one["candidate"] for one in lines(tmp_path / "two.jsonl")] == ["seed=0", "seed=1"]


def test_what_a_user_must_know_is_said(tmp_path: Path) -> None:
    config = {"task": {"name": "sudoku", "split": "evaluation"}}
    run = make_run(tmp_path / "[red]run", [Made("a")], simulated=True, config=config)
    printed = export(run, "kind=laft", f"output={tmp_path / 'out.jsonl'}")
    assert "simulated, not written by a model: " in printed
    assert "made from a test split" in printed
    assert printed.count("[red]run") == 2
    [told] = make_method("sft", data=str(tmp_path / "out.jsonl"), held_out=0).warnings(None)
    assert "from simulated models, so no language model wrote them: " in told
    quiet = export(make_run(tmp_path / "real", [Made("a")]), "kind=laft", f"output={tmp_path / 'real.jsonl'}")
    assert "simulated" not in quiet
    assert make_method("sft", data=str(tmp_path / "real.jsonl"), held_out=0).warnings(None) == []
    assert "test split" not in quiet
    contest = {"task": {"name": "aime", "split": "test"}}
    on_test = make_run(tmp_path / "contest", [Made("a")], config=contest)
    assert "made from a test split" in export(on_test, "kind=laft", f"output={tmp_path / 'contest.jsonl'}")


@pytest.mark.parametrize(
    ("words", "expected"),
    [
        ([], "expected: evorun traces RUN_DIR... kind="),
        (["RUN", "kind=laft"], "expected: evorun traces RUN_DIR... kind="),
        (["kind=laft", "output=o.jsonl"], "expected: evorun traces RUN_DIR... kind="),
        (["RUN", "kind=lft", "output=o.jsonl"], "kind: expected one of dpft, dpft_full, dpft_top, laft, got 'lft'"),
        (["RUN", "kind=laft", "kind=dpft", "output=o.jsonl"], "kind: expected once"),
        (["RUN", "knd=laft", "output=o.jsonl"], "knd: unknown option; expected a run directory or one of kind,"),
        (["RUN", "kind=laft", "output=o.json"], "output: expected the name of a .jsonl file"),
        (["RUN", "kind=laft", "output=no/o.jsonl"], "cannot write"),
        (["RUN", "kind=laft", "output=o.jsonl", "top=0.5"], "top: kind=laft has no top share"),
        (["RUN", "kind=dpft_top", "output=o.jsonl", "top=20%"], "top: expected a share in (0, 1], got 20%"),
        (["RUN", "kind=dpft_top", "output=o.jsonl", "top=nan"], "top: expected a share in (0, 1], got nan"),
        (["RUN", "kind=dpft_top", "output=o.jsonl", "top=0"], "top: expected a share in (0, 1], got 0"),
        (["RUN", "kind=dpft_top", "output=o.jsonl", "top="], "top: expected a share in (0, 1], got nothing"),
        (["RUN", "kind=laft", "output=o.jsonl", "overwrite="], "overwrite: expected true or false, got nothing"),
        (["nowhere", "kind=laft", "output=o.jsonl"], "expected a run directory, found none at nowhere"),
        ([".", "kind=laft", "output=o.jsonl"], "is not a run directory"),
        (["RUN", "kind=dpft_full", "output=o.jsonl"], "needs runs of zero_shot or best_of_n, this is one of lyria"),
    ],
)
def test_a_wrong_command_line_is_explained(
    run: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, words: list[str], expected: str
) -> None:
    monkeypatch.chdir(tmp_path)
    assert expected in complaint(*(run if word == "RUN" else word for word in words))
    assert list(tmp_path.iterdir()) == []


def _without_journal(run: Path) -> None:
    (run / "journal.sqlite").unlink()


def _with_another_journal(run: Path) -> None:
    moved = [one._replace(key=one.key.replace("p|b", "p|moved")) for one in read_journal(run / "journal.sqlite")]
    write_journal(run / "journal.sqlite", moved)


def _with_a_broken_reply(run: Path) -> None:
    broken = [one._replace(result=b"{\xff") for one in read_journal(run / "journal.sqlite")]
    write_journal(run / "journal.sqlite", broken)


def _without_calls(run: Path) -> None:
    text = (run / "candidates.jsonl").read_text()
    (run / "candidates.jsonl").write_text(text.replace('"call": "p|b"', '"call": null'))


def _without_a_parent(run: Path) -> None:
    text = (run / "candidates.jsonl").read_text()
    (run / "candidates.jsonl").write_text("".join(text.splitlines(keepends=True)[1:]))


def _without_candidates(run: Path) -> None:
    (run / "candidates.jsonl").unlink()


def _interrupted(run: Path) -> None:
    text = (run / "manifest.json").read_text()
    (run / "manifest.json").write_text(text.replace('"completed"', '"interrupted"'))


@pytest.mark.parametrize(
    ("damage", "expected"),
    [
        (_without_journal, "expected a run's journal, found no file"),
        (_with_another_journal, "does not hold the call 'p|b' that candidates.jsonl names"),
        (_with_a_broken_reply, "cannot read the call 'p|"),
        (_without_calls, "candidate 'b' of problem 'p' names no model call"),
        (_without_a_parent, "expected the fitness of candidate 'b' of problem 'p'"),
        (_without_candidates, "none of 0 responses was kept, so nothing is written"),
        (_interrupted, "expected a completed run, this one is interrupted; wait for its end, or continue"),
    ],
)
def test_a_run_that_cannot_be_used_is_explained(tmp_path: Path, damage: Callable[[Path], None], expected: str) -> None:
    run = make_run(tmp_path / "run", MADE)
    damage(run)
    assert expected in complaint(run, "kind=laft", f"output={tmp_path / 'out.jsonl'}")
    assert [path.name for path in tmp_path.iterdir()] == ["run"]


def test_a_task_without_penalised_scores_is_not_ranked(tmp_path: Path) -> None:
    run = make_run(tmp_path / "run", [Made("a")], method="zero_shot", task="mathbench")
    line = complaint(run, "kind=dpft_top", f"output={tmp_path / 'out.jsonl'}")
    assert "expected a penalised_score to rank by, candidate 'a' of problem 'p' has none" in line
    assert "(mathbench)" in line
