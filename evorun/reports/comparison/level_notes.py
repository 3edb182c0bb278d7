"""Sentences on the differences within the levels of a setting, and between them."""

from evorun.reports.comparison.comparison import ComparedRuns
from evorun.reports.comparison.levels import LevelPair


def levels_heading(comparison: ComparedRuns) -> str:
    """Say within what the methods are compared, and with what."""
    keys = dict.fromkeys(level_pair.key for level_pair in comparison.level_pairs)
    references = dict.fromkeys(level_pair.pair.reference for level_pair in comparison.level_pairs)
    name = next(iter(references)) if len(references) == 1 else "each task's reference"
    return f"Within each level of {' and '.join(keys)}: against {name}"


def describe_level(level_pair: LevelPair) -> str:
    """Name the level of a difference, or the two of a difference of differences."""
    return level_pair.level + ("" if level_pair.minus_level is None else f" minus {level_pair.minus_level}")


def levels_notes(comparison: ComparedRuns) -> list[str]:
    """Explain the differences within levels and those between levels, and say how p is adjusted."""
    pairs = comparison.level_pairs
    changes = [level_pair for level_pair in pairs if level_pair.minus_level is not None]
    lines = ["Each method is compared with the reference's method at the same level, as if the others had not run."]
    if changes:
        lines.append(
            f"{describe_level(changes[0])}: the difference at the one less that at the other, by seed and problem (the "
            "interaction of method and level). It says whether a lead differs between levels."
        )
    else:
        lines.append("Levels share no problems and seeds, so how differences change from one to another has no test.")
    tests = sum(level_pair.pair.p is not None for level_pair in pairs)
    lines.append(
        f"Intervals and p are as in the table of differences. p (Holm) is adjusted for all {tests} tests of this table."
    )
    return lines
