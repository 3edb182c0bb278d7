"""Study files: a study's question, methods and budget, stated before its runs."""

import hashlib
from collections.abc import Mapping, Sequence
from itertools import product
from pathlib import Path
from typing import Annotated, Any

import msgspec

from evorun.errors import ConfigError
from evorun.fields import NonNegativeInt, PositiveFloat
from evorun.runs.directory import current_time
from evorun.runs.paths import display
from evorun.runs.reported import Setting
from evorun.runs.scores import Score

Text = Annotated[str, msgspec.Meta(min_length=1)]
Settings = dict[Annotated[str, msgspec.Meta(pattern=r"^[a-z_][\w.]*$")], Setting | list[Setting]]
"""Values by key, as on a command line; for a group its choice. Under `methods`, a list stands for a method each."""


class StatedStudy(msgspec.Struct, frozen=True, forbid_unknown_fields=True, kw_only=True):
    """The content of a study file."""

    question: Text
    """The question of the study."""
    methods: Annotated[tuple[Text | Settings, ...], msgspec.Meta(min_length=1)]
    """Methods to compare with the control: a name, or one with settings (`{method: duel_evolve, method.duels: 8}`).

    A list among these settings (`method.duels: [8, 16]`) stands for a method with each of its values."""
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
        for part, arm in (*(("methods", arm) for arm in self.methods), ("control", self.control)):
            if isinstance(arm, dict):
                _refuse_seeds(part, arm)
        for part, given in (("control", self.control), ("budget", self.budget), ("settings", self.settings)):
            if isinstance(given, dict):
                _refuse_seeds(part, given)
                _refuse_lists(part, given)
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
        return [arm for stated in (self.control, *self.methods) for arm in _expand(stated)]

    @property
    def common(self) -> dict[str, Any]:
        """Settings of all runs."""
        budget: dict[str, Any] = (
            {"budget": self.budget}
            if isinstance(self.budget, str)
            else {f"budget.{key}": value for key, value in self.budget.items()}
        )
        return {"task": self.task, **budget, **self.settings}


def _expand(stated: str | Settings) -> list[dict[str, Any]]:
    """Return the arms that an entry stands for: one for each combination of its lists' values."""
    if isinstance(stated, str):
        return [{"method": stated}]
    choices = [value if isinstance(value, list) else [value] for value in stated.values()]
    return [dict(zip(stated, values, strict=True)) for values in product(*choices)]


def _refuse_seeds(part: str, given: Settings) -> None:
    if "seed" in given:
        seeds = given["seed"] if isinstance(given["seed"], list) else [given["seed"]]
        raise ValueError(
            f"{part}.seed: all methods have the same seeds; write seeds: {_write(seeds)} at the top, and no seed here"
        )


def _refuse_lists(part: str, given: Settings) -> None:
    for key, value in given.items():
        if isinstance(value, list):
            first = _write(value[:1]).strip("[]") or "VALUE"
            advice = {
                "control": f"the control is a single method; write {key}: {first} here, and the others under methods",
                "budget": f"all runs have the same budget; write {key}: {first}, and a study file for each other value",
                "settings": f"all runs have the same settings; write {key}: {first} here for all of them, or "
                f"{{method: NAME, {key}: {_write(value)}}} under methods for one with each value, and {key} in the "
                "control",
            }
            raise ValueError(f"{part}.{key}: expected one value, got the list {_write(value)}; {advice[part]}")


def _write(values: Sequence[Setting]) -> str:
    return f"[{', '.join(map(str, values))}]"


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
        raise ConfigError(f"study={display(path)}: {_explain(str(error))}") from error
    digest = hashlib.sha256(content).hexdigest()
    return RecordedStudy(file=str(path.resolve()), digest=digest, recorded=current_time(), study=study)


_LISTS = ("methods", "seeds")


def _explain(error: str) -> str:
    """Return msgspec's error in the words of a study file: the key, what was expected, and what to write."""
    _, lacks, key = error.partition("missing required field ")
    if lacks:
        return f"expected the key {key.strip('`')}, got none; write {key.strip('`')}: ..."
    reason, _, place = error.partition(" - at `$.")
    key = place.strip("`")
    if key in _LISTS and reason.startswith("Expected `array`, got"):
        return f"{key}: expected a list; write {key}: [...]"
    if key and reason.endswith("got `array`"):
        return f"{key}: expected one value, got a list; all runs of a study share it, so write a study file for each"
    return f"{key}: {reason}" if key else reason


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
