"""`evorun list` composes as little as it can."""

import io
import json
import re
from dataclasses import dataclass, field
from typing import Any

import pytest

from evorun.cli import listing
from evorun.cli.groups import config_folder
from evorun.cli.plugin_keys import describe_keys
from evorun.errors import ConfigError
from evorun.fields import PositiveInt
from evorun.methods.search.proposals import from_task, without_budget
from evorun.runner import registry
from evorun.runs.terminal import Terminal
from evorun.tasks.base import SamplingConfig, TaskConfig


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


@dataclass
class PluginConfig(TaskConfig):
    """The settings of a task without YAML."""

    letters: PositiveInt = 8
    """Letters of a word. Not more."""
    sampling: SamplingConfig = field(default_factory=lambda: SamplingConfig(max_tokens=64))


def test_the_keys_of_a_plugin_have_their_defaults_and_those_below_a_key_come_last() -> None:
    first, second, *others = describe_keys(PluginConfig, ["sampling", "draw_seed", "letters"])
    assert first.startswith("draw_seed: int = 0 (Seed of the draw")
    assert second == "letters: int = 8 (Letters of a word)"
    assert "sampling.top_p: float | None = None" in others
    assert "sampling.max_tokens: int | None = 64 (Maximum completion tokens of a response)" in others


def test_a_default_that_a_budget_or_the_task_replaces_says_so() -> None:
    @dataclass
    class MethodSettings:
        rounds: int | None = without_budget(4)
        max_tokens: int = from_task(256)

    assert list(describe_keys(MethodSettings, ["rounds", "max_tokens"])) == [
        "rounds: int | None = 4 without a budget, null with one",
        "max_tokens: int = 256 or the task's own",
    ]


def test_a_name_is_described_with_what_it_goes_with(capsys: pytest.CaptureFixture[str]) -> None:
    printed = io.StringIO()
    listing.print_listing(["method=gepa", "lyria/table1"], Terminal(file=printed, width=400))
    lines = [" ".join(line.split()) for line in printed.getvalue().splitlines()]
    assert lines[0] == "method=gepa"
    assert f"description {registry.methods()['gepa'].description}" in lines
    assert any(re.fullmatch(r"file \S*conf/method/gepa.yaml", line) for line in lines)
    assert any(line.startswith("keys ") and {"minibatch,", "train_share,"} <= set(line.split()) for line in lines)
    [refused] = [line for line in lines if line.startswith("does not run as it is")]
    assert re.fullmatch(r"does not run as it is \(.+\): essay", refused)
    assert ("task=essay" not in refused) == ("the task" in refused)
    assert "labels: of held-out problems; a run says where the task has too few" in lines
    assert "experiment=lyria/table1" in lines
    listing.print_listing(["sudoku", "--json"], Terminal())
    pairs = json.loads(capsys.readouterr().out)["pairs"]
    assert {pair["task"] for pair in pairs} == {"sudoku"}
    assert {pair["method"] for pair in pairs} == set(registry.methods())
    with pytest.raises(ConfigError, match="did you mean lyria"):
        listing.print_listing(["lyrya"], Terminal())


def test_a_pair_that_is_refused_is_not_listed_as_fitting() -> None:
    printed = io.StringIO()
    listing.print_listing(["methods"], Terminal(file=printed, width=400))
    pairs = printed.getvalue().partition("which methods fit which tasks")[2]
    assert pairs.count("`evorun list --json` says why") == 1
    assert pairs.count("all others: `evorun list TASK` names the methods of a task") == 1
    rows = pairs.partition("\ngrpo ")[2].partition("\nlaft ")[0].splitlines()
    assert [row.split()[-1] for row in rows if "does not run as it is" in row] == ["essay"]
