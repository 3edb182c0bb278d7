"""The reach of planned runs under a budget: a share of their calls, and the step in which it ends them."""

from collections.abc import Callable, Mapping, Sequence
from math import ceil
from typing import Any, Literal

from evorun.reports import text
from evorun.runner.call_counts import Part
from evorun.runner.estimates import AT_MOST, IN_ORDER, Steps, limit_calls
from evorun.runner.plan_records import PlannedRole, add_known
from evorun.runs.budget import LIMITS, BudgetConfig
from evorun.runs.spending import GOLD

PlanCalls = Callable[[Sequence[Part], float | None], list[PlannedRole]]
"""Returns the roles of one run from its calls and the last step that they reach."""
CountCalls = Callable[[Mapping[str, Any]], list[Part]]
"""Returns the calls of a run, of all its problems, from its composed configuration."""


def find_limit(budget: BudgetConfig, unit: Literal["price", "tokens"], problems: int) -> float | None:
    """Return the dollars or tokens that a budget lets a run spend; None where it limits none."""
    whole, each = getattr(budget, unit), getattr(budget, f"{unit}_per_problem")
    own = None if each is None else each * problems
    return min((limit for limit in (whole, own) if limit is not None), default=None)


def count_all_calls(raw: Mapping[str, Any], count_calls: CountCalls) -> float | None:
    """Return the calls of a run, of all its problems, that no budget ends; None for one that only a budget ends."""
    method = raw["method"]
    if any(method.get(key, 0) is None for key in ("samples", "rounds", "generations")):
        return None
    return _sum_calls(count_calls({**raw, "budget": raw["budget"] | dict.fromkeys(LIMITS)}))


def reach_step(method: str, steps: Steps | None, calls: float, every: float | None, problems: int) -> float | None:
    """Return the last step that these calls of a run reach, in fractions of a step; None where it is not known.

    every: the calls of a run that no budget ends.
    """
    if steps is None:
        return None
    if method in IN_ORDER or steps.planned is None:
        return steps.reach(calls / problems)
    return None if not every else steps.planned * min(calls / every, 1.0)


def describe_reach(
    raw: Mapping[str, Any],
    budget: BudgetConfig,
    problems: int,
    steps: Steps | None,
    plan_calls: PlanCalls,
    count_calls: CountCalls,
) -> str | None:
    """Say at which step, and after which share of the calls, a budget ends a run; None where it ends none.

    steps: of a method without steps None. Raises ConfigError for a method whose calls have no formula.
    """
    name, every = raw["method"]["name"], count_all_calls(raw, count_calls)
    lines = []
    limit = limit_calls(budget, problems)
    allowed = _sum_calls(count_calls(raw))
    if limit is not None and (every is None or allowed < every):
        key = "calls_per_problem" if limit == budget.calls_per_problem else "calls"
        said = f"{_name(budget, key)} {_say(name, steps, allowed, every, problems)}"
        lines.append(said + _warn_of_repeats(raw["method"], steps, allowed / problems))
    units: tuple[Literal["price", "tokens"], ...] = ("price", "tokens")
    for unit in units:
        most = find_limit(budget, unit, problems)
        if most is None:
            continue
        key = unit if getattr(budget, unit) == most else f"{unit}_per_problem"
        ends = []
        for expects in (False, True):
            affordable = _count_affordable(
                raw, problems, most, steps, every, plan_calls, count_calls, _COSTS[unit, expects]
            )
            if affordable is None:
                continue
            how = "as long as in earlier runs" if expects else "as long as their limit"
            said = "ends no run" if affordable >= allowed else _say(name, steps, affordable, every or allowed, problems)
            ends.append(f"{said}, where completions are {how}")
        if ends:
            further = "" if len(ends) > 1 else "; shorter ones reach further"
            lines.append(f"{_name(budget, key)} {'; it '.join(ends)}{further}")
    return "; ".join(lines) or None


def _warn_of_repeats(method: Mapping[str, Any], steps: Steps | None, calls: float) -> str:
    """Say how early a population whose repeats are drawn again may end, where all repeat; calls: per problem."""
    attempts: int = method.get("dedup_attempts") or 0
    if not attempts or "population" not in method or steps is None:
        return ""
    worst = ceil(steps.reach(calls / (1 + attempts)) - 1e-9)
    return (
        f", where no answer repeats: each repeat is drawn again, up to {attempts} times (method.dedup_attempts), and "
        f"where all do, it ends in {steps.unit} {worst:,}"
    )


def _name(budget: BudgetConfig, key: str) -> str:
    return f"budget.{key}={getattr(budget, key):g}" if "price" in key else f"budget.{key}={getattr(budget, key)}"


def _say(name: str, steps: Steps | None, calls: float, every: float | None, problems: int) -> str:
    """Say where a number of a run's calls ends it. every: all calls by its settings; None: it uses any budget up."""
    share = None if not every else f"after {text.percent(min(calls / every, 1.0))} of the calls of its settings"
    step = reach_step(name, steps, calls, every, problems)
    where = None
    if steps is not None and step is not None:
        of = "" if steps.planned is None else f" of {steps.planned:,}"
        reached = f"{steps.unit} {ceil(step - 1e-9):,}{of}"
        where = f"in {reached} or later" if name in AT_MOST else f"in about {reached}"
    return " ".join(filter(None, ["ends a run" if every else "is used up", ", ".join(filter(None, [where, share]))]))


_COSTS: Mapping[tuple[str, bool], Callable[[PlannedRole], float | None]] = {
    ("price", False): lambda role: role.price if role.billed else 0.0,
    ("price", True): lambda role: role.expected_price if role.billed else 0.0,
    ("tokens", False): lambda role: add_known([role.prompt_tokens, role.completion_tokens]),
    ("tokens", True): lambda role: add_known([role.prompt_tokens, role.expected_completion_tokens]),
}
"""The cost of a role's calls: of which kind, and whether completions have their expected length."""


def _count_affordable(
    raw: Mapping[str, Any],
    problems: int,
    most: float,
    steps: Steps | None,
    every: float | None,
    plan_calls: PlanCalls,
    count_calls: CountCalls,
    cost_of: Callable[[PlannedRole], float | None],
) -> float | None:
    """Return the calls of a run that cost at most this much, by bisection; None where the cost is unknown.

    every: the calls of a run that no budget ends.
    """

    def spend(limit: int) -> tuple[float, float | None]:
        parts = count_calls({**raw, "budget": raw["budget"] | {"calls_per_problem": limit}})
        calls = _sum_calls(parts)
        step = reach_step(raw["method"]["name"], steps, calls, every, problems)
        return calls, add_known([cost_of(role) for role in plan_calls(parts, step) if role.role != GOLD])

    low, high = 0, ceil(_sum_calls(count_calls(raw)) / problems)
    calls, cost = spend(high)
    if cost is None:
        return None
    if cost <= most:
        return calls
    reached = 0.0
    while high - low > 1:
        middle = (low + high) // 2
        calls, cost = spend(middle)
        if cost is not None and cost <= most:
            low, reached = middle, calls
        else:
            high = middle
    return reached


def _sum_calls(parts: Sequence[Part]) -> float:
    return sum(part.calls for part in parts if part.role != GOLD)
