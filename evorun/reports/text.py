"""Format numbers and foreign texts for readers of a page or a terminal."""

from collections.abc import Sequence
from functools import partial

from evorun.runs import formats
from evorun.runs.crossed import LEVEL
from evorun.runs.printable import printable
from evorun.runs.scores import Score
from evorun.runs.spending import GOLD

# under one name with the other formats of a page
MISSING = formats.MISSING
MINUS = formats.MINUS
value = formats.value
value_interval = formats.value_interval
percent = formats.percent
interval = formats.interval
number = formats.number
number_interval = formats.number_interval
count = formats.count
compact = formats.compact
words = formats.words
name_score = formats.name_score


def label(score: Score) -> str:
    """Name a score, with its scale and its direction unless they are those of a rate."""
    about = []
    if not score.rate and score.low is not None and score.high is not None:
        # "scale": 0 to 1 alone would read as an interval
        about.append(f"scale {score.low:g} to {score.high:g}")
    if not score.higher_is_better:
        about.append("lower is better")
    return name_score(score) + (f" ({', '.join(about)})" if about else "")


def gold_prefix(score: Score) -> str:
    """Return what stands before a gold score's name, if that does not say that it is one."""
    return "" if "gold score" in score.shown_name else "gold score: "


def file_stem(name: str) -> str:
    """Return a name, which may be foreign, as the name of a file without its ending: letters, digits, _ and - only."""
    return "".join(c if c.isalnum() or c in "_-" else "_" for c in name)[:100] or "_"


def sentence(words: str) -> str:
    """Begin with a capital letter, leaving the others as they are."""
    return words[:1].upper() + words[1:]


def heading(words: str) -> str:
    """Begin the heading of a column with a capital letter, except for symbols of statistics."""
    return words if words in ("n", "p", "p (Holm)", "sd") else sentence(words)


def difference(score: Score, means: float | None) -> str:
    """Format a difference of means of a score, with its sign: of a rate in percentage points."""
    if means is None:
        return MISSING
    return f"{_signed_points(means)} pp" if score.rate else _signed(score, means)


def size(score: Score, difference: float) -> str:
    """Format the size of a difference of means of a score, without its sign: of a rate in percentage points."""
    return f"{100 * abs(difference):.1f} pp" if score.rate else formats.on_scale(score, abs(difference))


def smallest_difference(score: Score, difference: float) -> str:
    """Format the smallest difference that data could show; one beyond the range of the score means: none."""
    if score.rate and difference > 1:
        return "> 100 pp"
    span = None if score.low is None or score.high is None else score.high - score.low
    return f"> {span:g}" if not score.rate and span is not None and difference > span else size(score, difference)


def difference_interval(score: Score, ci95: tuple[float, float] | None) -> str:
    """Format an interval of differences of means of a score: of a rate in percentage points.

    A bound that would round to zero has more digits, so that a reader sees on which side of zero it is.
    """
    if ci95 is None:
        return MISSING
    factor, signed = (100, _signed_points) if score.rate else (1, partial(_signed, score))
    low, high = (_add_digits(signed(bound), factor * bound) for bound in ci95)
    return f"{low} to {high}{' pp' if score.rate else ''}"


def _add_digits(shown: str, value: float) -> str:
    """Return a shown value that would round to zero with its first figure, unless it may be an error of rounding."""
    if any(digit in shown for digit in "123456789") or abs(value) < 1e-9:
        return shown
    return f"{'+' if value > 0 else MINUS}" + f"{float(f'{abs(value):.1g}'):.10f}".rstrip("0")


def _signed(score: Score, value: float) -> str:
    """Format a difference of means of a score that is no rate, with its sign; none on what rounds to zero."""
    shown = formats.on_scale(score, abs(value))
    return f"{'+' if value > 0 else MINUS}{shown}" if any(digit in shown for digit in "123456789") else shown


def _signed_points(fraction: float) -> str:
    # no sign on what rounds to zero
    shown = f"{100 * fraction:+.1f}"
    return "0.0" if shown in ("+0.0", "-0.0") else shown.replace("-", MINUS)


def p_value(value: float) -> str:
    """Format a probability of a test, never as 0, and never one below the level of tests as that level."""
    if value < 0.0001:
        return "< 0.0001"
    if value < 0.001:
        return f"{value:.2g}"
    shown = f"{value:.3f}"
    return f"< {LEVEL:g}" if value < LEVEL <= float(shown) else shown


def p_equation(value: float) -> str:
    """Format a probability of a test for a sentence: `p = 0.012` or `p < 0.0001`."""
    shown = p_value(value)
    return f"p {shown}" if shown.startswith("<") else f"p = {shown}"


def trials(sizes: Sequence[int]) -> str:
    """Format the trials of each seed: several equal ones as seeds times trials, unequal ones as their sum."""
    if len(sizes) < 2 or len(set(sizes)) > 1:
        return count(sum(sizes))
    return f"{len(sizes)} x {count(sizes[0])}"


def dollars(price: float | str | None) -> str:
    """Format a price; a text, such as `unknown`, stays as it is."""
    return MISSING if price is None else price if isinstance(price, str) else formats.format_dollars(price)


def precise(value: float | None) -> str:
    """Format a small share or ratio to five figures, as tables of papers have them."""
    return MISSING if value is None else f"{value:.5g}"


def duration(seconds: float | None) -> str:
    """Format seconds as seconds, minutes or hours."""
    if seconds is None:
        return MISSING
    if seconds < 120:
        return f"{seconds:.1f} s"
    if seconds < 7200:
        return f"{seconds / 60:.1f} min"
    return f"{seconds / 3600:.1f} h"


_WASTED = {
    "cut_off": "connection cut off",
    "malformed": "malformed answer",
    "no_connection": "no connection",
    "timed_out": "no complete answer in time",
    "incomplete": "some completions, the others refused",
    "control": "a control request, answered",
}


def wasted_words(kind: str) -> str:
    """Describe the outcome of an attempt that gave no answer."""
    return _WASTED.get(kind) or printable(kind.replace("http_", "HTTP "))


def role_words(role: str) -> str:
    """Name a role in a table of costs."""
    return f"{role} (grading), not in the total" if role == GOLD else role
