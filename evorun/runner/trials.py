"""A run in small on simulated models: what a composed configuration asks of its models, before any is paid for."""

import copy
import io
import logging
import tempfile
from collections import defaultdict
from collections.abc import Mapping
from pathlib import Path
from statistics import fmean
from typing import Any, NamedTuple

import msgspec

from evorun.errors import ConfigError, DataError, EvorunError
from evorun.models.config import OTHER_ROLES
from evorun.models.encoding import RecordedRequest
from evorun.runner.experiment import run_experiment
from evorun.runner.served import SAME_AS_POLICY
from evorun.runner.settings import check
from evorun.runs.effects import read_role
from evorun.runs.journal_file import JOURNAL
from evorun.runs.journal_reader import read_journal
from evorun.runs.reading import read_results
from evorun.runs.schema import RoleCost
from evorun.runs.terminal import Terminal

PROBLEMS = 2
"""Problems of a trial (ours): enough that a mean is one."""


class Trial(NamedTuple):
    """The cost of a trial."""

    problems: int
    cost: Mapping[str, RoleCost]
    """By call role, without the total."""
    max_tokens: Mapping[str, float]
    """Completion tokens that a call may have, by role: the mean of its requests' limits."""
    sample: bool
    """True where the task's own sample stood in for data that is not on this machine."""


SHORT = 2
"""Generations of a trial whose calls nobody counts (ours): later prompts are hardly longer."""


def try_out(config: Mapping[str, Any], problems: int | None, *, short: bool) -> Trial | None:
    """Carry out a run in small on simulated models and return its cost; None where it cannot begin here.

    problems: of the whole run, between which its budget is divided. short: only the length of prompts is wanted, so a
    few generations do. A method that trains takes a single small step.
    """
    small = _simulate(config, problems)
    if short and "generations" in small["method"]:
        small["method"]["generations"] = min(small["method"]["generations"] or SHORT, SHORT)
    for sample in (False, True):
        if sample:
            if "source" not in small["task"] or small["task"]["source"] == "sample":
                return None
            small["task"]["source"] = "sample"
        try:
            return _carry_out(small, sample=sample)
        except DataError:
            continue
        except EvorunError:
            return None
    return None


def _carry_out(config: Mapping[str, Any], *, sample: bool) -> Trial:
    disabled = logging.root.manager.disable
    logging.disable(logging.CRITICAL)  # what it warns of is said when the run itself begins
    try:
        with tempfile.TemporaryDirectory(prefix="evorun-plan-") as folder:
            path = Path(folder) / "run"
            outcome = run_experiment(check(config), path, ["evorun"], Terminal(file=io.StringIO()))
            outcome.raise_error()
            results = read_results(path)
            max_tokens = _read_limits(path / JOURNAL)
    finally:
        logging.disable(disabled)
    if results is None:
        raise ConfigError("expected a trial with results, got none")
    cost = {role: spent for role, spent in results.cost.items() if role != "total"}
    return Trial(results.counts["problems"], cost, max_tokens, sample)


def _read_limits(journal: Path) -> dict[str, float]:
    """Return the mean limit on a call's completion tokens, by role."""
    limits: dict[str, list[int]] = defaultdict(list)
    for effect in read_journal(journal):
        if effect.usage is not None:  # a model call
            sampling = msgspec.json.decode(effect.request, type=RecordedRequest).sampling
            limits[read_role(effect.key)].append(sampling.n * sampling.max_tokens)
    return {role: fmean(found) for role, found in limits.items()}


def _simulate(config: Mapping[str, Any], problems: int | None) -> dict[str, Any]:
    """Return the configuration of the trial."""
    small = copy.deepcopy(dict(config))
    small["engine"] = {"name": "simulated"}
    for role in OTHER_ROLES:
        if f"{role}_engine" in small:
            small[f"{role}_engine"] = {"name": SAME_AS_POLICY}
    if small.get("student") is not None:
        small["student"] = None
        for key in ("teacher", "teacher_engine", "training"):
            small.pop(key, None)
    small["tracker"] = {}
    small["evorun"] = {**small.get("evorun", {}), "progress": "off"}
    for key in ("limit", "instances", "test_problems"):
        if key in small["task"]:
            small["task"][key] = min(small["task"][key] or PROBLEMS, PROBLEMS)
    if "problems_per_step" in small["method"]:
        small["method"] |= {"steps": 1, "problems_per_step": min(small["method"]["problems_per_step"], PROBLEMS)}
    budget = small["budget"]
    for key in ("calls", "tokens"):
        whole = budget.pop(key, None)
        if whole is not None and problems:
            budget[f"{key}_per_problem"] = min(budget.get(f"{key}_per_problem") or whole, max(1, whole // problems))
    for key in ("price", "price_per_problem"):  # simulated models have none
        budget.pop(key, None)
    return small
