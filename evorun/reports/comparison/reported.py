"""A paper's figures for a run's method, task and model, from the `reported` key of the run's configuration."""

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

import msgspec

from evorun.runs.schema import Manifest, Reported
from evorun.runs.scores import ACCURACY

_OTHER_PROBLEMS = {
    "sample": "the problems are the sample set, not those that the paper measured on",
    "stand_in": "the problems are stand-in data, not those that the paper measured on",
}
"""Sources of problems that no paper can have used."""


@dataclass(frozen=True)
class ReportedFigures:
    """The row of a paper's table to compare a run with."""

    metrics: Mapping[str, float]
    """Means of scores, by name; `accuracy` is among them."""
    by_stratum: Mapping[str, float]
    """Accuracies."""

    def of_stratum(self, stratum: str) -> float | None:
        """Return the accuracy in a stratum, whose name may be written in other letters' case."""
        return {name.casefold(): value for name, value in self.by_stratum.items()}.get(stratum.casefold())


def reported_of(config: Mapping[str, Any], method: str, task: str, model: str) -> ReportedFigures | None:
    """Return the most specific row for the method, the task and the model; None without one, or when malformed.

    A row that names task and model comes before one that names either, and that before one that names neither; of
    equally specific ones the first counts.
    """
    reported = _read(config)
    if not isinstance(reported, Reported):
        return None
    # model names, not ids: papers do not say which files they loaded
    fitting = [row for row in reported.rows if row.method == method and row.task in (None, task)]
    fitting = [row for row in fitting if row.model in (None, model)]
    if not fitting:
        return None
    row = max(fitting, key=lambda row: (row.task is not None) + (row.model is not None))
    accuracy = {} if row.accuracy is None else {ACCURACY.name: row.accuracy}
    return ReportedFigures(metrics={**accuracy, **row.metrics}, by_stratum=row.by_stratum)


def unlike_reported(manifest: Manifest) -> str | None:
    """Return the reason not to compare a run's figures with a paper's, as the end of a sentence; None without one."""
    if manifest.simulated:
        return "no language model ran: a simulated one is not what the paper measured"
    if manifest.simulated_teacher:
        return "no language model taught it: a simulated teacher's student is not what the paper measured"
    return _OTHER_PROBLEMS.get(manifest.provenance.source)


def source_of(config: Mapping[str, Any]) -> tuple[str, str] | None:
    """Return where the figures come from and the note on them; None without any, or when malformed."""
    reported = _read(config)
    return (_line(reported.source), _line(reported.note)) if isinstance(reported, Reported) else None


def malformed(config: Mapping[str, Any]) -> str | None:
    """Return the reason that the configuration's figures cannot be used; None when they can, or there are none."""
    reported = _read(config)
    return reported if isinstance(reported, str) else None


def _read(config: Mapping[str, Any]) -> Reported | str | None:
    """Return the figures, or what is wrong with them, or None when there are none."""
    if config.get("reported") is None:
        return None
    try:
        return msgspec.convert(config["reported"], Reported)
    except msgspec.ValidationError as error:
        return str(error)


def _line(text: str) -> str:
    return " ".join(text.split())
