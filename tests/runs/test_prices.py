"""Prices: by hand-made arithmetic with fractions."""

from dataclasses import dataclass, field, replace
from datetime import date
from fractions import Fraction
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from evorun.errors import ConfigError
from evorun.models.base import Completion, Reply
from evorun.runs.budget import BudgetConfig, Meter, Usage, divide_budget
from evorun.runs.formats import format_dollars
from evorun.runs.manifest import ModelInRun
from evorun.runs.prices import (
    DOLLAR,
    GpuPrice,
    Prices,
    Rates,
    TokenPrice,
    load_prices,
    oldest_date,
    price_calls,
    price_run,
)
from evorun.runs.schema import Spent

DAY = date(2026, 5, 7)
MINI = TokenPrice(prompt=0.15, cached=0.075, completion=0.6, date=DAY, source="a list")
LARGE = TokenPrice(prompt=2.5, completion=10.0, date=date(2025, 6, 3), source="another")


@given(prompt=st.integers(0, 10**9), cached=st.integers(0, 10**9), completion=st.integers(0, 10**9))
def test_a_price_is_exact(prompt: int, cached: int, completion: int) -> None:
    spent = Spent(1, prompt + cached, completion, cached)
    exact = prompt * Fraction("0.15") + cached * Fraction("0.075") + completion * Fraction("0.6")
    assert Fraction(MINI.of(spent), DOLLAR) == exact / 10**6
    exact = (prompt + cached) * Fraction("2.5") + completion * Fraction(10)  # without a price of its own
    assert Fraction(LARGE.of(spent), DOLLAR) == exact / 10**6


def test_roles_have_the_price_of_their_model_and_an_unknown_one_is_not_0() -> None:
    cost = {"generate": Spent(2, 1000, 100), "judge": Spent(3, 500, 50)}
    both = Fraction("0.15") * 1000 + Fraction("0.6") * 100 + Fraction("2.5") * 500 + 10 * 50
    assert Fraction(price_calls({"policy": MINI, "judge": LARGE}, cost) or 0, DOLLAR) == both / 10**6
    assert price_calls({"policy": MINI, "judge": None}, cost) == MINI.of(cost["generate"])  # the judge is local
    assert price_calls({"policy": MINI, "judge": "unknown"}, cost) is None
    assert price_calls({"policy": MINI, "judge": "unknown"}, {"generate": Spent(2, 1000, 100)}) is not None
    assert price_calls({}, cost) is None
    assert oldest_date({"policy": MINI, "judge": LARGE, "meta": None}) == date(2025, 6, 3)


def test_the_shipped_prices_have_a_day_and_a_source_and_a_users_own_file_wins(tmp_path: Path) -> None:
    shipped = load_prices()
    assert shipped.models["gpt-4o"].completion == 10
    assert all(price.train for price in shipped.tinker.values())
    for price in (*shipped.models.values(), *shipped.tinker.values(), *shipped.gpus.values()):
        assert price.source.startswith("https://")
    own = tmp_path / "prices.yaml"
    own.write_text("models: {gpt-4o: {prompt: 1, completion: 2, date: 2026-01-02, source: a contract}}")
    prices = load_prices(own)
    assert prices.models["gpt-4o"] == TokenPrice(prompt=1, completion=2, date=date(2026, 1, 2), source="a contract")
    assert prices.models["gpt-4o-mini"] == shipped.models["gpt-4o-mini"]


@pytest.mark.parametrize(
    ("content", "reason"),
    [
        (None, "expected a file of prices, cannot read .*: No such file"),
        ("models: {m: {prompt: -1}}", "expected models.ID with prompt, .* `float` >= 0.0"),
        ("models: {m: {prompt: .nan, completion: 1, date: 2026-01-02, source: s}}", "expected models.ID"),
        ("models: {m: {prompt: 1, completion: 1, date: yesterday, source: s}}", "Expected `date`"),
        ("models: {m: {prompt: 1, completion: 1, date: 2026-01-02, source: s, cashed: 1}}", "unknown field `cashed`"),
        ("models: [", "expected models.ID"),
        ("- a", "expected models.ID"),
    ],
)
def test_a_file_that_is_none_of_prices_is_named_in_a_line(tmp_path: Path, content: str | None, reason: str) -> None:
    own = tmp_path / "prices.yaml"
    if content is not None:
        own.write_text(content)
    with pytest.raises(ConfigError, match=f"^prices: .*{reason}") as error:
        load_prices(own)
    assert "\n" not in str(error.value)


def test_a_gpu_is_known_by_a_word_of_its_name() -> None:
    h100, a100, l4 = (GpuPrice(hour=hour, date=DAY, source="s") for hour in (4, 2, 1))
    prices = Prices(gpus={"H100": h100, "A100": a100, "A100 80GB": h100, "L4": l4})
    assert prices.find_gpu(["NVIDIA H100 80GB HBM3, 81559 MiB"] * 2) == h100
    assert prices.find_gpu(["NVIDIA A100 80GB PCIe"]) == h100  # the longest part of the name
    assert prices.find_gpu(["NVIDIA L40S"]) is None
    assert prices.find_gpu(["NVIDIA L4", "NVIDIA A100"]) is None
    assert prices.find_gpu([]) is None


def test_a_run_costs_its_tokens_and_its_gpus_where_both_are_known() -> None:
    half_an_hour = Priced(seconds=1800.0, gpus=["NVIDIA H100"] * 2, gpu_price=GpuPrice(hour=4, date=DAY, source="s"))
    assert price_run(half_an_hour, None) == 4
    assert price_run(half_an_hour, 0.5) == 4.5
    assert price_run(replace(half_an_hour, prices={"policy": MINI}), None) is None  # some tokens have no known price
    assert price_run(replace(half_an_hour, gpus=[]), 0.5) == 0.5
    assert price_run(replace(half_an_hour, gpus=[]), None) is None


@dataclass(frozen=True)
class Priced:
    """The facts of a run's manifest that decide its price."""

    seconds: float
    gpus: list[str]
    gpu_price: GpuPrice
    prices: Rates = field(default_factory=dict)

    @property
    def hardware(self) -> dict[str, Any]:
        return {"gpus": self.gpus}

    @property
    def models(self) -> dict[str, Any]:
        return {"policy": ModelInRun(name="m", id="m", engine="vllm")}


def reply(prompt: int, completion: int, cached: int = 0) -> Reply:
    drawn = (Completion(text="", finish_reason="stop", tokens=completion),)
    return Reply(completions=drawn, prompt_tokens=prompt, seconds=0.0, cached_tokens=cached)


def test_a_budget_of_dollars_admits_what_fits_at_the_mean_price_of_the_roles_calls() -> None:
    (meter,) = divide_budget(BudgetConfig(price=0.001), 1, {"policy": MINI, "judge": LARGE})
    assert meter.admit(10, "generate") == 10  # nothing is known of it yet
    for _ in range(2):
        meter.charge("generate", reply(1000, 100))
    each = Fraction(1000 * 15 + 100 * 60, 100 * 10**6)
    assert Fraction(meter.price, DOLLAR) == 2 * each
    fitting = -(-(Fraction("0.001") - 2 * each) // each)  # rounded up
    assert meter.admit(10, "generate") == fitting == 3
    assert meter.exhausted
    assert meter.used == pytest.approx(float(2 * each / Fraction("0.001")))
    meter.charge("judge", reply(400, 0))
    assert meter.admit(1, "generate") == 0


def test_cached_tokens_cost_a_budget_less() -> None:
    meter = Meter(rates={"policy": MINI}, max_price=DOLLAR)
    meter.charge("generate", reply(1000, 0, cached=800))
    assert Fraction(meter.price, DOLLAR) == (200 * Fraction("0.15") + 800 * Fraction("0.075")) / 10**6
    assert meter.by_role["generate"] == Usage(calls=1, prompt_tokens=1000, cached_tokens=800)


@given(dollars=st.floats(1e-6, 1e3), problems=st.integers(1, 50))
def test_shares_of_a_budget_of_dollars_add_up_to_it(dollars: float, problems: int) -> None:
    shares = [meter.max_price or 0 for meter in divide_budget(BudgetConfig(price=dollars), problems, {})]
    assert sum(shares) == round(dollars * DOLLAR)
    assert max(shares) - min(shares) <= 1


def test_dollars_have_cents_or_three_figures() -> None:
    shown = [format_dollars(one) for one in (0, 0.00123456, 0.0999, 0.1, 12.345, 999.0, 1234.5)]
    assert shown == ["$0.00", "$0.00123", "$0.0999", "$0.10", "$12.35", "$999.00", "$1,234"]
