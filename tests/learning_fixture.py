"""Methods that learn from a training split, with a scripted model and a policy that only takes notes."""

import asyncio
import dataclasses
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

import msgspec

from building import make_driver, make_method, toy_task
from evorun.models import Message, Reply, Request
from evorun.runs.budget import BudgetConfig
from evorun.runs.directory import RunDirectory
from evorun.tasks.base import Task
from evorun.training.wire import Figures, Row
from method_fixture import Ask, Driven, RightIsRight, Scripted, problem, quiz

SMALL: dict[str, Any] = {
    **{"steps": 4, "problems_per_step": 2, "group": 3, "max_tokens": 9},
    **{"eval_every": 2, "eval_samples": 1},
}
SPLIT = 5
"""Problems to train on: 100, 101, ..."""


def ids_of(messages: Sequence[Message]) -> tuple[int, ...]:
    return tuple(ord(letter) for message in messages for letter in message["content"])


class Sampled(Scripted):
    """Gives token ids, of the text's letters, where they are asked for; a text that ends in `...` was cut off."""

    async def complete(self, key: str, request: Request, step: int) -> Reply:
        reply = await super().complete(key, request, step)
        [completion] = reply.completions
        if request.token_ids and reply.error is None:
            ids = tuple(map(ord, completion.text))
            completion = msgspec.structs.replace(
                completion, tokens=len(ids), token_ids=ids, logprobs=(-0.5,) * len(ids) if request.logprobs else None
            )
        if completion.text.endswith("..."):
            completion = msgspec.structs.replace(completion, finish_reason="length")
        return msgspec.structs.replace(reply, completions=(completion,), prompt_ids=ids_of(request.messages))


class NotedPolicy:
    """Keeps what it is given to learn from."""

    def __init__(self, max_lag: int = 0) -> None:
        self.max_lag = max_lag
        self.batches: list[list[Row]] = []
        self.changed_rewards: list[int] = []
        """Steps whose rewards came from elsewhere than those of the update before."""
        self.exported = 0
        self.restarts: list[tuple[int, int]] = []
        """The step of each restart, and the number of batches before it."""
        self.stopwatch = None

    async def update(self, step: int, rows: Sequence[Row], *, rewards_changed: bool = False, **_: Any) -> Figures:
        self.batches.append(list(rows))
        if rewards_changed:
            self.changed_rewards.append(step)
        return Figures({"loss": 0.5 * len(self.batches)})

    async def restart(self, step: int) -> None:
        self.restarts.append((step, len(self.batches)))

    async def export(self) -> Path:
        self.exported = len(self.batches)
        return Path()


@dataclasses.dataclass
class Trained(Driven):
    """A driven method's run, its policy included."""

    policy: NotedPolicy

    def trained_on(self) -> list[str]:
        """Return the problem of every rollout, in order."""
        rollouts = sorted(self.model.of("rollout"), key=lambda ask: (ask.step, ask.index))
        return [str(ask.shown["problem"]) for ask in rollouts]


def varied(ask: Ask) -> str | None:
    """Some right, some wrong, some that cannot be read."""
    return ("right", "wrong", "?", "right;noted")[(ask.step + ask.index) % 4]


async def train(
    folder: Path,
    script: Callable[[Ask], str | None] = varied,
    *,
    method: str = "grpo",
    budget: BudgetConfig | None = None,
    seed: int = 0,
    task: Task | None = None,
    policy: NotedPolicy | None = None,
    model: type[Sampled] = Sampled,
    **config: Any,
) -> Trained:
    """Drive a method to its end."""
    chosen = make_method(method, **{**SMALL, **config})
    directory = RunDirectory(folder)
    speaker, policy = model(script), policy or NotedPolicy()
    try:
        loaded = quiz(task, problems=2)
        training = toy_task(loaded.task, [problem(100 + i) for i in range(SPLIT)], RightIsRight())
        training = dataclasses.replace(training, answers={one.id: "right" for one in training.problems})
        driver = make_driver(
            chosen, loaded, directory, speaker, budget=budget, seed=seed, policy=policy, training=training
        )
        async with asyncio.timeout(120):
            await driver.run()
        directory.finish_records([one.id for one in driver.loaded.problems])
    finally:
        directory.close()
    return Trained(folder, speaker, driver, policy)
