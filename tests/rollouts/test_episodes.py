"""Episodes of several turns with a calculator, under a scripted model behind a real journal."""

import asyncio
import dataclasses
from collections.abc import Awaitable, Callable
from pathlib import Path

import msgspec
import pytest

from building import make_meter
from evorun.errors import EngineError, EvorunError, SandboxError
from evorun.models.base import Completion, Message, Reply, Request, Sampling, make_rejection
from evorun.rollouts.calls import Calls
from evorun.rollouts.episodes import Asked, Episode, Rollouts
from evorun.rollouts.rewards import Graded, Reward
from evorun.runs.budget import Meter
from evorun.runs.candidates import Response
from evorun.runs.effects import JournaledModel, Traffic
from evorun.runs.journal import Journal
from evorun.runs.schema import RolloutRecord
from evorun.runs.spending import read_spending
from evorun.tasks.base import Grade, Problem, Prompt, Task
from evorun.training.wire import Row, TokenAdvantages

SAMPLING = Sampling(max_tokens=50)
REFUSAL = "too long"
TURNS = 3


class Sums(Task):
    """`calc: 2+3` uses the calculator; anything else is the answer."""

    name = "sums"

    def __init__(self) -> None:
        self.asked_tools: list[tuple[str, str]] = []
        self.failure: EvorunError | None = None

    def parse(self, problem: Problem, text: str) -> Response:
        if text.startswith("calc:"):
            return Response(text=text, answer=None, error="no_answer: the calculator was asked")
        return Response(text=text, answer=text)

    def max_turns(self, problem: Problem) -> int:
        return TURNS

    async def answer_tools(self, problem: Problem, said: Message) -> Message | None:
        self.asked_tools.append((problem.id, said["content"]))
        await asyncio.sleep(0)
        if self.failure is not None:
            raise self.failure
        if not said["content"].startswith("calc:"):
            return None
        left, operator, right = said["content"].removeprefix("calc:").strip().partition("/")
        value = int(left) // int(right) if operator else sum(map(int, left.split("+")))
        return Message(role="tool", content=str(value))


Script = Callable[[Request], Awaitable[str | None]]


class Speaker:
    """Says what its script says, None being a refusal; a token a letter. Keeps what it was asked."""

    name = "m"

    def __init__(self, script: Script) -> None:
        self.script = script
        self.requests: list[Request] = []

    async def complete(self, request: Request) -> Reply:
        self.requests.append(request)
        text = await self.script(request)
        if text is None:
            return make_rejection(request, REFUSAL)
        said = (*letters(text), 0)  # the end of the turn is a token too
        prompt = letters(request.messages[0]["content"])
        if request.seen is not None:  # the tool's turn after what has been seen
            prompt = (*request.seen, *letters(request.messages[-1]["content"]))
        completion = Completion(text=text, finish_reason="stop", tokens=len(said), token_ids=said)
        if request.logprobs:
            completion = msgspec.structs.replace(completion, logprobs=logprobs(said))
        return Reply(completions=(completion,), prompt_tokens=len(prompt), seconds=0.25, prompt_ids=prompt)

    async def close(self) -> None:
        return


def letters(text: str) -> tuple[int, ...]:
    return tuple(map(ord, text))


def logprobs(tokens: tuple[int, ...]) -> tuple[float, ...]:
    return tuple(-0.5 - token for token in tokens)


class Played:
    """All that episodes are played with."""

    def __init__(self, folder: Path, script: Script, meter: Meter | None = None) -> None:
        folder.mkdir(exist_ok=True)
        self.journal = Journal(folder / "journal.sqlite")
        self.task, self.speaker, self.meter = Sums(), Speaker(script), meter or make_meter()
        self.graded: list[str] = []
        model = JournaledModel(self.speaker, self.journal, Traffic())
        calls = Calls(
            name="*",
            task=self.task,
            seed=0,
            meter=self.meter,
            models={"policy": model},
            roles={},
            remember=self.journal.remember,
        )
        rewards = Graded(calls, self.task, self._grade, format_reward=0.25)
        self.rollouts = Rollouts(calls, self.task, "rollout", rewards, learned=True)

    async def _grade(self, problem: Problem, response: Response) -> Grade:
        self.graded.append(problem.id)
        return Grade(correct=response.answer == problem.data["answer"])

    async def play(self, *questions: str) -> list[Episode]:
        try:
            async with asyncio.timeout(20):
                return await self.rollouts.play(1, [asked(one) for one in questions], SAMPLING)
        finally:
            self.journal.close()


def asked(question: str) -> Asked:
    answer = str(sum(map(int, question.split("+"))))
    problem = Problem(id=question, stratum="", data={"answer": answer})
    return Asked(problem, Prompt(messages=(Message(role="user", content=question),)))


async def calculating(request: Request) -> str:
    """Ask the calculator and repeat what it said."""
    last = request.messages[-1]
    return f"calc: {last['content']}" if last["role"] == "user" else last["content"]


async def test_turns_tools_and_reward(tmp_path: Path) -> None:
    played = Played(tmp_path, calculating)
    [episode] = await played.play("17+25")
    first, tool, last = episode.turns
    assert isinstance(first, Reply)
    assert isinstance(last, Reply)
    assert [first.completions[0].text, tool, last.completions[0].text] == [
        *("calc: 17+25", {"role": "tool", "content": "42"}, "42")
    ]
    assert [message["role"] for message in played.speaker.requests[1].messages] == ["user", "assistant", "tool"]
    assert episode.response.answer == "42"
    assert episode.reward == Reward(1.25, {"formatted": 1.0}, correct=True)
    assert played.meter.counts() == {
        "rollout": {
            **{"calls": 2, "prompt_tokens": 5 + 19, "completion_tokens": 12 + 3},
            **{"cached_tokens": 0, "tool_calls": 1},
        }
    }


async def test_the_calls_of_one_turn_count_one_by_one_and_a_turn_without_any_does_not(tmp_path: Path) -> None:
    async def script(request: Request) -> str:
        replies = [message for message in request.messages if message["role"] == "assistant"]
        return ("calc: <tool_call>{}</tool_call> <tool_call>{}</tool_call>", "calc: 1+1", "2")[len(replies)]

    played = Played(tmp_path, script)
    [episode] = await played.play("17+25")
    assert episode.tool_calls == 3
    assert played.meter.total.tool_calls == 3
    assert read_spending(tmp_path / "journal.sqlite").by_role["rollout"].tool_calls == 3


async def test_the_record_adds_up_all_turns_and_names_the_last_call(tmp_path: Path) -> None:
    played = Played(tmp_path, calculating)
    _, episode = await played.play("1+1", "17+25")
    row = episode.row(1.25, 0.5)
    assert episode.record(1, row) == RolloutRecord(
        **{"step": 1, "problem": "17+25", "candidate": None, "index": 1, "call": "*|1|rollout|1|1", "turns": 2},
        **{"reward": 1.25, "advantage": 0.5, "correct": True, "finish_reason": "stop"},
        **{"prompt_tokens": 5 + 19, "completion_tokens": 12 + 3},
    )
    under = episode._replace(asked=episode.asked._replace(candidate_id="s1"))
    assert (under.record(1, None).candidate, under.record(1, None).advantage) == ("s1", None)
    penalised = episode.record(1, episode.row(0.75, None), TokenAdvantages(-0.5, 0.1))
    assert (penalised.reward, penalised.penalised_reward) == (1.25, 0.75)
    assert (penalised.advantage, penalised.advantage_sd) == (-0.5, 0.1)


async def test_a_row_holds_the_tokens_as_they_were_and_the_models_own_are_learned(tmp_path: Path) -> None:
    [episode] = await Played(tmp_path, calculating).play("17+25")
    own, tools, answer = (*letters("calc: 17+25"), 0), letters("42"), (*letters("42"), 0)
    assert episode.row(1.25, 0.5) == Row(
        prompt=letters("17+25"),
        tokens=own + tools + answer,
        learned=(True,) * 12 + (False,) * 2 + (True,) * 3,
        reward=1.25,
        advantage=0.5,
        logprobs=(*logprobs(own), 0.0, 0.0, *logprobs(answer)),
    )


async def test_no_row_is_made_of_other_tokens_than_those_drawn(tmp_path: Path) -> None:
    [episode] = await Played(tmp_path, calculating).play("17+25")
    first, tool, last = episode.turns
    assert isinstance(first, Reply)
    assert isinstance(last, Reply)
    retokenized = msgspec.structs.replace(last, prompt_ids=(1, *(last.prompt_ids or ())[1:]))
    without = msgspec.structs.replace(first, prompt_ids=())
    for turns in ((first, tool, retokenized), (without, tool, last)):
        with pytest.raises(EngineError, match="each turn's prompt going on from the turn before it"):
            episode._replace(turns=turns).row(1.0, 1.0)


async def test_no_row_is_made_without_log_probabilities(tmp_path: Path) -> None:
    [episode] = await Played(tmp_path, calculating).play("1+1")
    reply = episode.replies[0]
    [completion] = reply.completions
    bare = msgspec.structs.replace(reply, completions=(msgspec.structs.replace(completion, logprobs=None),))
    with pytest.raises(EngineError, match="expected the log-probabilities of completions"):
        episode._replace(turns=(bare,)).row(1.0, 1.0)


@pytest.mark.parametrize("learned", [True, False])
async def test_what_is_learned_from_is_drawn_without_a_grammar(tmp_path: Path, learned: bool) -> None:
    played = Played(tmp_path, calculating)
    schema = {"type": "string"}
    start = asked("1+1")._replace(prompt=Prompt(messages=asked("1+1").prompt.messages, json_schema=schema))
    await dataclasses.replace(played.rollouts, learned=learned).play(1, [start], SAMPLING)
    played.journal.close()
    assert [one.json_schema for one in played.speaker.requests] == [None if learned else schema] * 2


async def test_a_tool_that_fails_is_an_answer(tmp_path: Path) -> None:
    async def script(request: Request) -> str:
        return "calc: 1/0" if len(request.messages) == 1 else "2"

    [episode] = await Played(tmp_path, script).play("1+1")
    assert episode.turns[1] == Message(
        role="tool", content="error: ZeroDivisionError: integer division or modulo by zero"
    )
    assert episode.reward.correct


async def test_infrastructure_that_fails_is_none(tmp_path: Path) -> None:
    played = Played(tmp_path, calculating)
    played.task.failure = SandboxError("no more processes")
    with pytest.raises(ExceptionGroup) as raised:
        await played.play("1+1")
    assert raised.group_contains(SandboxError, match="no more processes")


async def test_an_episode_ends_with_its_last_turn(tmp_path: Path) -> None:
    async def script(request: Request) -> str:
        return f"calc: {len(request.messages)}+1"

    played = Played(tmp_path, script)
    [episode] = await played.play("1+1")
    assert len(episode.replies) == TURNS
    assert len(played.task.asked_tools) == TURNS - 1
    assert episode.response.error is not None
    assert episode.reward.value == 0


async def test_rewards_begin_before_the_slowest_episode_ends(tmp_path: Path) -> None:
    rewarded = asyncio.Event()

    async def script(request: Request) -> str:
        if request.messages[0]["content"] == "2+2" and len(request.messages) > 1:
            await rewarded.wait()
        return await calculating(request)

    class Watching(Played):
        async def _grade(self, problem: Problem, response: Response) -> Grade:
            rewarded.set()
            return await super()._grade(problem, response)

    episodes = await Watching(tmp_path, script).play("1+1", "2+2")
    assert [one.reward.correct for one in episodes] == [True, True]


async def test_the_budget_pays_for_whole_episodes(tmp_path: Path) -> None:
    played = Played(tmp_path, calculating, make_meter(2 * TURNS + 2))
    episodes = await played.play("1+1", "2+2", "3+3")
    assert [one.asked.problem.id for one in episodes] == ["1+1", "2+2"]
    assert played.meter.exhausted
    assert played.meter.total.calls == len(played.speaker.requests) == 4


async def test_a_refused_request_ends_its_episode_alone(tmp_path: Path) -> None:
    async def script(request: Request) -> str | None:
        refused = request.messages[0]["content"] == "2+2" and len(request.messages) > 1
        return None if refused else await calculating(request)

    played = Played(tmp_path, script)
    refused, whole = await played.play("2+2", "1+1")
    assert refused.response.error == "rejected: too long"
    assert (refused.reward.value, whole.reward.value) == (None, 1.25)
    assert played.graded == ["1+1"]


async def test_an_engine_that_fails_ends_the_other_episodes(tmp_path: Path) -> None:
    ended: list[str] = []

    async def script(request: Request) -> str:
        question = request.messages[0]["content"]
        if question == "1+1" and len(request.messages) > 1:
            raise EngineError("the server is gone")
        if question != "1+1":
            try:
                await asyncio.Event().wait()
            except asyncio.CancelledError:
                ended.append(question)
                raise
        return await calculating(request)

    played = Played(tmp_path, script)
    with pytest.raises(ExceptionGroup) as raised:
        await played.play("1+1", "2+2", "3+3")
    assert raised.group_contains(EngineError, match="the server is gone")
    assert sorted(ended) == ["2+2", "3+3"]
    assert played.meter.total.calls == 0
    assert asyncio.all_tasks() == {asyncio.current_task()}


@pytest.mark.parametrize("breaks_after", range(1, 6))
async def test_broken_off_and_resumed_nothing_is_asked_twice(tmp_path: Path, breaks_after: int) -> None:
    undisturbed = Played(make(tmp_path / "a"), calculating)
    expected = await undisturbed.play("1+1", "2+2", "3+3")

    async def breaking(request: Request) -> str:
        if len(broken.speaker.requests) > breaks_after:
            raise EngineError("killed")
        return await calculating(request)

    broken = Played(make(tmp_path / "b"), breaking)
    with pytest.raises(ExceptionGroup):
        await broken.play("1+1", "2+2", "3+3")
    resumed = Played(tmp_path / "b", calculating)
    recorded = len(resumed.journal)
    assert await resumed.play("1+1", "2+2", "3+3") == expected
    again = Played(tmp_path / "b", calculating)
    effects = len(again.journal)
    assert await again.play("1+1", "2+2", "3+3") == expected
    made = [len(one.speaker.requests) + len(one.task.asked_tools) + len(one.graded) for one in (resumed, again)]
    assert made == [effects - recorded, 0]
    assert resumed.meter.counts() == undisturbed.meter.counts()


def make(folder: Path) -> Path:
    folder.mkdir()
    return folder
