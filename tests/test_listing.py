"""`evorun list` composes as little as it can."""

import io
from typing import Any

import pytest

from evorun.cli import listing
from evorun.cli.compose import config_folder
from evorun.runner import registry
from evorun.runs.terminal import Terminal


def test_a_method_is_composed_once_and_for_each_task_that_changes_it(monkeypatch: pytest.MonkeyPatch) -> None:
    composed: list[tuple[str, ...]] = []
    compose = listing.default_config

    def counted(kind: Any, name: str, **changes: Any) -> Any:
        composed.append((name, *changes))
        return compose(kind, name, **changes)

    monkeypatch.setattr(listing, "default_config", counted)
    listing.print_listing(["methods"], Terminal(file=io.StringIO()))
    changed = len(list((config_folder() / "method_on_task").glob("*.yaml")))
    assert len(registry.methods()) <= len(composed) <= len(registry.methods()) + changed


def test_a_pair_that_is_refused_is_not_listed_as_fitting() -> None:
    printed = io.StringIO()
    listing.print_listing(["methods"], Terminal(file=printed, width=400))
    pairs = printed.getvalue().partition("which methods fit which tasks")[2]
    assert pairs.count("`evorun list --json` says why") == 1
    rows = pairs.partition("\ngrpo ")[2].partition("\nlaft ")[0].splitlines()
    assert [row.split()[-1] for row in rows if "does not run as it is" in row] == ["essay"]
