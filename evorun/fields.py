"""Types of configuration values that state their bounds, and the base of settings that are checked against them.

A field's type is the place of its bounds: `steps: PositiveInt`, `share: Annotated[float, Meta(ge=0, lt=1)]`. The
functions check values whose bounds depend on other values.
"""

import math
from collections.abc import Collection, Iterator
from dataclasses import dataclass, fields
from functools import cache, wraps
from typing import Annotated, Any, ClassVar, get_args, get_origin, get_type_hints

from msgspec import Meta

from evorun.errors import ConfigError

FROM_TASK = "from_task"
"""Name of the OmegaConf resolver, and mark of the fields, that read `task.sampling`."""
WITHOUT_BUDGET = "without_budget"
"""Name of the OmegaConf resolver, and mark of the fields, that are null under a budget."""

PositiveInt = Annotated[int, Meta(ge=1)]
NonNegativeInt = Annotated[int, Meta(ge=0)]
GroupSize = Annotated[int, Meta(ge=2)]
"""Completions that are compared with one another: of a single one, any advantage is 0."""
PositiveFloat = Annotated[float, Meta(gt=0)]
NonNegativeFloat = Annotated[float, Meta(ge=0)]
Fraction = Annotated[float, Meta(ge=0, le=1)]


@dataclass(frozen=True)
class OneOf:
    """The strings that a field may hold: `Annotated[str, OneOf(CHOICES)]`."""

    choices: Collection[str]


class Checked:
    """Base of settings whose values are refused outside the bounds of their types; None passes: no limit, or not set.

    Raises ConfigError that names the key. Checks of several fields at once belong into `__post_init__` of a subclass.
    The bounds hold when it runs, whether or not it calls `super().__post_init__()`, which does the bases' own checks.
    """

    section: ClassVar[str] = ""
    """The configuration group of the keys, such as `method`."""

    def __init_subclass__(cls, **kwargs: Any) -> None:
        super().__init_subclass__(**kwargs)
        own_checks = cls.__post_init__
        # It may forget its base's, so the bounds are checked before it. An inherited one that has been given this stays
        # where it is: a copy here would call it past the classes that come after this one in a subclass's order.
        if not hasattr(own_checks, "checks_bounds"):

            @wraps(own_checks)
            def check_all(self: Checked, *init_values: Any) -> None:
                require_stated_bounds(self, self.section)
                own_checks(self, *init_values)

            check_all.checks_bounds = True  # type: ignore[attr-defined]
            cls.__post_init__ = check_all  # type: ignore[method-assign]

    def __post_init__(self) -> None:
        require_stated_bounds(self, self.section)

    __post_init__.checks_bounds = True  # type: ignore[attr-defined]


def require_stated_bounds(values: Any, section: str) -> None:
    """Refuse values outside the bounds that their fields' types state; None passes. section: precedes their keys."""
    for name, bound in stated_bounds(type(values)):  # type: ignore[arg-type]  # a class is hashable
        if (value := getattr(values, name)) is not None:
            _require(f"{section}.{name}" if section else name, value, bound)


@cache
def stated_bounds(settings: type) -> tuple[tuple[str, Meta | OneOf], ...]:
    """Return the name and the bounds of each field of a dataclass.

    A class that declares a base's field again, for a default of its own, keeps the base's bounds unless it states
    others.
    """
    stated: dict[str, list[Meta | OneOf]] = {field.name: [] for field in fields(settings)}
    for owner in settings.__mro__:
        hints = get_type_hints(owner, include_extras=True)
        for name in (name for name, bounds in stated.items() if not bounds and name in hints):
            stated[name] = list(_find_bounds(hints[name]))
    return tuple((name, bound) for name, bounds in stated.items() for bound in bounds)


def _find_bounds(hint: Any) -> Iterator[Meta | OneOf]:
    """Yield the bounds of a type: `Annotated[int, bound]`, or that or None."""
    if get_origin(hint) is Annotated:
        yield from (part for part in hint.__metadata__ if isinstance(part, Meta | OneOf))
    elif type(None) in get_args(hint):
        for member in get_args(hint):
            yield from _find_bounds(member)


def describe_bound(bound: Meta | OneOf) -> str:
    """Return the values within a bound in words: `a number >= 1`, `one of a, b`."""
    if isinstance(bound, OneOf):
        return f"one of {', '.join(sorted(bound.choices))}"
    low, high = (bound.gt if bound.ge is None else bound.ge), (bound.lt if bound.le is None else bound.le)
    if high is None:
        return f"a number {'>' if bound.ge is None else '>='} {low}"
    if low is None:
        return f"a number {'<' if bound.le is None else '<='} {high}"
    return f"a number in {'(' if bound.ge is None else '['}{low}, {high}{')' if bound.le is None else ']'}"


def is_within(value: Any, bound: Meta | OneOf) -> bool:
    """Return whether a value lies within a bound; NaN and infinities never do."""
    if isinstance(bound, OneOf):
        return value in bound.choices
    return (
        math.isfinite(value)
        and (bound.ge is None or value >= bound.ge)
        and (bound.gt is None or value > bound.gt)
        and (bound.le is None or value <= bound.le)
        and (bound.lt is None or value < bound.lt)
    )


def require_at_least(key: str, value: float | None, minimum: float) -> None:
    """Refuse a number below `minimum`; None passes: it means no limit, or not set."""
    if value is not None:
        _require(key, value, Meta(ge=minimum))


def require_above(key: str, value: float | None, bound: float) -> None:
    """Refuse a number that is not greater than `bound`; None passes."""
    if value is not None:
        _require(key, value, Meta(gt=bound))


def require_within(key: str, value: float | None, low: float, high: float) -> None:
    """Refuse a number outside [`low`, `high`]; None passes."""
    if value is not None:
        _require(key, value, Meta(ge=low, le=high))


def require_one_of(key: str, value: str, choices: Collection[str]) -> None:
    """Refuse a string that is not among `choices`."""
    _require(key, value, OneOf(choices))


def _require(key: str, value: Any, bound: Meta | OneOf) -> None:
    """Raise ConfigError, naming the key, for a value outside a bound."""
    if not is_within(value, bound):
        shown = f"'{value}'" if isinstance(bound, OneOf) else value
        raise ConfigError(f"{key}: expected {describe_bound(bound)}, got {shown}")
