"""Episodes of five turns on an engine: training gets the tokens that the engine saw and drew, one by one."""

import asyncio
from collections.abc import Callable, Sequence
from typing import Any

import pytest

from building import make_meter, no_journal
from evorun.models.base import Completion, LanguageModel, Message, Reply, Request, Sampling
from evorun.rollouts.calls import Caller, Calls
from evorun.rollouts.episodes import Asked, Episode, Rollouts
from evorun.runs.candidates import Response
from evorun.tasks.base import Problem, Prompt, Task
from evorun.testing.engines import Score

TURNS = 5


class Talkative(Task):
    """Has something to say to whatever is said, until the turns are used up."""

    name = "talkative"

    def parse(self, problem: Problem, text: str) -> Response:
        return Response(text=text, answer=text)

    def max_turns(self, problem: Problem) -> int:
        return TURNS

    async def answer_tools(self, problem: Problem, said: Message) -> Message:
        return Message(role="tool", content=f"{problem.id}: {len(said['content'])} letters, <b>d'accord</b>")


class Unrecorded(Caller):
    """An engine without a journal."""

    def __init__(self, engine: LanguageModel) -> None:
        self.engine = engine

    async def complete(self, key: str, request: Request, step: int) -> Reply:
        return await self.engine.complete(request)


def between_turns(completion: Completion, answer: str) -> str:
    """Return what stands between a turn and the next one: an end of the turn, where it has none, and the tool's."""
    end = "" if completion.finish_reason == "stop" else "<|im_end|>"
    return f"{end}\n<|im_start|>tool\n{answer}<|im_end|>\n<|im_start|>assistant\n"


async def play(engine: LanguageModel, sampling: Sampling, *about: str, learned: bool = True) -> list[Episode]:
    """Play an episode about each."""
    calls = Calls(
        **{"name": "*", "task": Talkative(), "seed": 0, "meter": make_meter(), "roles": {}, "remember": no_journal},
        models={"policy": Unrecorded(engine)},
    )
    async with asyncio.timeout(300):
        rollouts = Rollouts(calls, Talkative(), "rollout", learned=learned)
        return await rollouts.play(1, [_asked(one) for one in about], sampling)


async def check_turns(
    engine: LanguageModel,
    tokenizer: Any,
    score: Score | None,
    sampling: Sampling,
    *about: str,
    between: Callable[[Completion, str], str] = between_turns,
) -> list[Episode]:
    """Play episodes and compare their rows with one forward pass over each, where there is one; return the episodes."""
    episodes = await play(engine, sampling, *(about or ("A colour",)))
    for episode in episodes:
        assert [reply.error for reply in episode.replies] == [None] * TURNS
        row = episode.row(1.0, 1.0)
        said = [reply.completions[0] for reply in episode.replies]
        assert [token for token, own in zip(row.tokens, row.learned, strict=True) if own] == [
            token for one in said for token in one.token_ids or ()
        ]
        # What stands between the turns is the template's.
        found = _between(row.tokens, row.learned, tokenizer)
        answers = [turn["content"] for turn in episode.turns if not isinstance(turn, Reply)]
        assert len(found) == len(answers) == TURNS - 1
        assert found == [between(one, answer) for one, answer in zip(said, answers, strict=False)]
        if score is None:
            continue
        expected = score(row.prompt, row.tokens, sampling)
        for own, logprob, right in zip(row.learned, row.logprobs, expected, strict=True):
            assert logprob == (pytest.approx(right, abs=1e-3) if own else 0.0)
    return episodes


def _asked(text: str) -> Asked:
    messages = (Message(role="system", content="Talk."), Message(role="user", content=text))
    return Asked(Problem(id=text, stratum="", data={}), Prompt(messages=messages))


def _between(tokens: Sequence[int], learned: Sequence[bool], tokenizer: Any) -> list[str]:
    """Return the texts of the runs of tokens that are not learned."""
    runs: list[list[int]] = []
    for index, token in enumerate(tokens):
        if not learned[index]:
            if learned[index - 1]:
                runs.append([])
            runs[-1].append(token)
    return [str(tokenizer.decode(run)) for run in runs]
