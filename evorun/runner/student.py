"""A student: a run's model that is fine-tuned before the run, on what a teacher answered (Lyria paper, section 5).

Two ordinary runs come first: the teacher's, on questions that no result is reported on, and one of `method=sft` on the
traces of it. Their configurations are made out of that of the run which they are for.
"""

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any, TypeVar

from evorun.errors import ConfigError, EvorunError
from evorun.runner import registry
from evorun.traces.kinds import Settings, make_settings

E = TypeVar("E", bound=EvorunError)


@dataclass
class StudentConfig:
    """Schema of `conf/student/*.yaml`, which give the source of each value."""

    name: str
    kind: str = "laft"
    """The selection of the teacher's responses that become training examples, as `evorun traces kind=` names it."""
    top: float | None = None
    """Best share that stays, for kind=dpft_top only; null: section 5.2's."""
    parsed_only: bool = False
    """Drop responses without a readable answer too."""
    task: dict[str, Any] = field(default_factory=dict)
    """Settings of the task that are others in the teacher's run, beside the split: it answers training problems."""
    teaching: dict[str, Any] = field(default_factory=dict)
    """The method that the teacher answers by, with its hyperparameters."""
    tuning: dict[str, Any] = field(default_factory=dict)
    """Hyperparameters of method=sft; its `data` are the traces."""

    def __post_init__(self) -> None:
        _ = self.traces  # reading it checks the kind
        if self.tuning.get("data") is not None:
            raise ConfigError(
                f"student.tuning.data: expected null, got {self.tuning['data']}: a student learns from its teacher's "
                "traces; method=sft learns from a file"
            )

    @property
    def traces(self) -> Settings:
        """The settings of the traces of the teacher's run. Raises ConfigError, naming the key."""
        try:
            return make_settings(self.kind, None if self.top is None else str(self.top), self.parsed_only)
        except ConfigError as error:
            raise ConfigError(f"student.{error}") from error


_POLICY = {"name": "policy"}
_AS_THE_RUN = ("seed", "sandbox", "run", "evorun")
"""Keys that the stages have from the run."""


def teacher_composition(config: Mapping[str, Any]) -> dict[str, Any]:
    """Return the configuration of the teacher's run for the student of a run; the run's budget has no part in it.

    Raises ConfigError, naming the key, for settings that the task does not have, and for a task without training split.
    """
    student = config["student"]
    return {
        **_shared(config),
        "method": dict(student["teaching"]),
        "model": config["teacher"],
        "engine": config["teacher_engine"],
    }


def tuning_composition(config: Mapping[str, Any], data: str) -> dict[str, Any]:
    """Return the configuration of the run that fine-tunes a run's model on `data`, a file of traces."""
    return {
        **_shared(config),
        "method": {**config["student"]["tuning"], "data": data},
        "model": config["model"],
        "engine": config["engine"],
        "training": config["training"],
    }


_KEYS = {
    "teacher": "method is student.teaching, model is teacher, engine is teacher_engine, student.task changes task",
    "student": "method is student.tuning, student.task changes task",
}
"""The keys of a stage's run by their names in the run that it is for."""


def in_stage(stage: str, error: E) -> E:
    """Return the error with the name of its stage and of the keys that it is about."""
    return type(error)(f"in stage {stage} ({_KEYS[stage]}): {error}")


def _shared(config: Mapping[str, Any]) -> dict[str, Any]:
    """Return the keys that both stages share; their task is on its training split.

    Raises ConfigError for a task without such a split and, naming the key, for a setting that the task does not have.
    """
    task, others = config["task"], config["student"].get("task", {})
    split = registry.task_config_class(task["name"]).training_split
    if split is None:
        raise ConfigError(
            f"student: task={task['name']} has no training split, so no questions for a teacher that nothing is "
            f"reported on; tasks that have one: {', '.join(registry.training_splits())}"
        )
    # `task.sampling` is resolved into the method's own keys while the config is composed, before this.
    if "sampling" in others:
        raise ConfigError(
            "student.task.sampling: has no effect, the teacher's method has read task.sampling; set "
            "student.teaching.KEY=VALUE"
        )
    for key in others:
        if key not in task:
            raise ConfigError(
                f"student.task.{key}: task={task['name']} has no such setting, expected one of {', '.join(task)}"
            )
    return {
        **{key: config[key] for key in _AS_THE_RUN if key in config},
        "task": {**task, "split": split, **others},
        "judge": _POLICY,
        "judge_engine": _POLICY,
        "budget": {"name": "unlimited"},  # the run's budget is for its own problems: teaching is not part of its cost
    }
