"""Prices: of models by token and of GPUs by hour, and what a run costs by them.

Token prices are whole numbers of picodollars (1e-12 dollars), so that sums are exact in any order: $0.075 for a million
tokens are 75,000 picodollars a token.
"""

import re
from collections.abc import Mapping, Sequence
from datetime import date
from functools import cache
from pathlib import Path
from typing import Annotated, Any, Literal, Protocol

import msgspec
from msgspec import UNSET, UnsetType

import evorun
from evorun.errors import ConfigError

DOLLAR = 10**12
"""Picodollars in a dollar."""

_MAX_PRICE = 1e6
"""Maximum of a price in dollars (ours), far above any."""

Dollars = Annotated[float, msgspec.Meta(ge=0, le=_MAX_PRICE)]


class Tokens(Protocol):
    """Tokens of some model calls."""

    @property
    def prompt_tokens(self) -> int:
        """All prompt tokens, cached ones included."""
        ...

    @property
    def cached_tokens(self) -> int:
        """Those among them that the vendor had in its cache."""
        ...

    @property
    def completion_tokens(self) -> int:
        """Completion tokens."""
        ...


class TokenPrice(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """The price of a model's tokens, in dollars per million."""

    prompt: Dollars
    """Of a million prompt tokens."""
    cached: Dollars | None = None
    """Of a million prompt tokens in the vendor's cache; None: the price of other prompt tokens."""
    completion: Dollars
    """Of a million completion tokens."""
    train: Dollars | UnsetType = UNSET
    """Of a million tokens that pass forward and backward through weights there; left out where it is unknown."""
    date: date
    """Day on which the source stated the price."""
    source: str
    """Where the price was stated, mostly a URL."""

    def of(self, spent: Tokens) -> int:
        """Return the price of tokens in picodollars."""
        cached = self.prompt if self.cached is None else self.cached
        return (
            (spent.prompt_tokens - spent.cached_tokens) * _per_token(self.prompt)
            + spent.cached_tokens * _per_token(cached)
            + spent.completion_tokens * _per_token(self.completion)
        )

    def of_training(self, trained: int, scored: int) -> int | None:
        """Return the price of training in picodollars; None where it is unknown.

        trained: tokens of passes forward and backward. scored: those of forward passes alone, billed as prompts.
        """
        if self.train is UNSET:
            return None
        return trained * _per_token(self.train) + scored * _per_token(self.prompt)


class GpuPrice(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """The price of a GPU, in dollars per hour."""

    hour: Dollars
    """Of an hour of one GPU."""
    date: date
    """Day on which the source stated the price."""
    source: str
    """Where the price was stated, mostly a URL."""


class Prices(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """Prices of models by id, and of GPUs by a part of their names."""

    models: dict[str, TokenPrice] = {}
    tinker: dict[str, TokenPrice] = {}
    """Of Thinking Machines' Tinker, whose models other vendors have, too."""
    gpus: dict[str, GpuPrice] = {}

    def find_gpu(self, names: Sequence[str]) -> GpuPrice | None:
        """Return the price of an hour of one of these GPUs; None unless all are of one kind with a known price."""
        kinds = {max((kind for kind in self.gpus if _has_word(name, kind)), key=len, default=None) for name in names}
        kind = kinds.pop() if len(kinds) == 1 else None
        return None if kind is None else self.gpus[kind]


Rate = TokenPrice | Literal["unknown"] | None
"""The price of a role's tokens; None where no vendor bills them."""
Rates = Mapping[str, Rate]
"""By call role; under `POLICY` that of all roles that are not listed. Empty where no vendor bills any role."""
POLICY = "policy"
UNKNOWN: Literal["unknown"] = "unknown"


def find_rate(rates: Rates, role: str) -> Rate:
    """Return the price of a call role's tokens."""
    return rates[role] if role in rates else rates.get(POLICY)


def price_calls(rates: Rates, cost: Mapping[str, Tokens]) -> int | None:
    """Return the price of calls by role in picodollars; None if no role is billed, or the price of one is unknown."""
    billed = [(rate, spent) for role, spent in cost.items() if (rate := find_rate(rates, role)) is not None]
    if not billed or any(
        rate == UNKNOWN and (spent.prompt_tokens or spent.completion_tokens) for rate, spent in billed
    ):
        return None
    return sum(rate.of(spent) for rate, spent in billed if isinstance(rate, TokenPrice))


def oldest_date(rates: Rates) -> date | None:
    """Return the date of the oldest price; None without any."""
    return min((rate.date for rate in rates.values() if isinstance(rate, TokenPrice)), default=None)


def to_dollars(picodollars: int | None) -> float | None:
    """Return picodollars in dollars."""
    return None if picodollars is None else picodollars / DOLLAR


def load_prices(file: Path | None = None) -> Prices:
    """Return the shipped prices, under those of the user's own file. Raises ConfigError for a file that is none."""
    shipped = _load_shipped()
    if file is None:
        return shipped
    own = _read(file)
    return Prices(
        models={**shipped.models, **own.models},
        # A user's price of a model is meant for Tinker, too, unless another is given for it there.
        tinker={**shipped.tinker, **own.models, **own.tinker},
        gpus={**shipped.gpus, **own.gpus},
    )


@cache
def _load_shipped() -> Prices:
    package = Path(evorun.__file__).parent
    inside = package / "conf"  # of an installed wheel; a checkout has it beside the package
    return _read((inside if inside.is_dir() else package.parent / "conf") / "prices.yaml")


def _read(file: Path) -> Prices:
    try:
        content = file.read_bytes()
    except OSError as error:
        raise ConfigError(f"prices: expected a file of prices, cannot read {file}: {error.strerror}") from error
    try:
        return msgspec.yaml.decode(content or b"{}", type=Prices)
    except (msgspec.DecodeError, ValueError, RecursionError) as error:
        reason = " ".join(str(error).split())
        raise ConfigError(
            f"prices: {file}: expected models.ID with prompt, completion, cached and train (optional), date and "
            f"source, tinker.ID likewise, and gpus.KIND with hour, date and source: {reason}"
        ) from error


def _per_token(price: float) -> int:
    """Return a price per million tokens in picodollars per token."""
    return round(price * DOLLAR / 10**6)


def _has_word(name: str, kind: str) -> bool:
    """Tell whether the name of a GPU has the kind as whole words: an L40S is no L4."""
    return re.search(rf"(?<![A-Za-z0-9]){re.escape(kind)}(?![A-Za-z0-9])", name, re.IGNORECASE) is not None


class PricedRun(Protocol):
    """The facts of a run's manifest that decide its price."""

    @property
    def prices(self) -> Rates:
        """Of tokens."""
        ...

    @property
    def seconds(self) -> float | None:
        """Wall-clock time."""
        ...

    @property
    def models(self) -> Mapping[str, Any]:
        """By role, each with its engine."""
        ...

    @property
    def hardware(self) -> Mapping[str, Any]:
        """With the names of GPUs under `gpus`."""
        ...

    @property
    def gpu_price(self) -> GpuPrice | None:
        """Of one of them."""
        ...


_WITHOUT_GPU = ("simulated", "server", "tinker", "replay")


def gpu_seconds(manifest: PricedRun) -> float | None:
    """Return wall-clock time times GPUs that a run could use, in seconds; None where it had none, or used none.

    Jobs of a sweep whose models one process serves have equal parts of its GPUs.
    """
    gpus = manifest.hardware.get("gpus")
    using = [model for model in manifest.models.values() if model.engine not in _WITHOUT_GPU]
    if manifest.seconds is None or not using or not isinstance(gpus, list) or not gpus:
        return None
    sharing: int = max(1, *(model.shared_by for model in using))
    return round(manifest.seconds * len(gpus) / sharing, 1)


def price_gpus(manifest: PricedRun) -> float | None:
    """Return the price of a run's GPUs in dollars; None where it used none, or their price is unknown."""
    seconds = gpu_seconds(manifest)
    return None if seconds is None or manifest.gpu_price is None else seconds / 3600 * manifest.gpu_price.hour


def price_run(manifest: PricedRun, of_tokens: float | None) -> float | None:
    """Return the price of a run in dollars, with that of its tokens; None where that is unknown, or there is none."""
    of_gpus = price_gpus(manifest)
    if of_tokens is None:
        return None if manifest.prices else of_gpus
    return of_tokens + (of_gpus or 0.0)
