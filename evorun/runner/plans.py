"""Plans: what runs will cost and could show, before any is paid for."""

import contextlib
from collections import defaultdict
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

from evorun.errors import ConfigError, DataError
from evorun.models.config import ModelConfig, ServedModel
from evorun.reports.facts import count_first_generation
from evorun.runner.estimates import Part, count_calls, count_problems, limit_calls
from evorun.runner.memory import estimate_memory
from evorun.runner.plan_records import Plan, PlannedArm, PlannedMemory, PlannedRole, Source, add_known
from evorun.runner.pricing import find_rates
from evorun.runner.recorded import Recorded, read_recorded
from evorun.runner.settings import RunConfig, check
from evorun.runner.trials import Trial, try_out
from evorun.runs.prices import UNKNOWN, Rate, TokenPrice, find_rate, oldest_date, price_calls, to_dollars
from evorun.runs.schema import Spent
from evorun.runs.scores import Score
from evorun.runs.spending import GOLD
from evorun.runs.statistics import Spread, smallest_difference, worst_spread

UNSTATED_TOKENS = 1024
"""Completion tokens of a call whose method states no limit (ours)."""


def make_plan(configs: Sequence[Mapping[str, Any]], outputs: Path) -> Plan:
    """Plan runs by their composed configurations; outputs: the folder of earlier runs. Raises ConfigError."""
    recorded = read_recorded(outputs)
    by_arm = _group_by_arm(configs)
    notes: dict[str, None] = {}
    trials: dict[str, Trial | None] = {}
    checked = [check(members[0]) for members in by_arm]
    for one in checked:
        _require_weights(one)
    arms = [_plan_arm(one, members, recorded, notes, trials) for one, members in zip(checked, by_arm, strict=True)]
    if any(config.student is not None for config in checked):
        notes["The stages that make students (teacher, traces, fine-tuning) are left out."] = None
    roles = [role for arm in arms for role in arm.roles]
    unknown = sorted({role.model for role in roles if role.billed and role.calls and role.price is None})
    billed = [arm for arm in arms if arm.billed]
    oldest = min((day for one in checked if (day := oldest_date(find_rates(one))) is not None), default=None)
    return Plan(
        runs=len(configs),
        calls=sum(arm.calls for arm in arms),
        prompt_tokens=add_known([role.prompt_tokens for role in roles]),
        cached_tokens=add_known([role.cached_tokens for role in roles]),
        completion_tokens=sum(arm.completion_tokens for arm in arms),
        price=None if unknown else add_known([arm.price for arm in billed] or [None]),
        price_unknown=unknown,
        price_date=None if oldest is None else oldest.isoformat(),
        hours=add_known([arm.hours for arm in arms]),
        arms=arms,
        memory=_plan_memory(checked),
        notes=list(notes),
    )


def _group_by_arm(configs: Sequence[Mapping[str, Any]]) -> list[list[Mapping[str, Any]]]:
    """Return the configurations that differ in their seed alone together."""
    by_arm: dict[str, list[Mapping[str, Any]]] = defaultdict(list)
    for config in configs:
        by_arm[repr({key: value for key, value in config.items() if key != "seed"})].append(config)
    return list(by_arm.values())


def _require_weights(config: RunConfig) -> None:
    """Raise ConfigError for a model behind an API on an engine that loads weights: its price would seem to be none."""
    own = {"": ServedModel(config.model, config.engine)}
    for role, (model, engine) in {**own, **config.others}.items():
        if model.api and not engine.billed and engine.renders_prompts(model, trains=False):
            role = role.partition(".")[0]  # of a panel's judges
            key = f"{role}_engine" if role else "engine"
            raise ConfigError(
                f"{role or 'model'}={model.name}: a vendor serves it, and has not published weights that {key}="
                f"{engine.name} could load; did you mean {key}=openai or {key}=server?"
            )


def _plan_arm(
    config: RunConfig,
    members: Sequence[Mapping[str, Any]],
    recorded: Recorded,
    notes: dict[str, None],
    trials: dict[str, Trial | None],
) -> PlannedArm:
    raw, runs = members[0], len(members)
    problems = _count_problems(config)
    counted: list[Part] | None = None
    if not config.panel:  # the formulas count one judge
        with contextlib.suppress(ConfigError):
            counted = count_calls({**raw, "task": {**raw["task"], "limit": problems}})
    # simulated models are alike, whatever model they stand for, and seeds hardly differ
    alike = repr({key: value for key, value in raw.items() if key not in ("seed", "model", "engine")})
    if alike not in trials:
        trials[alike] = try_out(raw, problems, short=counted is not None)
    trial = trials[alike]
    if counted is not None:
        roles = _merge_parts(config, counted, trial, recorded, runs)
    elif trial is not None:
        max_tokens = raw["method"].get("max_tokens") or UNSTATED_TOKENS
        roles = _scale_trial(config, trial, problems, recorded, runs, max_tokens)
    else:
        raise ConfigError(
            f"method={config.method.name}: expected calls with a formula (docs/guides/costs.md), or a small run on "
            "simulated models, which cannot begin here; evorun doctor says what is missing"
        )
    if (never := _describe_unevolved(config, problems)) is not None:
        notes[never] = None
    if config.budget.limits_price:
        notes["budget.price ends runs earlier where the plan says more."] = None
    if trial is not None and trial.sample and any(role.prompt_by == "trial" for role in roles):
        notes[f"Prompts of {config.task.name} are those of evorun's sample: its data is not on this machine."] = None
    source, asked = config.method.reward_source, config.method.active_roles.keys() - config.method.roles.keys()
    if source is not None and (uncounted := asked - {role.role for role in roles}):
        notes[f"Calls of method.reward_source={source} are not in the plan ({', '.join(sorted(uncounted))})."] = None
    hours, hours_note = _plan_hours(config, roles, recorded)
    difference, difference_note = _plan_difference(config, problems, runs, recorded)
    score = config.task.task_class.scores[0]
    return PlannedArm(
        method=config.method.name,
        task=config.task.name,
        model=config.model.name,
        engine=config.engine.name,
        runs=runs,
        problems=problems,
        roles=roles,
        hours=hours,
        hours_note=hours_note,
        smallest_difference=difference,
        difference_note=difference_note,
        score=score.name,
        rate=score.rate,
    )


def _count_problems(config: RunConfig) -> int:
    try:
        return len(config.task.load().problems)
    except DataError:  # not on this machine: the number that the configuration states
        return count_problems(config.raw["task"])[1]


def _describe_unevolved(config: RunConfig, problems: int) -> str | None:
    """Say that a budget of calls ends before the first step of evolution; None where it does not, or nobody knows."""
    settings = config.raw["method"]
    needed = count_first_generation(settings)
    limit = limit_calls(config.budget, problems)
    if needed is None or limit is None or limit > needed or settings.get("generations", 0) == 0:
        return None
    return (
        f"method={config.method.name} may never leave generation 0, which takes up to {needed:,} calls per problem: "
        f"the budget has {limit:,}."
    )


def list_shortfalls(
    configs: Sequence[Mapping[str, Any]], outputs: Path, seeds: int, smallest_effect: float
) -> list[str]:
    """Return a line for each reason why a study's runs may not answer its question; configs: one or more of each arm.

    outputs: see `make_plan`. Raises ConfigError.
    """
    recorded, lines = read_recorded(outputs), dict[str, None]()
    for members in _group_by_arm(configs):
        config = check(members[0])
        problems = _count_problems(config)
        difference, _ = _plan_difference(config, problems, seeds, recorded)
        if (never := _describe_unevolved(config, problems)) is not None:
            lines[never] = None
        if difference is not None and difference > smallest_effect:
            rate = config.task.task_class.scores[0].rate
            effect = f"{100 * smallest_effect:.1f} points" if rate else f"{smallest_effect:.3g}"
            shown = f"about {100 * difference:.1f} points" if rate else f"about {difference:.3g}"
            lines[
                f"The smallest effect of interest ({effect}) is less than what {problems:,} problems can show "
                f"({'not even 100 points' if rate and difference > 1 else shown}; evorun plan says by which "
                "assumptions). Expect an open answer, or give more problems."
            ] = None
    return list(lines)


def _merge_parts(
    config: RunConfig,
    parts: Sequence[Part],
    trial: Trial | None,
    recorded: Recorded,
    runs: int,
) -> list[PlannedRole]:
    """Return the roles whose calls have a formula."""
    calls, limits = defaultdict[str, float](float), defaultdict[str, float](float)
    models: dict[str, str] = {}
    for part in parts:
        calls[part.role] += part.calls
        limits[part.role] += part.calls * part.max_tokens
        models[part.role] = part.model
    served = {one.model.name: one for one in _list_served(config)}
    rates = find_rates(config)
    planned = []
    for role, number in calls.items():
        if not number:
            continue
        model = served.get(models[role])
        rate: Rate = None
        if model is not None and model.engine.billed:
            rate = config.prices.models.get(model.model.id, UNKNOWN)
        elif model is None:
            rate = find_rate(rates, role)
        limit = limits[role] / number
        planned.append(
            _plan_role(config, role, models[role], rate, round(number * runs), limit, "formula", trial, recorded)
        )
    return planned


def _scale_trial(
    config: RunConfig, trial: Trial, problems: int, recorded: Recorded, runs: int, limit: int
) -> list[PlannedRole]:
    """Return the roles of a trial, scaled by problems; limit: completion tokens of a call."""
    rates, scale = find_rates(config), runs * problems / trial.problems
    planned = []
    for role, spent in trial.cost.items():
        rate, calls = find_rate(rates, role), round(spent.calls * scale)
        planned.append(_plan_role(config, role, config.model.name, rate, calls, limit, "trial", trial, recorded))
    return planned


def _plan_role(
    config: RunConfig,
    role: str,
    model: str,
    rate: Rate,
    calls: int,
    max_tokens: float,
    calls_by: Source,
    trial: Trial | None,
    recorded: Recorded,
) -> PlannedRole:
    earlier = recorded.per_call(config.method.name, config.task.name, config.model.identity, role)
    prompt, prompt_by = _prompt_of(trial, role)
    if earlier is not None:
        prompt, prompt_by = earlier.prompt, "recorded"
    prompt_tokens = None if prompt is None else round(prompt * calls)
    cached = None if earlier is None else round(earlier.cached * calls)
    completion = round((earlier.completion if earlier else max_tokens) * calls)
    price = None
    if isinstance(rate, TokenPrice) and prompt_tokens is not None:
        spent = {role: Spent(calls, prompt_tokens, completion, cached or 0)}
        price = to_dollars(price_calls({role: rate}, spent))
    return PlannedRole(
        role=role,
        model=model,
        calls=calls,
        calls_by=calls_by,
        prompt_tokens=prompt_tokens,
        prompt_by=prompt_by,
        cached_tokens=cached,
        completion_tokens=completion,
        completion_by="recorded" if earlier else "limit",
        price=price,
        billed=rate is not None,
    )


def _prompt_of(trial: Trial | None, role: str) -> tuple[float | None, Source]:
    """Return the mean prompt tokens of a role in a trial, of one that it does not name those of all roles."""
    if trial is None:
        return None, "unknown"
    cost = [trial.cost[role]] if role in trial.cost else list(trial.cost.values())
    calls = sum(spent.calls for spent in cost)
    return (sum(spent.prompt_tokens for spent in cost) / calls, "trial") if calls else (None, "unknown")


def _list_served(config: RunConfig) -> list[ServedModel]:
    return [*config.others.values(), ServedModel(config.model, config.engine)]


def _plan_hours(config: RunConfig, roles: Sequence[PlannedRole], recorded: Recorded) -> tuple[float | None, str]:
    """Return the hours of an arm's runs, one after another, and their source."""
    speed = recorded.speed(config.engine.name, config.model.identity)
    about = f"{config.model.name} on engine={config.engine.name}"
    if speed is None:
        return None, f"no run of {about} is recorded"
    tokens = sum(role.completion_tokens for role in roles if role.role != GOLD)
    return tokens / speed[0] / 3600, f"{speed[0]:,.0f} completion tokens/s, as in {speed[1]} runs of {about}"


def _plan_difference(config: RunConfig, problems: int, seeds: int, recorded: Recorded) -> tuple[float | None, str]:
    """Return the smallest difference of an arm to another on the same problems and seeds, and what it assumes."""
    score = config.task.task_class.scores[0]
    spread, note = _find_spread(score, config, recorded)
    if spread is None:
        return None, note
    if seeds > 1:
        note += "; seeds are taken to agree on each problem, and where they do not, it can be larger"
    return smallest_difference(spread, problems, seeds), note


def _find_spread(score: Score, config: RunConfig, recorded: Recorded) -> tuple[Spread | None, str]:
    task = config.task.name
    earlier = recorded.score(task, simulated=config.engine.simulated)
    if earlier is not None:
        metric, about = earlier
        if score.rate and metric.value is not None:
            return worst_spread(mean=metric.value), f"from {about}: {100 * metric.value:.1f} % of {metric.n} problems"
        if metric.ci95 is not None:
            variance = ((metric.ci95[1] - metric.ci95[0]) / (2 * 1.96)) ** 2 * metric.n
            return Spread(problem=2 * variance), f"from the interval of {about} over {metric.n} problems"
    if score.low is None or score.high is None:
        return None, f"{score.name} has no bounds, and no run on {task} is recorded"
    widest = "p (1 - p) at p = 1/2" if score.rate else f"scores at {score.low:g} and {score.high:g} alone"
    return worst_spread(score.low, score.high), f"largest spread over problems, {widest}: no run on {task} is recorded"


def _plan_memory(configs: Sequence[RunConfig]) -> list[PlannedMemory]:
    local: dict[str, ModelConfig] = {
        one.model.name: one.model
        for config in configs
        for one in _list_served(config)
        if not (one.engine.billed or one.engine.simulated or one.engine.replays or one.model.random)
    }
    return [estimate_memory(model) for model in local.values()]
