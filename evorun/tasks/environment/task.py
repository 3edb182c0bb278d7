"""An environment as methods see it: what it shows first, its tools, and turns that it answers."""

from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any, ClassVar

import numpy as np

from evorun.errors import ConfigError
from evorun.models.base import Message, Request
from evorun.runs.candidates import Response
from evorun.runs.scores import ACCURACY, Score
from evorun.simulation.skill import Skill
from evorun.tasks.base import DrawHelp, Grade, GradingTools, Problem, Tools, look_up
from evorun.tasks.environment.sessions import Outcome, Sessions
from evorun.tasks.simulator import REVIEWS, TextSimulator
from evorun.tasks.tags import escape_tags
from evorun.tasks.text_task import TextTask
from evorun.tasks.thinking import without_thinking
from evorun.tasks.tool_calls import Tool, format_tools, read_calls

_MARK = "<next_turn/>"
BETWEEN = f"\n\n{_MARK}\n\n"
"""Stands between the turns of an episode, in its response."""


class EnvironmentTask(TextTask):
    """Acts in an environment; the response is all turns of the model, from which the episode can be played again."""

    name = "environment"
    reward_score = Score("reward")
    scores: ClassVar[tuple[Score, ...]] = (ACCURACY, reward_score)
    script = None
    prompt_folders: ClassVar[Sequence[Path]] = (Path(__file__).parent / "prompts",)
    wording: Mapping[str, str] = {"persona": "a careful agent", "subject": "task", "reasoning_label": "Turns"}
    draw_help = DrawHelp(
        more_validation="raise task.validation_problems",
        grade_held_out="lower task.validation_problems or task.train_problems to grade it",
        keys="task.rows, task.problems, task.validation_problems, task.train_problems, task.draw_seed and task.limit",
    )

    def __init__(
        self,
        sessions: Sessions,
        rows: Mapping[str, Mapping[str, Any]],
        tools: Sequence[Tool],
        *,
        max_turns: int = 8,
        max_result_chars: int = 8000,
        prompts: str | None = None,
        shown_reasoning_chars: int | None = None,
    ) -> None:
        """rows: what the environment is reset with, by problem id."""
        super().__init__(prompts=prompts, shown_reasoning_chars=shown_reasoning_chars)
        self._sessions = sessions
        self._rows = rows
        self._max_turns = max_turns
        self._max_result_chars = max_result_chars
        self.answer_format = self.prompts.render(
            "answer_format", tools=format_tools([*tools, *self.own_tools()]), turns=max_turns
        )

    # --- defined by a subclass with tools of its own ---

    def own_tools(self) -> Sequence[Tool]:
        """Return the tools that the task has beside those of the environment, which skips their calls."""
        return ()

    async def list_results(self, turn: str, outcome: Outcome, tools: Tools | None) -> Sequence[str]:
        """Return the results of a turn's calls, where `outcome` has those of the environment's tools."""
        return outcome.results

    # --- turns ---

    def max_turns(self, problem: Problem) -> int:
        return self._max_turns

    async def answer_tools(self, problem: Problem, said: Message) -> Message | None:
        """Answer the first turn of an episode."""
        return await self.answer_episode(problem, [said["content"]])

    async def answer_episode(
        self, problem: Problem, turns: Sequence[str], tools: Tools | None = None
    ) -> Message | None:
        """Answer the last of these turns with its calls' results; None where it calls nothing or ends the episode.

        Raises ToolError where the environment fails, ConfigError for a program without a run's tools.
        """
        turns = [_clean(turn) for turn in turns]
        if not read_calls(turns[-1]):
            return None
        outcome = await self.play(problem, turns, last=False)
        if outcome.done:
            return None
        listed = await self.list_results(turns[-1], outcome, tools)
        results = "\n\n".join(escape_tags(self._cut(result)) for result in listed)
        left = self._max_turns - len(turns)
        return Message(role="tool", content=self.prompts.render("turn", results=results, left=left))

    def join_turns(self, turns: Sequence[str]) -> str:
        """Return the turns of an episode as the text of its response."""
        return BETWEEN.join(_clean(turn) for turn in turns)

    async def play(self, problem: Problem, turns: Sequence[str], *, last: bool) -> Outcome:
        """Play an episode's turns. Raises DataError for an unknown problem, and as `Sessions.play`."""
        return await self._sessions.play(problem.id, look_up(self._rows, problem), turns, last=last)

    def _cut(self, result: str) -> str:
        limit = self._max_result_chars
        return result if len(result) <= limit else f"{result[:limit]} ... ({len(result) - limit} more characters)"

    # --- responses ---

    def read(self, problem: Problem, text: str) -> str:
        return text.strip()

    def write(self, problem: Problem, answer: str, reasoning: str = "") -> str:
        return f"{reasoning.strip()}\n\n{answer}".strip()

    def score(self, problem: Problem, response: Response, reference: Any) -> Grade:
        """Return no score: only the grader plays episodes."""
        return Grade()


class EnvironmentGrader:
    """Plays a response's turns again and takes the reward; rewards are recorded in the journal."""

    def __init__(self, task: EnvironmentTask, source: str, right_from: float) -> None:
        """source: names the environment. right_from: least reward of a right response."""
        self._task = task
        self._source = source
        self._right_from = right_from

    async def grade(self, problem: Problem, response: Response, tools: GradingTools) -> Grade:
        turns = response.text.split(BETWEEN)[: self._task.max_turns(problem)]

        async def work() -> Grade:
            outcome = await self._task.play(problem, turns, last=True)
            value = outcome.reward or 0.0
            detail = "no reward" if outcome.reward is None else "" if outcome.done else "not ended by the environment"
            return Grade(correct=value >= self._right_from, scores={"reward": value}, detail=detail)

        return await tools.remember(["environment", self._source, problem.id, turns], work, Grade)


class EnvironmentSimulator(TextSimulator):
    """Says the next turn of the problem's solution, or else a turn that gives up."""

    def with_skill(self, skill: Skill) -> TextSimulator:
        if not any(row.answer for row in self._rows.values()):
            raise ConfigError(
                "task=environment: engine=simulated needs right turns to say; give the rows a key `solution` (a list "
                "of turns), or use another engine"
            )
        return super().with_skill(skill)

    def value(self, problem: Problem, answer: str | None) -> float:
        # As far as calls go: a judge of simulated runs has no environment at hand.
        gold = self._rows[problem.id].answer or ""
        return float(
            answer is not None
            and list(map(read_calls, answer.split(BETWEEN))) == list(map(read_calls, gold.split(BETWEEN)))
        )

    def wrong_answers(self, problem: Problem, gold: str) -> Sequence[str]:
        return ["I give up."]

    def respond(self, request: Request, rng: np.random.Generator) -> str:
        hints = request.hints
        if "problem" not in hints or hints["role"] in REVIEWS:
            return super().respond(request, rng)
        turns = (self._rows[hints["problem"]].answer or "").split(BETWEEN)
        done = sum(message["role"] == "tool" for message in request.messages)
        reply = super().respond(request, rng)
        if reply in self.malformed:
            return reply
        succeeds = self.value(self._rows[hints["problem"]].problem, reply) > 0
        return turns[min(done, len(turns) - 1)] if succeeds else "I give up."


def _clean(turn: str) -> str:
    """Return a turn without its thinking, and without the mark that separates turns."""
    return without_thinking(turn).replace(_MARK, "").strip()
