"""A student: a run's model, fine-tuned before the run on a teacher's answers (Lyria paper, section 5).

Two ordinary runs come first: the teacher's, on questions outside the reported results, and one of `method=sft` on its
traces. Their configurations derive from that of the run they serve.
"""

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any, TypeVar

from evorun.errors import ConfigError, EvorunError
from evorun.runner import registry
from evorun.runner.served import AUTOMATIC
from evorun.traces.kinds import Settings, make_settings

E = TypeVar("E", bound=EvorunError)


@dataclass
class StudentConfig:
    """Schema of `conf/student/*.yaml`, which give the source of each value."""

    name: str
    kind: str = "laft"
    """The selection of the teacher's responses that become training examples, as `evorun traces kind=` names it."""
    top: float | None = None
    """Share of best responses to keep, for kind=dpft_top only; null: as in section 5.2."""
    parsed_only: bool = False
    """Drop responses without a readable answer too."""
    task: dict[str, Any] = field(default_factory=dict)
    """Task settings that differ in the teacher's run, beside the split: it answers training problems."""
    teaching: dict[str, Any] = field(default_factory=dict)
    """The teacher's method, with its hyperparameters."""
    tuning: dict[str, Any] = field(default_factory=dict)
    """Hyperparameters of method=sft, whose `data` are the traces."""

    def __post_init__(self) -> None:
        _ = self.traces  # reading it checks the kind
        if self.tuning.get("data") is not None:
            raise ConfigError(
                f"student.tuning.data: expected null, got {self.tuning['data']}: a student learns from its teacher's "
                "traces; method=sft learns from a file"
            )

    @property
    def traces(self) -> Settings:
        """The settings of the teacher's traces. Raises ConfigError, naming the key."""
        try:
            return make_settings(self.kind, None if self.top is None else str(self.top), self.parsed_only)
        except ConfigError as error:
            raise ConfigError(f"student.{error}") from error


_POLICY = {"name": "policy"}
_AS_THE_RUN = ("seed", "sandbox", "run", "evorun", "prices")
"""Keys that the stages take from the run."""


def teacher_composition(config: Mapping[str, Any]) -> dict[str, Any]:
    """Return the configuration of the teacher's run for the student of a run; the run's budget does not limit it.

    Raises ConfigError for settings that the task does not have, naming the key, and for a task without training split.
    """
    student = config["student"]
    if "teaching" not in student:
        raise ConfigError(
            f"student.{next(iter(student))}: expected a student that has this setting, got none; set student=laft, or "
            "leave it out"
        )
    return {
        **_shared(config),
        "method": dict(student["teaching"]),
        "model": config["teacher"],
        "engine": _choose_teacher_engine(config),
    }


def _choose_teacher_engine(config: Mapping[str, Any]) -> dict[str, Any]:
    """Return the teacher's engine: for `auto` the run's where its model is simulated, with its settings.

    It is vllm where the run has that, which a plan must know without a GPU, too.
    """
    own: dict[str, Any] = config["teacher_engine"]
    if own.get("name") != AUTOMATIC:
        return own
    engine = config["engine"]
    if engine.get("name") == "simulated":
        return dict(engine)
    return {**own, "name": "vllm"} if engine.get("name") == "vllm" else own


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
"""The keys of a stage's run, by their names in the run it serves."""


def in_stage(stage: str, error: E) -> E:
    """Return the error with the names of its stage and of the keys it concerns."""
    return type(error)(f"in stage {stage} ({_KEYS[stage]}): {error}")


def _shared(config: Mapping[str, Any]) -> dict[str, Any]:
    """Return the keys that both stages share; their task is on its training split.

    Raises ConfigError for a task without such a split and, naming the key, for a setting that the task does not have.
    """
    task, others = config["task"], config["student"].get("task", {})
    split = registry.task_config_class(task["name"]).training_split
    if split is None:
        raise ConfigError(
            f"student: expected a task with a training split for teacher questions, task={task['name']} has none; "
            f"tasks that have one: {', '.join(registry.training_splits())}"
        )
    # Composition has already resolved `task.sampling` into the method's own keys.
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
        "budget": {"name": "unlimited"},  # the run's budget covers its own problems, not the teaching
    }
