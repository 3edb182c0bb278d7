"""The page of methods and tasks: what each method evolves and needs, and which pairs run."""

from collections import defaultdict
from collections.abc import Mapping
from functools import cache
from typing import Any

from evorun.cli.compose import default_config, yaml_values
from evorun.cli.listing import find_fit
from evorun.methods.base import Method
from evorun.runner import registry
from evorun.tasks.base import TaskConfig
from evorun.tasks.capabilities import DESCRIPTIONS, describe
from reference.markdown import code, prose, table

EVOLVES = {
    **dict.fromkeys(
        (
            *("duel_evolve", "best_of_n", "feedback_descent", "lyria", "rsa"),
            *("pdr", "squeeze_evolve", "ab_mcts", "v1_infer"),
        ),
        "responses",
    ),
    **dict.fromkeys(("zero_shot", "few_shot", "self_consistency", "deepconf", "fixed_prompts"), "nothing"),
    **dict.fromkeys(("ace", "gepa", "espl_evolution", "espl_self_reflection"), "system prompts"),
    **dict.fromkeys(("grpo", "cispo", "rloo", "ppo", "sft"), "weights"),
    "islands": "programs",
    "laft": "weights, then responses",
    "ttt_discover": "responses and weights",
    "espl": "system prompts and weights",
    **dict.fromkeys(("mpo", "rler"), "rubrics and weights"),
}
"""The texts or weights that a method changes, by its name."""


HEAD = """
# Methods and tasks

A method says what it needs of a task, and a task what it offers. A pair that does not fit stops before any model loads,
with the reason. [The glossary](../glossary.md) explains regimes and roles.
"""


ROLES = """
The policy plays the other roles too, unless `judge=`, `reward=`, `meta=`, `reflection=` or `gold=` chooses a model.
"""


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
                (_describe_pairs(name, tasks) for name in methods),
            ),
        ]
    )


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


def _describe_pairs(name: str, tasks: Mapping[str, type[TaskConfig]]) -> tuple[str, ...]:
    runs: dict[str, list[str]] = defaultdict(list)
    fails: dict[str, list[str]] = defaultdict(list)
    by = "lyria" if name == "laft" else name  # whose values a student is searched with
    for task_name, task in tasks.items():
        fit = find_fit(_usual(name), task, by, task_name)
        missing = describe(fit.lacking) if fit.lacking else fit.obstacle
        (fails[missing] if missing else runs[fit.regime]).append(code(task_name))
    by_reason = {code(regime): names for regime, names in runs.items()}, fails
    cells = ("; ".join(f"**{reason}**: {', '.join(names)}" for reason, names in one.items()) for one in by_reason)
    return code(name), *cells
