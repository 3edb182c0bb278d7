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
