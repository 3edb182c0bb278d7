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
from evorun.tasks.base import Prompt
from evorun.tasks.outside import Ask, Unsupported

_judging: ContextVar["_Judging | None"] = ContextVar("evorun_judging", default=None)


class JudgeFailed(Exception):
    """A judge refused, or said what its reward cannot read: the reply has no reward."""


class _Judging:
    """Answers the judges of one scoring, and keeps the first exception that ended one."""

    def __init__(self, ask: Ask | None) -> None:
        self.ask = ask
        self.error: Exception | None = None


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

    async def score(self, reference: Mapping[str, Any], text: str, ask: Ask | None = None) -> Scored:
        """Score a reply.

        reference: the task's data, as `dump_data` writes it. ask: answers the judges; None: there are none. Raises
        Unsupported where a reward asks one nevertheless, JudgeFailed where a judge has no verdict, and what `ask` and
        the rewards raise.
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
        judging = _Judging(ask)
        token = _judging.set(judging)
        try:
            await task.score(trace)
        except Exception:
            if judging.error is None:
                raise
        finally:
            _judging.reset(token)
        if judging.error is not None:  # which verifiers wraps, and which a reward may have caught
            raise judging.error
        return Scored(trace.reward, {name: reward.score for name, reward in trace.rewards.items() if reward})


def load_tasks(
    taskset_id: str, arguments: Mapping[str, Any], first: int | None, *, judged: bool = False
) -> list[vf.Task]:
    """Return the tasks of a taskset, in its order. Raises Unsupported, in one line, for what evorun cannot score.

    arguments: of the taskset's configuration. first: read only so many. judged: judges of its configuration are asked.
    """
    _divert_judges()
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
        _check_behaviour(example, judged=judged)
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


def _check_behaviour(task: vf.Task, *, judged: bool) -> None:
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
    if judges and not judged:
        raise Unsupported(_refuse(f"the judge {judges[0].reward_name}"))
    if not rewards and not judges:
        raise Unsupported(f"expected tasks with rewards, got none of {kind.__name__}")
    scorers = {reward.__name__: reward for reward in rewards} | {judge.reward_name: judge.score for judge in judges}
    if bound := [name for name, scorer in scorers.items() if _needs_runtime(scorer)]:
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


def _refuse(asked: str) -> str:
    return f"expected rewards that ask no model, got {asked}; set task.model_graded=true, and gold=MODEL for its judge"


@cache
def _divert_judges() -> None:
    # Rewards may make judges of any class and name: only here do all of them pass. Elsewhere nothing changes.
    original = vf.Judge.complete

    async def complete(self: vf.Judge, messages: Any, **options: Any) -> Any:
        judging = _judging.get()
        if judging is None:
            return await original(self, messages, **options)
        try:
            return await _ask_judge(self, judging.ask, messages, **options)
        except Exception as error:
            judging.error = judging.error or error
            raise

    vf.Judge.complete = complete


async def _ask_judge(
    judge: vf.Judge,
    ask: Ask | None,
    messages: Any,
    *,
    trace: Any = None,
    schema: Any = None,
    parse: Any = None,
    **_: Any,
) -> vf.JudgeResponse:
    """Have a judge's request answered, read the reply as verifiers does, and record it in the trace."""
    name = judge.reward_name
    if ask is None:
        raise Unsupported(_refuse(f"one that asks the judge {name}"))
    given = [vf.UserMessage(content=messages)] if isinstance(messages, str) else messages
    if any(not isinstance(message.content, str) for message in given):
        raise Unsupported(f"expected a judge that is asked in text, got others of {name}")
    shown = tuple(Message(role=message.role, content=message.content) for message in given)
    choices = judge.config.choices if isinstance(judge, vf.ReferenceJudge) else ("yes", "no")
    said = await ask(
        Prompt(messages=shown, json_schema=schema and schema.model_json_schema(), hints={"verdicts": choices})
    )
    if said is None:
        raise JudgeFailed(f"the judge {name} refused, or its reply was cut off")
    response = vf.JudgeResponse(text=said)
    try:
        response.parsed = None if schema is None else schema.model_validate_json(said)
        if parse is not None:
            response.parsed = parse(response)
    except Exception as error:
        raise JudgeFailed(f"the reply of the judge {name} cannot be read: {first_line(error)}") from error
    finally:
        if trace is not None:
            trace.record_judge_call(name=name, request={"model": "gold", "messages": list(shown)}, response=response)
    return response
