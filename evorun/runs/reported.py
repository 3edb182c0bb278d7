"""A paper's figures for an experiment (the config's `reported`), which tables show beside the measured ones."""

import sys
from typing import Annotated

import msgspec

Fraction = Annotated[float, msgspec.Meta(ge=0, le=1)]


Finite = Annotated[float, msgspec.Meta(ge=-sys.float_info.max, le=sys.float_info.max)]
"""Neither infinite nor NaN."""


Setting = str | bool | int | Finite | None


class ReportedRow(msgspec.Struct, frozen=True, forbid_unknown_fields=True, kw_only=True):
    """A row of a paper's table."""

    method: str
    task: str | None = None
    """None: any task; so with `model`."""
    model: str | None = None
    overrides: dict[str, Setting] = {}
    """Values that a run's configuration must have, by key (`method.max_errors: 3`; for a group its choice, `judge:
    gpt_4o_mini`), so that a sweep's jobs can share one list of rows."""
    accuracy: Fraction | None = None
    metrics: dict[str, Finite] = {}
    """Means of scores by name, on the scale of `Grade.scores`; also `elo` and `relative_run_time`."""
    sd: dict[str, Finite] = {}
    """Standard deviations over repetitions, by metric."""
    by_stratum: dict[str, Fraction] = {}
    """Accuracy by stratum."""
    steps: dict[str, tuple[tuple[int, Finite], ...]] = {}
    """Training figures by name, as (step, value) pairs."""
    among: dict[str, Setting] = {}
    """For an Elo rating of a run in several tournaments: settings of the other methods' runs in this tournament."""


class ReportedMean(msgspec.Struct, frozen=True, forbid_unknown_fields=True, kw_only=True):
    """A paper's figure over several runs: a mean over tasks, or the difference between two settings' means."""

    method: str
    tasks: tuple[str, ...]
    model: str | None = None
    overrides: dict[str, Setting] = {}
    less: dict[str, Setting] | None = None
    """The overrides of the runs whose mean is subtracted; None: nothing is subtracted."""
    metrics: dict[str, Finite]


class Reported(msgspec.Struct, frozen=True, forbid_unknown_fields=True, kw_only=True):
    """The config's `reported`: a paper's figures for an experiment, which tables show beside the measured ones."""

    source: str
    note: str = ""
    rows: tuple[ReportedRow, ...] = ()
    """Empty where the paper gives its outcome only in words, quoted in `note`."""
    means: tuple[ReportedMean, ...] = ()
