"""The policy of a simulated run learns from its rewards alone, as much after a kill, and as its settings say."""

import asyncio
import json
from pathlib import Path
from typing import Any

import msgspec
import numpy as np
import pytest

from building import composed, make_config
from evorun.models import Message, Request
from evorun.models.config import ModelConfig
from evorun.runner.settings import check
from evorun.runs.journal import Journal
from evorun.simulation.loopholes import exploit
from evorun.simulation.skill import Skill
from evorun.simulation.writing import POINTED
from evorun.testing.runs import COMPLETED, Run, carry_out
from evorun.training.simulated import LEARNED, SimulatedPolicy
from evorun.training.wire import Row
from virtual_time import run_virtually

SMALL = ("method.problems_per_step=4", "method.group=4", "evorun.progress=off", "engine.mean_tokens=5")

EXPLOIT = exploit("language", np.random.default_rng(0))


def train(folder: Path, *overrides: str, method: str = "grpo", **stop: int) -> Run:
    """Carry out a small simulated run."""
    return carry_out(check(composed(f"method={method}", "engine=simulated", *SMALL, *overrides)), folder, **stop)


def pass_rates(run: Path) -> dict[int, float]:
    """Return the mean pass rate of each evaluation, by step."""
    steps = [json.loads(line) for line in (run / "steps.jsonl").read_text().splitlines()]
    return {
        number: float(np.mean([one["scores"]["pass_rate"] for one in steps if one["step"] == number]))
        for number in sorted({one["step"] for one in steps})
    }


LONG = ("method.steps=15", "method.eval_every=15", "engine.training_gain=0.5", "engine.training_speed=1")


@pytest.mark.sample(1)
@pytest.mark.parametrize(
    "task",
    [
        ("task=arithmetic", "task.test_problems=30"),
        ("task=aime", "task.source=sample"),
        ("task=graph_coloring", "task.instances=6", "task.colorable_only=true", "engine.skill=0.85"),
    ],
)
def test_training_raises_the_score_on_problems_that_were_not_trained_on(task: tuple[str, ...], tmp_path: Path) -> None:
    run = train(tmp_path / "run", *task, *LONG)
    assert run.outcome == COMPLETED
    rates = pass_rates(run.path)
    assert rates[15] > rates[0] + 0.2
    assert run.json("manifest.json")["simulated"] is True


@pytest.mark.parametrize("control", ["engine.training_gain=0", "model=random"])
@pytest.mark.nightly  # updates of a gain are tested below
def test_the_controls_learn_nothing(control: str, tmp_path: Path) -> None:
    run = train(tmp_path / "run", "task=arithmetic", "task.test_problems=30", *LONG, control)
    rates = pass_rates(run.path)
    assert rates[15] == pytest.approx(rates[0], abs=0.14)  # two and a half standard errors of the difference


SHORT = (
    "task=arithmetic",
    "task.test_problems=3",
    "method.problems_per_step=2",
    "method.steps=3",
    "method.eval_every=2",
    "method.eval_samples=1",
)


def files(run: Run) -> dict[str, bytes]:
    more = ("training.jsonl", "rollouts.jsonl", "ratings.jsonl", "artifacts/system_prompt.json", f"artifacts/{LEARNED}")
    return {**run.files(), **{name: (run.path / name).read_bytes() for name in more}}


@pytest.mark.nightly  # methods/test_mpo.py stops a simulated run that trains
def test_a_stopped_run_learns_the_same_and_a_replay_too(tmp_path: Path) -> None:
    whole = train(tmp_path / "whole", *SHORT, method="espl")
    assert whole.json(f"artifacts/{LEARNED}")["updates"] == 3
    for calls in range(7, len(whole.asked), len(whole.asked) // 4):  # in rollouts, reflections and evaluations
        stopped = tmp_path / f"stopped{calls}"
        assert train(stopped, *SHORT, method="espl", breaks_after=calls).outcome.status == "failed"
        again = train(stopped, *SHORT, method="espl")
        assert again.outcome == COMPLETED
        assert len(again.asked) == len(whole.asked) - calls
        assert files(again) == files(whole)
        assert [one[:2] for one in again.effects()] == [one[:2] for one in whole.effects()]
    settings = check(composed("method=espl", "engine=replay", f"engine.run={whole.path}", *SMALL[:3], *SHORT))
    replayed = carry_out(settings, tmp_path / "replayed")
    assert replayed.outcome == COMPLETED
    assert replayed.files() == whole.files()


class Doubter:
    """Says what it has learned."""

    def respond(self, request: Request, rng: np.random.Generator) -> str:
        return str(request.hints.get("learned"))

    def with_skill(self, skill: Skill) -> "Doubter":
        return self

    at_random: Any = None


def rows(*advantages: float) -> list[Row]:
    return [Row(prompt=(1,), tokens=(2,), learned=(True,), reward=a, advantage=a, logprobs=(-1.0,)) for a in advantages]


def policy(folder: Path, simulator: Any = None, **engine: Any) -> SimulatedPolicy:
    config = make_config("engine", "simulated", **engine)
    base = config.open_for(ModelConfig(name="m", id="m"), simulator or Doubter())
    return SimulatedPolicy("m", base, config, folder, Journal(folder / "journal.sqlite"))


async def said(model: Any) -> str:
    request = Request(messages=(Message(role="user", content="What have you learned?"),))
    return str((await model.complete(request)).completions[0].text)


async def test_an_update_teaches_as_much_as_its_rewards_differ(tmp_path: Path) -> None:
    learner = policy(tmp_path, training_gain=0.4, training_speed=0.5, gradient_noise=0)
    assert (await learner.update(1, rows(0.5, -0.5))).figures[
        "grad_norm"
    ] == 0.25  # half of them right: as much as can be
    await learner.update(2, rows(0.0, 0.0))  # all alike
    await learner.update(3, rows(1 / 8, *[-1 / 56] * 7, *[0.0] * 8))
    await learner.update(4, rows(5.0, -5.0))  # rewards beyond 0 and 1 teach no more
    variance = 4 * (1 / 64 + 7 / 56**2) / 16
    expected = [0.0, 0.2, 0.2, 0.2 + 0.5 * variance * 0.2]
    expected.append((expected[-1] + 0.4) / 2)
    for step, learned in enumerate(expected):
        model = learner.current.at(step)
        assert model.name == f"m@{step}"
        assert float(await said(model)) == pytest.approx(learned)
    assert await said(learner.reference) == "None"


async def test_an_update_teaches_what_its_rewards_say_of_the_scores(tmp_path: Path) -> None:
    right = [1.0, 1.0, 0.0, 0.0]

    async def learn(name: str, *rewards: float) -> float:
        async def get_scores() -> list[float]:
            return right

        (tmp_path / name).mkdir()
        learner = policy(tmp_path / name, training_gain=0.4, training_speed=0.5, gradient_noise=0)
        await learner.update(1, rows(*np.subtract(rewards, np.mean(rewards)).tolist()), get_scores=get_scores)
        return float(await said(learner.current.at(1)))

    assert await learn("score", *right) == pytest.approx(0.2)
    assert await learn("scale", 6.0, 6.0, 3.0, 3.0) == pytest.approx(0.2)
    assert await learn("opposite", -5.0, -5.0, 0.0, 0.0) == pytest.approx(-0.2)
    assert await learn("other", 1.0, 0.0, 1.0, 0.0) == 0.0
    noisy = [0.9, 0.5, 0.4, 0.2]
    assert await learn("noisy", *noisy) == pytest.approx(0.2 * np.corrcoef(noisy, right)[0, 1])


async def test_an_update_teaches_by_the_number_of_completions_that_have_an_advantage(tmp_path: Path) -> None:
    learner = policy(tmp_path, training_gain=0.4, training_speed=1.0, gradient_noise=6)
    await learner.update(1, rows(0.5, -0.5))
    after_two = float(await said(learner.current.at(1)))
    assert after_two == pytest.approx(0.4 * 2 / 8)
    await learner.update(2, rows(*[0.5, -0.5] * 3))
    assert float(await said(learner.current.at(2))) == pytest.approx(after_two + (0.4 - after_two) * 6 / 12)
    # Those without an advantage say nothing: neither do they make the gradient exact.
    (tmp_path / "again").mkdir()
    again = policy(tmp_path / "again", training_gain=0.4, training_speed=1.0, gradient_noise=6)
    await again.update(1, rows(1.0, -1.0, *[0.0] * 6))
    assert float(await said(again.current.at(1))) == pytest.approx(after_two)


class Writer:
    """Says which weights it is to write by."""

    def respond(self, request: Request, rng: np.random.Generator) -> str:
        return msgspec.json.encode(request.hints.get("weights")).decode()

    with_skill = at_random = lambda self, *_: self


async def test_a_writers_weights_follow_the_gradient_at_the_texts_of_the_rows(tmp_path: Path) -> None:
    def row(text: str, reward: float, advantage: float | None = None) -> Row:
        encoded = text.encode().ljust(-4 * (-len(text.encode()) // 4))
        tokens = tuple(int.from_bytes(encoded[at : at + 4], "little") for at in range(0, len(encoded), 4))
        count = len(tokens)
        learned, logprobs = (True,) * count, (-1.0,) * count
        return Row(prompt=(1,), tokens=tokens, learned=learned, reward=reward, advantage=advantage, logprobs=logprobs)

    engine = {"quality": 0.3, "quality_limit": 0.6, "loophole_rate": 0.5, "policy_learning_rate": 0.5}
    learner = policy(tmp_path, Writer(), **engine)
    await learner.update(1, [row(EXPLOIT, 4.0), row(" ".join(POINTED), 2.0)])  # the mean is subtracted
    await learner.update(2, [row(EXPLOIT, 2.0, -1.0), row(" ".join(POINTED), 2.0, 1.0)])
    said_by = [json.loads(await said(learner.current.at(step))) for step in range(3)]
    assert {(limit, *kinds) for _, _, limit, kinds in said_by} == {(0.6, "language")}
    weights = [[quality, *loopholes] for quality, loopholes, _, _ in said_by]
    assert weights[0] == pytest.approx([0.0, 0.0])
    # Six sentences to the point: the derivative of 6 log(0.6 s(x)) is 6 (1 - s(x)), of log s(x) it is 1 - s(x).
    assert weights[1] == pytest.approx([0.5 * -6 * 0.5 / 2, 0.5 * (0.5 + 0.5) / 2])
    assert weights[2][0] > weights[1][0]
    assert weights[2][1] < weights[1][1]
    file = json.loads((await learner.export()).read_bytes())
    assert file["updates"] == 2
    assert file["quality"] == pytest.approx(0.6 / (1 + np.exp(-weights[2][0])))
    assert file["loophole_rate"] == pytest.approx(1 / (1 + np.exp(-weights[2][1])))
    assert await said(learner.reference) == "null"


async def test_updates_can_harm(tmp_path: Path) -> None:
    learner = policy(tmp_path, training_gain=-0.4, training_speed=0.5, gradient_noise=0)
    await learner.update(1, rows(0.5, -0.5))
    assert await said(learner.current.at(1)) == "-0.2"


def test_calls_for_a_steps_weights_wait_for_its_update_and_others_do_not(tmp_path: Path) -> None:
    async def beside() -> list[tuple[str, float]]:
        learner = policy(tmp_path, seconds_per_update=10.0)
        ended: list[tuple[str, float]] = []

        async def note(name: str, work: Any) -> None:
            await work
            ended.append((name, asyncio.get_running_loop().time()))

        async with asyncio.TaskGroup() as group:
            group.create_task(note("update", learner.update(1, rows(0.5, -0.5))))
            await asyncio.sleep(1)
            group.create_task(note("of step 1", said(learner.current.at(1))))
            group.create_task(note("of step 0", said(learner.current.at(0))))
            group.create_task(note("reference", said(learner.reference)))
        return sorted(ended, key=lambda one: one[1])

    moments = dict(run_virtually(beside()))
    assert moments["of step 0"] == moments["reference"] == 1
    assert moments["update"] <= moments["of step 1"]
    assert moments["update"] >= 10
