"""Rewards of episodes: correctness, what the format adds and takes away, and episodes that run out of room."""

from pathlib import Path

import msgspec
import pytest
from test_episodes import Played, calculating, letters
from test_responses import Echo

from building import make_context
from evorun.models.base import Reply, Request
from evorun.rollouts.episodes import Episode, Rollouts
from evorun.rollouts.rewards import Graded, Reward
from evorun.runs.candidates import Response
from evorun.tasks.base import Grade, Problem
from method_fixture import Quiz, problem


@pytest.mark.parametrize(
    ("correct", "form", "value"), [(True, 1.0, 1.25), (False, 1.0, 0.25), (True, 0.0, 0.9), (False, 0.0, -0.1)]
)
async def test_the_format_adds_and_takes_away(correct: bool, form: float, value: float) -> None:
    async def grade(problem: Problem, response: Response) -> Grade:
        return Grade(correct=correct, scores={"format": form})

    rewards = Graded(make_context(Quiz(), problem(0), Echo()), Quiz(), grade, 0.25, format_penalty=0.1)
    reward = await rewards.reward(1, 0, problem(0), Response(text="A", answer="A"))
    assert reward == Reward(pytest.approx(value), {"formatted": form}, correct)


async def play(folder: Path, penalty: float, *, refuse: bool = False, cut: bool = False, at: int = 2) -> Episode:
    """Play an episode whose turn `at` is refused or cut off at its token limit, the others being as they should."""

    async def script(request: Request) -> str | None:
        turn = len(played.speaker.requests)
        return None if refuse and turn == at else await calculating(request)

    played = Played(folder, script)
    calls, complete = played.rollouts.calls, played.speaker.complete

    async def cutting(request: Request) -> Reply:
        reply = await complete(request)
        if not cut or len(played.speaker.requests) != at:
            return reply
        ends = [msgspec.structs.replace(one, finish_reason="length") for one in reply.completions]
        return msgspec.structs.replace(reply, completions=tuple(ends))

    played.speaker.complete = cutting  # type: ignore[method-assign]
    rewards = Graded(calls, played.task, played._grade, 0.0, overflow_penalty=penalty)
    played.rollouts = Rollouts(calls, played.task, "rollout", rewards, learned=True)
    [episode] = await played.play("17+25")
    return episode


async def test_an_episode_that_runs_out_of_room_gets_the_penalty_alone(tmp_path: Path) -> None:
    penalised = Reward(-0.1, {"formatted": 0.0}, correct=False)
    cut = await play(tmp_path / "cut", 0.1, cut=True)
    assert cut.reward == penalised  # right, as it happens
    refused = await play(tmp_path / "refused", 0.1, refuse=True)
    assert refused.reward == penalised
    # What is learned from it are the turns before: the tool's answer was never followed by any.
    row = refused.row(-0.1, -0.5)
    assert (row.prompt, row.tokens) == (letters("17+25"), (*letters("calc: 17+25"), 0))
    assert all(row.learned)


@pytest.mark.parametrize(
    ("reason", "outgrew"),
    [
        ("prompt has 9000 tokens, the context takes 8192 with the completion", True),
        ("HTTP 400: This model's maximum context length is 8192 tokens.", True),
        ("The decoder prompt (length 9000) is longer than the maximum model length of 8192.", True),
        ("model 'long-context-7b': its chat template takes no messages of the role tool (it leaves them out)", False),
        ("HTTP 400: Conversation roles must alternate user/assistant/user/assistant/...", False),
    ],
)
async def test_a_refusal_for_another_reason_than_length_costs_nothing(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, reason: str, outgrew: bool
) -> None:
    monkeypatch.setattr("test_episodes.REFUSAL", reason)
    episode = await play(tmp_path / "refused", 0.1, refuse=True)
    assert episode.reward.value == (-0.1 if outgrew else None)


async def test_other_episodes_do_not(tmp_path: Path) -> None:
    middle = await play(tmp_path / "middle", 0.1, cut=True, at=1)
    assert middle.reward == Reward(1.0, {"formatted": 1.0}, correct=True)
    # A prompt that does not fit leaves nothing to learn from.
    assert (await play(tmp_path / "first", 0.1, refuse=True, at=1)).reward.value is None


async def test_without_a_penalty_they_are_rewarded_as_ever(tmp_path: Path) -> None:
    assert (await play(tmp_path / "cut", 0.0, cut=True)).reward.value == 1.0
    assert (await play(tmp_path / "refused", 0.0, refuse=True)).reward.value is None
