"""The page of methods and tasks: what each method evolves and needs, and which pairs run."""

from collections import defaultdict
from collections.abc import Mapping
from functools import cache
from typing import Any, NamedTuple

from evorun.cli.compose import default_config, yaml_values
from evorun.methods.base import Method
from evorun.runner import registry
from evorun.runner.settings import find_obstacle, missing_capabilities
from evorun.tasks.base import TaskConfig
from evorun.tasks.capabilities import DESCRIPTIONS, describe
from reference.markdown import code, prose, table

EVOLVES = {
    **dict.fromkeys(("duel_evolve", "best_of_n", "feedback_descent", "lyria"), "responses"),
    **dict.fromkeys(("zero_shot", "few_shot", "self_consistency", "fixed_prompts"), "nothing"),
    **dict.fromkeys(("gepa", "espl_evolution", "espl_self_reflection"), "system prompts"),
    **dict.fromkeys(("grpo", "cispo", "rloo", "ppo", "sft"), "weights"),
    "laft": "weights, then responses",
    "espl": "system prompts and weights",
    "mpo": "rubrics and weights",
}
"""What a method changes."""


HEAD = """
# Methods and tasks

A method says what it needs of a task, and a task what it offers. A pair that does not fit stops before any model loads,
with the reason. [The glossary](../glossary.md) explains regimes and roles.
"""


ROLES = """
The policy plays the other roles too, unless `judge=`, `reward=`, `meta=`, `reflection=` or `gold=` chooses a model.
"""


class Fit(NamedTuple):
    """Whether a method runs on a task, with their usual settings."""

    regime: str
    """The pair's information regime."""
    missing: str
    """What is missing; empty for a pair that runs."""


def pairs_page() -> str:
    """Return the page in Markdown."""
    methods = {name: registry.method_class(name) for name in sorted(registry.METHODS)}
    tasks = {name: registry.task_config_class(name) for name in sorted(registry.TASKS)}
    return "\n".join(
        [
            HEAD,
            "## Methods\n",
            table(
                ("method", "what it does", "evolves", "needs of a task", "calls by model role"),
                (_describe_method(name, method) for name, method in methods.items()),
            ),
            ROLES,
            "## Tasks\n",
            table(
                ("task", "what it is", "scores", "offers beyond prompts", "training split"),
                (_describe_task(name, task) for name, task in tasks.items()),
            ),
            "## Pairs\n",
            "With the usual settings; the regime is what the method has beside the problem.\n",
            table(
                ("method", "runs on", "does not run on"),
                (_describe_pairs(name, method, tasks) for name, method in methods.items()),
            ),
        ]
    )


def find_fit(name: str, method: type[Method], task_name: str, task: type[TaskConfig]) -> Fit:
    """Return whether a method runs on a task; the settings are those that it has on this task."""
    lacking = missing_capabilities(method, task)
    if lacking:
        return Fit("", describe(lacking))
    configured = _configure(name, f"{'lyria' if name == 'laft' else name}_on_{task_name}")  # laft is Lyria by a student
    return Fit(configured.information_regime(task.task_class), find_obstacle(configured, task) or "")


def _configure(name: str, pair: str) -> Any:
    """Return a method with its usual settings, or with those that it has on one task."""
    changes = yaml_values("method_on_task", pair)
    return registry.method_class(name)(default_config("method", name, **changes)) if changes else _usual(name)


@cache
def _usual(name: str) -> Any:
    return registry.method_class(name)(default_config("method", name))


def _describe_method(name: str, method: type[Method]) -> tuple[str, ...]:
    calls: dict[str, list[str]] = defaultdict(list)
    for call, role in _usual(name).active_roles.items():
        calls[role.model].append(call)
    roles = "; ".join(f"{model}: {', '.join(calls[model])}" for model in calls)
    needs = [describe(method.needs)] if method.needs else []
    needs += ["training problems"] * method.learns_from_problems + ["a student"] * method.requires_student
    return (
        code(name),
        prose(method.description),
        EVOLVES[name],
        ", ".join(needs) or "nothing",
        prose(roles) or "policy alone",
    )


def _describe_task(name: str, task: type[TaskConfig]) -> tuple[str, ...]:
    offered = [
        words
        for protocol, words in DESCRIPTIONS.items()
        if protocol.__name__.startswith("Has") and issubclass(task.task_class, protocol)
    ]
    return (
        code(name),
        prose(yaml_values("task", name)["description"]),
        ", ".join(code(score.name) for score in task.task_class.scores),
        ", ".join(offered),
        code(task.training_split or ""),
    )


def _describe_pairs(name: str, method: type[Method], tasks: Mapping[str, type[TaskConfig]]) -> tuple[str, ...]:
    runs: dict[str, list[str]] = defaultdict(list)
    fails: dict[str, list[str]] = defaultdict(list)
    for task_name, task in tasks.items():
        fit = find_fit(name, method, task_name, task)
        (fails[fit.missing] if fit.missing else runs[fit.regime]).append(code(task_name))
    by_reason = {code(regime): names for regime, names in runs.items()}, fails
    cells = ("; ".join(f"**{reason}**: {', '.join(names)}" for reason, names in one.items()) for one in by_reason)
    return code(name), *cells
