"""Carries out runs without weights, for the benchmarks of everything around the model."""

import contextlib
import os
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any, NamedTuple

import msgspec
from hydra import compose, initialize_config_dir
from omegaconf import OmegaConf

from evorun.cli.compose import config_folder, default_config, register
from evorun.runner.experiment import run_experiment
from evorun.runner.settings import check
from evorun.runs.terminal import Terminal
from evorun.tasks.mathbench import files


class Measured(NamedTuple):
    """A finished run."""

    seconds: float
    """Wall seconds from reading the data to the final manifest."""
    calls: int
    completion_tokens: int


def run(path: Path, overrides: dict[str, Any]) -> Measured:
    """Run Duel-Evolve on simulated MathBench with these overrides; raises what stopped it."""
    register()
    arguments = ["engine=simulated", *(f"++{key}={value}" for key, value in overrides.items() if "." in key)]
    arguments += [f"{key}={value}" for key, value in overrides.items() if "." not in key]
    with initialize_config_dir(str(config_folder()), version_base="1.3"):
        config: Any = OmegaConf.to_container(compose("config", overrides=arguments), resolve=True)
    with open(os.devnull, "w") as nowhere:
        started = time.perf_counter()
        outcome = run_experiment(check(config), path, ["bench"], Terminal(file=nowhere))
        seconds = time.perf_counter() - started
    if outcome.error is not None:
        raise outcome.error
    cost = msgspec.json.decode((path / "results.json").read_bytes())["cost"]["total"]
    return Measured(seconds, cost["calls"], cost["completion_tokens"])


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
        lines = (files.SAMPLE / stage / files.FILE).read_bytes().splitlines()
        (folder / stage).mkdir(parents=True)
        with (folder / stage / files.FILE).open("wb") as target:
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
