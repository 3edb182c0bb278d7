"""Study files: a study's question, methods and budget, stated before its runs."""

import hashlib
from collections.abc import Mapping
from pathlib import Path
from typing import Annotated, Any

import msgspec

from evorun.errors import ConfigError
from evorun.fields import NonNegativeInt, PositiveFloat
from evorun.runs.directory import current_time
from evorun.runs.paths import display
from evorun.runs.schema import Setting
from evorun.runs.scores import Score

Text = Annotated[str, msgspec.Meta(min_length=1)]
Settings = dict[Annotated[str, msgspec.Meta(pattern=r"^[a-z_][\w.]*$")], Setting]
"""Values by key, as on a command line; for a group its choice."""


class StatedStudy(msgspec.Struct, frozen=True, forbid_unknown_fields=True, kw_only=True):
    """The content of a study file."""

    question: Text
    """The question of the study."""
    methods: Annotated[tuple[Text | Settings, ...], msgspec.Meta(min_length=1)]
    """Methods to compare with the control: a name, or one with settings (`{method: duel_evolve, method.duels: 8}`)."""
    control: Text | Settings
    """The method that each of them is compared with."""
    task: Text
    """Name of the task."""
    score: Text
    """The task's primary score."""
    budget: Text | Settings
    """A budget's name, or its limits (`{calls_per_problem: 300}`)."""
    seeds: Annotated[tuple[NonNegativeInt, ...], msgspec.Meta(min_length=1)]
    """Seeds of each method's runs."""
    smallest_effect: PositiveFloat
    """Smallest difference in the score that matters, in the score's unit; of a rate a fraction (.05: five points)."""
    stopping_rule: Text
    """The condition on which no further runs are made."""
    settings: Settings = {}
    """Settings of all runs: model, engine, number of problems."""

    def __post_init__(self) -> None:
        if len(set(self.seeds)) < len(self.seeds):
            raise ValueError("seeds: expected each seed once")
        if any(arm in self.arms[:place] for place, arm in enumerate(self.arms)):
            raise ValueError("methods: expected methods that differ from each other and from the control")
        for arm in self.arms:
            if "method" not in arm or arm.keys() != self.arms[0].keys():
                raise ValueError(
                    "methods and control: expected each with its method and all with the same keys, so that none takes "
                    f"another's settings, got {', '.join(self.arms[0])} of the control and {', '.join(arm)}"
                )

    @property
    def arms(self) -> list[dict[str, Any]]:
        """Settings that tell the compared methods apart, the control's first."""
        return [{"method": arm} if isinstance(arm, str) else dict(arm) for arm in (self.control, *self.methods)]

    @property
    def common(self) -> dict[str, Any]:
        """Settings of all runs."""
        budget: dict[str, Any] = (
            {"budget": self.budget}
            if isinstance(self.budget, str)
            else {f"budget.{key}": value for key, value in self.budget.items()}
        )
        return {"task": self.task, **budget, **self.settings}


class RecordedStudy(msgspec.Struct, frozen=True, kw_only=True):
    """A study file as it was recorded before the first run."""

    file: str
    """Absolute."""
    digest: str
    """SHA-256 of the file."""
    recorded: str
    """Time of the record, in ISO 8601 with the zone."""
    study: StatedStudy
    """Its content."""


def record_study(path: Path) -> RecordedStudy:
    """Read a study file and record it now. Raises ConfigError for one that cannot be read or is malformed."""
    try:
        content = path.read_bytes()
        study = msgspec.yaml.decode(content, type=StatedStudy)
    except OSError as error:
        raise ConfigError(f"study={display(path)}: cannot read the study file: {error.strerror}") from error
    except msgspec.DecodeError as error:  # a ValidationError, or no YAML
        _, lacks, key = str(error).partition("missing required field ")
        reason = f"expected the key {key.strip('`')}, got none; write {key.strip('`')}: ..." if lacks else str(error)
        raise ConfigError(f"study={display(path)}: {reason}") from error
    digest = hashlib.sha256(content).hexdigest()
    return RecordedStudy(file=str(path.resolve()), digest=digest, recorded=current_time(), study=study)


def find_study(config: Mapping[str, Any]) -> RecordedStudy | None:
    """Return the study that a run's configuration records; None without one, or for a malformed one."""
    try:
        return msgspec.convert(config.get("study"), RecordedStudy | None)
    except msgspec.ValidationError:
        return None


def require_score(study: StatedStudy, task: str, score: Score) -> None:
    """Raise ConfigError for a study of another score than its task's primary one, or of an effect beyond its range."""
    if study.score != score.name:
        raise ConfigError(
            f"study: expected score: {score.name}, the primary score of task={task}, got {study.score}; correct the "
            "study file and start again"
        )
    effect, low, high = study.smallest_effect, score.low, score.high
    if low is None or high is None or effect < high - low:
        return
    expected = f"smallest_effect: expected below {high - low:g} for {score.name}"
    if score.rate:
        meant = f"; did you mean {effect / 100:g}, that is {effect:g} points?" if effect < 100 else ""
        raise ConfigError(f"study: {expected}, a share of responses, got {effect:g}{meant}")
    raise ConfigError(f"study: {expected}, which lies between {low:g} and {high:g}, got {effect:g}")
