"""Time of rollouts beside their models' own: episodes of several turns, through the journal, to rows of tokens."""

import asyncio
import tempfile
import time
from pathlib import Path

import numpy as np

from evorun.models.base import Completion, Message, Reply, Request, Sampling
from evorun.rollouts.calls import Calls
from evorun.rollouts.episodes import Asked, Rollouts
from evorun.runs.budget import Meter
from evorun.runs.candidates import Response
from evorun.runs.effects import JournaledModel, Traffic
from evorun.runs.journal import Journal
from evorun.tasks.base import Problem, Prompt, Task
from evorun.training.wire import Train, encode
from evorun_bench import Row

TINY = {"episodes": 2, "tokens": 10}
MODEL_US = 50.0
"""Of a token drawn, in microseconds: 20,000 tokens a second, of a small model on a large GPU (ours)."""
TURNS = 5
TEMPLATE = tuple(range(20))
"""Tokens that stand between two turns."""


def measure(episodes: int = 150, tokens: int = 1000) -> list[Row]:
    """Measure one step of so many episodes, of five turns with so many tokens each."""
    with tempfile.TemporaryDirectory() as folder:
        started = time.process_time()  # of all threads, and of this process alone
        asyncio.run(_step(Path(folder), episodes, tokens))
        seconds = time.process_time() - started
    own = 1e6 * seconds / (episodes * TURNS * tokens)
    share = 100 * own / MODEL_US
    return [
        Row(f"a token of {episodes} episodes", own, "us", "", None),
        Row("... of a step whose tokens take 50 us each", share, "%", "<= 5", share <= 5),
    ]


async def _step(folder: Path, episodes: int, tokens: int) -> None:
    journal = Journal(folder / "journal.sqlite")
    calls = Calls(
        name="*",
        task=_Talk(),
        seed=0,
        meter=Meter(),
        models={"policy": JournaledModel(_Instant(tokens), journal, Traffic())},
        roles={},
        remember=journal.remember,
    )
    problems = (Problem(id=f"p{number}", stratum="", data={}) for number in range(episodes))
    prompt = Prompt(messages=(Message(role="user", content="Tell me more."),))
    asked = [Asked(problem, prompt) for problem in problems]
    rollouts = Rollouts(calls, calls.task, "rollout", learned=True)
    played = await rollouts.play(1, asked, Sampling(max_tokens=tokens))
    encode(Train(number=1, rows=tuple(rollout.row(0.5, 0.5) for rollout in played)))
    journal.close()


class _Talk(Task):
    """Uses all turns."""

    name = "talk"

    def parse(self, problem: Problem, text: str) -> Response:
        return Response(text=text, answer=text)

    def max_turns(self, problem: Problem) -> int:
        return TURNS

    async def answer_tools(self, problem: Problem, said: Message) -> Message:
        return Message(role="tool", content="Go on.")


class _Instant:
    """Says the same tokens again and again, at once."""

    name = "instant"

    def __init__(self, tokens: int) -> None:
        rng = np.random.default_rng(0)
        self._completion = Completion(
            text=" ".join(["word"] * tokens),
            finish_reason="stop",
            tokens=tokens,
            token_ids=tuple(rng.integers(50_000, size=tokens).tolist()),
            logprobs=tuple((-rng.exponential(size=tokens)).tolist()),
        )

    async def complete(self, request: Request) -> Reply:
        prompt = (*(request.seen or ()), *TEMPLATE)
        return Reply(completions=(self._completion,), prompt_tokens=len(prompt), seconds=1.0, prompt_ids=prompt)

    async def close(self) -> None:
        return
