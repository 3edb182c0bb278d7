"""Budgets: the calls and tokens that a run may spend, and those that it has spent, by role.

A run's budget is divided evenly between its problems before the first call, so that no problem's share depends on how
fast the others were.
"""

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

import msgspec

from evorun.errors import ConfigError
from evorun.fields import Checked, NonNegativeInt, PositiveFloat, PositiveInt
from evorun.models.base import Reply, Wasted
from evorun.runs.prices import DOLLAR, Rates, price_calls

LIMITS = ("calls", "tokens", "price", "calls_per_problem", "tokens_per_problem", "price_per_problem")
"""Keys of `budget` that limit a run."""


@dataclass
class BudgetConfig(Checked):
    """Schema of `conf/budget/*.yaml`; null means no limit."""

    section = "budget"

    name: str = "unlimited"
    calls: PositiveInt | None = None
    """Model calls of the whole run, all roles together; divided evenly between the problems."""
    tokens: PositiveInt | None = None
    """Prompt plus completion tokens of the whole run; divided evenly between the problems."""
    price: PositiveFloat | None = None
    """Dollars of the whole run, by the prices of its models' tokens (`prices=FILE`); divided evenly between the
    problems."""
    calls_per_problem: PositiveInt | None = None
    """Model calls of each problem, all roles together."""
    tokens_per_problem: PositiveInt | None = None
    """Prompt plus completion tokens of each problem."""
    price_per_problem: PositiveFloat | None = None
    """Dollars of each problem, by the same prices."""
    generations: NonNegativeInt | None = None
    """Maximum generations, for methods that have any; the method's own limit holds where it is lower."""
    redistribute: bool = False
    """Divide calls that ended problems have left between those that still search (`redistribute_calls`)."""
    methods: dict[str, dict[str, Any]] = field(default_factory=dict)
    """Settings that a method takes under this budget, by method. They are composed beneath `method`."""

    @property
    def limited(self) -> bool:
        """True where there is any limit."""
        return any(getattr(self, key) is not None for key in LIMITS)

    @property
    def limits_price(self) -> bool:
        """True where the price is limited."""
        return self.price is not None or self.price_per_problem is not None


class Usage(msgspec.Struct):
    """Cost of a number of model calls."""

    calls: int = 0
    prompt_tokens: int = 0
    completion_tokens: int = 0
    seconds: float = 0.0
    wasted: dict[str, Wasted] = {}
    """Attempts that gave no answer, by kind; not among the calls and tokens."""
    refused: int = 0
    """Calls whose request the engine refused; among the calls."""
    cached_tokens: int = 0
    """Prompt tokens that the vendor had in its cache; among the prompt tokens."""
    tool_calls: int = 0
    """Calls of the task's tools, which are no model calls and have no limit."""

    @property
    def tokens(self) -> int:
        """Prompt plus completion tokens."""
        return self.prompt_tokens + self.completion_tokens

    def add(self, other: "Usage") -> None:
        """Add another usage to this one."""
        self.calls += other.calls
        self.prompt_tokens += other.prompt_tokens
        self.completion_tokens += other.completion_tokens
        self.seconds += other.seconds
        self.refused += other.refused
        self.cached_tokens += other.cached_tokens
        self.tool_calls += other.tool_calls
        self.add_wasted(other.wasted)

    def add_wasted(self, wasted: Mapping[str, Wasted]) -> None:
        """Add attempts that gave no answer."""
        for kind, attempts in wasted.items():
            self.wasted[kind] = self.wasted.get(kind, Wasted()) + attempts

    def counts(self) -> dict[str, int]:
        """Return calls and tokens by name, without times and failed attempts, which differ between repetitions."""
        return {
            "calls": self.calls,
            "prompt_tokens": self.prompt_tokens,
            "completion_tokens": self.completion_tokens,
            "cached_tokens": self.cached_tokens,
            "tool_calls": self.tool_calls,
        }


class Meter:
    """One problem's spending by role, and how many calls of a batch may still be made.

    Calls never exceed their limit. Tokens and their price are known only after the call, so a batch is cut to the calls
    that fit at the role's mean cost so far. A problem can overshoot these limits by the first batch of each role, and
    by what a batch costs above that mean. The overshoot is the same on every repetition.
    """

    def __init__(
        self,
        max_calls: int | None = None,
        max_tokens: int | None = None,
        parent: "Meter | None" = None,
        reserved: int = 0,
        max_price: int | None = None,
        rates: Rates | None = None,
    ) -> None:
        """Count against these limits (None: no limit) and against those of `parent`.

        reserved: calls to keep back; a limit on tokens or their price keeps back theirs, at the role's mean cost so
        far. max_price: in picodollars, by these rates.
        """
        self.max_calls = max_calls
        self.max_tokens = max_tokens
        self.max_price = max_price
        self.rates: Rates = rates or {}
        self.parent = parent
        self.reserved = reserved
        self.by_role: dict[str, Usage] = {}
        self.exhausted = False

    @property
    def total(self) -> Usage:
        """Spending of all roles together."""
        return sum_usages(self.by_role.values())

    @property
    def price(self) -> int:
        """Price of what was spent, in picodollars; 0 while no role with a price was called."""
        return price_calls(self.rates, dict(self.by_role)) or 0

    def mean_costs(self, roles: Sequence[str]) -> list[float]:
        """Return the mean cost of each role's calls so far: their price, or tokens where a price is unknown.

        0 for a role without a call.
        """
        made = [self.by_role.get(role, Usage()) for role in roles]
        prices = [price_calls(self.rates, {role: usage}) for role, usage in zip(roles, made, strict=True)]
        if None in prices:
            prices = [usage.tokens for usage in made]
        return [(price or 0) / max(1, usage.calls) for price, usage in zip(prices, made, strict=True)]

    @property
    def used(self) -> float:
        """The share of the limit that has been spent, in [0, 1]; 0 without a limit."""
        # a copy: the progress display reads this from its own thread
        spent = sum_usages(list(self.by_role.values()))
        spent_price = self.price if self.max_price is not None else 0
        shares = [
            min(amount / limit, 1.0) if limit else 1.0
            for amount, limit in (
                (spent.calls, self.max_calls),
                (spent.tokens, self.max_tokens),
                (spent_price, self.max_price),
            )
            if limit is not None
        ]
        return max(shares, default=0.0)

    def admit(self, calls: int, role: str = "") -> int:
        """Return how many of `calls` may be made now; fewer than all of them marks the meter as exhausted."""
        spent = self.total
        allowed = calls
        if self.max_calls is not None:
            allowed = max(0, min(calls, self.max_calls - spent.calls - self.reserved))
        made = self.by_role.get(role, Usage())
        if self.max_tokens is not None:
            allowed = min(allowed, self._fitting(self.max_tokens - spent.tokens, made.tokens, made.calls, allowed))
        if self.max_price is not None:
            of_role = price_calls(self.rates, {role: made}) or 0
            allowed = min(allowed, self._fitting(self.max_price - self.price, of_role, made.calls, allowed))
        if self.parent is not None:
            allowed = min(allowed, self.parent.admit(allowed, role))
        # a refusal by the parent counts too: the driver stops a problem by its own meter
        if allowed < calls:
            self.exhausted = True
        return allowed

    def _fitting(self, left: int, spent: int, made: int, wanted: int) -> int:
        """Return how many of the calls wanted fit into what is left, at the mean cost of those made."""
        if left <= 0:
            return 0
        if not spent:
            return wanted
        # rounded up: otherwise what is left for less than a mean call would never be spent; exact for any integers
        return max(0, -(-left * made // spent) - self.reserved)

    def calls_left_in_share(self, share: float, role: str) -> int | None:
        """Return the maximum number of further calls of a role that fit into a share of the limits.

        Those of `parent` where the meter has none itself. A limit on tokens or their price counts the role's mean cost
        per call so far; None while that is unknown. Raises ValueError for a meter without limits.
        """
        if self.parent is not None and (self.max_calls, self.max_tokens, self.max_price) == (None, None, None):
            return self.parent.calls_left_in_share(share, role)
        made = self.by_role.get(role, Usage())
        fitting = []
        if self.max_calls is not None:
            fitting.append(share * self.max_calls)
        if self.max_tokens is not None:
            if made.tokens == 0:
                return None
            fitting.append(share * self.max_tokens * made.calls / made.tokens)
        if self.max_price is not None:
            spent_price = price_calls(self.rates, {role: made}) or 0
            if spent_price == 0:
                return None
            fitting.append(share * self.max_price * made.calls / spent_price)
        return max(0, int(min(fitting)) - made.calls)

    def charge(self, role: str, reply: Reply) -> None:
        """Count one call."""
        usage = self.by_role.setdefault(role, Usage())
        usage.calls += 1
        usage.prompt_tokens += reply.prompt_tokens
        usage.completion_tokens += reply.completion_tokens
        usage.seconds += reply.seconds
        usage.refused += reply.error is not None
        usage.cached_tokens += reply.cached_tokens or 0
        usage.add_wasted(reply.wasted or {})
        if self.parent is not None:
            self.parent.charge(role, reply)

    def charge_tools(self, role: str, calls: int) -> None:
        """Count tool calls of a role's turns."""
        self.by_role.setdefault(role, Usage()).tool_calls += calls
        if self.parent is not None:
            self.parent.charge_tools(role, calls)

    @property
    def calls_left(self) -> int | None:
        """Calls that the limit, and that of `parent`, still allow; None without a limit on calls."""
        own = None if self.max_calls is None else max(0, self.max_calls - self.total.calls - self.reserved)
        of_parent = None if self.parent is None else self.parent.calls_left
        return min((left for left in (own, of_parent) if left is not None), default=None)

    def deduct(self, calls: int, tokens: int, price: int = 0) -> None:
        """Lower the limits by what was spent for this problem elsewhere; price: in picodollars."""
        if self.max_calls is not None:
            self.max_calls = max(0, self.max_calls - calls)
        if self.max_tokens is not None:
            self.max_tokens = max(0, self.max_tokens - tokens)
        if self.max_price is not None:
            self.max_price = max(0, self.max_price - price)

    def counts(self) -> dict[str, dict[str, int]]:
        """Return the counts by role, roles in alphabetical order."""
        return {role: usage.counts() for role, usage in sorted(self.by_role.items())}


def sum_usages(usages: Iterable[Usage]) -> Usage:
    """Return the sum of usages."""
    result = Usage()
    for usage in usages:
        result.add(usage)
    return result


def divide_budget(budget: BudgetConfig, problems: int, rates: Rates | None = None) -> list[Meter]:
    """Divide the run's budget evenly into one meter per problem; the first problems get the remainder.

    rates: the price of each call role, by which a limit on the price counts. Raises ConfigError when the budget leaves
    a problem with nothing.
    """
    # both limits may be given: the lower one holds for each problem
    limits: dict[str, list[int | None]] = {}
    for key in ("calls", "tokens", "price"):
        # a share of 0 would end the problem before its first call
        amount, per_problem = getattr(budget, key), getattr(budget, f"{key}_per_problem")
        if key == "price":
            amount, per_problem = _picodollars(amount), _picodollars(per_problem)
        if amount is not None and amount < problems:
            raise ConfigError(f"budget.{key}: expected at least one for each of the {problems} problems, got {amount}")
        shares = [None if amount is None else allot(amount, problems, index) for index in range(problems)]
        limits[key] = [
            min((limit for limit in (per_problem, own_share) if limit is not None), default=None)
            for own_share in shares
        ]
    return [
        Meter(calls, tokens, max_price=price, rates=rates)
        for calls, tokens, price in zip(limits["calls"], limits["tokens"], limits["price"], strict=True)
    ]


def _picodollars(dollars: float | None) -> int | None:
    return None if dollars is None else round(dollars * DOLLAR)


def make_run_meter(meters: Sequence[Meter], reserved: int = 0) -> Meter:
    """Return a meter for the run's spending on all problems together; `reserved` calls are kept back."""
    return Meter(
        _sum(meter.max_calls for meter in meters),
        _sum(meter.max_tokens for meter in meters),
        reserved=reserved,
        max_price=_sum(meter.max_price for meter in meters),
        rates=next((meter.rates for meter in meters), None),
    )


def redistribute_calls(ended: Iterable[Meter], searching: Sequence[Meter]) -> int:
    """Move the calls that ended problems have left to those that still search, evenly; return their number.

    The limits add up to the same sum before and after. Without a search that could use them, nothing moves.
    """
    givers = [meter for meter in ended if meter.calls_left] if searching else []
    moved = sum(meter.calls_left or 0 for meter in givers)
    for meter in givers:
        meter.deduct(meter.calls_left or 0, 0)
    for index, meter in enumerate(searching):
        if meter.max_calls is not None:
            meter.max_calls += allot(moved, len(searching), index)
    return moved


def allot_usage(usage: Usage, problems: int, index: int) -> Usage:
    """Return one problem's share of a usage that all problems have in common; the shares add up to it."""
    return Usage(
        calls=allot(usage.calls, problems, index),
        prompt_tokens=allot(usage.prompt_tokens, problems, index),
        completion_tokens=allot(usage.completion_tokens, problems, index),
        cached_tokens=allot(usage.cached_tokens, problems, index),
        tool_calls=allot(usage.tool_calls, problems, index),
    )


def allot(amount: int, problems: int, index: int) -> int:
    """Return one problem's share of an amount, as even as integers allow; the first problems get the remainder."""
    quotient, remainder = divmod(amount, problems)
    return quotient + (index < remainder)


def _sum(limits: Iterable[int | None]) -> int | None:
    known = list(limits)
    return None if None in known else sum(limit for limit in known if limit is not None)
