"""Run folders that somebody else has filled: what evorun does with one harms nobody who was not asked."""

import contextlib
import json
import os
import pty
import shutil
import threading
from collections.abc import Iterator
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from typing import Any, Literal

import pytest

from evorun.errors import RunDirectoryError
from evorun.runs.directory import RunDirectory, load_manifest
from evorun.runs.files import reject_links
from evorun_process import DRY_RUN, SMALL, evorun_here, start_on_terminal
from journals import write_journal

SECRET = "sk-of-whoever-resumes"


@pytest.fixture(name="finished", scope="module")
def _finished(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("finished")
    done = evorun_here(*DRY_RUN, *SMALL, "hydra.run.dir=run", cwd=folder)
    assert done.returncode == 0, done.stderr
    return folder / "run"


@pytest.fixture(name="run")
def _run(finished: Path, tmp_path: Path) -> Path:
    return Path(shutil.copytree(finished, tmp_path / "run"))


@pytest.mark.parametrize(
    "link",
    [
        *("evorun.log", ".lock", "journal.sqlite", "steps.jsonl", "steps.ordered", ".manifest.json.tmp"),
        *(".hydra/.config.yaml.tmp", "artifacts", "checkpoints"),
    ],
)
def test_a_resume_writes_through_no_link(run: Path, link: str) -> None:
    outside = run.parent / "outside"
    outside.write_bytes(b"precious\n")
    (run / link).unlink(missing_ok=True)
    (run / link).symlink_to(outside)
    done = evorun_here("resume", "run", cwd=run.parent)
    assert done.returncode == 1
    assert len(done.stderr.splitlines()) == 1, done.stderr
    assert "symbolic link" in done.stderr
    assert outside.read_bytes() == b"precious\n"


def test_a_resume_writes_through_no_hard_link(run: Path) -> None:
    outside = run.parent / "outside"
    outside.write_bytes(b"precious\n")
    for link in ("evorun.log", "journal.sqlite", "artifacts/new.json"):
        (run / link).parent.mkdir(exist_ok=True)
        (run / link).unlink(missing_ok=True)
        (run / link).hardlink_to(outside)
        with pytest.raises(RunDirectoryError, match=r"has another name elsewhere \(a hard link\)"):
            reject_links(run)
        done = evorun_here("resume", "run", cwd=run.parent)
        assert (done.returncode, len(done.stderr.splitlines())) == (1, 1), done.stderr
        assert outside.read_bytes() == b"precious\n"
        (run / link).unlink()


def test_a_report_writes_through_no_link(run: Path) -> None:
    outside = run.parent / "outside"
    outside.write_bytes(b"precious\n")
    (run / "report.html").unlink()
    for name in ("report.html", f".report-{os.getpid()}.html", ".report.html.tmp"):
        (run / name).symlink_to(outside)
    assert evorun_here("report", "run", cwd=run.parent).returncode == 0
    assert outside.read_bytes() == b"precious\n"
    assert "<html" in (run / "report.html").read_text()


def test_a_sweep_writes_through_no_link(tmp_path: Path) -> None:
    outside = tmp_path / "outside"
    outside.write_bytes(b"precious\n")
    (tmp_path / "sweep").mkdir()
    (tmp_path / "sweep" / "multirun.yaml").symlink_to(outside)
    done = evorun_here("-m", *DRY_RUN, *SMALL, "hydra.sweep.dir=sweep", cwd=tmp_path)
    assert done.returncode == 1
    assert "symbolic link" in done.stderr
    assert outside.read_bytes() == b"precious\n"


# --- the terminal ---

STEERING = "\x1b]0;pwned\x07\x9b31m\u202e"


def test_names_in_a_folder_steer_no_terminal(run: Path) -> None:
    named = run.rename(run.parent / f"run{STEERING}")
    results = json.loads((named / "results.json").read_text())
    results["metrics"][STEERING] = {"value": 0.5, "ci95": None, "n": 1}
    results["by_stratum"][STEERING] = results["by_stratum"]["college"]
    results["cost"][STEERING] = results["cost"]["judge"]
    (named / "results.json").write_text(json.dumps(results))
    figures = {"step": 1, "calls": 1, "tokens": 1, "figures": {STEERING: 0.5}}
    (named / "training.jsonl").write_text(json.dumps(figures) + "\n")
    sound = Path(shutil.copytree(named, run.parent / "sound"))
    (run.parent / f"nothing{STEERING}").mkdir()
    for arguments in ([named], [named, sound], [f"nothing{STEERING}"], ["absent" + STEERING]):
        done = evorun_here("report", *arguments, cwd=run.parent)
        assert not set(STEERING) & {"\x1b", "\x07", "\x9b", "\u202e"} & set(done.stdout + done.stderr)
        assert "\u241b]0;pwned" in done.stdout + done.stderr


# --- resume ---


class Theirs:
    """A server that keeps what it is sent, and answers nothing."""

    def __init__(self) -> None:
        self.seen: list[str] = []
        seen = self.seen

        class Handler(BaseHTTPRequestHandler):
            def do_POST(self) -> None:
                body = self.rfile.read(int(self.headers["Content-Length"]))
                seen.append(f"{self.headers}{body.decode()}")
                self.send_error(404)

            def do_GET(self) -> None:
                seen.append(str(self.headers))
                self.send_error(404)

            def log_message(self, *_: Any) -> None:
                pass

        self._server = ThreadingHTTPServer(("127.0.0.1", 0), Handler)
        self.url = f"http://127.0.0.1:{self._server.server_port}/v1"
        threading.Thread(target=self._server.serve_forever, args=(0.02,), daemon=True).start()

    def close(self) -> None:
        self._server.shutdown()
        self._server.server_close()


@pytest.fixture(name="theirs")
def _theirs() -> Iterator[Theirs]:
    with contextlib.closing(Theirs()) as server:
        yield server


def rewrite(run: Path, /, **changes: dict[str, Any]) -> None:
    """Change groups of a manifest's configuration, of a run that is not at its end."""
    manifest = json.loads((run / "manifest.json").read_text())
    manifest["status"] = "interrupted"
    for group, values in changes.items():
        manifest["config"][group].update(values)
    (run / "manifest.json").write_text(json.dumps(manifest))


@pytest.fixture(name="planted")
def _planted(run: Path, theirs: Theirs, monkeypatch: pytest.MonkeyPatch) -> Path:
    """Return a folder whose configuration sends the key of whoever resumes it to somebody else."""
    monkeypatch.setenv("SOME_SECRET", SECRET)
    manifest = json.loads((run / "manifest.json").read_text())
    engine = {"name": "server", "base_urls": [theirs.url], "api_key_env": "SOME_SECRET", "max_retries": 0}
    manifest.update(simulated=False, status="interrupted", config={**manifest["config"], "engine": engine})
    for file in run.iterdir():
        shutil.rmtree(file) if file.is_dir() else file.unlink()
    write_journal(run / "journal.sqlite", [])
    (run / "manifest.json").write_text(json.dumps(manifest))
    return run


def test_a_foreign_configuration_is_not_run_unasked(planted: Path, theirs: Theirs) -> None:
    before = sorted(planted.iterdir())
    done = evorun_here("resume", "run", cwd=planted.parent)
    assert done.returncode == 1
    assert len(done.stderr.splitlines()) == 1, done.stderr
    assert "add --trust" in done.stderr
    assert theirs.seen == []
    assert sorted(planted.iterdir()) == before


def test_one_who_trusts_it_sees_what_it_uses(planted: Path, theirs: Theirs) -> None:
    rewrite(planted, budget={"calls_per_problem": 77_777}, run={"concurrency": 999})  # what the key will pay
    done = evorun_here("resume", "run", "--trust", cwd=planted.parent)
    for setting in (
        f"engine.base_urls.0 = '{theirs.url}'",
        "api_key_env = 'SOME_SECRET'",
        "sandbox.isolation = 'auto'",
        "budget.calls_per_problem = 77777 (by default None)",
        "run.concurrency = 999 (by default 256)",
    ):
        assert setting in done.stdout
    assert "seed = " not in done.stdout  # as an own run has it
    assert any(SECRET in request for request in theirs.seen)  # so this server would have told of it above


def test_the_command_line_says_where_requests_go(planted: Path, theirs: Theirs) -> None:
    with contextlib.closing(Theirs()) as mine:
        evorun_here(
            "resume", "run", "--trust", f"engine.base_urls=[{mine.url}]", "engine.api_key_env=null", cwd=planted.parent
        )
        assert mine.seen
        assert not any(SECRET in request for request in mine.seen)
    assert theirs.seen == []


def test_a_recorded_configuration_refers_to_nothing(planted: Path, theirs: Theirs) -> None:
    rewrite(planted, engine={"extra_body": {"user": "${oc.env:SOME_SECRET}"}, "api_key_env": None})
    done = evorun_here("resume", "run", "--trust", cwd=planted.parent)
    assert done.returncode == 1
    assert "engine.extra_body.user: expected a plain value, got ${oc.env:SOME_SECRET}" in done.stderr
    assert theirs.seen == []


@pytest.mark.parametrize(
    ("engine", "expected"),
    [
        ("[" * 900 + "]" * 900, "expected at most 32 levels of lists and objects"),
        ("[]", "engine: expected a name"),
        ('{"name": "server", "name\\u001b": 1}', "unknown key"),
    ],
    ids=["deep", "a list", "a key"],
)
@pytest.mark.parametrize("change", [(), ("engine.name=simulated",)], ids=["as it is", "changed"])
def test_a_recorded_configuration_that_is_none_is_one_line(
    run: Path, engine: str, expected: str, change: tuple[str, ...]
) -> None:
    manifest = json.loads((run / "manifest.json").read_text())
    manifest["config"]["engine"] = "HERE"
    (run / "manifest.json").write_text(json.dumps(manifest).replace('"HERE"', engine))
    done = evorun_here("resume", "run", "--trust", *change, cwd=run.parent)
    assert done.returncode == 1
    assert len(done.stderr.splitlines()) == 1, done.stderr
    assert expected in done.stderr or change
    assert "\x1b" not in done.stdout + done.stderr


@pytest.mark.parametrize(
    ("changes", "expected"),
    [
        ({"scores": []}, "manifest.json is malformed: Expected `array` of length >= 1 - at `$.scores`"),
        ({"method": "zero_shot", "models": {}}, "expected the model that wrote the responses"),
    ],
)
def test_a_manifest_that_no_run_has_written_is_one_line(run: Path, changes: dict[str, Any], expected: str) -> None:
    manifest = json.loads((run / "manifest.json").read_text())
    (run / "manifest.json").write_text(json.dumps({**manifest, **changes}))
    assert evorun_here("report", "run", cwd=run.parent).returncode == int("scores" in changes)
    done = evorun_here("traces", "run", "kind=dpft", "output=examples.jsonl", cwd=run.parent)
    assert done.returncode == 1
    assert len(done.stderr.splitlines()) == 1, done.stderr
    assert expected in done.stderr


def test_what_only_reads_a_folder_does_nothing_that_it_says(
    tmp_path: Path, theirs: Theirs, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("SOME_SECRET", SECRET)
    how = ("method=zero_shot", "task=mathbench", "task.source=sample", "task.limit=3")
    done = evorun_here(*how, "engine=simulated", "engine.malformed=0", "hydra.run.dir=run", cwd=tmp_path)
    assert done.returncode == 0, done.stderr
    manifest = json.loads((tmp_path / "run" / "manifest.json").read_text())
    engine = {"name": "server", "base_urls": [theirs.url], "api_key_env": "SOME_SECRET"}
    manifest["config"] |= {
        "engine": engine,
        "judge_engine": engine,
        "task": [],
        "${oc.env:SOME_SECRET}": "${oc.env:SOME_SECRET}",
    }
    manifest["stages"] = {"student": {"folder": "${oc.env:SOME_SECRET}", "digest": "0"}}
    manifest["error"] = "${oc.env:SOME_SECRET} {{ 7 * 7 }}"
    (tmp_path / "run" / "manifest.json").write_text(json.dumps(manifest))
    for arguments in (
        ("report", "run"),
        ("traces", "run", "kind=dpft", "output=examples.jsonl"),
        (*how, "engine=replay", "engine.run=run", "hydra.run.dir=again"),
    ):
        done = evorun_here(*arguments, cwd=tmp_path)
        assert done.returncode == 0, done.stderr
        assert SECRET not in done.stdout
    assert theirs.seen == []
    assert not [file for file in tmp_path.rglob("*") if file.is_file() and SECRET.encode() in file.read_bytes()]


def answer(word: str, *arguments: str, cwd: Path) -> tuple[int, str]:
    """Run `evorun` on a terminal where the user answers its question with `word`."""
    terminal, end = pty.openpty()
    process = start_on_terminal(*arguments, cwd=cwd, end=end)
    os.close(end)
    os.write(terminal, f"{word}\n".encode())
    shown = b""
    with contextlib.suppress(OSError):  # EIO: the process has ended
        while part := os.read(terminal, 65536):
            shown += part
    os.close(terminal)
    return int(process.wait()), shown.decode()


def test_a_terminal_is_asked(run: Path) -> None:
    rewrite(run, evorun={"progress": "off"})
    manifest = (run / "manifest.json").read_text()
    code, shown = answer("n", "resume", "run", cwd=run.parent)
    assert (code, (run / "manifest.json").read_text()) == (1, manifest)
    assert "engine.name = 'simulated'" in shown
    code, shown = answer("y", "resume", "run", cwd=run.parent)
    assert code == 0, shown
    # it is the user's own from then on
    assert evorun_here("resume", "run", cwd=run.parent).returncode == 0


def test_a_run_is_ones_own_by_its_whole_configuration_and_by_the_key(
    run: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    with monkeypatch.context() as other:
        other.setenv("XDG_STATE_HOME", str(tmp_path / "another user's"))
        assert "add --trust" in evorun_here("resume", "run", cwd=run.parent).stderr
    moved = run.rename(tmp_path / "elsewhere")
    assert evorun_here("resume", moved, cwd=run.parent).returncode == 0
    rewrite(moved, sandbox={"isolation": "rlimits"})
    assert "add --trust" in evorun_here("resume", moved, cwd=run.parent).stderr


@pytest.mark.sample(1)
@pytest.mark.parametrize("status", ["completed", "interrupted"])
def test_a_folder_that_is_handed_back_changed_is_foreign(
    run: Path, monkeypatch: pytest.MonkeyPatch, status: Literal["completed", "interrupted"]
) -> None:
    opened = RunDirectory(run)
    opened.manifest = load_manifest(run)
    (run / "checkpoints" / "0").mkdir(parents=True)
    (run / "checkpoints" / "0" / "adapter.safetensors").write_bytes(b"weights")
    opened.end(status, 0.0)
    opened.close()
    monkeypatch.setattr("evorun.cli.running.carry_out", lambda *_, **__: "completed")

    def resume(*words: str) -> str:
        done = evorun_here("resume", "run", *words, cwd=run.parent)
        assert (done.returncode == 0) == ("expected a run as you left it" not in done.stderr), done.stderr
        return done.stderr + done.stdout

    assert evorun_here("report", "run", cwd=run.parent).returncode == 0  # changes nothing that a resume goes on with
    (run / "artifacts").mkdir(exist_ok=True)
    (run / "artifacts" / "study.json").write_text("{}")
    assert resume() == ""
    for name in ("journal.sqlite", "journal.sqlite-wal", "checkpoints/0/adapter.safetensors", "checkpoints/new"):
        before = (run / name).read_bytes() if (run / name).exists() else None
        if name == "journal.sqlite":
            (run / name).unlink()
            write_journal(run / name, [])
        else:
            (run / name).write_bytes(b"another")
        said = "its checksum differs" if before else "it was not there"
        assert f"expected a run as you left it, but {name} is not as the run left it: {said}; resuming" in resume()
        assert f"  {name} is not as the run left it" in resume("--trust")
        (run / name).unlink()
        assert resume() == ""  # what is gone is made again
        if before is not None:
            (run / name).write_bytes(before)
    manifest = json.loads((run / "manifest.json").read_text())
    for state in ({}, None, {**manifest["state"], "/etc/hostname": "0"}):
        (run / "manifest.json").write_text(json.dumps({**manifest, "state": state}))
        assert "its manifest is not signed with your key" in evorun_here("resume", "run", cwd=run.parent).stderr


def test_the_same_command_says_what_has_changed_since(run: Path) -> None:
    (run / "checkpoints").mkdir()
    (run / "checkpoints" / "planted").write_bytes(b"weights")
    done = evorun_here(*DRY_RUN, *SMALL, "hydra.run.dir=run", cwd=run.parent)
    assert done.returncode == 0, done.stderr
    assert "warning: checkpoints/planted is not as the run left it: it was not there" in done.stderr


def test_the_same_command_goes_on_without_a_question(run: Path) -> None:
    """So a requeued job does: its configuration comes from the command line, not from the folder."""
    rewrite(run, sandbox={"isolation": "rlimits"})
    done = evorun_here(*DRY_RUN, *SMALL, "hydra.run.dir=run", cwd=run.parent)
    assert done.returncode == 0, done.stderr
    manifest = json.loads((run / "manifest.json").read_text())
    assert manifest["config"]["sandbox"]["isolation"] == "auto"
    assert manifest["resumes"] == 1


def test_a_run_is_made_where_no_key_can_be_kept(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("XDG_STATE_HOME", "/dev/null")
    done = evorun_here(*DRY_RUN, *SMALL, "hydra.run.dir=run", cwd=tmp_path)
    assert done.returncode == 0
    assert "resuming this run will ask whether to trust it, since no key to sign it can be kept" in done.stderr
    assert "add --trust" in evorun_here("resume", "run", cwd=tmp_path).stderr
    assert evorun_here("resume", "run", "--trust", cwd=tmp_path).returncode == 0
