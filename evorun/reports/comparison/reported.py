"""What a paper reports of the method that a run carries out, from the `reported` key of the run's configuration."""

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any, TypeGuard


@dataclass(frozen=True)
class ReportedFigures:
    """A paper's figures for one method."""

    source: str
    note: str
    accuracy: float | None
    """A fraction in [0, 1]."""
    by_stratum: Mapping[str, float]
    dropped: tuple[str, ...] = ()
    """Keys whose values are no fractions, for a remark."""

    def of_stratum(self, stratum: str) -> float | None:
        """Return the figure of a stratum, whose name may be written in other letters' case."""
        return {name.casefold(): value for name, value in self.by_stratum.items()}.get(stratum.casefold())


def reported_of(config: Mapping[str, Any], method: str) -> ReportedFigures | None:
    """Return what the configuration says the paper reports of the method; None when it says nothing usable.

    The configuration may come from anywhere: what is malformed is left out, and named where it was meant as a figure.
    """
    given = _mapping(config.get("reported"))
    accuracy = _mapping(given.get("accuracy")).get(method)
    by_stratum = _mapping(_mapping(given.get("by_stratum")).get(method))
    figures = {"accuracy": accuracy, **{f"by_stratum.{name}": value for name, value in by_stratum.items()}}
    dropped = tuple(name for name, value in figures.items() if value is not None and not _is_fraction(value))
    usable = {str(name): float(value) for name, value in by_stratum.items() if _is_fraction(value)}
    if not usable and not _is_fraction(accuracy) and not dropped:
        return None
    return ReportedFigures(
        source=_text(given.get("source")),
        note=_text(given.get("note")),
        accuracy=float(accuracy) if _is_fraction(accuracy) else None,
        by_stratum=usable,
        dropped=dropped,
    )


def _mapping(value: object) -> Mapping[Any, Any]:
    return value if isinstance(value, Mapping) else {}


def _text(value: object) -> str:
    return " ".join(value.split()) if isinstance(value, str) else ""


def _is_fraction(value: object) -> TypeGuard[float]:
    return isinstance(value, int | float) and not isinstance(value, bool) and 0 <= value <= 1  # false for NaN
