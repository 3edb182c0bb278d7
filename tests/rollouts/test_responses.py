"""Responses that nothing is learned from: a call each, or an episode, known by the same index and attempt."""

from pathlib import Path

import pytest
from test_episodes import SAMPLING, TURNS, Played, asked, calculating

from building import make_context, make_meter
from evorun.models import Completion, Reply, Request
from evorun.rollouts.calls import Caller
from evorun.rollouts.episodes import Asked
from evorun.rollouts.responses import respond
from evorun.tasks.base import Prompt
from method_fixture import Quiz, problem


class Echo(Caller):
    async def complete(self, key: str, request: Request, step: int) -> Reply:
        completion = Completion(text=request.messages[0]["content"], finish_reason="stop", tokens=1)
        return Reply(completions=(completion,), prompt_tokens=1, seconds=0.0)


async def test_one_call_each_where_the_task_has_no_tools() -> None:
    ctx = make_context(Quiz(), problem(0), Echo())
    starts = [Asked(problem(0), Prompt(messages=({"role": "user", "content": text},))) for text in ("A", "nothing")]
    episodes = await respond(ctx, starts, role="generate", step=2, sampling=SAMPLING, attempt=[0, 3], indices=[5, 9])
    assert [one.call for one in episodes] == [ctx.key(2, "generate", 5, 0), ctx.key(2, "generate", 9, 3)]
    assert [one.response.text for one in episodes] == ["A", "nothing"]
    assert [one.reward.value for one in episodes] == [None, None]
    assert ctx.calls_made == 2


async def test_episodes_where_it_has_and_a_retry_is_another(tmp_path: Path) -> None:
    played = Played(tmp_path, calculating)
    calls = played.rollouts.calls
    first = await respond(calls, [asked("1+1"), asked("2+2")], role="generate", step=0, sampling=SAMPLING)
    [again] = await respond(calls, [asked("2+2")], role="generate", step=0, sampling=SAMPLING, attempt=1, indices=[1])
    played.journal.close()
    assert [one.response.answer for one in (*first, again)] == ["2", "4", "4"]
    assert [len(one.replies) for one in (*first, again)] == [2, 2, 2]
    # A turn is an attempt of its own: the retry's begin behind all that the first attempt could have had.
    assert [one.call for one in (*first, again)] == [
        calls.key(0, "generate", index, attempt) for index, attempt in ((0, 1), (1, 1), (1, TURNS + 1))
    ]
    assert len({request.seed for request in played.speaker.requests}) == 6
    assert not any(request.token_ids for request in played.speaker.requests)
    assert played.graded == []
    assert played.meter.counts()["generate"]["calls"] == 6


@pytest.mark.parametrize(("calls", "played"), [(TURNS - 1, 0), (TURNS, 1), (2 * TURNS, 2)])
async def test_the_budget_pays_for_whole_responses(tmp_path: Path, calls: int, played: int) -> None:
    playing = Played(tmp_path, calculating, make_meter(calls))
    starts = [asked("1+1"), asked("2+2")]
    episodes = await respond(playing.rollouts.calls, starts, role="generate", step=0, sampling=SAMPLING)
    playing.journal.close()
    assert len(episodes) == played
    assert playing.meter.exhausted is (played < 2)
