"""Closed forms of what a run costs: model calls, completion tokens and GPU hours, of the composed configuration.

Nothing runs. No call is repeated, and each completion is as long as its limit, so tokens and hours are upper bounds but
for repeats. docs/guides/costs.md has the formulas.
"""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from math import ceil
from typing import Any, NamedTuple

from evorun.errors import ConfigError
from evorun.methods.search.pdr import PdrConfig
from evorun.methods.search.proposals import MIN_SAMPLES
from evorun.models.architecture import read_architecture
from evorun.models.config import ModelConfig
from evorun.runner.call_counts import (
    Part,
    count_calls_per_node,
    count_unlimited_calls,
    measure_conversations,
)
from evorun.runner.student import teacher_composition
from evorun.runner.typed import typed
from evorun.runs.budget import BudgetConfig
from evorun.runs.configs import count_turns

PEAK = 989e12
"""FLOP per second of an H100 SXM in bfloat16, by its data sheet."""
DECODING, TRAINING = 0.10, 0.30
"""Assumed shares of the peak: of decoding in large batches, and of training."""
DECODING_BY_TRANSFORMERS = 0.01
"""The same of decoding by transformers (ours): its batches are smaller, and it launches every kernel by itself."""
BILLIONS = {
    "qwen2_1_5b": 1.5,
    "llama3_2_3b": 3.2,
    "phi3_mini_128k": 3.8,
    "gemma3_4b": 4.3,
    "mistral_7b": 7.2,
    "qwen2_5_7b": 7.6,
    "llama3_1_8b": 8.0,
    "gemma3_27b_w4a16": 27.4,
    "qwen2_5_32b": 32.8,
    "qwen2_5_32b_awq": 32.8,
    "qwen2_5_72b_awq": 72.7,
    "deepseek_v3_1": 37.0,  # of 671
    "gpt_oss_120b": 5.1,  # of 117
}
"""Billions of parameters that a token passes, by the models' cards; a model behind an API has no entry."""
SPLITS = {"essay": (26_013, 4_096), "billsum": (18_949, 4_500), "ethics": (13_000, 4_736), "search_qa": (196, 64)}
"""Training and test problems where the configuration gives no sizes: MPO's section 3.2 and appendix K, E-SPL's 4."""


@dataclass
class Cost:
    """The cost of some runs; `hours` are those of one H100."""

    runs: int = 0
    calls: float = 0.0
    tokens: float = 0.0
    hours: float = 0.0
    unsized: set[str] = field(default_factory=set)
    """Models without an entry in `BILLIONS`, whose calls are not in the hours."""

    def add(self, parts: Sequence[Part]) -> None:
        """Add calls to models."""
        for part in parts:
            self.calls += part.calls
            self.tokens += part.calls * part.max_tokens
            self.hours += hours(2, BILLIONS.get(part.model, 0.0), part.calls * part.max_tokens, DECODING)
            if part.calls and part.model not in BILLIONS:
                self.unsized.add(part.model)

    def describe_hours(self) -> str:
        """Say the hours of one H100, and of which models they are unknown: of a server's own, or of another size."""
        unknown = f"unknown for {', '.join(sorted(self.unsized))}"
        known = f"{self.hours:,.1f} hours of an H100"
        return known if not self.unsized else f"{known}, {unknown}" if self.hours else f"hours of an H100 {unknown}"


def hours(flop: float, billions: float, tokens: float, share: float) -> float:
    """Return hours of one H100 for tokens that take `flop` FLOP for each of the parameters that they pass."""
    return flop * billions * 1e9 * tokens / (PEAK * share) / 3600


def find_billions(model: ModelConfig) -> float | None:
    """Return the billions of parameters that a token of a model passes; None where no config.json of it is here."""
    if (known := BILLIONS.get(model.name)) is not None:
        return known
    shape = read_architecture(model)
    return None if shape is None else shape.parameters.active / 1e9


def count_problems(task: Mapping[str, Any]) -> tuple[int | None, int]:
    """Return the numbers of training and test problems, or of a puzzle's training and evaluation instances.

    Where the configuration gives no sizes, as for files of one's own, None and the limit; without a limit, raises
    ConfigError.
    """
    limit = task.get("limit")
    if task["name"] in SPLITS:
        train, test = SPLITS[task["name"]]
    elif "instances" in task:
        train, test = task["training_instances"], task["instances"]
    elif "test_problems" in task:
        train, test = task["train_problems"], task["test_problems"]
    elif task.get("per_stratum"):  # three strata, and at most as many validation problems
        train, test = 3 * (task["validation_per_stratum"] or task["per_stratum"]), 3 * task["per_stratum"]
    elif "train" in task and "test" in task:
        train, test = (task[split]["draw"] or task[split]["size"] for split in ("train", "test"))
    elif limit is None:
        raise ConfigError(
            f"task={task['name']}: expected a known number of problems, got a task of any size; set task.limit=N"
        )
    else:
        return None, limit
    return train, min(test, limit or test)


def limit_calls(budget: BudgetConfig, problems: int) -> int | None:
    """Return the calls per problem that a budget allows, rounded down; None where it limits none."""
    shares = (budget.calls_per_problem, budget.calls and budget.calls // problems)
    return min((share for share in shares if share is not None), default=None)


def settle_budget(config: Mapping[str, Any], problems: int) -> tuple[dict[str, Any], int | None]:
    """Return a method's settings with numbers where a budget decides, and the budget's calls per problem.

    Raises ConfigError for a setting that only a budget bounds, where there is no limit on calls.
    """
    method, budget = dict(config["method"]), typed(BudgetConfig, config["budget"], "budget")
    limit, turns = limit_calls(budget, problems), count_turns(config["task"])
    if budget.generations is not None and "generations" in method:
        own = method["generations"]
        method["generations"] = budget.generations if own is None else min(own, budget.generations)
    if method["name"] == "ttt_discover" and limit is not None:  # it makes whole steps only
        calls = method["states"] * method["group"] * turns
        method["steps"] = min(method["steps"], limit // calls)
    for key in ("samples", "comparisons", "rounds", "generations", "steps", "drafts", "nodes"):
        if key in method and method[key] is None and not (key == "steps" and "problems_per_step" in method):
            if limit is None:
                raise ConfigError(
                    f"method.{key}: expected a number, or a limit on calls, got null and none; set method.{key}=N or "
                    "budget.calls_per_problem=N"
                )
            if key == "drafts":
                method[key] = typed(PdrConfig, method, "method").fit_drafts(limit // turns)
            elif key == "samples":
                method[key] = max(MIN_SAMPLES, int(method["budget_share"] * limit) // turns)
            elif key == "nodes":
                method[key] = max(1, limit // (count_calls_per_node(config) - 1 + turns))
            elif method["name"] == "gepa":  # a generation serves all problems, with a call at least
                method[key] = limit * problems
            else:
                method[key] = count_whole_steps(method, limit // turns) if key == "steps" else limit
    return method, limit


def count_whole_steps(method: Mapping[str, Any], limit: int) -> int:
    """Return the steps of populations that fit into `limit` responses per problem; the first one always."""
    first: int = method["population"]
    later: int = method.get("groups", first)
    return 1 + max(0, limit - first) // later


IN_ORDER = ("few_shot", "best_of_n", "v1_infer", "feedback_descent", "duel_evolve")
"""Methods whose calls are counted in the order in which they make them, so that a budget leaves out the last ones."""
AT_MOST = ("ace", "gepa")
"""Methods whose steps are counted with the most calls that each can take, so that a budget ends them no earlier."""
ESTIMATED = ("few_shot", "lyria", "laft", *AT_MOST)
"""Methods whose calls of a role are no bound: few_shot solves examples until it has enough, Lyria's are expected ones,
and where a step takes fewer calls than the most, a budget has room for more steps, with more reflections."""


def count_calls(config: Mapping[str, Any], problems: int | None = None, training: int | None = None) -> list[Part]:
    """Return the calls of a run without those of its students' stages, by role; a limit on calls bounds them.

    problems, training: those of the run, and those that it learns from; None: as many as the configuration states.
    Those of ACE, of GEPA, of E-SPL's reflections and of turns with a tool are their maximum. Raises ConfigError for a
    method or task whose calls or problems have no formula here.
    """
    if problems is None:
        train, test = count_problems(config["task"])
    else:
        test = problems
        train = _find_training(config, problems, training)
    method, limit = settle_budget(config, test)
    if train is None and (method["name"] in ("ace", "gepa") or not method.get("steps", 1)):
        raise ConfigError(
            f"task={config['task']['name']}: expected a known number of training problems for method={method['name']}, "
            "got a task of any size; count the calls of a run with engine=simulated"
        )
    parts = count_unlimited_calls({**config, "method": method}, train or 0, test)
    if limit is None:
        return parts
    left: float = limit * test
    metered = [part for part in parts if part.role != "gold"]  # its opinions count against no budget
    if method["name"] not in IN_ORDER:
        share = left / max(sum(part.calls for part in metered), 1.0)
        # Where responses end before their last turn, such a method has room for more steps, up to the limit.
        if not (config["method"].get("steps", 0) is None and count_turns(config["task"]) > 1):
            share = min(1.0, share)
        return [part._replace(calls=part.calls * (share if part in metered else 1)) for part in parts]
    kept = []
    for part in parts:
        kept.append(part._replace(calls=min(part.calls, left)))
        left -= kept[-1].calls
    return kept


def _find_training(config: Mapping[str, Any], problems: int, training: int | None) -> int | None:
    """Return the number of problems that a run learns from: as given, else as the configuration states."""
    return count_problems({**config["task"], "limit": problems})[0] if training is None else training


class Steps(NamedTuple):
    """The steps (generations, rounds of duels, training steps) of a run."""

    unit: str
    planned: int | None
    """Number of the last step by the settings; None where only a budget ends the run."""
    first: float
    """Calls per problem of step 0, as far as they are counted by steps."""
    each: float
    """Calls per problem of every later step."""

    def reach(self, calls: float) -> float:
        """Return the last step that is complete within this many calls per problem, in fractions of a step."""
        done = max(calls - self.first, 0.0) / self.each if self.each else 0.0
        return done if self.planned is None else min(done, float(self.planned))


_STEP_KEYS = {"generations": "generation", "rounds": "round", "steps": "step"}


def count_steps(config: Mapping[str, Any], problems: int, training: int | None = None) -> Steps | None:
    """Return the steps of a run, from its calls with one and with more of them; None for a method without steps.

    training: as in `count_calls`. A method whose calls are counted as a maximum has its maximum in each step. Raises
    ConfigError as `count_calls`.
    """
    key = next((key for key in _STEP_KEYS if key in config["method"]), None)
    if key is None:
        return None
    train = _find_training(config, problems, training)
    method, _ = settle_budget(config, problems)
    budget, planned = config["budget"], config["method"][key]
    if key == "generations" and (most := budget.get("generations")) is not None:
        planned = most if planned is None else min(planned, most)
    if key == "steps" and planned is None:
        if "problems_per_step" not in method:
            planned = method["steps"]  # whole steps of a population, as many as the budget has room for
        elif train is not None:
            planned = ceil(method["data_epochs"] * train / method["problems_per_step"])
    # Islands ask for advice every few generations, whose calls are spread evenly over all.
    many = 1001 if method["name"] == "islands" else 2
    one, two = (
        sum(
            part.calls
            for part in count_unlimited_calls({**config, "method": {**method, key: n}}, train or 0, problems)
            if part.role != "gold"
        )
        for n in (1, many)
    )
    each = (two - one) / (many - 1)
    return Steps(_STEP_KEYS[key], planned, (one - each) / problems, each / problems)


def count_training_tokens(config: Mapping[str, Any], parts: Sequence[Part]) -> float:
    """Return the tokens that pass forward and backward through weights in a run's updates, and through a critic."""
    method = config["method"]
    if method["name"] == "sft":
        return float(method["epochs"] * sum(measure_conversations(method)))
    if "minibatches" not in method:  # the weights stay
        return 0.0
    tokens = sum(part.calls * part.max_tokens for part in parts if part.role == "rollout")
    passes: int = method.get("epochs", 1) * (2 if "critic" in method else 1)
    return passes * tokens


def count_training_hours(config: Mapping[str, Any], parts: Sequence[Part]) -> float:
    """Return the hours of a run's updates."""
    return hours(6, BILLIONS.get(config["model"]["name"], 0.0), count_training_tokens(config, parts), TRAINING)


def estimate(configs: Sequence[Mapping[str, Any]]) -> Cost:
    """Return the cost of runs, with that of their students' stages; stages that are equal run once."""
    total = Cost(runs=len(configs))
    teachers, students = set[str](), set[str]()
    for config in configs:
        parts = count_calls(config)
        total.add(parts)
        total.hours += count_training_hours(config, parts)
        if config.get("student"):
            composition = teacher_composition(config)
            taught = count_calls(
                {**composition, "judge": None, "student": None}, composition["task"]["training_instances"]
            )
            if repr(taught) not in teachers:
                total.add(taught)
            teachers.add(repr(taught))
            if config["student"]["name"] not in students:
                share = 0.2 if config["student"]["kind"] == "dpft_top" else 1.0
                tokens = share * sum(part.calls * part.max_tokens for part in taught)
                epochs = config["student"]["tuning"]["epochs"]
                total.hours += epochs * hours(6, BILLIONS.get(config["model"]["name"], 0.0), tokens, TRAINING)
            students.add(config["student"]["name"])
    return total
