"""The kinds of fine-tuning data, and from runs of which methods each is made (Lyria paper, sections 5.1 and 5.2)."""

from decimal import Decimal, InvalidOperation
from typing import NamedTuple

from evorun.errors import ConfigError, one_of


class Kind(NamedTuple):
    """A kind of fine-tuning data."""

    methods: tuple[str, ...]
    """Methods whose runs it is made from."""
    once: bool = False
    """True: one answer for each question."""
    ranked: bool = False
    """True: only the top share by penalised score stays."""


_DIRECT = ("zero_shot", "best_of_n")

KINDS = {
    "laft": Kind(("lyria",)),
    "dpft": Kind(("zero_shot",), once=True),
    "dpft_full": Kind(_DIRECT),
    "dpft_top": Kind(_DIRECT, ranked=True),
}
"""By name: Lyria's traces, then direct prompting's answers: one a question, all, and the best of all."""

DEFAULT_TOP = "0.2"
"""Section 5.2."""


class Settings(NamedTuple):
    """The choice of what to export."""

    name: str
    top: Decimal
    """Share of a task's responses that stays where the kind is ranked. Decimal, so that 0.1 of 30 is 3."""
    parsed_only: bool
    """True: responses without a readable answer are dropped too; the paper keeps them."""

    @property
    def kind(self) -> Kind:
        """The kind of that name."""
        return KINDS[self.name]


def make_settings(name: str, top: str | None, parsed_only: bool) -> Settings:
    """Check what the user asks for. Raises ConfigError naming the key."""
    one_of("kind", name, KINDS)
    if top is not None and not KINDS[name].ranked:
        raise ConfigError(f"top: kind={name} has no top share, only kind=dpft_top has; leave it out")
    try:
        share = Decimal(DEFAULT_TOP if top is None else top)
    # NaN fails every comparison, so one message serves for both faults.
    except InvalidOperation:
        share = Decimal("NaN")
    if not (share.is_finite() and 0 < share <= 1):
        raise ConfigError(f"top: expected a share in (0, 1], got {top or 'nothing'}")
    return Settings(name, share, parsed_only)
