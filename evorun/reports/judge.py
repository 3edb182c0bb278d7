"""The judge of a run in words."""

from collections.abc import Mapping

from evorun.runs.schema import Manifest, Metric


def judges(manifest: Manifest) -> bool:
    """Tell whether the method has candidates judged in duels, by its settings."""
    settings = manifest.config.get("method")
    return isinstance(settings, Mapping) and "judge_temperature" in settings and settings.get("choose") != "oracle"


def judge_warning(metrics: Mapping[str, Metric]) -> str | None:
    """Return a sentence on the consequences when no duel was decisive; None when some were, or there were none."""
    decisive, position = metrics.get("decisive_rate"), metrics.get("position_a_rate")
    if decisive is None or decisive.value != 0:
        return None
    meaning = "no duel decided anything: the posterior stays the prior, and the ranking says nothing about quality."
    # in both orders the same letter: each duel was a draw, and nothing was learned from any of them
    if position is not None and position.value in (0, 1):
        named = "A" if position.value else "B"
        return f"Position bias 100 %: whenever the judge chose, it named {named}, whoever was shown there, so {meaning}"
    return f"None of the {decisive.n} duels was decisive: {meaning}"
