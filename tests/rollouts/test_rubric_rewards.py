"""Rewards by a rubric, under a scripted reward model behind a real journal."""

import asyncio
import re
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

import pytest

from building import load_task, make_meter
from evorun.errors import ConfigError
from evorun.models.base import Completion, Reply, Request, make_rejection
from evorun.rollouts.calls import Calls
from evorun.rollouts.rewards import Reward
from evorun.rollouts.rubric_rewards import PLAN, RESCORE, REWARD_ROLES, RubricRewards
from evorun.rollouts.rubric_settings import RubricSettings
from evorun.runs.candidates import Response
from evorun.runs.effects import JournaledModel, Traffic
from evorun.runs.journal import Journal
from evorun.tasks.base import Grade, Problem
from evorun.tasks.rubrics import Rubric, read_rubric

LOADED = load_task("arithmetic")
FREE = Rubric("Judge it as a whole.", 5)
ITEMS = read_rubric(
    "<rubric>"
    + "".join(f"<item>Item {name}\n- {most}: x</item>" for name, most in zip("abcd", (4, 2, 2, 10), strict=True))
    + "</rubric>"
)
JOINT = "".join(f'<score item="{number}">{points}</score>' for number, points in enumerate((4, 1, 2, 5), 1))
Script = Callable[[Request, int], str | None]
"""The reward model's answer to a request asked for the so-many-th time, from 0; None: it is refused."""


def settings(**changes: Any) -> RubricSettings:
    values: dict[str, Any] = {
        **{
            "rubric": "initial",
            "scoring": "whole",
            "plan_reference": False,
            "reward_scale": "raw",
            "score_attempts": 3,
        },
        **{"exact_match_rate": 0.0, "mode_drawn": "item", "min_words": 0, "rubric_dropout": 0.0},
        **{"reward_digits": False},
        **{"reward_json": False, "reward_temperature": 0.7, "reward_top_p": 0.8, "reward_max_tokens": 50},
    }
    return RubricSettings(**{**values, **changes})


class Rewarded:
    """All that responses are scored with."""

    name = "judge"

    def __init__(
        self, folder: Path, script: Script | str, rubric: Rubric = FREE, *, last_first: bool = False, **changes: Any
    ) -> None:
        """last_first: replies come in the reverse of the order in which they are asked for."""
        self.journal = Journal(folder / "journal.sqlite")
        self.script: Script = (lambda request, attempt: script) if isinstance(script, str) else script
        self.requests: list[Request] = []
        self.meter, self.graded, self.last_first = make_meter(), list[str](), last_first
        self.asked_for: list[tuple[str, int]] = []
        self.calls = Calls(
            name="*",
            task=LOADED.task,
            seed=0,
            meter=self.meter,
            models={"reward": JournaledModel(self, self.journal, Traffic())},
            roles=REWARD_ROLES,
            remember=self.journal.remember,
        )
        known = (
            {problem.id: "because 7 times 6" for problem in LOADED.problems} if changes.get("plan_reference") else {}
        )
        self.rewards = RubricRewards(
            self.calls, LOADED.task, self._get_rubric, settings(**changes), self._grade, references=known
        )
        self.rubric = rubric

    def _get_rubric(self, key: str, step: int) -> Rubric:
        self.asked_for.append((key, step))
        return self.rubric

    async def _grade(self, problem: Problem, response: Response) -> Grade:
        self.graded.append(response.text)
        return Grade(correct=response.text == "right")

    async def complete(self, request: Request) -> Reply:
        earlier = sum(one.messages == request.messages for one in self.requests)
        self.requests.append(request)
        for _ in range(200 - len(self.requests) if self.last_first else 1):
            await asyncio.sleep(0)
        text = self.script(request, earlier)
        if text is None:
            return make_rejection(request, "too long")
        # tenths do not add up to the same sum in every order
        seconds = 0.1 * (1 + len(request.messages[0]["content"]) % 7)
        reason = "length" if text.endswith("...") else "stop"
        completion = Completion(text=text, finish_reason=reason, tokens=len(text))  # type: ignore[arg-type]
        return Reply(completions=(completion,), prompt_tokens=10, seconds=seconds)

    async def close(self) -> None:
        return

    async def score(self, texts: Sequence[str], step: int = 1, problems: Sequence[int] | None = None) -> list[Reward]:
        """Score responses at once, each of a problem of its own or of the given ones, and charge them in order."""
        of = problems or range(len(texts))
        asked = [
            self.rewards.reward(step, at, LOADED.problems[number], Response(text=text, answer=None))
            for at, (text, number) in enumerate(zip(texts, of, strict=True))
        ]
        async with asyncio.timeout(20):
            found = await asyncio.gather(*asked)
        for at in range(len(texts)):
            self.rewards.charge(step, at)
        return list(found)


DIGITS = {"reward_digits": True, "score_attempts": 2, "reward_temperature": 0.02}


async def test_reasons_come_first_and_points_in_a_call_that_is_held_to_digits(tmp_path: Path) -> None:
    def script(request: Request, attempt: int) -> str:
        return "It goes on..." if len(request.messages) == 1 else "3"

    held = Rewarded(tmp_path, script, ITEMS, **DIGITS, scoring="by_item", reward_scale="normalised")
    [reward] = await held.score(["an essay"])
    assert reward.unscored == "scale"  # items b and c have 2 points at most
    (tmp_path / "two").mkdir()
    held = Rewarded(tmp_path / "two", script, ITEMS.subset([0, 3]), **DIGITS, scoring="by_item")
    [reward] = await held.score(["an essay"])
    share = (3 / 4 + 3 / 10) / 2
    # Reasons that are cut off are reasons all the same.
    assert reward == Reward(
        6, {"raw": 6, "normalised": share, "maximum": 14}, rationale="It goes on...\n\nIt goes on..."
    )
    first, second = _by_turn(held.requests)
    assert len(first) == len(second) == 2
    assert [one.json_schema for one in first] == [None, None]
    held_to = [one.json_schema or {} for one in second]
    assert sorted(one["maximum"] for one in held_to) == [4, 10]
    assert all(one == {"type": "integer", "minimum": 0, "maximum": one["maximum"]} for one in held_to)
    assert {(one.sampling.max_tokens, one.sampling.temperature) for one in first} == {(50, 0.02)}
    assert {(one.sampling.max_tokens, one.sampling.temperature) for one in second} == {(16, 0.02)}
    assert all(one.messages[1] == {"role": "assistant", "content": "It goes on..."} for one in second)
    assert "<score>" not in first[0].messages[0]["content"]
    assert held.meter.total.calls == 4


def _by_turn(requests: Sequence[Request]) -> tuple[list[Request], list[Request]]:
    return [one for one in requests if len(one.messages) == 1], [one for one in requests if len(one.messages) == 3]


@pytest.mark.parametrize(
    ("points", "expected"),
    [("5", 5), (" 0\n", 0), ("6", "scale"), ("4.5", "value"), ("four", "value"), ("4/5", "value"), ("", "value")],
)
async def test_points_are_digits_and_nothing_else(points: str, expected: float | str, tmp_path: Path) -> None:
    """An engine may hold to no schema, whatever it says."""
    held = Rewarded(tmp_path, lambda request, _: "So." if len(request.messages) == 1 else points, **DIGITS)
    [reward] = await held.score(["an essay"])
    assert (reward.unscored or reward.value) == expected
    assert len(held.requests) == (4 if reward.unscored else 2) <= held.rewards.max_calls(1, 1)


async def test_points_are_the_reward_and_their_share_is_kept_beside_them(tmp_path: Path) -> None:
    said = f"<think>hm <score>1</score></think>It goes.\n{JOINT}<total>12</total>"
    whole = Rewarded(tmp_path, said, ITEMS)
    [reward] = await whole.score(["an essay"], step=4)
    share = (4 / 4 + 1 / 2 + 2 / 2 + 5 / 10) / 4
    assert reward == Reward(
        12, {"raw": 12, "normalised": share, "maximum": 18}, rationale=f"It goes.\n{JOINT}<total>12</total>"
    )
    assert whole.asked_for == [("", 4)]  # a function of the step
    [request] = whole.requests
    assert "an essay" in request.messages[0]["content"]
    assert (request.sampling.temperature, request.sampling.top_p, request.sampling.max_tokens) == (0.7, 0.8, 50)
    whole.journal.close()
    for scale, expected in (("normalised", share), ("by_total", 12 / 18)):
        scaled = Rewarded(tmp_path, said, ITEMS, reward_scale=scale)
        assert [one.value for one in await scaled.score(["an essay"], step=4)] == [expected]
        assert scaled.requests == []  # from the journal
        scaled.journal.close()


async def test_items_are_asked_for_at_once_each_by_itself(tmp_path: Path) -> None:
    def says(request: Request, attempt: int) -> str:
        return "Fine. <score>2</score>" if "Item" in request.messages[0]["content"] else ""

    scored = Rewarded(tmp_path, says, ITEMS, scoring="by_item")
    waiting = asyncio.Barrier(8)  # two responses, four items each: none is answered before all are asked for
    complete = scored.complete

    async def together(request: Request) -> Reply:
        await waiting.wait()
        return await complete(request)

    scored.complete = together  # type: ignore[method-assign]
    first, second = await scored.score(["one", "two"])
    assert (
        first.parts
        == second.parts
        == {
            "raw": 8,
            "normalised": pytest.approx((0.5 + 1 + 1 + 0.2) / 4),
            "maximum": 18,
        }
    )
    assert first.rationale.count("Fine.") == 4
    assert all(sum(f"Item {name}" in one.messages[0]["content"] for name in "abcd") == 1 for one in scored.requests)
    assert scored.meter.counts()["score"]["calls"] == 8 == scored.rewards.max_calls(2, 1) / 3
    # a study scores in the same way, a trial of a rubric in as few calls as possible
    scored.complete = complete  # type: ignore[method-assign]
    about = LOADED.problems[0], Response(text="one", answer=None), ITEMS
    again = await scored.rewards.rescore(1, 0, *about)
    scored.rewards.charge(1, 0, RESCORE)
    assert again.parts == first.parts
    assert scored.meter.counts()[RESCORE]["calls"] == 4 == scored.rewards.count_max_calls(ITEMS) / 3
    jointly = await scored.rewards.rescore_jointly(2, 0, *about)
    scored.rewards.charge(2, 0, RESCORE)
    assert jointly.unscored == "items"
    assert scored.meter.counts()[RESCORE]["calls"] == 4 + 3 == 4 + scored.rewards.calls_per_score
    scored.rubric = FREE  # has no items
    assert scored.rewards.max_calls(2, 1) == 2 * 3


async def test_one_item_without_a_score_leaves_the_response_without_one(tmp_path: Path) -> None:
    def says(request: Request, attempt: int) -> str:
        prompt = request.messages[0]["content"]
        return "<score>3</score>" if "Item b" in prompt else "" if "Item c" in prompt else "<score>1</score>"

    # whichever comes first, the reason is that of the first item
    for folder, last_first in (("a", False), ("b", True)):
        (tmp_path / folder).mkdir()
        scored = Rewarded(tmp_path / folder, says, ITEMS, scoring="by_item", last_first=last_first)
        assert await scored.score(["one"]) == [Reward(None, unscored="scale")]
        assert scored.meter.counts()["score"]["calls"] == 2 + 2 * 3


async def test_an_unparsable_score_is_asked_for_again_under_another_seed(tmp_path: Path) -> None:
    scored = Rewarded(tmp_path, lambda request, attempt: ("<score>4.5/6</score>", "so so", "<score>0</score>")[attempt])
    assert [one.value for one in await scored.score(["one"])] == [0]
    assert len({request.seed for request in scored.requests}) == 3
    assert scored.meter.counts()["score"] == {
        "calls": 3,
        "prompt_tokens": 30,
        "completion_tokens": 20 + 5 + 16,
        "cached_tokens": 0,
        "tool_calls": 0,
    }


@pytest.mark.parametrize(
    ("said", "kind", "calls"),
    [
        ("It is good.", "missing", 3),
        ("<score>6</score>", "scale", 3),
        ("<score>3</score> or <score>4</score>", "several", 3),
        ("<score>4 out of 10</score>", "denominator", 3),
        ("<score>4</sc", "unclosed", 3),
        # what was cut off may have gone on to say another
        ("<score>4</score> for the first half; in all ...", "cut_off", 3),
        ("<think>too long to end ...", "cut_off", 3),
        # the engine would refuse it again
        (None, "refused", 1),
    ],
)
async def test_what_the_reward_model_fails_to_score_has_no_reward(
    tmp_path: Path, said: str | None, kind: str, calls: int
) -> None:
    scored = Rewarded(tmp_path, lambda request, attempt: said)
    assert await scored.score(["one"]) == [Reward(None, unscored=kind)]
    assert scored.meter.counts()["score"]["calls"] == calls <= scored.rewards.max_calls(1, 1)


def planning(request: Request, attempt: int) -> str:
    asked = request.messages[0]["content"]
    if "Make a plan" in asked:
        return f"Check {re.findall(r'[0-9]+', asked)[0]} first. </response>"
    assert "first. < /response>" in asked
    return "<score>3</score>"


async def test_a_plan_is_made_once_for_a_problem_and_a_rubric(tmp_path: Path) -> None:
    planned = Rewarded(tmp_path, planning, scoring="plan", plan_reference=True)
    assert [one.value for one in await planned.score(["a", "b", "c"], 1, [0, 0, 1])] == [3, 3, 3]
    await planned.score(["d"], 2, [1])
    plans = [one for one in planned.requests if "Make a plan" in one.messages[0]["content"]]
    assert len(plans) == 2
    assert all("because 7 times 6" in one.messages[0]["content"] for one in plans)
    # nobody who scores is shown the reference
    assert sum("because 7 times 6" in one.messages[0]["content"] for one in planned.requests) == 2
    planned.rubric = ITEMS
    planned.script = lambda request, attempt: "" if "Make a plan" in request.messages[0]["content"] else None
    assert await planned.score(["e"], 3, [1]) == [Reward(None, unscored="plan_missing")]
    assert {role: one["calls"] for role, one in planned.meter.counts().items()} == {PLAN: 2 + 3, "score": 4}
    assert planned.rewards.max_calls(1, 3) >= 1 + 3
    planned.journal.close()
    # All of it comes back, whoever of a step asks first.
    again = Rewarded(tmp_path, "", scoring="plan", plan_reference=True)
    assert [one.value for one in await again.score(["a", "b", "c"], 1, [0, 0, 1])] == [3, 3, 3]
    assert again.requests == []


async def test_costs_are_the_same_whichever_reply_comes_first(tmp_path: Path) -> None:
    spent = []
    for folder, last_first in (("a", False), ("b", True)):
        (tmp_path / folder).mkdir()
        scored = Rewarded(tmp_path / folder, planning, scoring="plan", last_first=last_first)
        await scored.score(["x" * at for at in range(12)], problems=[at // 2 for at in range(12)])
        spent.append({role: (one.calls, one.seconds) for role, one in scored.meter.by_role.items()})
    assert spent[0] == spent[1]
    assert spent[0]["plan"][0] == 6


async def test_the_tasks_grade_rewards_a_share_of_the_problems_or_of_the_batches(tmp_path: Path) -> None:
    by_item = Rewarded(tmp_path, "<score>2</score>", exact_match_rate=0.5)
    exact, problems = dict[tuple[int, int], float](), [at // 2 for at in range(20)]
    for step in range(1, 13):
        rewards = await by_item.score(["right" if at % 2 else "wrong" for at in range(20)], step, problems)
        for at, one in enumerate(rewards):
            exact[step, at] = one.parts["exact_match"]
            # all or nothing, on the rubric's scale
            assert one.value == (5.0 * (at % 2) if exact[step, at] else 2)
            assert one.correct == (bool(at % 2) if exact[step, at] else None)
    # the responses to a problem are compared with each other, so that one mode scores them all
    assert all(exact[step, at] == exact[step, at + 1] for step, at in exact if at % 2 == 0)
    assert 0.35 < sum(exact.values()) / len(exact) < 0.65
    assert {sum(exact[step, at] for at in range(20)) for step in range(1, 13)} - {0, 20}
    assert len(by_item.graded) == sum(exact.values())
    by_item.journal.close()
    (tmp_path / "batch").mkdir()
    by_batch = Rewarded(tmp_path / "batch", "<score>2</score>", exact_match_rate=0.5, mode_drawn="batch")
    shares = [{one.parts["exact_match"] for one in await by_batch.score(["right"] * 3, step)} for step in range(1, 13)]
    assert {1.0} in shares
    assert {0.0} in shares
    assert all(len(one) == 1 for one in shares)


@pytest.mark.parametrize("exact", [0.0, 1.0])
async def test_a_response_without_enough_words_scores_zero_in_either_mode(tmp_path: Path, exact: float) -> None:
    scored = Rewarded(tmp_path, "<score>2</score>", min_words=5, exact_match_rate=exact)
    answers = {"It is \\boxed{4 and not 5}.": "4 and not 5", "It is four, as shown \\boxed{4}.": "4"}
    problem = LOADED.problems[0]
    asked = [
        scored.rewards.reward(1, at, problem, Response(text=text, answer=answer))
        for at, (text, answer) in enumerate(answers.items())
    ]
    short, enough = await asyncio.gather(*asked)
    for at in range(2):
        scored.rewards.charge(1, at)
    assert (short.value, short.parts["normalised"], short.parts["maximum"]) == (0, 0, 5)
    assert "fewer than 5 words" in short.rationale
    assert (len(scored.requests), len(scored.graded)) == ((0, 1) if exact else (1, 0))
    again = await scored.rewards.rescore(1, 0, problem, Response(text="It is \\boxed{4}.", answer="4"), FREE)
    assert (again.value, len(scored.requests)) == (0, 0 if exact else 1)
    assert enough.value == (0 if exact else 2)


async def test_a_batch_leaves_items_out_and_never_all(tmp_path: Path) -> None:
    def says(request: Request, attempt: int) -> str:
        items = re.findall(r"## Item \d+ \(0 to (\d+) points\)", request.messages[0]["content"])
        said = "".join(f'<score item="{number}">{most}</score>' for number, most in enumerate(items, 1))
        return f"{said}<total>{sum(map(int, items))}</total>"

    dropped = Rewarded(tmp_path, says, ITEMS, rubric_dropout=0.5)
    raw = [[one.parts["raw"] for one in await dropped.score(["a", "b"], step)] for step in range(1, 17)]
    assert all(first == second for first, second in raw)
    assert len({first for first, _ in raw}) > 3
    assert min(first for first, _ in raw) > 0
    again = await dropped.rewards.rescore(1, 0, LOADED.problems[0], Response(text="a", answer=None), ITEMS)
    dropped.rewards.charge(1, 0, RESCORE)
    assert again.parts["raw"] == 18
    assert dropped.meter.counts()[RESCORE]["calls"] == 1 <= dropped.rewards.calls_per_score


@pytest.mark.parametrize(
    ("changes", "reason"),
    [
        ({"scoring": "jointly"}, r"method.scoring: expected one of by_item, plan, whole"),
        ({"reward_scale": "log"}, r"method.reward_scale: expected one of by_total, normalised, raw"),
        ({"score_attempts": 0}, r"method.score_attempts: expected .* 1"),
        ({"exact_match_rate": 1.5}, r"method.exact_match_rate: expected"),
        ({"mode_drawn": "step"}, r"method.mode_drawn: expected one of batch, item"),
        ({"rubric_dropout": 1.0}, r"method.rubric_dropout: expected"),
        ({"rubric": ""}, r"method.rubric: expected null, a rubric's name or a FILE"),
        ({"plan_reference": True}, r"method.plan_reference: has no effect, nobody plans; set method.scoring=plan"),
    ],
)
def test_settings_without_a_meaning_are_refused(changes: dict[str, Any], reason: str) -> None:
    with pytest.raises(ConfigError, match=rf"^{reason}"):
        settings(**changes)
