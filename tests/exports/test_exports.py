"""`evorun export`: each format read back by somebody else's reader; an archive replayed elsewhere."""

import csv
import io
import json
import re
import shlex
import shutil
import socket
import subprocess
import zipfile
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
import yaml
from huggingface_hub import parse_eval_result_entries

from evorun.exports.archive import write_archive
from evorun.models.requirements import find_missing_packages
from evorun.reports.rejudged import load_rejudgings
from evorun.runs.journal_reader import read_journal
from evorun_process import DRY_RUN, SMALL, evorun_here, records
from run_fixture import RunSpec, write_run


@pytest.fixture(scope="module")
def home(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A folder with a finished run, in `somewhere/run`, which had a tracker's settings and a server's address."""
    folder = tmp_path_factory.mktemp("home")
    done = evorun_here(*DRY_RUN, *SMALL, f"hydra.run.dir={folder}/somewhere/run", cwd=folder)
    assert done.returncode == 0, done.stderr
    return folder


@pytest.fixture
def export(home: Path, tmp_path: Path) -> Callable[..., Path]:
    def exported(kind: str, name: str, *options: str, run: Path | None = None) -> Path:
        place = tmp_path / name
        words = (str(run or home / "somewhere" / "run"), f"format={kind}", f"output={place}", *options)
        done = evorun_here("export", *words, cwd=home)
        assert done.returncode == 0, done.stderr
        return place

    return exported


def without_seconds(results: Path) -> Any:
    found = json.loads(results.read_text())
    for cost in found["cost"].values():
        del cost["seconds"]
    return found


@pytest.mark.nightly
def test_an_archive_is_replayed_elsewhere(home: Path, export: Callable[..., Path], tmp_path: Path) -> None:
    elsewhere = tmp_path / "elsewhere"
    with zipfile.ZipFile(export("archive", "runs.zip")) as archive:
        archive.extractall(elsewhere)
    assert subprocess.run(["sha256sum", "--strict", "-c", "SHA256SUMS"], cwd=elsewhere, check=False).returncode == 0
    [command] = re.findall(r"^ {4}(evorun .*)$", (elsewhere / "README.md").read_text(), re.MULTILINE)
    done = evorun_here(*shlex.split(command)[1:], "output=replayed", cwd=elsewhere)
    assert done.returncode == 0, done.stderr
    original, again = home / "somewhere" / "run", elsewhere / "replayed"
    assert records(again) == records(original)
    assert without_seconds(again / "results.json") == without_seconds(original / "results.json")
    assert evorun_here("report", "run", cwd=elsewhere).returncode == 0


def test_an_archive_names_neither_folders_nor_hosts(home: Path, export: Callable[..., Path], tmp_path: Path) -> None:
    with zipfile.ZipFile(export("archive", "runs.zip")) as archive:
        archive.extract("run/journal.sqlite", tmp_path)
        contents = [archive.read(name) for name in archive.namelist() if not name.endswith(".sqlite")]  # compressed
        assert not [name for name in archive.namelist() if name.endswith((".log", ".html", "overrides.yaml"))]
    contents += [effect.request + effect.result for effect in read_journal(tmp_path / "run" / "journal.sqlite")]
    manifest = (home / "somewhere" / "run" / "manifest.json").read_bytes()
    assert str(home).encode() in manifest  # so that there was something to take out
    for content in contents:
        assert str(home).encode() not in content
        assert not re.search(rf"\b{re.escape(socket.gethostname())}\b".encode(), content)


def test_an_archive_keeps_what_a_report_shows_of_rejudgings(home: Path, tmp_path: Path) -> None:
    run = tmp_path / "run"
    shutil.copytree(home / "somewhere" / "run", run)
    done = evorun_here("rejudge", run, "judge=qwen2_5_7b", "judge_engine=simulated", cwd=tmp_path)
    assert done.returncode == 0, done.stderr
    shutil.copytree(next(run.glob("rejudge/*")), run / "rejudge" / "stopped")
    study = run / "rejudge" / "stopped" / "rejudge.json"
    study.write_text(json.dumps({**json.loads(study.read_text()), "status": "interrupted"}))
    archived = io.BytesIO()
    write_archive({"run": run}, archived)
    with zipfile.ZipFile(archived) as archive:
        archive.extractall(tmp_path / "elsewhere")
        assert not [name for name in archive.namelist() if str(tmp_path).encode() in archive.read(name)]
    shutil.rmtree(run / "rejudge" / "stopped")
    [section], [original] = load_rejudgings(tmp_path / "elsewhere" / "run"), load_rejudgings(run)
    assert section == original


def test_the_same_runs_give_the_same_archive(export: Callable[..., Path]) -> None:
    assert export("archive", "one.zip").read_bytes() == export("archive", "two.zip").read_bytes()


def test_an_archive_with_a_key_is_refused(home: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    run = home / "somewhere" / "run"
    key = max(re.findall(r"[a-zA-Z ]+", (run / "candidates.jsonl").read_text()), key=len)
    monkeypatch.setenv("SOME_API_KEY", key)
    done = evorun_here("export", run, "format=archive", f"output={tmp_path}/runs.zip", cwd=home)
    assert done.returncode == 1
    assert "holds the value of a key" in done.stderr
    assert key not in done.stderr
    assert not (tmp_path / "runs.zip").exists()


def test_a_path_in_a_journal_is_refused_or_kept(home: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    run = home / "somewhere" / "run"
    word = max(re.findall(r"\b[a-z]+\b", (run / "problems.jsonl").read_text()), key=len)
    monkeypatch.setattr(socket, "gethostname", lambda: word)
    words = ("export", run, "format=archive", f"output={tmp_path}/runs.zip")
    refused = evorun_here(*words, cwd=home)
    assert refused.returncode == 1
    assert "a name of this machine" in refused.stderr
    assert evorun_here(*words, "paths=keep", cwd=home).returncode == 0


@pytest.mark.skipif(shutil.which("ssh-keygen") is None, reason="ssh-keygen is not installed")
def test_an_archive_is_signed_with_an_ssh_key(home: Path, export: Callable[..., Path], tmp_path: Path) -> None:
    key = tmp_path / "key"
    subprocess.run(["ssh-keygen", "-q", "-t", "ed25519", "-N", "", "-f", key], check=True)
    archive = export("archive", "runs.zip", f"sign={key}")
    signers = tmp_path / "allowed_signers"
    signers.write_text(f"me@example.org {key.with_suffix('.pub').read_text()}")
    verify = [
        "ssh-keygen",
        "-Y",
        "verify",
        "-f",
        signers,
        "-I",
        "me@example.org",
        "-n",
        "evorun",
        "-s",
        f"{archive}.sig",
    ]
    assert subprocess.run(verify, input=archive.read_bytes(), check=False).returncode == 0
    assert subprocess.run(verify, input=archive.read_bytes() + b" ", check=False).returncode != 0
    words = ("export", home / "somewhere" / "run", "format=archive", f"output={archive}", "overwrite=true")
    refused = evorun_here(*words, f"sign={tmp_path}/none", cwd=home)
    assert "sign: expected the file of an SSH key" in refused.stderr
    key.write_text("no key")
    refused = evorun_here(*words, f"sign={key}", cwd=home)
    assert refused.returncode == 1
    assert "cannot sign" in refused.stderr


def test_csv_holds_every_record(home: Path, export: Callable[..., Path]) -> None:
    folder = export("csv", "tables")
    for file in (home / "somewhere" / "run").glob("*.jsonl"):
        lines = [json.loads(line) for line in file.read_text().splitlines()]
        with (folder / f"{file.stem}.csv").open(newline="") as table:
            rows = list(csv.DictReader(table))
        assert len(rows) == len(lines)
        assert {row["run"] for row in rows} <= {"run"}
    steps = [json.loads(line) for line in (home / "somewhere" / "run" / "steps.jsonl").read_text().splitlines()]
    with (folder / "steps.csv").open(newline="") as table:
        calls = [row["cost.judge.calls"] for row in csv.DictReader(table)]
    assert calls == [str(step["cost"]["judge"]["calls"]) if "judge" in step["cost"] else "" for step in steps]


def test_csv_holds_no_formula(export: Callable[..., Path], tmp_path: Path) -> None:
    run = write_run(tmp_path / "run", RunSpec(problems=1, candidates=2, generations=1, duels=1))
    first, *others = (run / "candidates.jsonl").read_text().splitlines()
    record = json.loads(first) | {"answer": "=HYPERLINK(1)"}
    (run / "candidates.jsonl").write_text("\n".join([json.dumps(record), *others, ""]))
    with (export("csv", "tables", run=run) / "candidates.csv").open(newline="") as table:
        assert next(csv.DictReader(table))["answer"] == "'=HYPERLINK(1)"


def test_the_hub_reads_a_result(export: Callable[..., Path], tmp_path: Path) -> None:
    benchmark = {"source": "benchmark", "description": "test split", "digest": "0" * 64}
    run = write_run(tmp_path / "run", RunSpec(manifest={"simulated": False, "provenance": benchmark}))
    options = ("dataset=org/benchmark", "task_id=default", "source=https://example.org/traces")
    [entry] = parse_eval_result_entries(
        yaml.safe_load(export("hf_eval_results", "r.yaml", *options, run=run).read_text())
    )
    score = json.loads((run / "results.json").read_text())["metrics"]["accuracy"]["value"]
    assert (entry.dataset_id, entry.task_id) == ("org/benchmark", "default")
    assert entry.value == round(100 * score, 2)
    assert entry.source_url == "https://example.org/traces"
    assert entry.notes is not None
    assert "calls" in entry.notes


def test_a_simulated_score_is_no_result(home: Path, tmp_path: Path) -> None:
    words = ("format=hf_eval_results", f"output={tmp_path}/r.yaml", "dataset=org/benchmark", "task_id=default")
    done = evorun_here("export", home / "somewhere" / "run", *words, cwd=home)
    assert done.returncode == 1
    assert "got a simulated one" in done.stderr


def test_latex_has_the_comparison(export: Callable[..., Path]) -> None:
    table = export("latex", "table.tex").read_text()
    assert table.startswith("% Simulated model")
    assert r"\toprule" in table
    assert r"duel\_evolve" in table
    assert r"\% interval" in table


@pytest.mark.parametrize("option", ["score", "against"])
def test_an_option_is_refused_as_it_was_given(home: Path, tmp_path: Path, option: str) -> None:
    runs = [str(home / "somewhere" / "run")]
    words = ("format=latex", f"output={tmp_path / 't.tex'}", f"{option}=nosuch")
    done = evorun_here("export", *runs, *words, cwd=home)
    assert done.stderr.startswith(f"error: {option}: expected ")


@pytest.mark.bridges
@pytest.mark.skipif(bool(find_missing_packages(["inspect_ai"])), reason="inspect_ai is not installed")
def test_inspect_reads_a_run(home: Path, export: Callable[..., Path]) -> None:
    from inspect_ai.log import read_eval_log

    run = home / "somewhere" / "run"
    log = read_eval_log(str(export("inspect", "run.eval")))
    predictions = [json.loads(line) for line in (run / "predictions.jsonl").read_text().splitlines()]
    assert log.status == "success"
    assert log.samples is not None
    assert {sample.id for sample in log.samples} == {prediction["problem"] for prediction in predictions}
    by_id = {sample.id: sample for sample in log.samples}
    texts = {
        (record["problem"], record["id"]): record
        for record in map(json.loads, (run / "candidates.jsonl").read_text().splitlines())
    }
    for prediction in predictions:
        sample = by_id[prediction["problem"]]
        candidate = texts[prediction["problem"], prediction["candidate"]]
        assert sample.output.completion == candidate["text"]
        assert sample.scores is not None
        assert sample.scores["accuracy"].answer == prediction["answer"]
        assert sample.scores["accuracy"].value == float(prediction["correct"])
        assert sample.metadata["generation"] == candidate["generation"]
        assert sample.metadata["posterior_mean"] == prediction["belief"]["mean"]
        assert sample.metadata["cost"] == prediction["cost"]
        assert isinstance(sample.input, list)
        assert sample.input[-1].role == "user"
        assert sample.target == ""
    assert log.results is not None
    accuracy = json.loads((run / "results.json").read_text())["metrics"]["accuracy"]["value"]
    assert log.results.scores[0].metrics["mean"].value == accuracy


@pytest.mark.parametrize(
    ("words", "expected"),
    [
        (("format=parquet", "output=x.parquet"), "format=parquet: unknown format; choose one of archive, csv,"),
        (("format=archive", "output=x.tar"), "output: expected the name of a .zip file"),
        (("format=csv", "output=x", "dataset=a/b"), "dataset: has no effect with format=csv"),
        (("format=hf_eval_results", "output=x.yaml"), "dataset: expected a value with format=hf_eval_results"),
        (("format=csv",), "expected: evorun export RUN_DIR"),
        (("format=csv", "output=somewhere/run/tables"), "output: expected a place outside run directories"),
    ],
)
def test_a_wrong_command_line_is_refused(home: Path, words: tuple[str, ...], expected: str) -> None:
    done = evorun_here("export", "somewhere/run", *words, cwd=home)
    assert done.returncode == 1
    assert expected in done.stderr
