"""A paper's figures for runs, from the `reported` key of their configurations."""

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import msgspec

from evorun.reports import text
from evorun.runs.manifest import Manifest
from evorun.runs.reported import Reported, ReportedArm, ReportedMean, Setting
from evorun.runs.schema import Metric
from evorun.runs.scores import ACCURACY

ELO = "elo"
RELATIVE_RUN_TIME = "relative_run_time"
BETWEEN_RUNS = frozenset({ELO, RELATIVE_RUN_TIME})
"""Reported figures that no single run has: one comes from a tournament, the other from a run with a fixed rubric."""

ELO_LINE = "A tournament shows the reported Elo ratings beside its own: evorun tournament RUN... judge=MODEL."

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
    sd: Mapping[str, float]
    """Standard deviations over repetitions, by the name of the metric."""
    by_stratum: Mapping[str, float]
    """Accuracies."""
    steps: Mapping[str, Sequence[tuple[int, float]]]
    """Training figures by name: (step, value) each."""
    model: str | None = None
    """The paper's, where the row names it."""

    def get_stratum(self, stratum: str) -> float | None:
        """Return the accuracy in a stratum, whatever the case of its name."""
        return {name.casefold(): value for name, value in self.by_stratum.items()}.get(stratum.casefold())


def find_reported(
    config: Mapping[str, Any], method: str, task: str, model: str, others: Sequence[Manifest] = ()
) -> ReportedFigures | None:
    """Return the most specific row for the method, task, model and settings; None without one, or when malformed.

    The more of task, model and overrides a row names, the more specific it is; of equally specific ones the first
    counts. others: of a tournament, the other runs; a row with `among` fits only where those of other methods have its
    settings.
    """
    reported = _read_reported(config)
    if not isinstance(reported, Reported):
        return None
    fitting = [row for row in reported.rows if _fits(row, config, method, task, model)]
    rivals = [other.config for other in others if other.method != method]
    fitting = [
        row for row in fitting if not row.among or (rivals and all(has_values(rival, row.among) for rival in rivals))
    ]
    if not fitting:
        return None
    row = max(fitting, key=lambda row: row.specificity)
    accuracy = {} if row.accuracy is None else {ACCURACY.name: row.accuracy}
    return ReportedFigures({**accuracy, **row.metrics}, row.sd, row.by_stratum, row.steps, row.model)


def find_paper_name(config: Mapping[str, Any], method: str, task: str, model: str) -> str | None:
    """Return a paper's name of the arm with this method, task, model and settings, the most specific one.

    None where the paper names it as evorun does, or the configuration's figures are malformed.
    """
    reported = _read_reported(config)
    names = reported.names if isinstance(reported, Reported) else ()
    fitting = [arm for arm in names if _fits(arm, config, method, task, model)]
    return max(fitting, key=lambda arm: arm.specificity).name if fitting else None


def _fits(arm: ReportedArm, config: Mapping[str, Any], method: str, task: str, model: str) -> bool:
    """Tell whether an entry is about the runs with this configuration."""
    # model names, not ids: papers do not say which files they loaded
    same = arm.method == method and arm.task in (None, task) and arm.model in (None, model)
    return same and has_values(config, arm.overrides)


def find_reported_elo(manifest: Manifest, others: Sequence[Manifest]) -> tuple[float | None, float | None]:
    """Return the Elo rating that a paper's tournament gave such a run, and its standard deviation; None without one.

    others: the other runs of the tournament.
    """
    policy = manifest.models.get("policy")
    found = policy and find_reported(manifest.config, manifest.method, manifest.task, policy.name, others)
    return (found.metrics.get(ELO), found.sd.get(ELO)) if found else (None, None)


def has_reported_elo(config: Mapping[str, Any]) -> bool:
    """Tell whether a run's configuration has any Elo rating of a paper."""
    reported = _read_reported(config)
    return isinstance(reported, Reported) and any(ELO in row.metrics for row in reported.rows)


def describe_reported_means(runs: Sequence[tuple[Manifest, Mapping[str, Metric]]]) -> list[str]:
    """Return a line for each of the papers' figures over several runs, beside the runs' own, given with their metrics.

    A mean is over tasks, each of which is the mean over its runs (seeds); it is missing where a task has no run that is
    to be compared with the paper's.
    """
    means: list[ReportedMean] = []
    for manifest, _ in runs:
        reported = _read_reported(manifest.config)
        if isinstance(reported, Reported):
            means += [mean for mean in reported.means if mean not in means]
    lines = []
    for mean in means:
        for score, figure in mean.metrics.items():
            first = _average_over_tasks(mean, mean.overrides, score, runs)
            second = 0.0 if mean.less is None else _average_over_tasks(mean, mean.less, score, runs)
            measured = None if first is None or second is None else first - second
            beside = f"measured {text.number(measured)}" if measured is not None else "not all measured here"
            lines.append(_join_lines(f"Reported {text.words(score)} of {_describe_runs(mean)}: {figure:g}; {beside}."))
    return lines


def _average_over_tasks(
    mean: ReportedMean,
    overrides: Mapping[str, Setting],
    score: str,
    runs: Sequence[tuple[Manifest, Mapping[str, Metric]]],
) -> float | None:
    task_means = []
    for task in mean.tasks:
        values = [
            metrics[score].value
            for manifest, metrics in runs
            if (manifest.method, manifest.task) == (mean.method, task)
            and mean.model in (None, manifest.models["policy"].name)
            and has_values(manifest.config, overrides)
            and explain_incomparable(manifest) is None
            and score in metrics
        ]
        known = [value for value in values if value is not None]
        if not known:
            return None
        task_means.append(sum(known) / len(known))
    return sum(task_means) / len(task_means)


def _describe_runs(mean: ReportedMean) -> str:
    """Name the runs of a figure: the method, its settings, and the tasks."""

    def settings(overrides: Iterable[tuple[str, Setting]]) -> str:
        return ", ".join(f"{key.removeprefix('method.')}={value}" for key, value in overrides)

    less = "" if mean.less is None else f" minus {settings(mean.less.items())}"
    over = mean.tasks[0] if len(mean.tasks) == 1 else f"mean over {', '.join(mean.tasks)}"
    return f"{mean.method}, {settings(mean.overrides.items())}{less} ({over})"


def has_values(config: Mapping[str, Any], overrides: Mapping[str, Setting]) -> bool:
    """Tell whether a configuration has these values; a group's value is its name."""
    for key, expected in overrides.items():
        value: Any = config
        for part in key.split("."):
            value = value.get(part) if isinstance(value, Mapping) else None
        if isinstance(value, Mapping):
            value = value.get("name")
        if value != expected:
            return False
    return True


def explain_incomparable(manifest: Manifest) -> str | None:
    """Return why a run's figures do not compare with a paper's, as the end of a sentence; None if they do."""
    if manifest.simulated:
        return "no language model ran: a simulated one is not what the paper measured"
    if manifest.simulated_teacher:
        return "no language model taught it: a simulated teacher's student is not what the paper measured"
    return _OTHER_PROBLEMS.get(manifest.provenance.source)


def find_source(config: Mapping[str, Any]) -> tuple[str, str] | None:
    """Return where the figures come from and the note on them; None without any, or when malformed."""
    reported = _read_reported(config)
    return (_join_lines(reported.source), _join_lines(reported.note)) if isinstance(reported, Reported) else None


def explain_malformed(config: Mapping[str, Any]) -> str | None:
    """Return why the configuration's figures cannot be used; None if they can, or if there are none."""
    reported = _read_reported(config)
    return reported if isinstance(reported, str) else None


def _read_reported(config: Mapping[str, Any]) -> Reported | str | None:
    """Return the figures, or the error in them, or None without any."""
    if config.get("reported") is None:
        return None
    try:
        return msgspec.convert(config["reported"], Reported)
    except msgspec.ValidationError as error:
        return str(error)


def _join_lines(words: str) -> str:
    return " ".join(words.split())
