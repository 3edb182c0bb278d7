"""`task.code_tool`: programs of the model in the sandbox, beside the tools of an environment."""

import asyncio
import json
from pathlib import Path
from typing import Any

import pytest

from building import NoTools, load_task, task_config
from evorun.errors import ConfigError
from evorun.sandbox import SandboxConfig
from evorun.sandbox.lazy import LazySandbox
from evorun.tasks.environment.code import MAX_PROGRAMS
from evorun.tasks.tool_calls import write_call
from evorun.testing.tasks import check_task
from evorun_process import evorun_here
from killed_runs import check_killed_run

LOCKS = Path(__file__).parent / "locks.py"


def turn(steps: Any) -> str:
    return write_call("turn", {"steps": steps})


def python(code: Any) -> str:
    return write_call("python", {"code": code})


@pytest.fixture
def rows(tmp_path: Path) -> Path:
    """Return a file of three locks; each solution runs three programs, of which one fails."""
    given = [
        {
            "number": n,
            "solution": [python(f"print({n} - 1)"), turn(1) + python("1/0") + python("print(1)"), turn(n - 1)],
        }
        for n in (3, 4, 5)
    ]
    (path := tmp_path / "rows.jsonl").write_text("\n".join(map(json.dumps, given)))
    return path


def load(rows: Path, name: str = "Lock", **settings: Any) -> Any:
    return load_task("environment", environment=f"{LOCKS}:{name}", rows=str(rows), code_tool=True, **settings)


def test_programs_are_answered_in_the_order_of_the_calls_and_counted(rows: Path) -> None:
    loaded = load(rows, code_time_limit_s=0.5)
    problem = next(p for p in loaded.problems if "number is 3" in p.data["question"])
    hostile = python("while True: pass") + python("import os; os._exit(3)") + python("open('/etc/passwd', 'w')")
    talkative = python("print('x' * 100_000)")
    turns = [
        python("import sys; print(len(sys.argv))") + turn(1) + python(["no", "text"]) + python("x = 1"),
        hostile + talkative,
        python("print(x)") * (MAX_PROGRAMS + 1),
        turn(2) + python("never run"),
    ]

    async def play() -> Any:
        tools = LazySandbox(SandboxConfig())
        try:
            answers = [await loaded.task.answer_episode(problem, turns[: n + 1], tools) for n in range(len(turns))]
            response = loaded.task.parse(problem, loaded.task.join_turns(turns))
            return answers, await loaded.grade(problem, response, tools)
        finally:
            await tools.close()

    (mixed, attacked, crowded, opened), grade = asyncio.run(play())
    refusal = f"error: expected a text under code, and at most {MAX_PROGRAMS} programs in a turn"
    assert mixed["content"].split("\n\n")[:4] == ["1", "still locked", refusal, "(nothing printed)"]
    endless, left, written, cut = attacked["content"].split("\n\n")[:4]
    assert endless.startswith("error: time_limit")
    assert left.startswith("error: runtime_error")
    assert written.startswith("error: runtime_error\nTraceback")
    assert "characters left out" in cut
    assert len(cut) < 2100
    assert crowded["content"].count("NameError") == MAX_PROGRAMS  # nothing is kept from an earlier program
    assert crowded["content"].count(refusal) == 1
    assert opened is None
    assert grade.correct is False  # half of the reward is for a look at the dial
    assert grade.scores == {"reward": 0.5, "programs": 6.0 + MAX_PROGRAMS, "failed_programs": 3.0 + MAX_PROGRAMS}


@pytest.mark.nightly
def test_a_killed_run_does_not_run_its_programs_again(rows: Path, tmp_path: Path) -> None:
    task = ["task=environment", f"task.environment={LOCKS}:Lock", f"task.rows={rows}", "task.code_tool=true"]
    task += ["task.right_from=0.5", "method=best_of_n", "method.samples=2", "method.rounds=1", "method.duels=1"]
    task += ["engine=simulated", "engine.skill=0.9", "engine.seconds_per_token=0.01"]
    check_killed_run(task, tmp_path, "sandbox|")
    results = json.loads((tmp_path / "killed/results.json").read_text())
    counts = {name: results["metrics"][name]["value"] for name in ("programs", "failed_programs")}
    assert counts["programs"] == 3 * counts["failed_programs"] > 0


@pytest.mark.nightly
def test_it_conforms(rows: Path) -> None:
    settings = {"environment": f"{LOCKS}:Lock", "rows": str(rows), "right_from": 0.5}
    check_task(task_config("environment", code_tool=True, validation_problems=1, **settings))


def test_it_is_refused_without_a_sandbox_or_beside_a_tool_of_its_name(rows: Path, tmp_path: Path) -> None:
    with pytest.raises(ConfigError, match=r"task\.code_tool: expected an environment without a tool 'python'"):
        load(rows, "PythonLock")
    loaded = load(rows)
    with pytest.raises(ConfigError, match=r"task\.code_tool: expected a run with a sandbox, got none"):
        asyncio.run(loaded.task.answer_episode(loaded.problems[0], [python("1")]))
    off = load_task("environment", environment=f"{LOCKS}:Lock", rows=str(rows))
    answer = asyncio.run(off.task.answer_episode(off.problems[0], [python("1")], NoTools()))
    assert answer["content"].startswith("error: unknown_tool")
    config = task_config("environment", environment=f"{LOCKS}:Lock", rows=str(rows), code_tool=True)
    assert [path.name for path in config.private_files] == ["rows.jsonl", "locks.py"]
    run = ["task=environment", f"task.environment={LOCKS}:Lock", f"task.rows={rows}", "task.code_tool=true"]
    run += ["method=best_of_n", "engine=simulated", "sandbox.isolation=gvisor", "hydra.run.dir=run"]
    refused = evorun_here(*run, cwd=tmp_path)
    assert refused.returncode != 0
    assert "runsc" in refused.stderr
