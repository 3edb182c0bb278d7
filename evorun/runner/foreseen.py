"""Warnings before a run: of what it will not reach (evolution, a refined rubric), and of settings without effect.

They read the typed settings that the run obeys, so that they hold however these were made.
"""

from dataclasses import asdict

from evorun.reports import text
from evorun.reports.facts import (
    UNUSED,
    count_first_generation,
    explain_unused_calls,
    find_step_size,
    name_first_generation,
)
from evorun.runner.served import find_unfit_skill, role_warnings
from evorun.runner.settings import RunConfig
from evorun.runner.training_runs import grades_own_reward, trains_too_little
from evorun.tasks.base import LoadedTask, TaskConfig


def predict_unevolved(config: RunConfig, calls: int | None) -> str | None:
    """Say that a budget ends before the first step of evolution, or before its children have a duel.

    None where it does not, or nobody knows. calls: the budget's per problem; None without a limit.
    """
    method, turns = config.method, _count_turns(config)
    settings = {} if method.config is None else asdict(method.config)
    needed = count_first_generation(settings, turns, config.judges)
    if needed is None or calls is None or settings.get("generations", 0) == 0:
        return None
    if calls <= needed:
        return (
            f"method={method.name} may never leave generation 0, which takes up to {text.count(needed)} calls per "
            f"problem: the budget has {text.count(calls)}; raise it, or lower {name_first_generation(settings, turns)}."
        )
    children, orders = settings.get("children"), settings.get("orders")
    if children is None or orders is None or not settings.get("duels"):
        return None
    needed += children * turns
    duel = orders * config.judges
    if calls >= needed + duel:
        return None
    return (
        f"method={method.name} may never judge a child, so that none can become the answer: generation 0 and the "
        f"children of generation 1 take up to {text.count(needed)} calls per problem"
        f"{f', with {turns} turns for each answer' if turns > 1 else ''}, and a duel {duel}: the budget has "
        f"{text.count(calls)}."
    )


def predict_unused_calls(config: RunConfig, calls: int | None) -> str | None:
    """Say how many calls a method leaves that takes whole steps only, where they are many; None where they are few.

    calls: the budget's per problem; None without a limit.
    """
    size = find_step_size({} if config.method.config is None else asdict(config.method.config))
    if size is None or calls is None:
        return None
    turns = _count_turns(config)
    first: int = asdict(config.method.config)["population"]
    left = max(0, calls - first) % size.responses if turns == 1 else min(size.responses * turns - 1, calls - first)
    if left <= UNUSED * calls:
        return None
    how = "leaves" if turns == 1 else "may leave up to"
    return (
        f"method={config.method.name} {how} {text.count(left)} of {text.count(calls)} calls per problem: "
        f"{explain_unused_calls(size, turns)}."
    )


def _count_turns(config: RunConfig) -> int:
    turns: int = getattr(config.task, "max_turns", 1)
    return turns


def describe_short_task(task: TaskConfig, problems: int | None) -> str | None:
    """Say that a task has fewer problems than its limit; None where it has not, or no limit, or nobody knows."""
    limit: int | None = getattr(task, "limit", None)
    if limit is None or problems is None or problems >= limit:
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


def list_unreached(config: RunConfig, problems: int | None, calls: int | None) -> list[str]:
    """Return the warnings of what a run will not reach.

    problems: their number; None where nobody knows. calls: the budget's per problem; None without a limit.
    """
    lines = (
        predict_unevolved(config, calls),
        predict_unused_calls(config, calls),
        describe_short_task(config.task, problems),
        never_refines(config),
    )
    return [line for line in lines if line is not None]


def list_settings_warnings(config: RunConfig, loaded: LoadedTask | None, calls: int | None) -> list[str]:
    """Return all warnings of a run that its settings and its data alone decide, so that they can precede a sweep.

    loaded: the task's data; None where another machine has it, which leaves out what needs it. calls: as above.
    """
    lines = list(config.method.warnings(calls, config.judges))
    lines += list_unreached(config, None if loaded is None else len(loaded.problems), calls)
    lines += role_warnings(config.others, config.method, config.task)
    lines += [*grades_own_reward(config), *trains_too_little(config)]
    if loaded is not None:
        unfit = find_unfit_skill(config.engine, config.model, config.method, loaded)
        lines += [] if unfit is None else [unfit]
    return lines
