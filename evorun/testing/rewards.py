"""Conformance of rewards: the same for the same response, in any order, on any text, with every call charged."""

import asyncio
import math
import tempfile
from collections.abc import Awaitable, Callable, Sequence
from pathlib import Path
from typing import Any, NamedTuple, TypeVar

from evorun.cli.compose import default_config
from evorun.methods.context import RunContext, TrainingSplit
from evorun.methods.learning.parts import LearningSettings, RewardSource
from evorun.methods.learning.reward_plugins import RewardConfig
from evorun.models.base import Reply, Request, Sampling
from evorun.models.config import ModelConfig
from evorun.rollouts.calls import POLICY, Caller, Calls
from evorun.rollouts.rewards import Reward
from evorun.runs.budget import Meter
from evorun.runs.candidates import Response
from evorun.simulation.engine import SimulatedConfig
from evorun.simulation.skill import Skill
from evorun.tasks.base import Demonstration, Grade, LoadedTask, Problem, TaskConfig
from evorun.testing.expectations import expect, expect_equal
from evorun.testing.faults import planted_keys, refuse_leak, refusing_blocked_loops
from evorun.testing.task_cases import SimulatedTools, simulate_reply
from evorun.testing.task_parsers import ODD_TEXTS

T = TypeVar("T")

STEP = 1


class _Episode(NamedTuple):
    problem: Problem
    response: Response


class _Counted(Caller):
    """The simulated model, which counts its calls."""

    def __init__(self, loaded: LoadedTask) -> None:
        engine = SimulatedConfig(name="simulated")
        self.made = 0
        self._model = engine.open_for(ModelConfig(name="simulated", id="simulated"), loaded.simulator)

    async def complete(self, key: str, request: Request, step: int) -> Reply:
        self.made += 1
        return await self._model.complete(request)


class _Opened(NamedTuple):
    source: RewardSource
    model: _Counted
    meter: Meter


def check_reward(
    make: Callable[[], RewardConfig],
    task: TaskConfig,
    *,
    texts: Sequence[str] = (),
    settings: LearningSettings | None = None,
    variables: Sequence[str] = (),
) -> None:
    """Check a reward. Raises AssertionError for the first rule that it breaks.

    make: returns the plug-in's settings. task: one with problems to train on, whose simulated models answer. texts:
    further responses, beside right, wrong and odd ones. settings: the method's; by default those of `grpo`. variables:
    the environment variables that hold the reward's keys.
    """
    loaded = task.load_training()
    given = settings or default_config("method", "grpo")
    with planted_keys(variables), tempfile.TemporaryDirectory() as folder, refusing_blocked_loops():
        asyncio.run(_check(lambda: _open(make(), given, loaded, Path(folder)), loaded, texts))


async def _check(reopen: Callable[[], _Opened], loaded: LoadedTask, texts: Sequence[str]) -> None:
    episodes = list(_play(loaded, texts))
    opened = reopen()
    await opened.source.prepare(Sampling(), "")
    alone = [await _ask(opened, index, episode) for index, episode in enumerate(episodes)]
    values = {reward.value for reward in alone if reward.value is not None}
    expect(len(values) > 1, f"expected rewards that differ, found {values or 'none'}: nothing could be learned")
    _check_overflow(opened)
    _check_charges(opened, len(episodes))
    if not opened.model.made:  # else its calls, whose seeds differ, may give others
        for index, episode in reversed(list(enumerate(episodes))):
            again = await _ask(opened, index + len(episodes), episode)
            _expect_same(again, alone[index], "again, in another order", episode)
    other = reopen()
    await other.source.prepare(Sampling(), "")
    for index, episode in reversed(list(enumerate(episodes))):
        _expect_same(await _ask(other, index, episode), alone[index], "by a new one, in another order", episode)
    together = reopen()
    await together.source.prepare(Sampling(), "")
    found = await asyncio.gather(*(_ask(together, index, episode) for index, episode in enumerate(episodes)))
    for episode, reward, expected in zip(episodes, found, alone, strict=True):
        _expect_same(reward, expected, "with many calls at once", episode)
    _check_charges(together, len(episodes))


def _play(loaded: LoadedTask, texts: Sequence[str]) -> list[_Episode]:
    """Return episodes with right, wrong, unreadable and odd responses, and with none."""
    task: Any = loaded.task
    first, episodes = loaded.problems[0], []
    for problem in loaded.problems[:2]:
        prompt = task.generation_prompt(problem)
        skills = Skill(skill=1, malformed=0, spread=0), Skill(skill=0, malformed=0, spread=0), Skill(malformed=1)
        for skill in skills:
            reply = simulate_reply(loaded, problem, prompt, skill)
            episodes.append(_Episode(problem, task.parse(problem, reply)))
    episodes += [_Episode(first, task.parse(first, text)) for text in (*texts, *ODD_TEXTS)]
    return [*episodes, _Episode(first, Response(text="", answer=None, error="empty: no reply"))]


def _open(config: RewardConfig, settings: LearningSettings, loaded: LoadedTask, folder: Path) -> _Opened:
    model, meter, tools = _Counted(loaded), Meter(), SimulatedTools(loaded.simulator)
    roles = {call: role._replace(lag=0) for call, role in config.roles.items()}
    calls = Calls(
        name="run",
        task=loaded.task,
        seed=0,
        meter=meter,
        models=dict.fromkeys({POLICY.model, *(role.model for role in roles.values())}, model),
        roles=roles,
        remember=_compute,
    )

    async def grade(problem: Problem, response: Response) -> Grade:
        if not config.sees_answers:
            raise PermissionError("a reward with sees_answers=False asks for no grade")
        return await loaded.grader.grade(problem, response, tools)

    labels = loaded.answers if config.sees_answers else {}
    shown = {
        problem.id: Demonstration(problem=problem, answer=labels[problem.id])
        for problem in loaded.problems
        if problem.id in labels
    }
    split = TrainingSplit(task=loaded.task, problems=loaded.problems, grade=grade, demonstrations=shown)
    ctx = RunContext(
        contexts={},
        shared=calls,
        demonstrations=(),
        grade=lambda example, response: split.grade(example.problem, response),
        artifacts=folder,
        record=lambda *_: None,
        record_rollouts=lambda _: None,
        training=split,
    )
    source = config.make(ctx, settings)
    expect(isinstance(source, RewardSource), f"make: expected a RewardSource, found {source!r:.60}")
    for what, text in (("settings", repr(config)), ("source", repr(source)), ("rewards", repr(source.rewards))):
        refuse_leak(f"repr of the {what}", text)
    return _Opened(source, model, meter)


async def _compute(key: str, inputs: bytes, compute: Callable[[], Awaitable[T]], kind: type[T]) -> T:
    """Compute each value anew, as a run without a journal would."""
    return await compute()


async def _ask(opened: _Opened, index: int, episode: _Episode) -> Reward:
    shown = _shorten(episode)
    try:
        reward = await opened.source.rewards.reward(STEP, index, *episode)
    except Exception as error:
        refuse_leak(f"the error on {shown}", str(error))
        raise AssertionError(f"expected a reward of any response, got {error!r} for {shown}") from error
    expect(isinstance(reward, Reward), f"expected a Reward, found {reward!r:.60} for {shown}")
    for name, value in {"value": reward.value, **reward.parts}.items():
        finite = isinstance(value, int | float) and math.isfinite(value)
        missing = name == "value" and value is None
        expect(finite or missing, f"{name}: expected a finite number, found {value!r:.60} for {shown}")
    for text in (reward.unscored, reward.rationale):
        refuse_leak(f"the reward of {shown}", text)
    return reward


def _check_overflow(opened: _Opened) -> None:
    overflow = opened.source.rewards.overflow
    if overflow is not None:
        found = overflow.value
        expect(found is None or math.isfinite(found), f"overflow: expected None or a finite value, found {found!r:.60}")


def _check_charges(opened: _Opened, episodes: int) -> None:
    made, limit = opened.model.made, opened.source.max_calls(episodes, STEP)
    expect(made <= limit, f"max_calls: expected at least the {made} calls made for {episodes} episodes, found {limit}")
    for index in range(episodes):
        opened.source.rewards.charge(STEP, index)
    expect_equal(opened.meter.total.calls, made, "calls charged, of those made")


def _expect_same(found: Reward, expected: Reward, how: str, episode: _Episode) -> None:
    expect_equal(found, expected, f"reward {how}, of {_shorten(episode)}")


def _shorten(episode: _Episode) -> str:
    text = episode.response.text
    return f"the response {text!r}" if len(text) <= 40 else f"the response {text[:40]!r}..."
