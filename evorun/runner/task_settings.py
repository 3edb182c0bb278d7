"""The settings of a run's task, and of the sandbox that its grader's programs run in."""

from collections.abc import Mapping
from typing import Any

from evorun.runner import registry
from evorun.runner.typed import read_name, typed
from evorun.sandbox.config import SandboxConfig
from evorun.tasks.base import TaskConfig


def read_task(config: Mapping[str, Any]) -> TaskConfig:
    """Return the task's settings. Raises ConfigError."""
    return typed(registry.task_config_class(read_name(config, "task")), config["task"], "task")


def read_sandbox(config: Mapping[str, Any], task: TaskConfig) -> SandboxConfig:
    """Return the sandbox's settings, with what the task adds for its grader. Raises ConfigError."""
    return task.add_to_sandbox(typed(SandboxConfig, config.get("sandbox", {}), "sandbox"))
