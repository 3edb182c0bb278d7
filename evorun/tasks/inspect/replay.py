"""Replays the solver and the scorer of an inspect_ai task on a given reply, without inspect_ai's evaluation.

The solver runs too, since some scorers read what it leaves in the state, as `choice` reads the marks of
`multiple_choice`. Each replay belongs into an asyncio task of its own, whose context variables it sets.
"""

import math
from collections.abc import Awaitable, Callable, Iterator, Sequence
from contextlib import contextmanager
from contextvars import ContextVar
from functools import cache, wraps
from typing import Any, NamedTuple, cast

from inspect_ai.model import ChatMessage, ChatMessageSystem, ChatMessageUser, Model, ModelName, ModelOutput, get_model
from inspect_ai.scorer import Score, Target, value_to_float
from inspect_ai.solver import Generate, TaskState, chain

from evorun.models.base import Message
from evorun.tasks.outside import Unsupported

MODEL = "evorun/policy"
"""Name of the model that solvers and scorers see."""

Ask = Callable[[tuple[Message, ...]], Awaitable[str | None]]
"""Answers a scorer's request of a model; None: refused."""

_ask: ContextVar[Ask | None] = ContextVar("evorun_ask", default=None)


class Solved(NamedTuple):
    """A solver's work with a reply."""

    state: TaskState
    prompts: Sequence[tuple[Message, ...]]
    """The messages of each of its model calls."""


class Replay:
    """The solver and one scorer of an inspect_ai task."""

    def __init__(self, task: Any, *, scorer: int = 0, value: str | None = None) -> None:
        """scorer: index of the scorer in the task. value: key of its value, where that is a mapping.

        Raises Unsupported for a task without such a scorer, with a sandbox, or whose samples are made while it runs.
        """
        scorers = task.scorer or []
        if not 0 <= scorer < len(scorers):
            raise Unsupported(f"task.scorer: expected an index below {len(scorers)}, the number of its scorers")
        if task.sample_source is not None:
            raise Unsupported("expected a data set of samples, got a source that makes them while it runs")
        if task.sandbox is not None:
            raise Unsupported(f"expected a task without a sandbox, got '{task.sandbox.type}'; {LEVEL_TWO}")
        setup = task.setup or []
        solvers = (*(setup if isinstance(setup, Sequence) and not callable(setup) else [setup]), task.solver)
        self._solver = chain(*solvers)
        self._scorer = scorers[scorer]
        self._cleanup = task.cleanup
        self._system = task.config.system_message
        self._value = value
        self._to_float = value_to_float()
        _divert_models()

    async def prompt(self, sample: Any) -> tuple[Message, ...]:
        """Return the messages of a sample's only model call. Raises Unsupported as `solve` does."""
        solved = await self.solve(sample, None)
        return solved.prompts[0]

    async def solve(self, sample: Any, reply: str | None) -> Solved:
        """Run the solver with a reply in the model's place; None: only until it has asked.

        Raises Unsupported unless it asks once, in text and without tools.
        """
        for need in ("sandbox", "files", "setup"):
            if getattr(sample, need):
                raise Unsupported(f"sample {sample.id}: expected no {need}, got some; {LEVEL_TWO}")
        prompts: list[tuple[Message, ...]] = []

        async def generate(state: TaskState, *_: Any, **__: Any) -> TaskState:
            if state.tools:
                raise Unsupported(f"sample {sample.id}: expected a solver without tools, got some; {LEVEL_TWO}")
            system = [ChatMessageSystem(content=self._system)] if self._system else []
            prompts.append(read_messages([*system, *state.messages]))
            state.output = ModelOutput.from_content(MODEL, reply or "")
            state.messages.append(state.output.choices[0].message)
            return state

        async def refuse(messages: tuple[Message, ...]) -> str | None:
            raise Unsupported(f"sample {sample.id}: expected a solver that asks by `generate` alone; {LEVEL_TWO}")

        with _diverted(refuse):
            copied = sample.model_copy(deep=True)
            messages: list[ChatMessage] = (
                [ChatMessageUser(content=copied.input)] if isinstance(copied.input, str) else copied.input
            )
            state = TaskState(
                model=ModelName(MODEL),
                sample_id=copied.id,
                epoch=1,
                input=copied.input,
                messages=list(messages),
                target=Target(copied.target),
                choices=copied.choices,
                metadata=copied.metadata or {},
            )
            try:
                state = await self._solver(state, cast(Generate, generate))
            except Unsupported:
                raise
            except Exception:
                # Without a reply, a solver may fail at what it does with one.
                if reply is not None or not prompts:
                    raise
        if len(prompts) != 1:
            raise Unsupported(
                f"sample {sample.id}: expected a solver of one model call, got {len(prompts)}; {LEVEL_TWO}"
            )
        return Solved(state, prompts)

    async def score(self, sample: Any, target: Sequence[str], reply: str, ask: Ask) -> Score | None:
        """Return the scorer's score of a reply; None where it gives none. Raises what solver and scorer raise.

        target: replaces the sample's. ask: answers the scorer's own requests of a model.
        """
        solved = await self.solve(sample.model_copy(update={"target": list(target)}), reply)
        with _diverted(ask):
            score: Score | None = await self._scorer(solved.state, Target(list(target)))
            if self._cleanup is not None:
                await self._cleanup(solved.state)
        return score

    def read_value(self, score: Score | None) -> float | None:
        """Return a score as inspect_ai's metrics read it; None: unscored. Raises Unsupported for several values."""
        if score is None:
            return None
        value: Any = score.value
        if isinstance(value, dict):
            if self._value not in value:
                raise Unsupported(f"task.value: expected one of {', '.join(value)}, got {self._value}")
            value = value[self._value]
        elif self._value is not None:
            raise Unsupported(f"task.value={self._value}: expected null, since the scorer gives a single value")
        if isinstance(value, list | tuple):
            raise Unsupported(f"expected a score of one value, got a list of {len(value)}")
        number = math.nan if value is None else float(self._to_float(value))
        return number if math.isfinite(number) else None


LEVEL_TWO = "evaluate it by `inspect eval` with --model=evorun/POLICY (docs/guides/inspect.md)"
"""Advice for tasks of several calls, with tools or a sandbox."""


def read_messages(messages: Sequence[Any]) -> tuple[Message, ...]:
    """Return inspect_ai's messages as evorun's. Raises Unsupported for content other than text."""
    read = []
    for message in messages:
        parts = [] if isinstance(message.content, str) else [part.type for part in message.content]
        if message.role == "tool" or any(part not in ("text", "reasoning") for part in parts):
            raise Unsupported(f"expected messages of text alone, got {', '.join(dict.fromkeys(parts)) or 'a tool'}")
        read.append(Message(role=message.role, content=message.text))
    return tuple(read)


@contextmanager
def _diverted(ask: Ask) -> Iterator[None]:
    """Within it, `ask` answers each request of a model in this asyncio task."""
    token = _ask.set(ask)
    try:
        yield
    finally:
        _ask.reset(token)


@cache
def _divert_models() -> None:
    # Scorers take models by role, by name or as objects: only here do all of them pass. Elsewhere nothing changes.
    original = Model.generate

    @wraps(original)
    async def generate(self: Model, input: Any, *arguments: Any, **options: Any) -> ModelOutput:
        ask = _ask.get()
        if ask is None:
            return await original(self, input, *arguments, **options)
        messages = [ChatMessageUser(content=input)] if isinstance(input, str) else input
        said = await ask(read_messages(messages))
        return ModelOutput.from_content(MODEL, said or "", stop_reason="stop" if said else "content_filter")

    Model.generate = generate


def activate_model() -> None:
    """Give `get_model()` a model in this asyncio task; its requests are diverted."""
    from inspect_ai.model import GenerateConfig
    from inspect_ai.model._model import init_active_model  # no public name: evaluations alone set it

    init_active_model(get_model("mockllm/evorun"), GenerateConfig())
