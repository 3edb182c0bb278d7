"""The price of a run against a server: metered, the same when replayed and resumed, and refused where it is unknown."""

import json
import shutil
from collections.abc import Iterator
from fractions import Fraction
from pathlib import Path

import pytest

from building import composed
from evorun.errors import ConfigError
from evorun.reports.overview import load_outcome
from evorun.runner.settings import check
from evorun.runs.job_states import look_at
from evorun.testing.runs import Run, carry_out
from test_faulty_server import served

WORDS = ("method=feedback_descent", "task=mathbench", "task.source=sample", "task.limit=2", "evorun.progress=off")
PRICES = "models: {m: {prompt: 0.15, completion: 0.6, date: 2026-01-02, source: a contract}}"
DOLLARS = 0.001


@pytest.fixture(scope="module")
def prices(tmp_path_factory: pytest.TempPathFactory) -> str:
    file = tmp_path_factory.mktemp("prices") / "prices.yaml"
    file.write_text(PRICES)
    return f"prices={file}"


@pytest.fixture(scope="module")
def paid(prices: str, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Run]:
    """A run that its budget of dollars ends."""
    with served("--clean") as (url, _):
        words = (*WORDS, "engine=server", "model=api", "model.id=m", f"engine.base_urls=[{url}]", prices)
        config = check(composed(*words, f"budget.price={DOLLARS}"))
        yield carry_out(config, tmp_path_factory.mktemp("paid") / "run")


def test_it_is_that_of_the_recorded_tokens_and_within_the_budget(paid: Run) -> None:
    results = paid.json("results.json")
    for role in results["cost"].values():
        tokens = Fraction("0.15") * role["prompt_tokens"] + Fraction("0.6") * role["completion_tokens"]
        assert role["price"] == float(tokens / 10**6)
    total = results["cost"]["total"]
    assert results["price_date"] == "2026-01-02"
    assert results["counts"]["stopped_by_budget"] == 2
    mean_call = total["price"] / total["calls"]
    assert DOLLARS - 4 * mean_call < total["price"] < DOLLARS + 4 * mean_call
    points = [point for point in paid.records("metrics") if point["name"] == "accuracy"]
    assert points[-1]["price"] * 2 == pytest.approx(total["price"])
    assert load_outcome(paid.path).price == look_at(paid.path, "run").price == total["price"]


def test_sequential_tokens_are_those_of_the_longest_call_of_each_batch(paid: Run) -> None:
    batches: dict[str, dict[tuple[str, ...], int]] = {}
    for key, _, _, usage, _ in paid.effects():
        problem, step, role, _, attempt = key.split("|")
        longest = batches.setdefault(problem, {})
        tokens = json.loads(usage or "")["completion_tokens"]
        longest[step, role, attempt] = max(longest.get((step, role, attempt), 0), tokens)
    points = [point for point in paid.records("metrics") if point["name"] == "accuracy"]
    expected = sum(sum(longest.values()) for longest in batches.values()) / len(batches)
    assert points[-1]["sequential_tokens"] == expected


def test_a_replay_ends_at_the_same_call(paid: Run, tmp_path: Path) -> None:
    words = (*WORDS, "engine=replay", f"engine.run={paid.path}", "model=api", "model.id=m", f"budget.price={DOLLARS}")
    replayed = carry_out(check(composed(*words)), tmp_path / "run")
    for name in ("steps.jsonl", "predictions.jsonl", "metrics.jsonl"):
        assert (replayed.path / name).read_bytes() == (paid.path / name).read_bytes(), name


def test_a_resumed_run_keeps_the_prices_that_it_began_with(paid: Run, tmp_path: Path) -> None:
    folder = tmp_path / "run"
    shutil.copytree(paid.path, folder)
    manifest = json.loads((folder / "manifest.json").read_text())
    (folder / "manifest.json").write_text(json.dumps(manifest | {"status": "interrupted", "files": {}, "state": None}))
    (folder / "results.json").unlink()
    dearer = tmp_path / "prices.yaml"
    dearer.write_text(PRICES.replace("0.15", "150"))
    resumed = carry_out(check(manifest["config"] | {"prices": str(dearer)}), folder)
    assert resumed.json("results.json")["cost"]["total"] == paid.json("results.json")["cost"]["total"]
    assert resumed.json("manifest.json")["prices"] == manifest["prices"]


@pytest.mark.parametrize(
    ("words", "line"),
    [
        (("engine=simulated",), "engine=simulated bills no tokens .role [a-z]+.; limit calls or tokens"),
        (("engine=server", "model=api", "model.id=other"), "other has none .role [a-z]+.; give its price with prices="),
    ],
)
def test_a_budget_of_dollars_is_refused_without_a_price(words: tuple[str, ...], line: str, tmp_path: Path) -> None:
    config = check(composed(*WORDS, *words, "budget.price=1"))
    with pytest.raises(ConfigError, match=rf"^budget\.price: expected models with a known price, {line}"):
        carry_out(config, tmp_path / "run")
    assert not (tmp_path / "run" / "manifest.json").exists()


@pytest.mark.nightly
def test_an_unknown_price_says_so_and_is_not_0(tmp_path: Path) -> None:
    with served("--clean") as (url, _):
        words = ("engine=server", "model=api", "model.id=other", f"engine.base_urls=[{url}]", "method=zero_shot")
        run = carry_out(check(composed(*WORDS[1:], *words)), tmp_path / "run")
    assert "price" not in run.json("results.json")["cost"]["total"]
    assert load_outcome(run.path).price is None
    status = look_at(run.path, "run")
    assert (status.price, status.price_unknown) == (None, True)
