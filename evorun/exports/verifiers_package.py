"""A package with a taskset of verifiers whose problems and rewards are those of an evorun task."""

import json
from collections.abc import Mapping, Sequence

_TASKSET = '''\
"""TITLE: a taskset of verifiers, posed and graded by evorun."""

import verifiers.v1 as vf

from evorun.cli.task_grading import TaskGrading, shared_grading

SETTINGS = (
SETTINGS_LINES
)
"""Of the task, as a run of evorun takes them."""


class Settings(vf.TaskConfig):
    training: bool = False
    """The problems to train on, in place of those to test on."""


class Data(vf.TaskData):
    problem: str


class GradedTask(vf.Task[Data, vf.State, Settings]):
    @vf.reward
    async def grade(self, trace: vf.Trace) -> float:
        return await grading(self.config).reward(self.data.problem, trace.last_reply)


class TasksetSettings(vf.TasksetConfig):
    task: Settings = Settings()


class GradedTaskset(vf.Taskset[GradedTask, TasksetSettings]):
    def load(self) -> list[GradedTask]:
        tasks = []
        for name, messages in grading(self.config.task).prompts():
            system = "\\n\\n".join(message["content"] for message in messages if message["role"] == "system")
            turns = [message for message in messages if message["role"] != "system"]
            data = Data(id=name, problem=name, system_prompt=system or None, prompt=turns)
            tasks.append(GradedTask(data, self.config.task))
        return tasks


def grading(settings: Settings) -> TaskGrading:
    return shared_grading(SETTINGS, settings.training)


__all__ = ["GradedTaskset"]
'''
_PROJECT = """\
[build-system]
requires = ["hatchling>=1.27"]
build-backend = "hatchling.build"

[project]
name = "DISTRIBUTION"
version = "0.1.0"
description = "An evorun task as a taskset of verifiers."
requires-python = ">=3.11"
dependencies = ["evorun==VERSION", "verifiers>=0.4,<0.5"]

[tool.hatch.build.targets.wheel]
only-include = ["NAME.py"]
"""


def package_files(name: str, settings: Sequence[str], version: str) -> Mapping[str, str]:
    """Return the files of the package by their names.

    name: of the module. settings: of the task. version: evorun's, which alone grades alike.
    """
    lines = "\n".join(f"    {json.dumps(setting)}," for setting in settings)
    title = next(setting for setting in settings if setting.startswith("task="))
    taskset = _TASKSET.replace("TITLE", title).replace("SETTINGS_LINES", lines)
    project = _PROJECT.replace("DISTRIBUTION", name.replace("_", "-")).replace("VERSION", version)
    return {f"{name}.py": taskset, "pyproject.toml": project.replace("NAME", name)}
