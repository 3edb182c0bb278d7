"""The jobs that an extension adds to a sweep, from its recorded jobs and commands."""

import json
from pathlib import Path

import msgspec
import pytest

from evorun.cli.sweep_extension import extend_commands
from evorun.runs.ownership import sign
from evorun.runs.sweeps import JobInSweep, is_own_sweep, new_sweep, read_sweep, with_jobs, write_sweep
from evorun.runs.terminal import Terminal

COMMON = ("task=mathbench", "task.source=sample", "engine=simulated")


def extend(folder: Path, jobs: list[tuple[str, ...]], commands: list[list[str]], *values: str) -> list[set[str]]:
    """Return the overrides of the jobs that values add, without the common ones."""
    recorded = [JobInSweep(f"job{number}", (*job, *COMMON)) for number, job in enumerate(jobs)]
    given = [["-m", *COMMON, *command, *values] for command in commands]
    added = extend_commands(folder, recorded, given, values, Terminal())
    assert added is not None
    return [set(job) - set(COMMON) for job in added.jobs]


def test_a_resumed_job_is_of_the_arm_of_its_other_seeds(tmp_path: Path) -> None:
    """A resume may have changed how a seed is carried out; swept, the same settings tell arms apart."""
    words = ("method=zero_shot", "seed=0"), ("method=zero_shot", "seed=1", "engine.slots=4")
    assert extend(tmp_path, list(words), [["method=zero_shot"]], "seed=2") == [
        {"method=zero_shot", "seed=2", "engine.slots=4"}
    ]
    swept = [("method=zero_shot", "seed=0", f"engine.skill={skill}") for skill in (0.1, 0.9)]
    assert extend(tmp_path, swept, [["method=zero_shot"]], "seed=0,2") == [
        {"method=zero_shot", f"seed={seed}", f"engine.skill={skill}"} for skill in (0.1, 0.9) for seed in (0, 2)
    ]


def test_jobs_of_no_recorded_command_are_named(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    """Manifests of a former version have the last command alone."""
    jobs = [("method=zero_shot", "seed=0"), ("method=zero_shot", "seed=0", "model=random")]
    commands = [["model=random", "seed=0"]]
    added = extend(tmp_path, jobs, commands, "method=best_of_n")
    assert added == [{"method=best_of_n", "seed=0", "model=random"}]
    (line,) = capsys.readouterr().out.splitlines()
    assert line.startswith(f"leaves out 1 job of {tmp_path}: job0: no command in sweep.json makes")
    assert f"method=best_of_n hydra.sweep.dir={tmp_path}" in line
    extend(tmp_path, jobs, [["seed=0"], *commands], "method=best_of_n")
    assert not capsys.readouterr().out


def test_a_sweep_keeps_its_commands_each_once(tmp_path: Path) -> None:
    first, second = (["evorun", "-m", f"model={name}", "hydra.sweep.dir=sweep"] for name in ("a", "b"))
    sweep = with_jobs(new_sweep(first, "basic", []), new_sweep(second, "basic", []))
    again = with_jobs(sweep, new_sweep([*second[:-1], "hydra.sweep.dir=/sweep", "hydra/launcher=local"], "local", []))
    assert sweep.earlier_commands == again.earlier_commands == (tuple(first),)
    back = with_jobs(again, new_sweep(first, "basic", []))
    assert [command[2] for command in (*back.earlier_commands, back.command)] == ["model=b", "model=a"]
    write_sweep(tmp_path, back)
    assert is_own_sweep(read_sweep(tmp_path))


def test_a_manifest_of_one_command_stays_ones_own(tmp_path: Path) -> None:
    """As versions wrote it that had no field for others."""
    content = msgspec.to_builtins(new_sweep(["evorun", "-m"], "basic", [JobInSweep("job", ("seed=0",))]))
    del content["signature"], content["earlier_commands"]
    (tmp_path / "sweep.json").write_text(json.dumps({**content, "signature": sign(content)}))
    assert is_own_sweep(read_sweep(tmp_path))
