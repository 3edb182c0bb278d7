"""The warnings that a reader must see before trusting a run's figures."""

from evorun.reports import text
from evorun.reports.overview import Outcome

SOURCES = {"sample": "Sample set", "stand_in": "Stand-in data", "generated": "Generated data"}
"""Sources of problems that are not the benchmark's, in words."""

SIMULATED_LINE = "Simulated model: no language model ran; figures say nothing about any real one."

EQUAL_CALLS = "Equal calls are not equal generations; budget.generations=N sets the latter."

_STATUSES = {
    "running": "Unfinished: the run is still going (or was killed); figures cover what it has written so far.",
    "interrupted": "Unfinished: the run was interrupted; figures cover what it had written.",
    "failed": "Failed: the run stopped on an error; figures cover what it had written.",
}


def cut_short(outcome: Outcome) -> str | None:
    """Say where the budget ended problems before the method would have; None where it ended none."""
    cut, planned = outcome.reached.get("budget"), outcome.planned_steps
    if cut is None or planned is None or cut.fewest >= planned:
        return None
    span = f" ({text.count(cut.fewest)} to {text.count(cut.most)})" if cut.fewest < cut.most else ""
    settings = outcome.manifest.config.get("method")
    evolves = isinstance(settings, dict) and "generations" in settings
    return (
        f"The budget ended {text.count(cut.problems)} of {text.count(len(outcome.predictions))} problems early: in "
        f"{'generation' if evolves else 'step'} {text.number(cut.mean)}{span} of {text.count(planned)}."
        + (f" {EQUAL_CALLS}" if evolves else "")
    )


def banners(outcome: Outcome) -> list[str]:
    """Return a line for each warning: no real model, data that is not the benchmark's, an unfinished run, ..."""
    manifest = outcome.manifest
    found = []
    if manifest.simulated:
        found.append(SIMULATED_LINE)
    if manifest.simulated_teacher:
        found.append(
            "Simulated teacher: no language model wrote what this model was fine-tuned on; figures say nothing about "
            "any real teacher's student."
        )
    if manifest.provenance.source != "benchmark":
        label = SOURCES.get(manifest.provenance.source, f"Data source '{manifest.provenance.source}'")
        found.append(f"{label}: {manifest.provenance.description}" if manifest.provenance.description else label)
    unscored = [p for p in outcome.predictions if outcome.primary.value_in(p) is None]
    if unscored:
        n, name = len(outcome.predictions), text.words(outcome.primary.name)
        found.append(f"{len(unscored)} of {n} problems have no {name}: the task could not score them; means omit them.")
    if refused := sum(outcome.refused.values()):
        by_role = ", ".join(f"{role} {text.count(n)}" for role, n in outcome.refused.items())
        found.append(
            f"{text.count(refused)} requests were refused by the engine ({by_role}); the errors of candidates and the "
            "reasons of duels say why."
        )
    found += outcome.divergence
    found += outcome.hacking.lines if outcome.hacking is not None else []
    if (cut := cut_short(outcome)) is not None:
        found.append(cut)
    if manifest.status != "completed":
        found.append(_STATUSES[manifest.status])
    found += [f"Missing: {line}." for line in outcome.missing]
    found += [f"Changed: {line}." for line in outcome.changed]
    if manifest.error:
        found.append(f"{'Error' if manifest.status == 'failed' else 'Interrupted'}: {manifest.error}")
    return found
