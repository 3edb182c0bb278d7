"""The calls of a planned run by role, with their tokens and price."""

from collections import defaultdict
from collections.abc import Sequence
from typing import NamedTuple

from evorun.methods.learning.scheduler import ROLLOUT
from evorun.runner.estimates import Part, limit_calls
from evorun.runner.plan_records import PlannedRole, Source
from evorun.runner.pricing import find_rates, serve_calls
from evorun.runner.recorded import Recorded
from evorun.runner.settings import RunConfig
from evorun.runner.trials import Trial
from evorun.runs.prices import POLICY, TokenPrice, find_rate, price_calls, to_dollars
from evorun.runs.schema import Spent
from evorun.runs.spending import GOLD

UNSTATED_TOKENS = 1024
"""Completion tokens of a call whose method states no limit (ours)."""


class RoleCalls(NamedTuple):
    """Calls of a role in one run."""

    role: str
    calls: float
    max_tokens: float
    """Limit on the completion tokens of a call."""
    by: Source


def count_by_formula(parts: Sequence[Part]) -> list[RoleCalls]:
    """Return the calls of a formula's parts by role."""
    calls, tokens = defaultdict[str, float](float), defaultdict[str, float](float)
    for part in parts:
        calls[part.role] += part.calls
        tokens[part.role] += part.calls * part.max_tokens
    return [RoleCalls(role, number, tokens[role] / number, "formula") for role, number in calls.items() if number]


def count_by_trial(trial: Trial, problems: int) -> list[RoleCalls]:
    """Return the calls of a trial by role, scaled to a run's problems."""
    return [
        RoleCalls(role, spent.calls * problems / trial.problems, _limit_tokens(trial, role), "trial")
        for role, spent in trial.cost.items()
        if spent.calls
    ]


def find_uncounted(config: RunConfig, calls: Sequence[RoleCalls]) -> list[str]:
    """Return the roles in which a plug-in's reward may ask a model, and that are not among the calls."""
    if config.method.reward_source is None:
        return []
    declared = config.method.active_roles.keys() - config.method.roles.keys()
    return sorted(declared - {one.role for one in calls})


def add_reward_calls(
    config: RunConfig, calls: Sequence[RoleCalls], trial: Trial | None, problems: int
) -> list[RoleCalls]:
    """Return the calls with those of a plug-in's reward: as many for each rollout as in a trial.

    A limit on calls bounds all of them together. What the trial did not ask for stays out: see `find_uncounted`.
    """
    rollouts = next((one.calls for one in calls if one.role == ROLLOUT), 0)
    played = trial.cost[ROLLOUT].calls if trial is not None and ROLLOUT in trial.cost else 0
    if trial is None or not played:
        return list(calls)
    own = [role for role in find_uncounted(config, calls) if role in trial.cost and trial.cost[role].calls]
    found = [
        *calls,
        *(
            RoleCalls(role, rollouts * trial.cost[role].calls / played, _limit_tokens(trial, role), "trial")
            for role in own
        ),
    ]
    limit = limit_calls(config.budget, problems)
    if not own or limit is None:
        return found
    share = min(1.0, limit * problems / sum(one.calls for one in found if one.role != GOLD))
    return [one if one.role == GOLD else one._replace(calls=one.calls * share) for one in found]


def plan_roles(
    config: RunConfig, calls: Sequence[RoleCalls], runs: int, trial: Trial | None, recorded: Recorded
) -> list[PlannedRole]:
    """Return the calls of an arm's runs together, with tokens as in earlier runs, else in a trial or at their limit."""
    served, rates = serve_calls(config), find_rates(config)
    planned = []
    for asked in calls:
        role, number = asked.role, round(asked.calls * runs)
        if not number:
            continue
        answering, rate = served.get(role, served[POLICY]), find_rate(rates, role)
        earlier = recorded.per_call(config.method.name, config.task.name, config.model.identity, role)
        prompt, prompt_by = _find_prompt(trial, role)
        if earlier is not None:
            prompt, prompt_by = earlier.prompt, "recorded"
        prompt_tokens = None if prompt is None else round(prompt * number)
        cached = None if earlier is None else round(earlier.cached * number)
        completion = round((earlier.completion if earlier else asked.max_tokens) * number)
        price = None
        if isinstance(rate, TokenPrice) and prompt_tokens is not None:
            spent = {role: Spent(number, prompt_tokens, completion, cached or 0)}
            price = to_dollars(price_calls({role: rate}, spent))
        planned.append(
            PlannedRole(
                role=role,
                model_role=_find_model_role(config, role),
                model="simulated" if answering.engine.simulated else answering.model.name,
                calls=number,
                calls_by=asked.by,
                prompt_tokens=prompt_tokens,
                prompt_by=prompt_by,
                cached_tokens=cached,
                completion_tokens=completion,
                completion_by="recorded" if earlier else "limit",
                price=price,
                billed=rate is not None,
            )
        )
    return planned


def _find_model_role(config: RunConfig, role: str) -> str:
    """Return the model role that answers a call role; the reference policy counts as the policy."""
    if role == GOLD or role in config.panel:
        return role.partition(".")[0]
    played = config.method.active_roles.get(role)
    return POLICY if played is None or played.model == "reference" else played.model


def _limit_tokens(trial: Trial, role: str) -> float:
    return trial.max_tokens.get(role, UNSTATED_TOKENS)


def _find_prompt(trial: Trial | None, role: str) -> tuple[float | None, Source]:
    """Return the mean prompt tokens of a role in a trial, of one that it does not name those of all roles."""
    if trial is None:
        return None, "unknown"
    cost = [trial.cost[role]] if role in trial.cost else list(trial.cost.values())
    calls = sum(spent.calls for spent in cost)
    return (sum(spent.prompt_tokens for spent in cost) / calls, "trial") if calls else (None, "unknown")
