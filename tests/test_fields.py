"""Settings are refused outside the bounds that their fields' types state."""

import math
from dataclasses import dataclass
from typing import Annotated, Any

import msgspec
import pytest
from hypothesis import given
from hypothesis import strategies as st
from msgspec import Meta

from evorun.errors import ConfigError
from evorun.fields import (
    Checked,
    Fraction,
    NonNegativeFloat,
    NonNegativeInt,
    OneOf,
    PositiveFloat,
    PositiveInt,
    describe_bound,
    stated_bounds,
)

BOUNDED = (
    (PositiveInt, "a number >= 1"),
    (NonNegativeInt, "a number >= 0"),
    (PositiveFloat, "a number > 0"),
    (NonNegativeFloat, "a number >= 0"),
    (Fraction, "a number in [0, 1]"),
    (Annotated[float, Meta(gt=0, le=1)], "a number in (0, 1]"),
    (Annotated[float, Meta(ge=-1, lt=1)], "a number in [-1, 1)"),
    (Annotated[float, Meta(lt=2)], "a number < 2"),
    (Annotated[int, Meta(le=2)], "a number <= 2"),
)


def settings_of(kind: Any) -> type[Checked]:
    """Return a class of settings with one field, which may be None."""

    class Single(Checked):
        section = "method"

    Single.__annotations__ = {"value": kind | None}
    return dataclass(Single)


@pytest.mark.parametrize(("kind", "words"), BOUNDED)
@given(value=st.one_of(st.integers(-3, 3), st.sampled_from((-1.0, 0.0, 1.0, 2.0, 1e-300, 0.999, 1.001, -0.001))))
def test_a_number_passes_where_msgspec_converts_it(kind: Any, words: str, value: float) -> None:
    try:
        msgspec.convert(float(value), Annotated[float, *kind.__metadata__])
    except msgspec.ValidationError:
        with pytest.raises(ConfigError) as error:
            settings_of(kind)(value)
        assert str(error.value) == f"method.value: expected {words}, got {value}"
    else:
        settings_of(kind)(value)


@pytest.mark.parametrize("kind", [kind for kind, _ in BOUNDED])
def test_none_passes_and_what_is_no_number_does_not(kind: Any) -> None:
    settings_of(kind)(None)
    for value in (math.nan, math.inf, -math.inf):
        with pytest.raises(ConfigError, match="expected a number"):
            settings_of(kind)(value)


def test_a_string_is_one_of_the_choices() -> None:
    settings = settings_of(Annotated[str, OneOf(("b", "a"))])
    settings("a")
    settings(None)
    with pytest.raises(ConfigError, match=r"^method\.value: expected one of a, b, got 'A'$"):
        settings("A")


@dataclass(kw_only=True)
class Sampled(Checked):
    section = "method"

    temperature: NonNegativeFloat
    note: str = ""


@dataclass(kw_only=True)
class Grouped(Checked):
    section = "method"

    group: PositiveInt

    def __post_init__(self) -> None:
        super().__post_init__()
        self.checked = True


@dataclass(kw_only=True)
class Both(Grouped, Sampled):
    limit: PositiveInt | None = None


def test_settings_of_several_parts_check_the_fields_of_all() -> None:
    assert [name for name, _ in stated_bounds(Both)] == ["temperature", "group", "limit"]
    assert Both(temperature=0, group=1).checked
    for wrong in ({"temperature": -1}, {"group": 0}, {"limit": 0}):
        (key,) = wrong
        with pytest.raises(ConfigError, match=rf"^method\.{key}: "):
            Both(**({"temperature": 0, "group": 1} | wrong))


@dataclass(kw_only=True)
class Forgetful(Sampled):
    limit: PositiveInt = 1

    def __post_init__(self) -> None:  # without its base's
        if self.temperature > self.limit:
            raise ConfigError("method.temperature: expected at most method.limit")


@dataclass(kw_only=True, slots=True)
class Slotted(Forgetful):
    share: Fraction = 0.5


class Mixin:
    def __post_init__(self) -> None:
        pass


@dataclass(kw_only=True)
class Mixed(Mixin, Sampled):
    pass


@pytest.mark.parametrize("settings", [Forgetful, Slotted, Mixed])
def test_checks_of_a_class_of_its_own_never_replace_those_of_the_bounds(settings: Any) -> None:
    settings(temperature=1)
    with pytest.raises(ConfigError, match=r"^method\.temperature: expected a number >= 0, got -1$"):
        settings(temperature=-1)
    if settings is not Mixed:
        with pytest.raises(ConfigError, match=r"^method\.limit: expected a number >= 1, got 0$"):
            settings(temperature=0, limit=0)
        with pytest.raises(ConfigError, match=r"^method\.temperature: expected at most method\.limit$"):
            settings(temperature=2)
    if settings is Slotted:
        with pytest.raises(ConfigError, match=r"^method\.share: "):
            settings(temperature=0, share=2)


@dataclass(kw_only=True)
class Cool(Sampled):
    temperature: float = 0.7


def test_checks_of_a_later_part_run_where_an_earlier_one_has_none_of_its_own() -> None:
    @dataclass
    class Plain(Checked):
        first: int = 0

    @dataclass
    class Strict(Checked):
        second: int = 0

        def __post_init__(self) -> None:
            super().__post_init__()
            if self.second:
                raise ConfigError("second: refused")

    @dataclass
    class Both(Plain, Strict):
        pass

    Both()
    with pytest.raises(ConfigError, match=r"^second: refused$"):
        Both(second=1)


def test_a_field_that_is_declared_again_keeps_its_bounds() -> None:
    assert Cool().temperature == 0.7
    with pytest.raises(ConfigError, match=r"^method\.temperature: expected a number >= 0, got -1$"):
        Cool(temperature=-1)


@dataclass(kw_only=True)
class Warm(Sampled):
    temperature: PositiveFloat


def test_a_field_that_states_other_bounds_has_these_alone() -> None:
    assert [describe_bound(bound) for _, bound in stated_bounds(Warm)] == ["a number > 0"]
    with pytest.raises(ConfigError, match=r"^method\.temperature: expected a number > 0, got 0$"):
        Warm(temperature=0)


def test_a_bound_is_told_in_the_words_of_its_error() -> None:
    assert describe_bound(OneOf(("raw", "by_total"))) == "one of by_total, raw"
