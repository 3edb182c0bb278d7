"""`--json`: one document on standard output, with the figures that the tables and the files have."""

import json
from pathlib import Path
from typing import Any

import pytest

from evorun.cli import doctor
from evorun.cli.groups import config_folder
from evorun.runner import registry
from evorun_process import evorun_here
from run_fixture import RunSpec, write_run


def document(*arguments: str | Path, cwd: Path) -> Any:
    done = evorun_here(*arguments, "--json", cwd=cwd)
    assert done.returncode == 0, done.stderr
    return json.loads(done.stdout)


def test_a_list_names_everything(tmp_path: Path) -> None:
    found = document("list", cwd=tmp_path)
    assert [entry["name"] for entry in found["methods"]] == registry.names("method")
    assert {(pair["method"], pair["task"]) for pair in found["pairs"]} == {
        (method, task) for method in registry.names("method") for task in registry.names("task")
    }
    assert all(sum(pair[key] is not None for key in ("regime", "needs")) == 1 for pair in found["pairs"])


def test_experiments_are_listed_with_a_line_each(tmp_path: Path) -> None:
    found = document("list", "experiments", cwd=tmp_path)
    folder = config_folder() / "experiment"
    files = {file.relative_to(folder).with_suffix("").as_posix() for file in folder.rglob("*.yaml")}
    assert found.keys() == {"experiments"}
    assert {entry["name"] for entry in found["experiments"]} == files
    assert all(entry["description"] for entry in found["experiments"])


def test_findings_of_doctor(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    finding = doctor.Finding("GPU", ready=False, found="none", remedy="buy one")
    monkeypatch.setattr(doctor, "findings", lambda: iter([finding]))
    assert document("doctor", cwd=tmp_path) == {
        "findings": [{"what": "GPU", "ready": False, "found": "none", "remedy": "buy one"}]
    }


@pytest.mark.nightly
def test_a_report_of_one_run_and_of_two(tmp_path: Path) -> None:
    runs = [write_run(tmp_path / f"run{seed}", RunSpec(problems=6, seed=seed)) for seed in range(2)]
    results = json.loads((runs[0] / "results.json").read_text())
    [one] = document("report", runs[0], cwd=tmp_path)["runs"]
    assert one["metrics"]["accuracy"] == results["metrics"]["accuracy"]
    assert one["by_stratum"].keys() == results["by_stratum"].keys()
    assert (one["method"], one["seed"], one["status"]) == ("duel_evolve", 0, "completed")
    several = document("report", *runs, cwd=tmp_path)
    assert [run["seed"] for run in several["runs"]] == [0, 1]
    figures = several["comparison"]["runs"] + several["comparison"]["arms"]
    assert results["metrics"]["accuracy"]["value"] in [row["accuracy"] for row in figures]
    assert Path(several["comparison"]["page"]).is_file()


def test_a_grade(tmp_path: Path) -> None:
    given = [{"id": "test_0000", "response": r"\boxed{30}"}, {"id": "test_0001", "response": "none"}]
    (tmp_path / "given.jsonl").write_text("".join(json.dumps(line) + "\n" for line in given))
    found = document("grade", "task=arithmetic", "responses=given.jsonl", cwd=tmp_path)
    graded = [json.loads(line) for line in (tmp_path / "given.graded.jsonl").read_text().splitlines()]
    assert (found["answered"], found["responses"], found["unparsable"]) == (2, 2, 1)
    accuracy = sum(bool(record["correct"]) for record in graded) / 2
    assert found["metrics"]["accuracy"] == {"value": accuracy, "ci95": found["metrics"]["accuracy"]["ci95"], "n": 2}
    assert Path(found["output"]).name == "given.graded.jsonl"
