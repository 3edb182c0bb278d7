"""Shinka's scratchpad: notes on the programs of a search, and recommendations that come of them.

Read in SakanaAI/ShinkaEvolve (9912af1). Once `notes_every` programs are new, a call sums up each of them, one makes
insights of these summaries, and one makes `recommendations` of the insights. Each later child sees one recommendation,
drawn at random, unless it combines two programs. So notes cost more than one call per program.
"""

from collections.abc import Sequence
from typing import Any

import numpy as np

from evorun.methods.context import Context
from evorun.methods.islands.population import Member
from evorun.methods.islands.settings import IslandsConfig
from evorun.runs.candidates import Candidate
from evorun.tasks.advice import read_note
from evorun.tasks.base import Prompt

SUMMARY, INSIGHTS, RECOMMEND = "summary", "insights", "recommend"
"""The call roles of the three steps."""


class Scratchpad:
    """The notes on one problem's search."""

    def __init__(self, config: IslandsConfig) -> None:
        self._config: Any = config
        self._new: list[Candidate] = []
        """Programs since the last notes."""
        self._insights = ""
        self._recommendations: Sequence[str] = ()

    def record(self, program: Candidate) -> None:
        """Add a program, valid or not, to those of the next notes."""
        if self._config.notes_every:
            self._new.append(program)

    def draw(self, rng: np.random.Generator) -> str:
        """Return a recommendation at random; empty where there is none."""
        return str(rng.choice(np.asarray(self._recommendations))) if self._recommendations else ""

    async def renew(self, ctx: Context, best: Member, step: int) -> dict[str, float]:
        """Write notes where they are due; return the step's counts.

        The notes before stay where a step gives none. What was summed up is not summed up again (ours).
        """
        config = self._config
        if not config.notes_every:
            return {}
        counts = {"recommendations": 0.0, "unread_notes": 0.0}
        left = ctx.calls_left
        # A budget that would end before the children that see them has no call for notes.
        if len(self._new) < config.notes_every or (left is not None and left < len(self._new) + 2 + config.children):
            return counts
        programs, self._new = self._new, []
        task, problem = ctx.task, ctx.problem
        texts = await self._ask(ctx, SUMMARY, [task.summary_prompt(problem, program) for program in programs], step)
        summaries = [(program, text) for program, text in zip(programs, texts, strict=False) if text]
        counts["unread_notes"] += len(programs) - len(summaries)
        if not summaries:
            return counts
        asked = [task.insights_prompt(problem, summaries, self._insights, best.candidate)]
        (insights,) = await self._ask(ctx, INSIGHTS, asked, step) or ("",)
        if insights:
            asked = [
                task.recommendations_prompt(
                    problem, insights, self._recommendations, best.candidate, config.recommendations
                )
            ]
            (text,) = await self._ask(ctx, RECOMMEND, asked, step) or ("",)
            found = task.parse_recommendations(text)[: config.recommendations]
            if found:
                self._insights, self._recommendations = insights, found
                return counts | {"recommendations": float(len(found))}
        return counts | {"unread_notes": counts["unread_notes"] + 1}

    async def _ask(self, ctx: Context, role: str, prompts: Sequence[Prompt], step: int) -> list[str]:
        """Return the text of each reply; empty for one that was refused. The budget may leave fewer."""
        replies = await ctx.generate(prompts, role=role, step=step, sampling=self._config.sampling)
        return ["" if reply.error is not None else read_note(reply.completions[0].text) for reply in replies]
