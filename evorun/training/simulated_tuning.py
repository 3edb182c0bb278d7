"""The fine-tuning of a simulated model: its skill moves towards the one that the conversations show.

It replaces the trainer of `method=sft`, whose commands it records in the journal. A resumed run reads its skill there.
"""

import asyncio
from collections.abc import Awaitable, Callable, Sequence
from functools import cache
from pathlib import Path
from typing import NamedTuple

import msgspec
import numpy as np

from evorun.models.base import LanguageModel
from evorun.runs.journal import Journal
from evorun.runs.journal_file import digest_request
from evorun.runs.records import write_json
from evorun.simulation.engine import SimulatedConfig
from evorun.simulation.simulator import SKILLS, GradesResponses, TaskSimulator
from evorun.training.conversations import Conversation, read_conversations
from evorun.training.fine_tuning_data import order_conversations
from evorun.training.policy import ADAPTER
from evorun.training.simulated import LEARNED, SimulatedPolicy
from evorun.training.updates import assess_key, update_key
from evorun.training.wire import Evaluate, Figures, FineTuning, Train, encode


class _Shown(NamedTuple):
    """Skills on the problems of some conversations."""

    data: float
    """The skill that the conversations show."""
    untrained: float
    """The skill of the model before its fine-tuning."""


class SimulatedTuning(SimulatedPolicy):
    """A simulated model that is fine-tuned on conversations. Belongs to one event loop."""

    def __init__(
        self,
        name: str,
        base: LanguageModel,
        engine: SimulatedConfig,
        run: Path,
        journal: Journal,
        *,
        objective: FineTuning,
        seed: int,
        task: str,
        grader: TaskSimulator,
    ) -> None:
        """grader: the task's simulator, which knows the problems that the conversations are about."""
        super().__init__(name, base, engine, run, journal)
        self._objective = objective
        self._task = task
        self._grader = grader
        self._train = read_conversations(Path(objective.train))
        self._order = order_conversations(seed, len(self._train), objective.epochs)
        self._grade = cache(self._grade_conversation)  # an epoch comes back to all of them

    async def evaluate(self) -> dict[str, float]:
        """Return the numbers of conversations, and the skill that those to train on show."""

        async def measure() -> Figures:
            file = self._objective.held_out
            held_out = 0 if file is None else len(read_conversations(Path(file)))
            counts = {"conversations": len(self._train), "held_out": held_out, "cut": 0, "dropped": 0}
            shown = self._find_shown_skill(range(len(self._train)))
            return Figures({**{name: float(count) for name, count in counts.items()}, "data_skill": shown.data})

        updates = len(self._learned) - 1
        return (await self._remember(assess_key(updates), encode(Evaluate()), updates, measure)).figures

    async def train_step(self, step: int) -> dict[str, float]:
        """Learn from the next conversations, as `Learned.imitated` says; return the figures of the step."""
        number = self.issued.issue(step)
        first = (number - 1) * self._objective.batch
        batch = self._order[first : first + self._objective.batch]
        async with self._updating:

            async def learn() -> Figures:
                await asyncio.sleep(self._engine.seconds_per_update)
                shown = self._find_shown_skill(batch)
                learned = self._learned[-1].imitated(self._engine, shown.data - shown.untrained, len(batch))
                return Figures({"rows": float(len(batch)), "data_skill": shown.data, "skill_gain": learned.gain})

            command = encode(Train(number=number))
            figures = await self._remember(update_key(step, number), command, number - 1, learn)
            self._learned.append(self._learned[-1]._replace(gain=figures.figures["skill_gain"]))
        return figures.figures

    async def export(self, step: int | None = None) -> Path:
        """Write the gain in skill into artifacts/; return the folder. Raises RunDirectoryError when that fails."""
        folder = self._run / "artifacts" / ADAPTER
        folder.mkdir(parents=True, exist_ok=True)
        about = {"simulated": True, "model": self._name, "updates": len(self._learned) - 1}
        write_json(folder / LEARNED, {**about, "learned": self._learned[-1].gain})
        return folder

    async def _remember(
        self, key: str, command: bytes, updates: int, compute: Callable[[], Awaitable[Figures]]
    ) -> Figures:
        """Return the figures of a command, recorded as a trainer's are, so that a replay finds them."""
        request = msgspec.json.encode({"model": f"{self._name}@{updates}", "digest": digest_request(command).hex()})
        return await self._journal.remember(key, command, compute, Figures, request=request)

    def _find_shown_skill(self, indices: Sequence[int]) -> _Shown:
        """Return the skill that conversations show: at which answers from scratch to their problems are as good."""
        graded = [index for index in indices if can_grade(self._train[index], self._task, self._grader)]
        # Nobody can grade the others: a setting says what they show.
        others = len(indices) - len(graded)
        data, untrained = others * (self._engine.data_skill or 0.0), others * self._engine.skill
        if graded and isinstance(self._grader, GradesResponses):
            problems = [self._train[index].problem or "" for index in graded]
            by_skill = np.mean([self._grader.grades_by_skill(problem) for problem in problems], axis=0)
            grade = np.mean([self._grade(index) for index in graded])
            data += len(graded) * float(np.interp(grade, by_skill, SKILLS))
            untrained += sum(map(self._engine.own_chance, problems))
        return _Shown(data / len(indices), untrained / len(indices) + self._engine.learned)

    def _grade_conversation(self, index: int) -> float:
        conversation = self._train[index]
        assert isinstance(self._grader, GradesResponses)  # noqa: S101 - `can_grade` has checked it
        return self._grader.grade_response(conversation.problem or "", conversation.messages[-1]["content"])


def can_grade(conversation: Conversation, task: str, grader: TaskSimulator) -> bool:
    """Return whether the last answer of a conversation is a response to a problem of the task that it can grade."""
    problem, last = conversation.problem, conversation.messages[-1]
    if problem is None or conversation.task not in (None, task) or last["role"] != "assistant":
        return False
    return isinstance(grader, GradesResponses) and grader.can_grade(problem)
