"""Carries out runs without weights, for the benchmarks of everything around the model."""

import os
import sqlite3
import time
from pathlib import Path
from typing import Any, NamedTuple

from hydra import compose, initialize_config_dir
from omegaconf import OmegaConf
from rich.console import Console

from evorun.cli.compose import config_folder, register
from evorun.runner.experiment import run_experiment
from evorun.runner.settings import check


class Measured(NamedTuple):
    """A finished run."""

    seconds: float
    """Wall seconds from reading the data to the final manifest."""
    calls: int
    """Model calls in its journal."""


def run(path: Path, overrides: dict[str, Any]) -> Measured:
    """Run Duel-Evolve on the sample problems with these overrides; raises what stopped it."""
    register()
    arguments = ["task.source=sample", *(f"++{key}={value}" for key, value in overrides.items() if "." in key)]
    arguments += [f"{key}={value}" for key, value in overrides.items() if "." not in key]
    with initialize_config_dir(str(config_folder()), version_base="1.3"):
        config: Any = OmegaConf.to_container(compose("config", overrides=arguments), resolve=True)
    with open(os.devnull, "w") as nowhere:
        started = time.perf_counter()
        outcome = run_experiment(check(config), path, ["bench"], Console(file=nowhere))
        seconds = time.perf_counter() - started
    if outcome.error is not None:
        raise outcome.error
    with sqlite3.connect(path / "journal.sqlite") as journal:
        (calls,) = journal.execute("SELECT count(*) FROM effects").fetchone()
    return Measured(seconds, calls)


def pin_to_one_core() -> None:
    """Keep this process, threads included, on one core."""
    os.sched_setaffinity(0, {min(os.sched_getaffinity(0))})
