"""Episodes: a model's turns on a problem, the task's tools in between, and the reward once the turns have ended."""

import asyncio
from bisect import bisect_right
from collections.abc import Sequence
from dataclasses import dataclass
from itertools import accumulate
from typing import NamedTuple

import msgspec
from msgspec import UNSET, UnsetType
from msgspec.structs import replace

from evorun.errors import EngineError, EvorunError
from evorun.models.base import Completion, Message, Reply, Sampling
from evorun.rollouts.calls import Calls
from evorun.rollouts.replies import read_reply
from evorun.rollouts.rewards import Reward, Rewards
from evorun.runs.candidates import CandidateId, Response
from evorun.runs.schema import RolloutRecord
from evorun.runs.tool_answers import TOOLS, ToolAnswer, count_tool_calls
from evorun.tasks.base import Problem, Prompt, Task
from evorun.tasks.capabilities import HasEpisodes, HasTools
from evorun.tasks.thinking import without_thinking
from evorun.tasks.tool_calls import read_calls
from evorun.training.wire import Row, TokenAdvantages

NO_REWARD = Reward(None)


class Asked(NamedTuple):
    """The start of an episode."""

    problem: Problem
    prompt: Prompt
    candidate_id: str = ""
    """Id of its candidate, such as a system prompt."""


class Episode(NamedTuple):
    """A rollout: all turns of the model on a problem; a NamedTuple."""

    asked: Asked
    turns: tuple[Reply | Message, ...]
    """The model's turns, and the tools' answer to each but the last."""
    response: Response
    """The response read from its last turn."""
    reward: Reward
    number: int
    """Index of the episode in its step."""
    call: str
    """Key of the last turn's call, in the journal."""
    tool_calls: int = 0
    """Tool calls of its turns that got an answer."""

    @property
    def replies(self) -> list[Reply]:
        """The model's turns; the last one may be a request that the engine refused."""
        return [turn for turn in self.turns if isinstance(turn, Reply)]

    @property
    def version(self) -> int | UnsetType:
        """Number of updates of the weights that drew its tokens, the same for all turns; unset under frozen weights."""
        return self.replies[0].version

    @property
    def confidence(self) -> float | UnsetType:
        """Mean confidence of all its tokens, in nats; unset where none was requested."""
        drawn = [reply.completions[0] for reply in self.replies if reply.completions[0].confidence is not None]
        tokens = sum(completion.tokens for completion in drawn)
        return (
            sum((completion.confidence or 0.0) * completion.tokens for completion in drawn) / tokens
            if tokens
            else UNSET
        )

    @property
    def ended_by_template(self) -> bool:
        """True where the engine took a turn and refused the next one, and not for its length.

        The chat template then has no place for a tool's answer, which is no fault of the model or its system prompt.
        """
        replies = self.replies
        return len(replies) > 1 and replies[-1].error is not None and not replies[-1].outgrew_context

    @property
    def transcript(self) -> str:
        """The turns of the model and its tools, as text."""
        if len(self.turns) == 1:
            return self.replies[0].completions[0].text
        return "\n\n".join(
            f"assistant: {turn.completions[0].text}" if isinstance(turn, Reply) else f"tool: {turn['content']}"
            for turn in self.turns
        )

    def without_tokens(self) -> "Episode":
        """Return the episode without what it has of each token, which would fill the memory over many batches."""
        turns = [
            replace(
                turn,
                prompt_ids=None,
                completions=tuple(
                    replace(completion, token_ids=None, logprobs=None, token_confidences=None)
                    for completion in turn.completions
                ),
            )
            if isinstance(turn, Reply)
            else turn
            for turn in self.turns
        ]
        return self._replace(turns=tuple(turns))

    def row(self, reward: float, advantage: float | None) -> Row:
        """Return the episode for training: tokens as the engine saw and drew them; only the model's are learned.

        reward, advantage: see `Row`. Raises EngineError when the engine went on from other tokens than these, or gave
        no log-probabilities.
        """
        prompt = self.replies[0].prompt_ids or ()
        tokens: list[int] = []
        learned: list[bool] = []
        logprobs: list[float] = []
        # A last turn that the engine refused, for the context was full, has no tokens.
        for reply in (reply for reply in self.replies if reply.error is None):
            before, drawn = reply.prompt_ids or (), reply.completions[0].token_ids
            if drawn is None or not before or before[: len(prompt) + len(tokens)] != (*prompt, *tokens):
                raise EngineError(
                    "expected the token ids of prompts and completions, each turn's prompt going on from the turn "
                    "before it, which learning needs; the engine gave others or none: use engine=vllm, "
                    "engine=transformers or a server run by `vllm serve`"
                )
            if reply.completions[0].logprobs is None:
                raise EngineError(
                    "expected the log-probabilities of completions, which learning needs; the engine gave none: use "
                    "engine=vllm, engine=transformers or a server run by `vllm serve`"
                )
            # Tokens between the turns (a tool's answer, the chat template's marks) are seen but not learned.
            added = before[len(prompt) + len(tokens) :]
            tokens += [*added, *drawn]
            learned += [False] * len(added) + [True] * len(drawn)
            logprobs += [*(0.0,) * len(added), *reply.completions[0].logprobs]
        return Row(
            prompt=prompt,
            tokens=tuple(tokens),
            learned=tuple(learned),
            reward=reward,
            advantage=advantage,
            logprobs=tuple(logprobs),
        )

    def rewarded(self, value: float | None, correct: bool | None = None) -> "Episode":
        """Return the episode with a reward, for a search that graded its response; see `Reward`."""
        return self._replace(reward=Reward(value, correct=correct))

    def record(
        self,
        step: int,
        row: Row | None = None,
        estimated: TokenAdvantages | None = None,
        rubric: CandidateId | None = None,
    ) -> RolloutRecord:
        """Return the episode as rollouts.jsonl has it.

        row: the row that training learned from; None: it was not learned from. estimated: the trainer's estimates for
        its tokens. rubric: id of the rubric that scored it.
        """
        replies, parts = self.replies, self.reward.parts
        advantage: float | UnsetType | None = None
        if estimated is not None:
            advantage = estimated.mean
        elif row is not None:
            advantage = UNSET if row.advantage is None else row.advantage
        return RolloutRecord(
            step=step,
            problem=self.asked.problem.id,
            candidate=self.asked.candidate_id or None,
            index=self.number,
            call=self.call,
            version=self.version,
            reward=self.reward.value,
            penalised_reward=UNSET if row is None or row.reward == self.reward.value else row.reward,
            advantage=advantage,
            advantage_sd=UNSET if estimated is None else estimated.sd,
            correct=self.reward.correct,
            finish_reason=replies[-1].completions[0].finish_reason,
            prompt_tokens=sum(reply.prompt_tokens for reply in replies),
            completion_tokens=sum(reply.completion_tokens for reply in replies),
            turns=len(replies),
            rubric=UNSET if rubric is None else rubric,
            raw=parts.get("raw", UNSET),
            normalised=parts.get("normalised", UNSET),
            maximum=parts.get("maximum", UNSET),
            unscored=self.reward.unscored or UNSET,
        )


def make_blank_episode(parts: dict[str, float] | None = None) -> Episode:
    """Return an episode without text, on which to try a user's prompt files. parts: of its reward, which is 1."""
    reply = Reply(completions=(Completion(text="", finish_reason="stop", tokens=0),), prompt_tokens=0, seconds=0.0)
    asked = Asked(Problem(id="", stratum="", data={}), Prompt(messages=()))
    return Episode(asked, (reply,), Response(text="", answer=None), Reward(1.0, parts or {}), 0, "")


@dataclass(frozen=True)
class Rollouts:
    """Plays episodes in one role."""

    calls: Calls
    task: Task
    role: str
    rewards: Rewards | None = None
    """None: episodes are not rewarded."""
    learned: bool = False
    """True where training learns from the tokens: the engine returns them with their log-probabilities. Replies then
    follow no schema, since a grammar changes the policy's distribution. Each turn continues the tokens before it
    wherever the engine returns them."""

    def max_calls(self, problems: Sequence[Problem]) -> int:
        """Return the maximum calls of an episode for each problem."""
        return sum(max_turns_on(self.task, problem) for problem in problems)

    async def play(
        self,
        step: int,
        asked: Sequence[Asked],
        sampling: Sampling,
        indices: Sequence[int] | None = None,
        attempts: Sequence[int] | None = None,
    ) -> list[Episode]:
        """Play all episodes at once, charge their calls and return them, in order; see `play_uncharged`."""
        episodes = await self.play_uncharged(step, asked, sampling, indices, attempts)
        self.charge(step, episodes)
        return episodes

    async def play_uncharged(
        self,
        step: int,
        asked: Sequence[Asked],
        sampling: Sampling,
        indices: Sequence[int] | None = None,
        attempts: Sequence[int] | None = None,
    ) -> list[Episode]:
        """Play all episodes at once and return them, in order.

        An episode starts when the budget allows all turns that it may take; when the budget does not allow all
        episodes, only the first are played. The episode's index (in `asked`, unless `indices` differs) and the turn, as
        the attempt, identify a call. attempts: of episodes that are repeated under their indices; 0 the first time.
        """
        # Whole episodes only: an episode cut off by the budget costs its turns and earns no reward.
        max_calls = list(accumulate(max_turns_on(self.task, start.problem) for start in asked))
        allowed = bisect_right(max_calls, self.calls.affordable(max_calls[-1] if max_calls else 0, self.role))
        numbers = range(len(asked)) if indices is None else indices
        begun = attempts or [0] * len(asked)
        async with asyncio.TaskGroup() as group:
            playing = [
                group.create_task(self._play(step, index, attempt, start, sampling))
                for index, attempt, start in zip(numbers, begun, asked[:allowed], strict=False)
            ]
        return [playing_task.result() for playing_task in playing]

    def charge(self, step: int, episodes: Sequence[Episode]) -> None:
        """Charge the calls of a step's episodes and of their rewards, in the episodes' order (`Calls.charge`)."""
        for episode in episodes:
            self.calls.charge(self.role, episode.replies)
            self.calls.charge_tools(self.role, episode.tool_calls)
            if self.rewards is not None:
                self.rewards.charge(step, episode.number)

    async def _play(self, step: int, index: int, attempt: int, asked: Asked, sampling: Sampling) -> Episode:
        prompt, turns, seen, tool_calls = asked.prompt, list[Reply | Message](), None, 0
        if self.learned:
            prompt = msgspec.structs.replace(prompt, json_schema=None)
        max_turns = max_turns_on(self.task, asked.problem)
        for turn in range(attempt * max_turns, (attempt + 1) * max_turns):
            reply = await self.calls.ask(
                prompt,
                sampling,
                role=self.role,
                step=step,
                index=index,
                attempt=turn,
                learned=self.learned,
                seen=seen,
            )
            turns.append(reply)
            said = Message(role="assistant", content=reply.completions[0].text)
            ended = reply.error is not None or reply.completions[0].finish_reason == "low_confidence"
            last = ended or turn + 1 == (attempt + 1) * max_turns
            answers = [] if last else await self._answer(step, index, turn, asked.problem, said, turns)
            if not answers:
                break
            tool_calls += count_tool_calls(answers)
            answer = Message(role="tool", content=answers[0].content)
            turns.append(answer)
            prompt = msgspec.structs.replace(prompt, messages=(*prompt.messages, said, answer))
            # Tokens, not text: encoding a completion's text again may differ from the drawn tokens.
            ids = reply.completions[0].token_ids
            seen = (*reply.prompt_ids, *ids) if reply.prompt_ids and ids is not None else None
        response = read_reply(self.task, asked.problem, reply)
        if isinstance(self.task, HasEpisodes) and reply.error is None:
            response = self.task.parse(asked.problem, self.task.join_turns(_model_turns(turns)))
        reward = NO_REWARD
        # A refusal for a reason other than length is not the model's fault: a chat template may lack a tool's turn.
        overflowed = reply.completions[0].truncated or (reply.outgrew_context and len(turns) > 1)
        if self.rewards is not None and overflowed and self.rewards.overflow is not None:
            reward = self.rewards.overflow
        elif self.rewards is not None and reply.error is None:
            reward = await self.rewards.reward(step, index, asked.problem, response)
        key = self.calls.key(step, self.role, index, turn)
        return Episode(asked, tuple(turns), response, reward, index, key, tool_calls)

    async def _answer(
        self, step: int, index: int, turn: int, problem: Problem, said: Message, turns: Sequence[Reply | Message]
    ) -> list[ToolAnswer]:
        """Return the tools' answer; an empty list when none was used. A failing tool answers with its error."""
        task = self.task
        if not isinstance(task, HasTools):
            return []

        async def compute() -> list[ToolAnswer]:
            try:
                if isinstance(task, HasEpisodes):
                    answer = await task.answer_episode(problem, _model_turns(turns), self.calls.tools)
                else:
                    answer = await task.answer_tools(problem, said)
            except EvorunError:
                raise
            except Exception as error:  # a tool's failure at a model's words concerns only this episode
                answer = Message(role="tool", content=f"error: {type(error).__name__}: {error}")
            if answer is None:
                return []
            # Tasks with a form of their own for calls answer one per turn.
            calls = max(1, len(read_calls(without_thinking(said["content"]))))
            return [ToolAnswer("tool", answer["content"].encode(errors="replace").decode(), calls)]

        about = (problem.id, said["content"])
        return await self.calls.remember(
            step, f"{self.role}{TOOLS}", about, compute, list[ToolAnswer], index=index, attempt=turn
        )


def _model_turns(turns: Sequence[Reply | Message]) -> list[str]:
    return [turn.completions[0].text for turn in turns if isinstance(turn, Reply)]


def max_turns_on(task: Task, problem: Problem) -> int:
    """Return the maximum calls of a response: the turns of a task with tools, else 1."""
    return task.max_turns(problem) if isinstance(task, HasTools) else 1
