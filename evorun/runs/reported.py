"""A paper's figures for an experiment (the config's `reported`), which tables show beside the measured ones."""

import sys
from typing import Annotated

import msgspec

Fraction = Annotated[float, msgspec.Meta(ge=0, le=1)]


Finite = Annotated[float, msgspec.Meta(ge=-sys.float_info.max, le=sys.float_info.max)]
"""Neither infinite nor NaN."""


Setting = str | bool | int | Finite | None


PaperName = Annotated[str, msgspec.Meta(max_length=40, pattern=r"^\S(.*\S)?\Z")]
"""A line of text that neither begins nor ends with a blank."""


class ReportedArm(msgspec.Struct, frozen=True, forbid_unknown_fields=True, kw_only=True):
    """The runs that an entry is about."""

    method: str
    task: str | None = None
    """None: any task; so with `model`."""
    model: str | None = None
    overrides: dict[str, Setting] = {}
    """Values that a run's configuration must have, by key (`method.max_errors: 3`; for a group its choice, `judge:
    gpt_4o_mini`), so that a sweep's jobs can share one list of rows."""

    @property
    def runs(self) -> tuple[object, ...]:
        """All that decides which runs the entry is about."""
        return self.method, self.task, self.model, frozenset(self.overrides.items())

    @property
    def specificity(self) -> int:
        """The number of conditions on task, model and settings."""
        return (self.task is not None) + (self.model is not None) + len(self.overrides)


class ReportedRow(ReportedArm, frozen=True, forbid_unknown_fields=True, kw_only=True):
    """A row of a paper's table."""

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

    @property
    def runs(self) -> tuple[object, ...]:
        """All that decides which runs the row is about."""
        return *super().runs, frozenset(self.among.items())


class NamedArm(ReportedArm, frozen=True, forbid_unknown_fields=True, kw_only=True):
    """A paper's name of an arm."""

    name: PaperName


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
    names: tuple[NamedArm, ...] = ()
    """Of the arms whose name in the paper is not evorun's."""
