"""The prompts of E-SPL's genetic operators and the parsing of their replies (section 3.2, appendix A.1 to A.5).

Mutation: each rollout of a problem is summarized; a critique contrasts right and wrong ones and proposes edits; the
proposals of all problems are consolidated into one list, which is applied. Crossover: a single prompt, from the
problems at which each system prompt was best. All operators see the labels: the information regime is `labels`.
"""

from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

import msgspec
import numpy as np
import numpy.typing as npt

from evorun.methods.espl.population import SLACK, Member
from evorun.methods.espl.system_prompts import (
    Edit,
    Limits,
    Patched,
    SystemPrompt,
    apply_proposals,
    numbered,
    patch,
    reply_schema,
)
from evorun.models.base import Message, Reply
from evorun.rollouts.episodes import Episode, make_blank_episode
from evorun.runs.candidates import Candidate
from evorun.tasks.base import Demonstration, Prompt
from evorun.tasks.excerpts import excerpt
from evorun.tasks.json_text import replace_lone_surrogates
from evorun.tasks.prompt_files import PromptFiles
from evorun.tasks.tags import escape_tags, tags_in
from evorun.tasks.thinking import without_thinking

Floats = npt.NDArray[np.float64]
FOLDER = Path(__file__).parent / "prompts"


def find_contrasts(episodes: Sequence[Episode]) -> list[list[Episode]]:
    """Return the episodes of each problem that has right and wrong ones (0 < V < 1, appendix A.2).

    Without right and wrong, return those of problems with unequal rewards. Episodes without a reward are left out.
    """
    by_problem: dict[str, list[Episode]] = {}
    for episode in episodes:
        if success(episode) is not None:
            by_problem.setdefault(episode.asked.problem.id, []).append(episode)
    return [group for group in by_problem.values() if len(set(map(success, group))) > 1]


def success(episode: Episode) -> float | None:
    """Return 1 for a right and 0 for a wrong episode, else its reward; None without a reward."""
    reward = episode.reward
    return reward.value if reward.correct is None else float(reward.correct)


def problem_text(episode: Episode) -> str:
    """Return the problem as the episode's prompt states it, without the system prompt."""
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
        """Read the files; demonstrations: the right answers by problem id, where a problem has one.

        local_edits: maximum proposals per problem (K_ops). rollout_chars: maximum characters of a rollout, a summary or
        a problem in prompts; None: no limit. folder: the user's own files. Raises ConfigError naming an unusable
        file.
        """
        self.limits = limits
        self.local_limits = limits._replace(edits=local_edits)
        self._files = PromptFiles([FOLDER], folder, key="method.operator_prompts")
        self._demonstrations = demonstrations
        self._rollout_chars = rollout_chars
        if folder is not None:
            self._try_prompts()

    def summary(self, parent: SystemPrompt, episode: Episode) -> Prompt:
        """Ask for a summary of one rollout under its system prompt (appendix A.2)."""
        shown = {"rollout": self._show(episode, episode.transcript), "outcome": _outcome(episode)}
        return self._ask("summary", system_prompt=parent.text, **shown, **self._problem(episode))

    def critique(
        self,
        parent: SystemPrompt,
        episodes: Sequence[Episode],
        summaries: Sequence[str],
        *,
        lessons_alone: bool = False,
    ) -> Prompt:
        """Ask for lessons and local edits from one problem's rollouts (appendices A.3 and A.4).

        summaries: one per rollout; an empty one is replaced by the rollout itself. lessons_alone: without edits
        (equation 7), for which `proposal` asks.
        """
        blocks = [
            f"## Attempt {number}: {_outcome(episode)}\n{self._show(episode, summary or episode.transcript)}"
            for number, (episode, summary) in enumerate(zip(episodes, summaries, strict=True), 1)
        ]
        shown = {"attempts": "\n\n".join(blocks), **self._problem(episodes[0])}
        if lessons_alone:
            numbers = numbered(parent.principles)
            return self._ask("critique", preamble=parent.preamble, principles=numbers, edit_format="", **shown)
        return self._ask_edits("critique", parent, self.local_limits, (), **shown)

    def proposal(self, parent: SystemPrompt, lessons: str) -> Prompt:
        """Ask for local edits from the lessons of one problem's rollouts (equation 8)."""
        return self._ask_edits("proposal", parent, self.local_limits, (), lessons=lessons)

    def aggregation(self, parent: SystemPrompt, lessons: Sequence[Patched]) -> Prompt:
        """Ask for one list of edits from the proposals of a batch (appendix A.5)."""
        proposals = [edit._asdict() for lesson in lessons for edit in lesson.edits]
        return self._ask_edits("aggregation", parent, self.limits, proposals, lessons=render_lessons(lessons))

    def crossover(
        self, members: Sequence[Member], phi: Floats, problems: Sequence[str], *, alone_by: float | None = None
    ) -> Prompt | None:
        """Ask for edits that bring the strengths of the others into the best system prompt (Algorithm 2).

        phi: mean rewards, of shape (members, problems). problems: the texts of the problems. alone_by: see
        `find_problems_won`; then the best one must have won, too. Returns None if no other prompt has won a problem.
        Algorithm 2 asks even then, with empty lists of wins; skipping the call is ours, as in the authors' released
        code.
        """
        best, wins = int(phi.mean(axis=1).argmax()), find_problems_won(phi, alone_by)
        if not any(won for index, won in enumerate(wins) if index != best) or (alone_by is not None and not wins[best]):
            return None
        blocks = [
            self._files.render(
                "contender",
                number=index + 1,
                best=index == best,
                # Without ids, since edits refer to the best prompt's ids.
                principles=member.prompt.principles,
                preamble="" if self.limits.preamble_chars is None else member.prompt.preamble,
                mean=float(phi[index].mean()),
                wins=[
                    {
                        "problem": self._excerpt(problems[column]),
                        "score": float(phi[index, column]),
                        "others": np.delete(phi[:, column], index).tolist(),
                    }
                    for column in wins[index]
                ],
            )
            for index, member in enumerate(members)
        ]
        others = [
            principle for index, member in enumerate(members) if index != best for principle in member.prompt.principles
        ]
        return self._ask_edits("crossover", members[best].prompt, self.limits, others, contenders="\n\n".join(blocks))

    def read_lesson(self, parent: SystemPrompt, reply: Reply) -> Patched:
        """Return a critique's analysis and its applicable edits."""
        return patch(parent.principles, reply, self.local_limits, partial=True, preamble=parent.preamble)

    def patch_by_reply(self, parent: SystemPrompt, reply: Reply, *, partial: bool = False) -> Patched:
        """Return the system prompt after the edits that a reply lists."""
        return patch(parent.principles, reply, self.limits, partial=partial, preamble=parent.preamble)

    def join(self, parent: SystemPrompt, lessons: Sequence[Patched]) -> Patched:
        """Return the system prompt after a batch's proposals, without those that conflict."""
        proposals = [edit for lesson in lessons for edit in lesson.edits]
        return apply_proposals(parent.principles, proposals, self.limits, preamble=parent.preamble)

    def is_shortened(self, episode: Episode) -> bool:
        """Return whether prompts show only part of a rollout."""
        return self._rollout_chars is not None and len(episode.transcript) > self._rollout_chars

    def _try_prompts(self) -> None:
        """Render every prompt once, so that a user's bad file fails now, not hours later at the first crossover."""
        prompt = SystemPrompt("preamble", ("principle",))
        episode = make_blank_episode()
        candidate = Candidate(id="", generation=0, operator="root", text="", answer=None)
        self.summary(prompt, episode)
        self.critique(prompt, [episode], [""])
        self.critique(prompt, [episode], [""], lessons_alone=True)
        self.proposal(prompt, "")
        self.aggregation(prompt, [])
        self.crossover([Member(candidate, prompt)] * 2, np.array([[0.0, 1.0], [1.0, 0.5]]), ["", ""])

    def _problem(self, episode: Episode) -> dict[str, str]:
        known = self._demonstrations.get(episode.asked.problem.id)
        answer = "" if known is None else self._excerpt(known.answer)
        return {"problem": self._excerpt(problem_text(episode)), "right_answer": answer}

    def _show(self, episode: Episode, text: str) -> str:
        """Return the excerpt of a model's text for prompts; tags are escaped, except those that it was asked to use."""
        asked = "\n".join(message["content"] for message in episode.asked.prompt.messages)
        return escape_tags(self._excerpt(text), tags_in(asked))

    def _excerpt(self, text: str) -> str:
        return excerpt(text, self._rollout_chars)

    def _ask_edits(
        self, file: str, parent: SystemPrompt, limits: Limits, sources: Sequence[Any], **values: str
    ) -> Prompt:
        """Ask for edits of a system prompt. sources: proposals or principles shown, for simulated models."""
        count = len(parent.principles)
        edit_format = self._files.render("edit_format", count=count, **limits._asdict())
        shown = {"preamble": parent.preamble, "principles": numbered(parent.principles), "edit_format": edit_format}
        hints = {"principles": parent.principles, "max_edits": limits.edits, "sources": sources}
        return msgspec.structs.replace(
            self._ask(file, **shown, **values),
            json_schema=reply_schema(count, limits),
            hints={"role": file, **hints},
        )

    def _ask(self, file: str, **values: str) -> Prompt:
        text = self._files.render(file, **values)
        return Prompt(messages=(Message(role="user", content=text),), hints={"role": file})


def read_summary(reply: Reply) -> str:
    """Return the summary or the lessons in a reply; "" where there is none."""
    return "" if reply.error else replace_lone_surrogates(without_thinking(reply.completions[0].text)).strip()


def render_lessons(lessons: Sequence[Patched]) -> str:
    """Return lessons as the aggregation prompt and a child's `reflection` show them."""
    return "\n\n".join(
        f"## Problem {number}\n{lesson.analysis}\n" + "".join(f"\n- {_render_edit(edit)}" for edit in lesson.edits)
        for number, lesson in enumerate(lessons, 1)
    )


def _render_edit(edit: Edit) -> str:
    ids = "".join(f" G{number}" for number in edit.ids)
    return f"{edit.op}{ids}" if edit.op == "remove" else f"{edit.op}{ids}: {edit.text}"


def find_problems_won(phi: Floats, min_lead: float | None = None) -> list[list[int]]:
    """Return, for each row (system prompt) of a score matrix, the columns (problems) at which it is best.

    Tied rows share a column, unless all rows tie: then none is best (Algorithm 2 does not say). min_lead: only a single
    row wins a column, by more than this over the second (the authors' released code: 0.01).
    """
    if len(phi) == 1:
        return [[]]
    ordered = np.sort(phi, axis=0)
    lead = ordered[-1] - ordered[0] if min_lead is None else ordered[-1] - ordered[-2] - min_lead
    best = (phi >= ordered[-1] - SLACK) & (lead > SLACK)
    return [np.flatnonzero(row).tolist() for row in best]


def _outcome(episode: Episode) -> str:
    correct = episode.reward.correct
    if correct is None:
        return f"reward {success(episode):.3g}"
    return "right" if correct else "wrong"
