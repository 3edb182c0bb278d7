"""The fine-tuning of a simulated model: its skill moves towards the one that the conversations show.

It replaces the trainer of `method=sft`, whose commands it records in the journal. A resumed run reads its skill there.
"""

import asyncio
from collections.abc import Awaitable, Callable, Sequence
from functools import cached_property
from pathlib import Path

import msgspec
import numpy as np
from numpy.typing import NDArray

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

_HUNDREDTHS = np.linspace(0, 1, 101)
"""Skills that conversations may show; those between are interpolated."""
_DECIMALS = 3
"""Of mean grades that are compared: smaller differences say nothing."""


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

    async def evaluate(self) -> dict[str, float]:
        """Return the numbers of conversations, and the skill that those to train on show."""

        async def measure() -> Figures:
            file = self._objective.held_out
            held_out = 0 if file is None else len(read_conversations(Path(file)))
            counts = {"conversations": len(self._train), "held_out": held_out, "cut": 0, "dropped": 0}
            return Figures({**{name: float(count) for name, count in counts.items()}, "data_skill": self._data_skill})

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
                learned = self._learned[-1].imitated(self._engine, self._data_skill - self._untrained, len(batch))
                return Figures({"rows": float(len(batch)), "skill_gain": learned.gain})

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

    @property
    def _untrained(self) -> float:
        return min(1.0, max(0.0, self._engine.skill + self._engine.learned))

    @cached_property
    def _data_skill(self) -> float:
        """The skill that the conversations show, all together: those of a batch are too few to tell."""
        indices = set(self._order)
        graded = [index for index in indices if can_grade(self._train[index], self._task, self._grader)]
        # Nobody can grade the others: a setting says what they show.
        others = (len(indices) - len(graded)) * (self._engine.data_skill or 0.0)
        return (len(graded) * self._find_shown_skill(graded) + others) / len(indices)

    def _find_shown_skill(self, indices: Sequence[int]) -> float:
        """Return the `engine.skill` at which answers from scratch to the same problems are as good on average.

        It is thus on the scale of the model's own skill, however hard these problems are.
        """
        if not indices or not isinstance(self._grader, GradesResponses):
            return 0.0
        problems = [self._train[index].problem or "" for index in indices]
        texts = [self._train[index].messages[-1]["content"] for index in indices]
        grade = np.mean([self._grader.grade_response(*answer) for answer in zip(problems, texts, strict=True)])
        skills = np.union1d(_HUNDREDTHS, self._untrained)
        by_problem = {problem: self._grades_from_scratch(problem, skills) for problem in problems}
        grades = np.mean([by_problem[problem] for problem in problems], axis=0)
        return find_nearest_skill(float(grade), skills, grades, self._untrained)

    def _grades_from_scratch(self, problem: str, skills: NDArray[np.float64]) -> NDArray[np.float64]:
        """Return the mean grade of answers to a problem at each skill."""
        assert isinstance(self._grader, GradesResponses)  # noqa: S101 - the caller has checked it
        chances = [self._engine.own_chance(problem, float(skill)) for skill in skills]
        return np.interp(chances, SKILLS, self._grader.grades_by_skill(problem))


def find_nearest_skill(grade: float, skills: NDArray[np.float64], grades: NDArray[np.float64], own: float) -> float:
    """Return the nearest skill to a model's own at which answers have this mean grade.

    skills: in ascending order, `own` included. grades: at each of them. Few problems say little, as their chances are
    drawn: easy ones have one grade at several skills, and their mean may fall at a higher skill. The nearest never
    takes a student beyond a teacher, whatever the teacher's skill.
    """
    grades, grade = grades.round(_DECIMALS), round(grade, _DECIMALS)
    start = int(np.searchsorted(skills, own))
    sign, way = (1, slice(start, None)) if grade >= grades[start] else (-1, slice(start, None, -1))
    reached = np.maximum.accumulate(sign * grades[way])
    # Of equal grades, interpolation would take the last.
    return float(np.interp(np.nextafter(sign * grade, -np.inf), reached, skills[way]))


def can_grade(conversation: Conversation, task: str, grader: TaskSimulator) -> bool:
    """Return whether the last answer of a conversation is a response to a problem of the task that it can grade."""
    problem, last = conversation.problem, conversation.messages[-1]
    if problem is None or conversation.task not in (None, task) or last["role"] != "assistant":
        return False
    return isinstance(grader, GradesResponses) and grader.can_grade(problem)
