"""Loads a taskset of verifiers and scores given replies by its rewards, without harness and runtime.

The interfaces are those of verifiers 0.4 (`verifiers.v1`).
"""

import copy
import inspect
from collections.abc import Mapping
from contextvars import ContextVar
from functools import cache
from typing import Any, NamedTuple

import verifiers.v1 as vf
from verifiers.v1.configs.agent import AgentConfig
from verifiers.v1.state import state_cls

from evorun.errors import first_line
from evorun.models.base import Message
from evorun.tasks.outside import Unsupported

_asked: ContextVar[list[str] | None] = ContextVar("evorun_asked", default=None)


class Scored(NamedTuple):
    """A reply's rewards."""

    reward: float
    """Sum of all rewards by their weights, as a trace has it."""
    parts: Mapping[str, float]
    """The rewards by name, without their weights."""


class Scorer:
    """The behaviour of a taskset's tasks, apart from their data."""

    def __init__(self, task: vf.Task) -> None:
        self._data_type = type(task.data)
        self._task = copy.copy(task)
        del self._task.data  # the data of one task, which only its reference may hold

    def restore(self, reference: Mapping[str, Any]) -> vf.Task:
        """Return the task whose data `dump_data` wrote."""
        task = copy.copy(self._task)
        task.data = self._data_type.model_validate(reference)
        return task

    async def score(self, reference: Mapping[str, Any], text: str) -> Scored:
        """Score a reply. Raises Unsupported where a reward asks a model, and what the rewards raise.

        reference: the task's data, as `dump_data` writes it.
        """
        task = self.restore(reference)
        messages = [_MESSAGES[shown["role"]](content=shown["content"]) for shown in read_prompt(task.data)]
        nodes = [
            vf.MessageNode(parent=number - 1 if number else None, message=message)
            for number, message in enumerate(messages)
        ]
        reply = vf.AssistantMessage(content=text)
        nodes.append(vf.MessageNode(parent=len(nodes) - 1, message=reply, sampled=True))
        trace = vf.Trace(
            task=vf.TraceTask(type=type(task).__name__, data=task.data, key=task.key, hash=task.hash),
            state=state_cls(type(task))(),
            agent=vf.AgentInfo(config=AgentConfig()),
            nodes=nodes,
        )
        asked = list[str]()
        token = _asked.set(asked)
        try:
            await task.score(trace)
        except Exception:
            if not asked:
                raise
        finally:
            _asked.reset(token)
        if asked:
            raise Unsupported(f"expected rewards that ask no model, got one that asks the judge {asked[0]}")
        return Scored(trace.reward, {name: reward.score for name, reward in trace.rewards.items() if reward})


def load_tasks(taskset_id: str, arguments: Mapping[str, Any], first: int | None) -> list[vf.Task]:
    """Return the tasks of a taskset, in its order. Raises Unsupported, in one line, for what evorun cannot score.

    arguments: of the taskset's configuration. first: read only so many.
    """
    _refuse_judges()
    try:
        config = vf.taskset_config_type(taskset_id).model_validate({**arguments, "id": taskset_id})
        taskset = vf.load_taskset(config)
        environment, harness = vf.environment_class(taskset_id), vf.default_harness_id(taskset_id)
    except Exception as error:  # of the package's own code
        raise Unsupported(f"cannot be loaded: {first_line(error)}") from error
    if environment is not vf.SingleAgentEnv:
        raise Unsupported(f"expected a taskset for a single agent, got the environment {environment.__name__}")
    if harness == taskset_id:
        raise Unsupported("expected a taskset without a harness of its own, got one")
    if taskset.toolsets(config):
        raise Unsupported("expected a taskset without tools, got toolsets")
    if first is None and not taskset.bounded:
        raise Unsupported("expected a finite taskset, got one without end; set task.first=N to read N tasks")
    try:
        tasks = list(taskset if first is None else taskset.take(first))
    except Exception as error:
        raise Unsupported(f"its tasks cannot be read: {first_line(error)}") from error
    for example in {type(task): task for task in tasks}.values():
        _check_behaviour(example)
    for task in tasks:
        _check_data(task)
    return tasks


def dump_data(task: vf.Task) -> dict[str, Any]:
    """Return a task's data as JSON can hold them. Raises Unsupported where they do not come back the same."""
    dumped: dict[str, Any] = task.data.model_dump(mode="json")
    try:
        same = Scorer(task).restore(dumped).data == task.data
    except ValueError:
        same = False
    if not same:
        raise Unsupported(f"task {task.data.idx}: expected data that JSON can hold, got others")
    return dumped


def read_prompt(data: vf.TaskData) -> tuple[Message, ...]:
    """Return a task's first messages, as a harness that appends a system prompt sends them.

    Raises Unsupported for content other than text.
    """
    system = [Message(role="system", content=data.system_prompt)] if data.system_prompt else []
    if isinstance(data.prompt, str):
        return (*system, Message(role="user", content=data.prompt))
    for message in data.prompt or ():
        if message.role not in _MESSAGES or not isinstance(message.content, str):
            raise Unsupported(f"task {data.idx}: expected messages of text alone, got others")
    return (*system, *(Message(role=message.role, content=message.content) for message in data.prompt or ()))


_MESSAGES: Mapping[str, type[Any]] = {
    "system": vf.SystemMessage,
    "user": vf.UserMessage,
    "assistant": vf.AssistantMessage,
}
_HOOKS = ("setup", "finalize", "stage_verifier")


def _check_behaviour(task: vf.Task) -> None:
    """Refuse a kind of task that needs more than a reply to be scored."""
    kind = type(task)
    if kind.NEEDS_CONTAINER:
        raise Unsupported(f"expected tasks without a container, got {kind.__name__}, which needs one")
    if overridden := [name for name in _HOOKS if getattr(kind, name) is not getattr(vf.Task, name)]:
        raise Unsupported(f"expected tasks without a runtime, got {kind.__name__}.{overridden[0]}, which needs one")
    if kind.toolsets(task.config):
        raise Unsupported(f"expected tasks without tools, got toolsets of {kind.__name__}")
    try:
        rewards, judges = task.hooks("reward"), task.plugged_judges()
    except Exception as error:  # a function or a judge that the configuration names
        raise Unsupported(f"its rewards cannot be loaded: {first_line(error)}") from error
    if judges:
        raise Unsupported(f"expected rewards that ask no model, got the judge {judges[0].reward_name}")
    if not rewards:
        raise Unsupported(f"expected tasks with rewards, got none of {kind.__name__}")
    if bound := [reward.__name__ for reward in rewards if _needs_runtime(reward)]:
        raise Unsupported(f"expected rewards of the reply alone, got some that need a runtime: {', '.join(bound)}")


def _needs_runtime(reward: Any) -> bool:
    # As verifiers does, which would skip such a reward in silence.
    parameter = inspect.signature(reward).parameters.get("runtime")
    return parameter is not None and parameter.default is inspect.Parameter.empty


def _check_data(task: vf.Task) -> None:
    data = task.data
    if other := sorted(name for name in vars(task) if name not in ("data", "config") and not name.startswith("__")):
        raise Unsupported(f"task {data.idx}: expected tasks of data and settings, got the attribute {other[0]}")
    for name in ("image", "skills", "artifacts"):
        if getattr(data, name):
            raise Unsupported(f"task {data.idx}: expected tasks without a container, got data with {name}")
    messages = read_prompt(data)
    if not messages or messages[-1]["role"] != "user":
        raise Unsupported(f"task {data.idx}: expected a prompt that ends in a user's message, got another")


@cache
def _refuse_judges() -> None:
    # Rewards may make judges of any class and name: only here do all of them pass. Elsewhere nothing changes.
    original = vf.Judge.complete

    async def complete(self: vf.Judge, *arguments: Any, **options: Any) -> Any:
        asked = _asked.get()
        if asked is None:
            return await original(self, *arguments, **options)
        asked.append(self.reward_name)
        raise Unsupported("the judge is refused")

    vf.Judge.complete = complete
