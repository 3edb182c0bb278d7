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
from evorun.runs.budget import LIMITS
from evorun.runs.call_keys import parse_step, read_role
from evorun.runs.journal_file import JOURNAL
from evorun.runs.journal_reader import read_journal
from evorun.runs.reading import read_results
from evorun.runs.schema import RoleCost
from evorun.runs.terminal import Terminal

PROBLEMS = 2
"""Problems of a trial that counts calls (ours): enough that a mean is one."""
MEASURED_PROBLEMS = 6
"""Most problems of a trial that measures prompts alone (ours): problems differ in length."""


class _Usage(msgspec.Struct):
    prompt_tokens: int


class Asked(NamedTuple):
    """Calls of a role in a step."""

    calls: int
    prompt_tokens: int


class Trial(NamedTuple):
    """The cost of a trial."""

    problems: int
    cost: Mapping[str, RoleCost]
    """By call role, without the total."""
    by_step: Mapping[str, Mapping[int, Asked]]
    """By call role and step."""
    last_step: int
    """The last step that it could take."""
    max_tokens: Mapping[str, float]
    """Completion tokens that a call may have, by role: the mean of its requests' limits."""
    sample: bool
    """True where the task's own sample stood in for data that is not on this machine."""


MOST_STEPS, FEWEST_STEPS, TRAINING_STEPS = 20, 2, 6
"""Steps of a trial that measures prompts alone (ours): prompts of Feedback Descent grow for 15 generations."""
MOST_CALLS = 600
"""Calls within which such a trial has more than its fewest problems and steps (ours): half a second on one core."""
_STEP_KEYS = ("generations", "rounds")


def try_out(config: Mapping[str, Any], problems: int | None, *, calls_per_step: float | None) -> Trial | None:
    """Carry out a run in small on simulated models and return its cost; None where it cannot begin here.

    problems: of the whole run, between which its budget is divided. calls_per_step: for each problem; where it is
    given, only the length of prompts is wanted, so that some steps do. A method that trains takes small steps.
    """
    few = PROBLEMS
    if calls_per_step is not None:
        fitting = int(MOST_CALLS / (FEWEST_STEPS * max(calls_per_step, 1)))
        few = min(max(fitting, PROBLEMS), MEASURED_PROBLEMS)
    small = _simulate(config, problems, few)
    method = small["method"]
    if calls_per_step is not None and "problems_per_step" in method:
        method["steps"] = min(config["method"]["steps"] or TRAINING_STEPS, TRAINING_STEPS)
    elif calls_per_step is not None:
        fitting = int(MOST_CALLS / (few * max(calls_per_step, 1)))
        most = min(max(fitting, FEWEST_STEPS), MOST_STEPS)
        method |= {key: min(most if (own := method[key]) is None else own, most) for key in _STEP_KEYS if key in method}
    if calls_per_step is not None and method.get("samples", 0) is not None:  # else it may end within a step
        small["budget"] |= dict.fromkeys(LIMITS)
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
            checked = check(config)
            outcome = run_experiment(checked, path, ["evorun"], Terminal(file=io.StringIO()))
            outcome.raise_error()
            results = read_results(path)
            by_step, max_tokens = _read_calls(path / JOURNAL)
    finally:
        logging.disable(disabled)
    if results is None:
        raise ConfigError("expected a trial with results, got none")
    cost = {role: spent for role, spent in results.cost.items() if role != "total"}
    return Trial(results.counts["problems"], cost, by_step, checked.method.last_step or 0, max_tokens, sample)


def _read_calls(journal: Path) -> tuple[dict[str, dict[int, Asked]], dict[str, float]]:
    """Return the calls by role and step, and the mean limit on a call's completion tokens by role."""
    asked: dict[str, dict[int, Asked]] = defaultdict(dict)
    limits: dict[str, list[int]] = defaultdict(list)
    for effect in read_journal(journal):
        if effect.usage is None:  # no model call
            continue
        role, place = read_role(effect.key), parse_step(effect.key)
        step = 0 if place is None else place[1]
        before = asked[role].get(step, Asked(0, 0))
        tokens = msgspec.json.decode(effect.usage, type=_Usage).prompt_tokens
        asked[role][step] = Asked(before.calls + 1, before.prompt_tokens + tokens)
        sampling = msgspec.json.decode(effect.request, type=RecordedRequest).sampling
        limits[role].append(sampling.n * sampling.max_tokens)
    return asked, {role: fmean(found) for role, found in limits.items()}


def _simulate(config: Mapping[str, Any], problems: int | None, few: int) -> dict[str, Any]:
    """Return the configuration of a trial on a few problems."""
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
            small["task"][key] = min(small["task"][key] or few, few)
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
