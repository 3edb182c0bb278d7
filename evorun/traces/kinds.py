"""The kinds of fine-tuning data, and the methods whose runs each comes from (Lyria paper, sections 5.1 and 5.2)."""

from decimal import Decimal, InvalidOperation
from typing import NamedTuple

from evorun.errors import ConfigError
from evorun.fields import require_one_of


class Kind(NamedTuple):
    """A kind of fine-tuning data."""

    methods: tuple[str, ...]
    """Methods whose runs it comes from."""
    once: bool = False
    """True: keep one answer per question."""
    ranked: bool = False
    """True: keep only the top share by penalised score."""


_DIRECT = ("zero_shot", "best_of_n")

KINDS = {
    "laft": Kind(("lyria",)),
    "dpft": Kind(("zero_shot",), once=True),
    "dpft_full": Kind(_DIRECT),
    "dpft_top": Kind(_DIRECT, ranked=True),
}
"""By name: Lyria's traces, then direct prompting's answers: one per question, all, and the best of all."""

DEFAULT_TOP = "0.2"
"""Default top share (section 5.2)."""


class Settings(NamedTuple):
    """Settings of an export."""

    name: str
    top: Decimal
    """Share of a task's responses to keep if the kind is ranked. A Decimal, so that 0.1 of 30 is 3."""
    parsed_only: bool
    """True: also drop responses without a readable answer; the paper keeps them."""

    @property
    def kind(self) -> Kind:
        """The kind with this name."""
        return KINDS[self.name]


def make_settings(name: str, top: str | None, parsed_only: bool) -> Settings:
    """Check the user's choice and return it as settings. Raises ConfigError naming the key."""
    require_one_of("kind", name, KINDS)
    if top is not None and not KINDS[name].ranked:
        raise ConfigError(f"top: kind={name} has no top share, only kind=dpft_top has; leave it out")
    try:
        share = Decimal(DEFAULT_TOP if top is None else top)
    # NaN fails every comparison, so one message covers both faults.
    except InvalidOperation:
        share = Decimal("NaN")
    if not (share.is_finite() and 0 < share <= 1):
        raise ConfigError(f"top: expected a share in (0, 1], got {top or 'nothing'}")
    return Settings(name, share, parsed_only)
