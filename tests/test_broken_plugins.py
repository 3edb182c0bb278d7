"""A third party's broken method or task stops the runs that choose it, and nothing else."""

import hashlib
import json
import subprocess
import sys
from collections.abc import Iterator
from importlib import metadata
from pathlib import Path
from typing import Any

import pytest

from evorun.runner import registry
from evorun.runs.journal_reader import read_journal
from evorun.runs.scores import ACCURACY, Score
from evorun.tasks.sudoku.sudoku import Sudoku
from evorun_process import evorun_here

POINTS = """
[evorun.methods]
absent = absent_parts:Method
leaving = leaves:Method
failing = failing_parts:Failing
changing = failing_parts:Changing
number = failing_parts:NUMBER
garbled = failing_parts:
mistyped = failing_parts:Mistyped
outdated = failing_parts:Outdated
zero_shot = failing_parts:Failing
[evorun.tasks]
unloadable = failing_parts:UnloadableConfig
sudoku = failing_parts:UnloadableConfig
[evorun.graders]
number_three = failing_parts:NUMBER
crashing = failing_parts:Crashing
"""
FAILING = """
from dataclasses import dataclass
from evorun.methods.base import PerProblem
from evorun.models import Sampling
from evorun.runs.candidates import Step
from evorun.tasks.capabilities import SupportsGeneration
from evorun.tasks.base import Task, TaskConfig
from evorun.tasks.rows.answers import Rows

NUMBER = 3

@dataclass
class Config:
    name: str = "failing"

class Failing(PerProblem):
    name, description, regime, needs, Config = "failing", "fails", "problem_only", (), Config

    async def solve(self, ctx):
        yield [].pop()

@dataclass
class ChangingConfig:
    name: str = "changing"

class Changing(Failing):
    name, needs, Config = "changing", (SupportsGeneration,), ChangingConfig
    before, tokens, fails = (), 64, True

    async def solve(self, ctx):
        prompt = ctx.task.generation_prompt(ctx.problem)
        for step in (0, *self.before, 1, 2):
            sampling = Sampling(max_tokens=self.tokens if step == 1 else 64)
            await ctx.generate([prompt], role="generate", step=step, sampling=sampling)
            yield Step(step=step, best=None, candidates=[])
            if step == 1 and self.fails:
                [].pop()

class Mistyped(Failing):
    regime = "problem-only"

class Outdated(Failing):
    def budget_obstacle(self, calls: int):
        return None

class Crashing(Rows):
    def score(self, problem, response, gold):
        return [].pop()

class Unloadable(Task):
    name = "unloadable"

@dataclass
class UnloadableConfig(TaskConfig):
    task_class = Unloadable
    name: str = "unloadable"

    def load(self):
        return {}["problems"]
"""
UNUSABLE = {
    "absent": "ModuleNotFoundError: No module named 'not_installed'",
    "leaving": "SystemExit: this machine will not do",
    "number": "TypeError: expected a subclass of evorun.methods.base.Method, got 3",
    "garbled": "",
    "mistyped": "ValueError: regime: expected one of problem_only, demonstrations, public_tests, oracle, labels, got "
    "'problem-only'",
    "outdated": "TypeError: budget_obstacle: expected (self, calls, judges=1), got (self, calls: int)",
}
SHADOWED = ("method=zero_shot", "task=sudoku")
DRY_RUN = ("task=mathbench", "task.source=sample", "task.limit=1", "engine=simulated", "evorun.progress=off")


@pytest.fixture(autouse=True, scope="module")
def _installed(tmp_path_factory: pytest.TempPathFactory) -> Iterator[None]:
    """Install a package of broken plug-ins."""
    site = tmp_path_factory.mktemp("site")
    info = site / "shaky-1.2.dist-info"
    info.mkdir()
    (info / "METADATA").write_text("Metadata-Version: 2.1\nName: shaky\nVersion: 1.2\n")
    (info / "entry_points.txt").write_text(POINTS)
    (site / "absent_parts.py").write_text("import not_installed\n")
    (site / "leaves.py").write_text("raise SystemExit('this machine will not do')\n")
    (site / "failing_parts.py").write_text(FAILING)
    with pytest.MonkeyPatch.context() as patch:
        patch.syspath_prepend(site)
        registry.plugins.cache_clear()
        yield
    registry.plugins.cache_clear()


@pytest.fixture(autouse=True)
def _new_process() -> None:
    """Let the next command warn again."""
    registry._warn_once.cache_clear()
    registry.plugins.cache_clear()


def last_line(*arguments: str, cwd: Path) -> str:
    """Return the last line that a failing command complains with."""
    done = evorun_here(*arguments, cwd=cwd)
    assert done.returncode == 1, done.stdout
    return done.stderr.splitlines()[-1]


def lines_about(name: str, printed: str) -> list[str]:
    return [line for line in printed.splitlines() if f"method={name}: the plug-in shaky 1.2 cannot be used: " in line]


def test_a_run_without_them_warns_of_each_in_one_line(tmp_path: Path) -> None:
    done = evorun_here("method=zero_shot", *DRY_RUN, "hydra.run.dir=run", cwd=tmp_path)
    assert done.returncode == 0, done.stderr
    assert len(done.stderr.splitlines()) == len(UNUSABLE) + len(SHADOWED)
    for name, reason in UNUSABLE.items():
        (line,) = lines_about(name, done.stderr)
        assert line.startswith("warning: ")
        assert reason in line


def test_the_list_has_all_that_can_be_used(tmp_path: Path) -> None:
    done = evorun_here("list", cwd=tmp_path)
    assert done.returncode == 0, done.stderr
    assert len(done.stderr.splitlines()) == len(UNUSABLE) + len(SHADOWED)
    assert {"lyria", "failing", "unloadable"} <= {line.split()[0] for line in done.stdout.splitlines() if line.strip()}
    assert not any(line.startswith(tuple(UNUSABLE)) for line in done.stdout.splitlines())


@pytest.mark.parametrize("name", UNUSABLE)
def test_who_chooses_one_is_told_why_it_cannot_be_used(tmp_path: Path, name: str) -> None:
    done = evorun_here(f"method={name}", *DRY_RUN, cwd=tmp_path)
    [said] = lines_about(name, done.stderr)  # once
    assert said.startswith(f"error: method={name}: the plug-in shaky 1.2 cannot be used: {UNUSABLE[name]}")


def test_a_builtin_keeps_its_name_and_the_package_that_takes_it_is_named(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    run = (*SHADOWED, "task.limit=1", "engine=simulated", "evorun.progress=off")
    done = evorun_here(*run, "hydra.run.dir=run", cwd=tmp_path)
    assert done.returncode == 0, done.stderr
    for chosen in SHADOWED:
        [line] = [line for line in done.stderr.splitlines() if chosen in line]
        assert line.startswith(f"warning: {chosen}: the name belongs to evorun, so the plug-in shaky 1.2 is ignored")
    monkeypatch.setattr(Sudoku, "scores", (ACCURACY, Score("score", 200, 300)))
    said = last_line(*run, "hydra.run.dir=other", cwd=tmp_path)
    assert "error: task=sudoku: expected the score 'score' from 200 to 300, got " in said


def test_what_fails_in_a_plugin_is_its_own(tmp_path: Path) -> None:
    said = last_line("method=failing", *DRY_RUN, "hydra.run.dir=run", cwd=tmp_path)
    assert "the plug-in method=failing of shaky 1.2 failed: IndexError: pop from empty list (failing_parts.py, " in said
    assert "run/evorun.log has the traceback" in said
    assert "this is a bug" not in said
    assert "IndexError" in (tmp_path / "run" / "evorun.log").read_text()
    # before there is a run directory
    said = last_line("method=failing", "task=unloadable", "engine=simulated", cwd=tmp_path)
    assert "the plug-in task=unloadable of shaky 1.2 failed: KeyError: 'problems' (failing_parts.py, line " in said


def test_a_grader_that_is_none_or_fails_is_named_by_its_key(tmp_path: Path) -> None:
    run = ("method=zero_shot", "task=rows", "task.source=sample", "task.limit=1", "engine=simulated")
    said = last_line(*run, "task.grader=number_three", cwd=tmp_path)
    assert said.startswith(
        "error: task.grader=number_three: the plug-in shaky 1.2 cannot be used: TypeError: expected a"
    )
    said = last_line(*run, "task.grader=crashing", cwd=tmp_path)
    assert "the plug-in task.grader=crashing of shaky 1.2 failed: IndexError: pop from empty list" in said


def test_the_manifest_says_whose_code_ran_and_a_resume_that_it_has_changed(tmp_path: Path) -> None:
    last_line("method=failing", *DRY_RUN, "hydra.run.dir=run", cwd=tmp_path)
    digest = hashlib.sha256(FAILING.encode()).hexdigest()[:12]
    method = {"package": "shaky", "version": "1.2", "module": "failing_parts", "digest": digest}
    assert json.loads((tmp_path / "run" / "manifest.json").read_text())["plugins"] == {"method": method}
    changed = "the code of method=failing has changed since the run began"
    assert changed not in evorun_here("resume", "run", cwd=tmp_path).stderr
    source = Path(str(sys.modules["failing_parts"].__file__))
    source.write_text(FAILING + "# another\n")
    try:
        assert changed in evorun_here("resume", "run", cwd=tmp_path).stderr
    finally:
        source.write_text(FAILING)


def test_a_refused_resume_leaves_the_folder_as_it_was(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    run = tmp_path / "run"
    assert "IndexError" in last_line("method=changing", *DRY_RUN, "hydra.run.dir=run", cwd=tmp_path)

    def look() -> tuple[Any, ...]:
        manifest = json.loads((run / "manifest.json").read_text())
        keys = [effect.key.split("|", 1)[1] for effect in read_journal(run / "journal.sqlite")]
        records = {file.name: file.read_bytes() for file in run.glob("*.jsonl") if file.stat().st_size}
        progress = json.loads((run / ".progress.json").read_text())
        return manifest["plugins"], manifest["resumes"], keys, progress["cost"], records

    before = look()
    assert before[2] == ["0|generate|0|0", "1|generate|0|0"]
    parts = sys.modules["failing_parts"]
    source = Path(str(parts.__file__))
    warning = "the code of method=changing has changed since the run began"
    for number in (1, 2):
        with monkeypatch.context() as patch:
            for name, value in {"before": (7, 8), "tokens": 32, "fails": False}.items():  # new calls come first
                patch.setattr(parts.Changing, name, value)
            source.write_text(FAILING + "# another\n")
            try:
                done = evorun_here("resume", "run", cwd=tmp_path)
            finally:
                source.write_text(FAILING)
        assert warning in done.stderr
        said = done.stderr.splitlines()[-1]
        assert "'generate' 0 in step 1 of sample/" in said
        assert "put the former ones back and resume, or start a new run; changed since: the code of method=" in said
        kept = f"journal_refused_{number}.sqlite"
        assert said.endswith(f"the folder is as it was before this resume; the 2 calls that it made are in {kept}")
        assert [effect.key for effect in read_journal(run / kept)][:2] == [
            effect.key for effect in read_journal(run / "journal.sqlite")
        ]
        assert len(list(read_journal(run / kept))) == 4
        assert look() == before
        shown = evorun_here("status", "run", cwd=tmp_path).stdout
        assert "put the former ones back and resume" in shown
        assert "mend what the error names, then continue with: evorun resume run" in shown
    source.write_text(FAILING + "# another\n")
    try:
        assert warning in evorun_here("resume", "run", cwd=tmp_path).stderr  # stopped before it has asked for anything
    finally:
        source.write_text(FAILING)
    monkeypatch.setattr(parts.Changing, "fails", False)
    done = evorun_here("resume", "run", cwd=tmp_path)
    assert done.returncode == 0, done.stderr
    assert warning not in done.stderr
    assert "2 calls came from the journal, 1 are new" in done.stdout


def test_the_digest_of_a_package_covers_the_modules_beside_the_entry_points(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    package = tmp_path / "of_parts"
    package.mkdir()
    for name in ("__init__", "method", "helpers"):
        (package / f"{name}.py").write_text(f"# {name}\n")
    monkeypatch.syspath_prepend(tmp_path)
    point = metadata.EntryPoint("mine", "of_parts.method:Mine", "evorun.methods")
    monkeypatch.setattr(registry, "plugins", lambda kind: {"mine": point} if kind == "method" else {})
    listed = subprocess.check_output(["sha256sum", "__init__.py", "helpers.py", "method.py"], cwd=package)
    (found,) = registry.describe_plugins(method="mine", task="tsp").values()
    assert found.digest == hashlib.sha256(listed).hexdigest()[:12]


def test_what_fails_in_evorun_is_not_a_plugins(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    def broken(*_: object) -> None:
        raise ValueError("no score")

    monkeypatch.setattr("evorun.runner.recorder.ProblemRecorder.offer", broken)
    done = evorun_here("method=zero_shot", *DRY_RUN, "hydra.run.dir=run", cwd=tmp_path)
    assert "error: evorun failed: ValueError: no score; this is a bug: run/evorun.log" in done.stderr
