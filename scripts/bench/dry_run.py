"""Carries out runs without weights, for the benchmarks of everything around the model."""

import contextlib
import os
import resource
import subprocess
import sys
import time
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any, NamedTuple

import msgspec
from hydra import compose, initialize_config_dir
from omegaconf import OmegaConf

from evorun.cli.compose import default_config, register
from evorun.cli.groups import config_folder
from evorun.runner.experiment import run_experiment
from evorun.runner.settings import check
from evorun.runs.terminal import Terminal
from evorun.tasks.mathbench import mathbench


class Measured(NamedTuple):
    """A finished run."""

    seconds: float
    """Wall seconds from reading the data to the final manifest."""
    cpu: float
    """CPU seconds of the same, all threads together."""
    calls: int
    completion_tokens: int


def run(path: Path, overrides: Mapping[str, Any]) -> Measured:
    """Run Duel-Evolve on MathBench, simulated unless the overrides name another engine; raises what stopped it."""
    register()
    values = {"engine": "simulated", **overrides}
    arguments = [f"{key}={value}" for key, value in values.items() if "." not in key]
    arguments += [f"++{key}={value}" for key, value in values.items() if "." in key]
    with initialize_config_dir(str(config_folder()), version_base="1.3"):
        config: Any = OmegaConf.to_container(compose("config", overrides=arguments), resolve=True)
    with open(os.devnull, "w") as nowhere:
        started, cpu = time.perf_counter(), time.process_time()
        outcome = run_experiment(check(config), path, ["bench"], Terminal(file=nowhere))
        seconds, cpu = time.perf_counter() - started, time.process_time() - cpu
    if outcome.error is not None:
        raise outcome.error
    cost = msgspec.json.decode((path / "results.json").read_bytes())["cost"]["total"]
    return Measured(seconds, cpu, cost["calls"], cost["completion_tokens"])


def command(path: Path, overrides: Mapping[str, Any]) -> float:
    """Run `evorun method=duel_evolve task=mathbench ...` into `path`, as a user does; return its CPU seconds."""
    values = {"method": "duel_evolve", "task": "mathbench", "engine": "simulated", **overrides, "hydra.run.dir": path}
    arguments = [f"{key}={value}" for key, value in values.items()]
    before = resource.getrusage(resource.RUSAGE_CHILDREN)
    # not in this folder: there `python -m evorun` would be this checkout's, whatever PYTHONPATH says
    subprocess.run([sys.executable, "-m", "evorun", *arguments], cwd=path.parent, check=True, stdout=subprocess.DEVNULL)
    after = resource.getrusage(resource.RUSAGE_CHILDREN)
    return after.ru_utime - before.ru_utime + after.ru_stime - before.ru_stime


def reopen(path: Path) -> None:
    """Make a finished run one that was interrupted at its very end: a finished one would not be carried out again."""
    manifest = (path / "manifest.json").read_text()
    (path / "manifest.json").write_text(manifest.replace('"status": "completed"', '"status": "interrupted"'))


def problems(folder: Path, number: int) -> dict[str, Any]:
    """Write as many problems, in the benchmark's own layout; return the overrides by which a run takes them.

    They are the sample's, repeated with a running number.
    """
    strata = default_config("task", "mathbench").strata
    per_stratum = -(-number // len(strata))
    for stage in strata:
        lines = (mathbench.SAMPLE / stage / mathbench.FILE).read_bytes().splitlines()
        (folder / stage).mkdir(parents=True)
        with (folder / stage / mathbench.FILE).open("wb") as target:
            for index in range(per_stratum):
                record = msgspec.json.decode(lines[index % len(lines)])
                record.update(id=f"{stage}-{index}", question=f"({index}) {record['question']}")
                target.write(msgspec.json.encode(record) + b"\n")
    return {
        "task.source": "stand_in",
        "task.data": folder,
        "task.per_stratum": per_stratum,
        "task.validation_per_stratum": 0,
        "task.limit": number,
    }


@contextlib.contextmanager
def one_core() -> Iterator[None]:
    """Keep this process, threads included, on one core."""
    allowed = os.sched_getaffinity(0)
    os.sched_setaffinity(0, {min(allowed)})
    try:
        yield
    finally:
        os.sched_setaffinity(0, allowed)
