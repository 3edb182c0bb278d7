"""A plug-in's reward serves every method that learns from fixed rewards, with its own keys; others are refused."""

import re
from dataclasses import dataclass
from importlib.metadata import EntryPoint
from pathlib import Path
from typing import Any, ClassVar

import pytest

from building import composed
from evorun.cli.planning import refuse_price
from evorun.errors import ConfigError, PluginError
from evorun.fields import NonNegativeFloat
from evorun.methods.learning.loop import Learning
from evorun.methods.learning.parts import RewardSource, TaskReward
from evorun.methods.learning.reward_plugins import RewardConfig
from evorun.methods.ttt_discover.ttt_discover import TttDiscover
from evorun.models.base import Reply, Sampling
from evorun.rollouts.calls import Calls, Role
from evorun.rollouts.rewards import Graded, Reward
from evorun.runner import registry
from evorun.runner.plans import make_plan
from evorun.runner.settings import check
from evorun.runs.candidates import Response
from evorun.tasks.base import Problem
from evorun.testing.runs import COMPLETED, carry_out
from evorun.training.simulated import LEARNED

LEARNING = ("grpo", "rloo", "cispo", "ppo", "espl", "espl_evolution")
ON_SUMS = ("task=arithmetic", "engine=simulated", "method.reward_source=own")
ON_ESSAYS = ("task=essay", "task.source=sample", *ON_SUMS[1:])


@dataclass
class Lengths:
    price: float
    method: str
    overflow: Reward | None = None

    async def reward(self, step: int, index: int, problem: Problem, response: Response) -> Reward:
        return Reward(-self.price * len(response.text))

    def charge(self, step: int, index: int) -> None: ...


@dataclass
class OwnReward(RewardConfig):
    roles: ClassVar = {"opinion": Role("reward")}
    price: NonNegativeFloat = 0.5

    def make(self, ctx: Any, settings: Any) -> RewardSource:
        source = RewardSource()
        source.rewards = Lengths(self.price, settings.name)
        return source


class TwoOpinions(Graded):
    """Asks a model twice about each response."""

    def __init__(self, calls: Calls, *of_grade: Any) -> None:
        super().__init__(calls, *of_grade)
        self.calls, self.owed = calls, dict[int, list[Reply]]()

    async def reward(self, step: int, index: int, problem: Problem, response: Response) -> Reward:
        prompt, sampling = self.calls.task.generation_prompt(problem), Sampling(max_tokens=77)
        self.owed[index] = [
            await self.calls.ask(prompt, sampling, role="opinion", step=step, index=index, attempt=attempt)
            for attempt in range(2)
        ]
        return await super().reward(step, index, problem, response)

    def charge(self, step: int, index: int) -> None:
        self.calls.charge("opinion", self.owed.pop(index))


class TwoOpinionsSource(TaskReward):
    def max_calls(self, episodes: int, step: int) -> int:
        return 2 * episodes


@dataclass
class AskingReward(RewardConfig):
    roles: ClassVar = {"opinion": Role("reward")}

    def make(self, ctx: Any, settings: Any) -> RewardSource:
        return TwoOpinionsSource(ctx, settings, TwoOpinions)


class Opposite(Graded):
    """Rewards what is wrong, and by much."""

    async def reward(self, step: int, index: int, problem: Problem, response: Response) -> Reward:
        graded = await super().reward(step, index, problem, response)
        return Reward(None if graded.value is None else -20 * graded.value)


@dataclass
class OppositeReward(RewardConfig):
    def make(self, ctx: Any, settings: Any) -> RewardSource:
        return TaskReward(ctx, settings, Opposite)


@pytest.fixture(autouse=True)
def _installed(monkeypatch: pytest.MonkeyPatch) -> None:
    points = {
        name: EntryPoint(name, f"{__name__}:{target}", "evorun.rewards")
        for name, target in (
            ("own", "OwnReward"),
            ("asking", "AskingReward"),
            ("opposite", "OppositeReward"),
            ("no_reward", "check"),
        )
    }
    monkeypatch.setattr(registry, "plugins", lambda kind: points if kind == "reward" else {})


@pytest.mark.parametrize("name", LEARNING)
def test_each_method_takes_its_rewards_from_the_plug_in(name: str) -> None:
    method: Any = check(composed(f"method={name}", *ON_SUMS, "method.reward_settings.price=2")).method
    assert method.rewards(None).rewards == Lengths(2.0, name)
    assert method.information_regime(None) == "labels"  # it may see the grade


def test_the_guide_says_of_every_method_that_learns_from_rewards_whether_it_takes_one() -> None:
    guide = (Path(__file__).parents[2] / "docs/guides/write_a_reward.md").read_text()
    said = {
        name: taken == "yes"
        for names, taken in re.findall(r"^\| (`\w+`(?:, `\w+`)*) \| (yes|no) \|", guide, re.MULTILINE)
        for name in re.findall(r"\w+", names)
    }
    learning = {name: of.Config for name, of in registry.methods().items() if issubclass(of, Learning | TttDiscover)}
    assert said == {name: not getattr(of, "own_rewards", "its score") for name, of in learning.items()}


def test_its_calls_are_answered_by_the_model_that_it_names() -> None:
    config = check(composed("method=grpo", *ON_SUMS, "reward=smollm2_135m"))
    assert config.method.active_roles["opinion"] == Role("reward")
    assert "reward" in config.others
    with pytest.raises(ConfigError, match="asks no reward model"):
        check(composed("method=grpo", *ON_SUMS[:2], "reward=smollm2_135m"))


PLANNED = ("method=grpo", "task=arithmetic", "method.steps=3", "method.problems_per_step=4", "method.group=5")
JUDGED = ("task.test_problems=2", "engine=simulated", "reward=gpt_4o", "reward_engine=openai", "training=lora")


@pytest.mark.nightly
def test_a_plan_counts_the_calls_of_a_reward_for_each_rollout(tmp_path: Path) -> None:
    plan = make_plan([composed(*PLANNED, *JUDGED, "method.reward_source=asking")], tmp_path)
    roles = {role.role: role for role in plan.arms[0].roles}
    assert (roles["rollout"].calls, roles["opinion"].calls) == (3 * 4 * 5, 2 * 3 * 4 * 5)
    opinion = roles["opinion"]
    assert (opinion.model_role, opinion.model, opinion.completion_tokens) == ("reward", "gpt_4o", opinion.calls * 77)
    assert plan.price == pytest.approx((2.5 * (opinion.prompt_tokens or 0) + 10 * opinion.completion_tokens) / 10**6)
    assert plan.uncounted == []
    refuse_price(plan, 10.0)
    limited = [composed(*PLANNED, *JUDGED, "method.reward_source=asking", "budget.calls=60")]
    assert make_plan(limited, tmp_path).calls == pytest.approx(60, abs=2)


def test_a_price_is_not_capped_where_the_calls_of_a_reward_are_not_known(tmp_path: Path) -> None:
    plan = make_plan([composed(*PLANNED, *JUDGED, "method.reward_source=own")], tmp_path)
    assert [(one.role, one.reward, one.billed) for one in plan.uncounted] == [("opinion", "own", True)]
    with pytest.raises(ConfigError, match=r"calls as opinion of method\.reward_source=own cannot be counted"):
        refuse_price(plan, 10.0)


def test_one_that_sees_no_answers_suits_tasks_that_are_graded_by_opinion(monkeypatch: pytest.MonkeyPatch) -> None:
    with pytest.raises(ConfigError, match="learns from grades, but grades of task=essay are a judge's opinions"):
        check(composed("method=grpo", *ON_ESSAYS))
    monkeypatch.setattr(OwnReward, "sees_answers", False)
    assert check(composed("method=grpo", *ON_ESSAYS)).regime == "problem_only"


@pytest.mark.parametrize(
    ("overrides", "message"),
    [
        (("method=mpo",), r"^method\.reward_source=own: has no effect with method=mpo"),
        (("method=rler",), r"^method\.reward_source=own: has no effect with method=rler"),
        (
            ("method=rler", "method.reward_source=null", "method.format_reward=0.5"),
            r"^method\.format_reward=0\.5: has no effect with method=rler",
        ),
        (
            ("method=rler", "method.reward_source=null", "method.reward_scale=normalised"),
            r"^method\.reward_scale: has no effect with method=rler",
        ),
        (("method.rubric=initial",), r"^method\.reward_source=own: has no effect with method\.rubric=initial"),
        (("method.reward_source=owm",), r"^method\.reward_source=owm: .* did you mean method\.reward_source=own\?"),
        (("method.reward_settings.price=-1",), r"^method\.reward_settings\.price: expected a number >= 0, got -1"),
        (("method.reward_settings.prise=1",), r"^method\.reward_settings\.prise: unknown key; did you mean .*price\?"),
        (
            ("method.reward_source=null", "method.reward_settings.price=1"),
            r"^method\.reward_settings: expected a plug-in's reward .* with price, got none",
        ),
        (
            ("method.reward_source=no_reward",),
            r"^method\.reward_source=no_reward: .* expected a subclass of .*RewardCo",
        ),
    ],
)
def test_what_has_no_effect_or_no_plug_in_is_refused(overrides: tuple[str, ...], message: str) -> None:
    with pytest.raises((ConfigError, PluginError), match=message):
        check(composed("method=grpo", *ON_ESSAYS, *overrides))


def test_a_simulated_policy_learns_what_the_reward_teaches_of_the_score(tmp_path: Path) -> None:
    small = ("task=arithmetic", "task.test_problems=2", "method.steps=4", "method.problems_per_step=4")
    fast = ("engine=simulated", "engine.training_gain=0.4", "engine.training_speed=0.5", "method.eval_every=4")
    gains = []
    for source in ("null", "opposite"):
        settings = check(composed("method=grpo", *small, *fast, f"method.reward_source={source}", "engine.skill=0.5"))
        run = carry_out(settings, tmp_path / source)
        assert run.outcome == COMPLETED
        gains.append(run.json(f"artifacts/{LEARNED}")["learned"])
    assert gains[0] > 0.1
    assert gains[1] < -0.1
