"""The contexts of a method: everything that it can access."""

import asyncio
import logging
from collections.abc import Awaitable, Callable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from evorun.rollouts.calls import Caller, Calls, Remember, Role
from evorun.runs.archive import Archive
from evorun.runs.budget import Meter
from evorun.runs.candidates import Candidate, Response
from evorun.runs.records import write_json
from evorun.runs.schema import RolloutRecord
from evorun.tasks.base import Demonstration, Grade, Problem, Task, Tools
from evorun.tasks.capabilities import HasPublicTests, Verification
from evorun.training.base import TrainedPolicy

log = logging.getLogger("evorun")


class Context(Calls):
    """Everything that a method can access while it works on one problem."""

    def __init__(
        self,
        *,
        task: Task,
        problem: Problem,
        seed: int,
        meter: Meter,
        models: Mapping[str, Caller],
        roles: Mapping[str, Role],
        remember: Remember,
        tools: Tools,
        archive: Archive | None = None,
        name: str | None = None,
    ) -> None:
        """archive: the run's archive, for candidates that leave a pool; None: a new one.

        name: of the keys and random streams; None: the problem's id.
        """
        super().__init__(
            name=name or problem.id,
            task=task,
            seed=seed,
            meter=meter,
            models=models,
            roles=roles,
            remember=remember,
            tools=tools,
        )
        self.problem = problem
        self.archive = archive or Archive()
        self._tools = tools

    async def observe(self, responses: Sequence[Response]) -> list[Response]:
        """Return the responses; those with an answer carry the task's feedback, where the task gives any."""
        if not isinstance(self.task, HasPublicTests):
            return list(responses)
        async with asyncio.TaskGroup() as group:
            observed = {
                index: group.create_task(self.task.observe(self.problem, response, self._tools))
                for index, response in enumerate(responses)
                if response.answer is not None
            }
        return [observed[i].result() if i in observed else response for i, response in enumerate(responses)]

    async def verify(self, responses: Sequence[Response], max_errors: int) -> list[Verification]:
        """Return the symbolic system's fitness and errors for each response; the task must have one."""
        async with asyncio.TaskGroup() as group:
            verified = [
                group.create_task(self.task.verify(self.problem, response, max_errors, self._tools))
                for response in responses
            ]
        return [verification.result() for verification in verified]


@dataclass(frozen=True)
class TrainingSplit:
    """The problems that a policy is trained on; none of them is a problem of the run."""

    task: Any
    """The task of these problems: it makes their prompts and parses the responses."""
    problems: Sequence[Problem]
    grade: Callable[[Problem, Response], Awaitable[Grade]]
    demonstrations: Mapping[str, Demonstration]
    """The right answers by problem id, where a problem has one; empty unless the method's regime is `labels`."""


class RunContext:
    """Everything that a method can access beyond one problem: all problems, the validation split, shared calls."""

    def __init__(
        self,
        *,
        contexts: Mapping[str, Context],
        shared: Calls,
        demonstrations: Sequence[Demonstration],
        grade: Callable[[Demonstration, Response], Awaitable[Grade]],
        artifacts: Path,
        record: Callable[[int, Mapping[str, float], Sequence[Candidate]], None],
        record_rollouts: Callable[[Sequence[RolloutRecord]], None],
        policy: TrainedPolicy | None = None,
        training: TrainingSplit | None = None,
    ) -> None:
        """demonstrations: empty unless the method's regime allows them. artifacts: the folder for the method's files.

        record, record_rollouts: see the methods of these names.
        """
        self.shared = shared
        self.demonstrations = demonstrations
        self._artifacts = artifacts
        self._contexts = contexts
        self._grade = grade
        self._record = record
        self._record_rollouts = record_rollouts
        self._policy = policy
        self._training = training

    @property
    def policy(self) -> TrainedPolicy:
        """The policy that is trained; for methods with an objective."""
        assert self._policy is not None  # noqa: S101 - the driver gives one to every method with an objective
        return self._policy

    @property
    def max_lag(self) -> int:
        """Maximum number of updates by which a step's rollouts may be behind (`training.max_lag`)."""
        return 0 if self._policy is None else self._policy.max_lag

    @property
    def training(self) -> TrainingSplit:
        """The problems to train on; for methods that learn from problems."""
        assert self._training is not None  # noqa: S101 - the driver gives one to every method that asks for it
        return self._training

    def record(self, step: int, figures: Mapping[str, float], candidates: Sequence[Candidate] = ()) -> None:
        """Record the figures of a step and the candidates that serve all problems.

        figures: of a training step, they go into training.jsonl, metrics.jsonl and the progress display. Those of a
        search (`Method.records_training`) join the `Step.extra` of all problems that are yielded next. candidates: all
        so far, including those of earlier steps, with the beliefs after this step. New candidates go into
        candidates.jsonl, changed beliefs into ratings.jsonl.
        """
        self._record(step, figures, candidates)

    def record_rollouts(self, rollouts: Sequence[RolloutRecord]) -> None:
        """Record the episodes of a step in rollouts.jsonl: of training, or those in which a search tries prompts.

        The report then has the rewards of each system prompt (`Asked.candidate_id`) and a browser of rollouts. A search
        gives `Episode.rewarded(...).record(step)` of each.
        """
        self._record_rollouts(rollouts)

    def batch(self, step: int, size: int, max_problems: int | None = None) -> list[Problem]:
        """Return the training problems of a step; each epoch goes through the split in a new random order.

        size: problems per batch. max_problems: total over all batches, which may shorten the last one.
        """
        problems = self.training.problems
        # A function of the step alone, so that a resumed run draws the same batches. A batch may span two epochs.
        indices = range((step - 1) * size, step * size if max_problems is None else min(step * size, max_problems))
        epochs = range(indices[0] // len(problems), indices[-1] // len(problems) + 1)
        orders = {epoch: self.shared.rng("epoch", epoch).permutation(len(problems)).tolist() for epoch in epochs}
        return [problems[orders[index // len(problems)][index % len(problems)]] for index in indices]

    @staticmethod
    def warn(line: str) -> None:
        """Warn the user in the run's log and on the terminal."""
        log.warning(line)

    def save_artifact(self, name: str, value: Any) -> None:
        """Write a value as JSON into the run's artifacts/. Raises RunDirectoryError when it cannot be written."""
        self._artifacts.mkdir(exist_ok=True)  # only a run with artifacts has the folder
        write_json(self._artifacts / name, value)

    @property
    def problems(self) -> list[Problem]:
        """The problems of the run, in order."""
        return [ctx.problem for ctx in self._contexts.values()]

    def context_for(self, problem: Problem) -> Context:
        """Return the context of one problem of the run."""
        return self._contexts[problem.id]

    async def grade(self, demonstration: Demonstration, response: Response) -> Grade:
        """Grade a response to a problem of the validation split; only the driver grades the run's problems."""
        return await self._grade(demonstration, response)
