"""The calls of a planned run by role, with their tokens and price."""

from collections import defaultdict
from collections.abc import Collection, Sequence, Set
from math import ceil
from typing import NamedTuple

from evorun.methods.learning.scheduler import ROLLOUT
from evorun.models.config import ServedModel
from evorun.rollouts.calls import GENERATOR
from evorun.runner import registry
from evorun.runner.call_counts import Part
from evorun.runner.estimates import limit_calls
from evorun.runner.plan_records import PlannedRole, PlannedTraining, Source, add_known
from evorun.runner.pricing import find_rates, name_answering_models, serve_calls
from evorun.runner.recorded import Recorded
from evorun.runner.settings import RunConfig
from evorun.runner.trials import Trial
from evorun.runs.prices import POLICY, Rates, TokenPrice, find_rate, price_calls, to_dollars
from evorun.runs.schema import Spent
from evorun.runs.spending import GOLD, TRAINING

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
    return sorted(declared - {role_calls.role for role_calls in calls})


def add_reward_calls(
    config: RunConfig, calls: Sequence[RoleCalls], trial: Trial | None, problems: int
) -> list[RoleCalls]:
    """Return the calls with those of a plug-in's reward or method: as many for each rollout as in a trial.

    A limit on calls bounds all of them together. What the trial did not ask for stays out: see `find_uncounted`.
    """
    rollouts = next((role_calls.calls for role_calls in calls if role_calls.role == ROLLOUT), 0)
    played = trial.cost[ROLLOUT].calls if trial is not None and ROLLOUT in trial.cost else 0
    if trial is None or not played:
        return list(calls)
    further: Collection[str] = find_uncounted(config, calls)
    if registry.parent_method(type(config.method)) is not None:  # a formula counts what evorun's own method asks for
        further = trial.cost.keys() - {GOLD, *(role_calls.role for role_calls in calls)}
    own = [role for role in sorted(further) if role in trial.cost and trial.cost[role].calls]
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
    share = min(1.0, limit * problems / sum(role_calls.calls for role_calls in found if role_calls.role != GOLD))
    return [
        role_calls if role_calls.role == GOLD else role_calls._replace(calls=role_calls.calls * share)
        for role_calls in found
    ]


def plan_roles(
    config: RunConfig,
    calls: Sequence[RoleCalls],
    runs: int,
    trial: Trial | None,
    recorded: Recorded,
    problems: int,
    last_step: float | None = None,
) -> list[PlannedRole]:
    """Return the calls of an arm's runs together, with prompts as in earlier runs of the same settings or in a trial.

    last_step: the last one that these calls reach, in fractions of a step; None where nobody knows it.
    """
    served, rates, names = serve_calls(config), find_rates(config), name_answering_models(config)
    named = {role_calls.role for role_calls in calls}
    planned = []
    for asked in calls:
        role, number = asked.role, round(asked.calls * runs)
        if not number:
            continue
        answering, rate = served.get(role, served[POLICY]), find_rate(rates, role)
        of_method = config.method.name, config.task.name, config.model.identity, role
        earlier, alike = recorded.per_call(*of_method), recorded.per_call(*of_method, config.raw)
        prompt, prompt_by = _find_prompt(trial, role, named, asked.calls / problems, last_step)
        if alike is not None:
            prompt, prompt_by = alike.prompt, "recorded"
        prompt_tokens = None if prompt is None else round(prompt * number)
        cached = None if alike is None else round(alike.cached * number)
        most = round(asked.max_tokens * number)
        expected = None if earlier is None else min(round(earlier.completion * number), most)
        price = expected_price = None
        if isinstance(rate, TokenPrice) and prompt_tokens is not None:
            price = _price(role, rate, Spent(number, prompt_tokens, most, cached or 0))
            if expected is not None:
                expected_price = _price(role, rate, Spent(number, prompt_tokens, expected, cached or 0))
        planned.append(
            PlannedRole(
                role=role,
                model_role=_find_model_role(config, role),
                model=_name_model(answering, names.get(role) if role in config.generators else None),
                calls=number,
                calls_by=asked.by,
                prompt_tokens=prompt_tokens,
                prompt_by=prompt_by,
                cached_tokens=cached,
                completion_tokens=most,
                expected_completion_tokens=expected,
                price=price,
                expected_price=expected_price,
                billed=rate is not None,
            )
        )
    return planned


def plan_training(
    config: RunConfig, roles: Sequence[PlannedRole], rates: Rates, runs: int, tuned_tokens: float | None
) -> PlannedTraining | None:
    """Return the updates that a vendor bills: a pass on each rollout and its prompt; None where no vendor trains.

    No vendor trains a simulated policy, nor the random model. tuned_tokens: of a fine-tuning, which has no rollouts.
    """
    if config.engine.simulated or config.training is None or config.training.backend != "tinker":
        return None
    rollouts = [role for role in roles if role.role == ROLLOUT]
    prompts = add_known([role.prompt_tokens for role in rollouts] or [None])
    longest, expected = (
        None if prompts is None or completions is None else prompts + completions
        for completions in (
            add_known([role.completion_tokens for role in rollouts]),
            add_known([role.expected_completion_tokens for role in rollouts]),
        )
    )
    if tuned_tokens is not None:
        longest = expected = ceil(runs * tuned_tokens)
    rate = find_rate(rates, TRAINING)
    # the base model scores each rollout for the divergence from it
    scores = config.raw["method"].get("kl", 0) > 0

    def price(tokens: int | None) -> float | None:
        if not isinstance(rate, TokenPrice) or tokens is None:
            return None
        return to_dollars(rate.of_training(tokens, tokens if scores else 0))

    return PlannedTraining(
        model=config.model.name, trained_tokens=longest, price=price(longest), expected_price=price(expected)
    )


def _find_model_role(config: RunConfig, role: str) -> str:
    """Return the model role that answers a call role; the reference policy counts as the policy."""
    if role == GOLD or role in config.panel:
        return role.partition(".")[0]
    if role in config.generators:
        return GENERATOR
    played = config.method.active_roles.get(role)
    return POLICY if played is None or played.model == "reference" else played.model


def _name_model(served: ServedModel, own_name: str | None) -> str:
    """Return the name of the model that answers a role. own_name: that of one among several generators."""
    if not served.engine.simulated:
        return own_name or served.model.name
    return f"simulated {own_name}" if own_name else "simulated"


def _limit_tokens(trial: Trial, role: str) -> float:
    return trial.max_tokens.get(role, UNSTATED_TOKENS)


def _price(role: str, rate: TokenPrice, spent: Spent) -> float | None:
    return to_dollars(price_calls({role: rate}, {role: spent}))


def _find_prompt(
    trial: Trial | None, role: str, named: Set[str], calls: float, last_step: float | None
) -> tuple[float | None, Source]:
    """Return the mean prompt tokens of a role's calls, extrapolated from a trial by step.

    A role of a formula stands for the trial's roles that the formula does not name, if the trial has no other for them.
    named: the roles of the formula. calls: of the role, per problem.
    """
    if trial is None:
        return None, "unknown"
    unnamed = [role for role in trial.by_step if role not in named and role != GOLD]
    first = next((role for role in trial.by_step if role in named), None)
    stands_for_all = role not in trial.by_step or (named <= trial.by_step.keys() and role == first)
    roles = ([role] if role in trial.by_step else []) + (unnamed if stands_for_all else [])
    mean = extrapolate_prompt(trial, roles or list(trial.by_step), calls, last_step)
    return (None, "unknown") if mean is None else (mean, "trial")


LATE_SHARE = 0.75
"""Share of a trial's steps after which prompts are taken to have their final length (ours)."""


def extrapolate_prompt(trial: Trial, roles: Sequence[str], calls: float, last_step: float | None) -> float | None:
    """Return the mean prompt tokens of roles: the first steps' as in a trial, those of later ones as in its last ones.

    Roles that a trial asks in few of its steps, such as evaluations, have as many late calls as are left of theirs.
    """
    found = [(step, asked) for role in roles for step, asked in trial.by_step[role].items()]
    if not found:
        return None
    ended = max(step for step, _ in found)
    until = ended if last_step is None else last_step * max(1.0, ended / max(trial.last_step, 1))
    late_from = min(step for step, _ in found if step > LATE_SHARE * ended or step == ended)
    early = [asked for step, asked in found if step < late_from and step <= until]
    late = [asked for step, asked in found if step >= late_from]
    early_calls, late_calls = (sum(asked.calls for asked in part) for part in (early, late))
    if 2 * len({step for step, _ in found}) <= ended:
        weight = max(calls * trial.problems - early_calls, 0.0)
    else:
        weight = late_calls * max(until + 1 - late_from, 0.0) / (ended + 1 - late_from)
    if not early_calls + weight:
        weight = late_calls
    late_mean = sum(asked.prompt_tokens for asked in late) / late_calls
    return (sum(asked.prompt_tokens for asked in early) + weight * late_mean) / (early_calls + weight)
