"""Warnings of what a run will not reach: evolution, a refined rubric, or the number of problems that was set.

They read the typed settings that the run obeys, so that they hold however these were made.
"""

from dataclasses import asdict

from evorun.methods.base import Method
from evorun.reports import text
from evorun.reports.facts import count_first_generation
from evorun.runner.settings import RunConfig
from evorun.tasks.base import TaskConfig


def predict_unevolved(method: Method, calls: int | None) -> str | None:
    """Say that a budget ends before the first step of evolution; None where it does not, or nobody knows.

    calls: the budget's per problem; None without a limit.
    """
    settings = {} if method.config is None else asdict(method.config)
    needed = count_first_generation(settings)
    if needed is None or calls is None or calls > needed or settings.get("generations", 0) == 0:
        return None
    return (
        f"method={method.name} may never leave generation 0, which takes up to {text.count(needed)} calls per "
        f"problem: the budget has {text.count(calls)}."
    )


def describe_short_task(task: TaskConfig, problems: int) -> str | None:
    """Say that a task has fewer problems than its limit; None where it has not, or no limit."""
    limit: int | None = getattr(task, "limit", None)
    if limit is None or problems >= limit:
        return None
    return f"task.limit={limit}: task={task.name} has {problems:,} problems with these settings, and all are used"


def never_refines(config: RunConfig) -> str | None:
    """Say that the training ends before any batch would be scored by a refined rubric; None where it does not."""
    last, settings = config.method.last_step, config.method.rubric_settings
    first = None if settings is None else settings.first_refinement
    if config.training is None or last is None or first is None:
        return None
    needed = first + 1 + config.training.max_lag
    if last >= needed:
        return None
    return (
        f"method.steps={last}: no rubric is refined, since the first refinement follows step {first} "
        f"and rewards from step {needed} on; set method.steps={needed} or more, or a smaller method.refine_every"
    )


def list_unreached(config: RunConfig, problems: int, calls: int | None) -> list[str]:
    """Return all these warnings of a run. calls: the budget's per problem; None without a limit."""
    lines = (
        predict_unevolved(config.method, calls),
        describe_short_task(config.task, problems),
        never_refines(config),
    )
    return [line for line in lines if line is not None]
