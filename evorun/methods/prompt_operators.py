"""The prompts of E-SPL's genetic operators, and the reading of their replies (section 3.2, appendix A.1 to A.5).

Mutation: each rollout of a problem is summarized, the summaries of right and wrong ones are contrasted in a critique
that proposes edits, and the proposals of all problems are consolidated into the one list that is applied. Crossover:
one prompt, by what each system prompt was best at. All of them see the truth: the information regime is `labels`.
"""

from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import NamedTuple

import numpy as np
import numpy.typing as npt

from evorun.methods.prompt_population import SLACK, Member
from evorun.methods.system_prompts import (
    ANALYSIS_CHARS,
    Edit,
    Limits,
    Patched,
    SystemPrompt,
    numbered,
    patch,
    reply_schema,
)
from evorun.models.base import Message, Reply
from evorun.rollouts.episodes import Episode
from evorun.tasks.base import Demonstration, Prompt
from evorun.tasks.excerpts import excerpt
from evorun.tasks.json_text import read_object, well_formed
from evorun.tasks.prompt_files import PromptFiles
from evorun.tasks.thinking import without_thinking

Floats = npt.NDArray[np.float64]
FOLDER = Path(__file__).parent / "prompts"


class Lesson(NamedTuple):
    """A critique of one problem's rollouts."""

    text: str
    """The analysis."""
    edits: tuple[Edit, ...]
    """Proposals, none of which is applied; at most K_ops."""
    refused: Mapping[str, int]
    """Proposals left out, by reason."""


def contrasting(episodes: Sequence[Episode]) -> list[list[Episode]]:
    """Return the episodes of each problem that has right and wrong ones (0 < V < 1, appendix A.2).

    Where there is no right and wrong: of each that has unequal rewards. Those without a reward are left out.
    """
    by_problem: dict[str, list[Episode]] = {}
    for episode in episodes:
        if success(episode) is not None:
            by_problem.setdefault(episode.asked.problem.id, []).append(episode)
    return [ones for ones in by_problem.values() if len(set(map(success, ones))) > 1]


def success(episode: Episode) -> float | None:
    """Return 1 for a right and 0 for a wrong episode, else its reward; None without one."""
    reward = episode.reward
    return reward.value if reward.correct is None else float(reward.correct)


def posed(episode: Episode) -> str:
    """Return the problem of an episode as its prompt put it, without the system prompt."""
    return "\n\n".join(message["content"] for message in episode.asked.prompt.messages if message["role"] != "system")


class OperatorPrompts:
    """The operators' prompts, from files."""

    def __init__(
        self,
        limits: Limits,
        demonstrations: Mapping[str, Demonstration],
        *,
        local_edits: int,
        rollout_chars: int | None,
        folder: str | None = None,
    ) -> None:
        """demonstrations: the right answers by problem id, where a problem has one.

        local_edits: proposals a problem at most (K_ops). rollout_chars: as much of a rollout, or of a problem, as
        prompts show; None: all of it. folder: the user's own files.
        """
        self.limits = limits
        self.local_limits = limits._replace(edits=local_edits)
        self._files = PromptFiles([FOLDER], folder)
        self._demonstrations = demonstrations
        self._rollout_chars = rollout_chars

    def summary(self, parent: SystemPrompt, episode: Episode) -> Prompt:
        """Ask for a summary of one rollout under its system prompt (appendix A.2)."""
        return self._ask(
            "summary",
            None,
            {},
            system_prompt=parent.text,
            rollout=excerpt(transcript(episode), self._rollout_chars),
            outcome=_outcome(episode),
            **self._problem(episode),
        )

    def critique(self, parent: SystemPrompt, episodes: Sequence[Episode], summaries: Sequence[str]) -> Prompt:
        """Ask for lessons and local edits out of one problem's rollouts (appendices A.3 and A.4)."""
        blocks = [
            f"## Rollout {number}: {_outcome(episode)}\n{summary}"
            for number, (episode, summary) in enumerate(zip(episodes, summaries, strict=True), 1)
        ]
        return self._edits(
            "critique", parent, self.local_limits, (), rollouts="\n\n".join(blocks), **self._problem(episodes[0])
        )

    def aggregation(self, parent: SystemPrompt, lessons: Sequence[Lesson]) -> Prompt:
        """Ask for one list of edits out of the proposals of a batch (appendix A.5)."""
        proposals = [edit._asdict() for lesson in lessons for edit in lesson.edits]
        return self._edits("aggregation", parent, self.limits, proposals, lessons=shown_lessons(lessons))

    def crossover(self, members: Sequence[Member], phi: Floats, problems: Sequence[str]) -> Prompt | None:
        """Ask for edits that bring into the best prompt what the others were better at (Algorithm 2).

        phi: mean rewards, of shape (members, problems). problems: as they were posed.
        """
        best, wins = int(phi.mean(axis=1).argmax()), winners(phi, 0.0)
        if not any(wins[index] for index in range(len(members)) if index != best):
            return None
        blocks = [
            self._files.render(
                "contender",
                number=index + 1,
                best=index == best,
                principles=numbered(member.prompt.principles),
                mean=float(phi[index].mean()),
                wins=[
                    {
                        "problem": excerpt(problems[column], self._rollout_chars),
                        "score": float(phi[index, column]),
                        "others": [float(one) for one in np.delete(phi[:, column], index)],
                    }
                    for column in wins[index]
                ],
            )
            for index, member in enumerate(members)
        ]
        others = [one for index, member in enumerate(members) if index != best for one in member.prompt.principles]
        return self._edits("crossover", members[best].prompt, self.limits, others, contenders="\n\n".join(blocks))

    def read_lesson(self, parent: SystemPrompt, reply: Reply) -> Lesson:
        """Return a critique's analysis and those of its proposals that could be applied."""
        patched = patch(parent.principles, reply, self.local_limits, partial=True)
        text = (read_object(without_thinking(reply.completions[0].text)) or {}).get("analysis")
        shown = well_formed(text).strip()[:ANALYSIS_CHARS] if isinstance(text, str) else ""
        return Lesson(shown, patched.edits, patched.refused)

    def read_patch(self, parent: SystemPrompt, reply: Reply, *, partial: bool = False) -> Patched:
        """Return the principles after the edits that a reply lists."""
        return patch(parent.principles, reply, self.limits, partial=partial)

    def shows_part_of(self, episode: Episode) -> bool:
        """Return whether prompts show only a part of a rollout."""
        return self._rollout_chars is not None and len(transcript(episode)) > self._rollout_chars

    def _problem(self, episode: Episode) -> dict[str, str]:
        known = self._demonstrations.get(episode.asked.problem.id)
        return {"problem": excerpt(posed(episode), self._rollout_chars), "right_answer": known.answer if known else ""}

    def _edits(
        self, file: str, parent: SystemPrompt, limits: Limits, sources: Sequence[object], **values: object
    ) -> Prompt:
        """Ask for edits of a system prompt. sources: proposals or principles shown, for simulated models."""
        how = self._files.render(
            "edit_format",
            most_edits=limits.edits,
            most_principles=limits.principles,
            principle_chars=limits.principle_chars,
            count=len(parent.principles),
        )
        shown = numbered(parent.principles)
        schema = reply_schema(len(parent.principles), limits)
        hints = {"principles": parent.principles, "most_edits": limits.edits, "sources": sources}
        return self._ask(file, schema, hints, preamble=parent.preamble, principles=shown, edit_format=how, **values)

    def _ask(
        self, file: str, schema: dict[str, object] | None, hints: Mapping[str, object], **values: object
    ) -> Prompt:
        text = self._files.render(file, **values)
        hints = {"role": file, **hints}
        return Prompt(messages=(Message(role="user", content=text),), json_schema=schema, hints=hints)


def read_summary(reply: Reply) -> str:
    """Return the summary that a reply is; "" where there is none."""
    return "" if reply.error else well_formed(without_thinking(reply.completions[0].text)).strip()


def shown_lessons(lessons: Sequence[Lesson]) -> str:
    """Return lessons as the aggregation shows them: what a child's `reflection` records."""
    return "\n\n".join(
        f"## Problem {number}\n{lesson.text}\n" + "".join(f"\n- {_shown(edit)}" for edit in lesson.edits)
        for number, lesson in enumerate(lessons, 1)
    )


def _shown(edit: Edit) -> str:
    ids = ", ".join(f"G{number}" for number in edit.ids)
    return f"{edit.op} {ids}: {edit.text}" if ids else f"{edit.op}: {edit.text}"


def winners(phi: Floats, margin: float) -> list[list[int]]:
    """Return the columns of a score matrix that each row is best at: by more than `margin`, or, at 0, with others.

    A problem on which all are equal is nobody's.
    """
    top, low = phi.max(axis=0), phi.min(axis=0)
    return [[int(b) for b in np.flatnonzero((row == top) & (top - low > margin + SLACK))] for row in phi]


def transcript(episode: Episode) -> str:
    """Return the turns of an episode, the model's and its tools', as text."""
    if len(episode.turns) == 1:
        return episode.replies[0].completions[0].text
    return "\n\n".join(
        f"assistant: {turn.completions[0].text}" if isinstance(turn, Reply) else f"tool: {turn['content']}"
        for turn in episode.turns
    )


def _outcome(episode: Episode) -> str:
    correct = episode.reward.correct
    if correct is None:
        return f"reward {success(episode):.3g}"
    return "right" if correct else "wrong"
