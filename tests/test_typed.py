"""Conversion of composed values: those that have their fields' types already do not pass through OmegaConf."""

from dataclasses import astuple, dataclass, field
from typing import Any

import pytest
from omegaconf import MISSING

from evorun.errors import ConfigError
from evorun.runner import typed as module
from evorun.runner.typed import typed


@dataclass
class Part:
    size: int = 3
    share: float = 1


@dataclass
class Settings:
    count: int
    name: str = MISSING
    share: float = 1
    limit: float | None = None
    sure: bool = False
    sizes: list[float] = field(default_factory=lambda: [1.0])
    table: dict[str, Any] = field(default_factory=dict)
    other: Any = None
    part: Part = field(default_factory=Part)

    def __post_init__(self) -> None:
        if self.count == 0:
            raise ConfigError("group.count: expected another number")


GIVEN = {"count": 2, "name": "one", "limit": 5, "sizes": [2], "table": {"a": [1]}, "other": [[1]], "part": {"size": 4}}
VALUES = (0, 2, 2.0, 2.5, True, None, "3", "x", "???", "${.count}", "${nothing}", [1], [1.5, "a"], {"size": 2})


def test_values_become_what_omegaconf_makes_of_them(monkeypatch: pytest.MonkeyPatch) -> None:
    cases: list[dict[str, Any]] = [GIVEN, {}, {"count": 1}, {**GIVEN, "unknown": 1}, {**GIVEN, "part": {"unknown": 1}}]
    cases += [{**GIVEN, key: value} for key in Settings.__dataclass_fields__ for value in VALUES]

    def made_of(values: dict[str, Any]) -> str:
        try:
            return repr(astuple(typed(Settings, values, "group")))  # tells 1 from 1.0 and True
        except ConfigError as error:
            return str(error)

    made = [made_of(values) for values in cases]
    monkeypatch.setattr(module, "_find_exact", lambda *_: None)
    assert made == [made_of(values) for values in cases]


def test_settings_hold_nothing_of_the_values_they_were_made_of() -> None:
    made = typed(Settings, GIVEN, "group")
    made.table["a"].append(2)
    made.other[0].append(2)
    assert (GIVEN["table"], GIVEN["other"]) == ({"a": [1]}, [[1]])
