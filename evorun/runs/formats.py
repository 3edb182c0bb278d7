"""Figures as readers see them: with the same digits in a report, a status and a progress display."""

from collections.abc import Mapping
from typing import Any

from evorun.runs.printable import printable
from evorun.runs.scores import Score

MISSING = "\u2013"
"""Shown in place of a missing figure."""

MINUS = "\u2212"
"""As wide as a plus, and as high as digits stand: a hyphen is neither."""


def name_step(config: Mapping[str, Any], trained: bool) -> str:
    """Return the word for a run's steps: `training step`, `generation` where the method counts these, or `step`.

    config: as a manifest has it; without settings of the method, a search is taken to evolve.
    """
    settings = config.get("method")
    if trained:
        return "training step"
    return "generation" if not isinstance(settings, Mapping) or "generations" in settings else "step"


def value(score: Score, mean: float | None) -> str:
    """Format a mean of a score: of a rate as a percentage."""
    return percent(mean) if score.rate else on_scale(score, mean)


def value_interval(score: Score, ci95: tuple[float, float] | None) -> str:
    """Format an interval of means of a score."""
    if score.rate or ci95 is None:
        return interval(ci95)
    return f"{on_scale(score, ci95[0])} to {on_scale(score, ci95[1])}"


def on_scale(score: Score, mean: float | None) -> str:
    """Format a mean of a score that is no rate: with three decimals on a scale from 0 to 1, as all of its column."""
    if mean is None or score.low is None or score.high is None or score.high - score.low > 1:
        return number(mean)
    return f"{mean:.3f}".replace("-", MINUS)


def words(name: str) -> str:
    """Write a score's name (`penalised_score`) as words."""
    return printable(name.replace("_", " "))


def name_score(score: Score) -> str:
    """Name a score in words."""
    return words(score.shown_name)


def percent(value: float | None) -> str:
    """Format a fraction in [0, 1] as a percentage."""
    return MISSING if value is None else f"{100 * value:.1f} %"


def interval(ci95: tuple[float, float] | None) -> str:
    """Format an interval of fractions in [0, 1] as percentages."""
    return MISSING if ci95 is None else f"{100 * ci95[0]:.1f} to {100 * ci95[1]:.1f} %"


def number_interval(ci95: tuple[float, float] | None) -> str:
    """Format an interval of means of scores."""
    return MISSING if ci95 is None else f"{number(ci95[0])} to {number(ci95[1])}"


def count(value: float | None) -> str:
    """Format a count, rounded to a whole number, with thousands separated."""
    return MISSING if value is None else f"{value:,.0f}"


def counted(number: int, noun: str) -> str:
    """Format a number with its noun: `1 step`, `1,200 steps`."""
    return f"{count(number)} {noun}{'' if number == 1 else 's'}"


def compact(value: float | None) -> str:
    """Format a large count to three figures, with k (thousands) or M (millions)."""
    if value is None:
        return MISSING
    # no-break spaces: on the next line of a narrow cell a unit would seem another figure's
    if value >= 1e6:
        return f"{number(value / 1e6)}\u00a0M"
    return f"{number(value / 1e3)}\u00a0k" if value >= 1e4 else count(value)


def number(value: float | None) -> str:
    """Format a mean that may be small, with thousands separated; zeros at its end stay, so that columns align."""
    if value is None:
        return MISSING
    # about three figures: intervals rarely justify more
    size = abs(value)
    decimals = next((places for places, least in enumerate((100, 10, 1, 0.01)) if size >= least), None)
    shown = "0" if size == 0 else f"{size:#.3g}" if decimals is None else f"{size:,.{decimals}f}"
    return MINUS + shown if value < 0 else shown


def format_dollars(dollars: float) -> str:
    """Return an amount as `$1,234`, `$12.30` or `$0.00123`, to three figures and at least cents."""
    if dollars and dollars < 0.1:
        return f"${float(f'{dollars:.3g}'):.10f}".rstrip("0")
    return f"${dollars:,.2f}" if dollars < 1000 else f"${dollars:,.0f}"
