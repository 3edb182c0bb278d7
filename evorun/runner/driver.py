"""The driver: runs a method on all problems of a task at once, each within its share of the budget."""

import asyncio
import logging
from collections.abc import AsyncIterator, Callable, Mapping, Sequence
from dataclasses import dataclass, field
from functools import partial

from msgspec.structs import replace

from evorun.errors import DataError, PluginError
from evorun.methods.base import DatasetLevel, Method, PerProblem
from evorun.methods.context import Context, RunContext, TrainingSplit
from evorun.models.base import Wasted
from evorun.rollouts.calls import GENERATOR, Calls, Role
from evorun.rollouts.episodes import max_turns_on
from evorun.runner.gold import MethodTools
from evorun.runner.recorder import Cost, ProblemRecorder, SharedRecorder
from evorun.runs.archive import Archive
from evorun.runs.budget import Meter, allot, allot_usage, make_run_meter, redistribute_calls, sum_usages
from evorun.runs.candidates import SHARED, Candidate, Response, Step
from evorun.runs.directory import ROLLOUTS, TRAINING, RunDirectory
from evorun.runs.effects import JournaledModel, remember_counted
from evorun.runs.progress import Progress
from evorun.runs.roles import GENERATE, PANEL
from evorun.runs.schema import Spent, TrainingRecord
from evorun.runs.stopwatch import append_speed
from evorun.tasks.base import Demonstration, Grade, GradingTools, LoadedTask, Problem
from evorun.training.base import TrainedPolicy

log = logging.getLogger("evorun")

ARTIFACTS = "artifacts"


@dataclass
class Driver:
    """Runs one method on all problems of a task and writes what happens to the run directory."""

    method: Method
    loaded: LoadedTask
    models: Mapping[str, JournaledModel]
    tools: GradingTools
    """For grading; a method gets only some of them."""
    directory: RunDirectory
    seed: int
    shares: Sequence[Meter]
    """The budget of each problem, in order (`evorun.runs.budget.divide`)."""
    concurrency: int
    progress: Progress
    policy: TrainedPolicy | None = None
    """The policy that a method with an objective trains."""
    redistribute: bool = False
    """True: calls that ended problems have left go to the others."""
    training: LoadedTask | None = None
    """The problems to train on, for methods that learn from problems."""
    seconds_by_role: dict[str, float] = field(default_factory=dict)
    """Model seconds by role, once all problems have ended."""
    wasted: dict[str, Wasted] = field(default_factory=dict)
    """Failed attempts over all model calls, by kind, once all problems have ended."""
    refused: dict[str, int] = field(default_factory=dict)
    """Requests that the engine refused, by role, once all problems have ended."""

    def __post_init__(self) -> None:
        self._archive = Archive(self.directory.path)
        self._search_figures: dict[str, float] = {}

    async def run(self) -> None:
        """Solve all problems.

        Raises the first error that stops the run (EvorunError or a defect); the other problems are then cancelled,
        and what they have recorded is kept.
        """
        try:
            if isinstance(self.method, PerProblem):
                spent = await self._solve_all(self.method)
            elif isinstance(self.method, DatasetLevel):
                spent = await self._learn(self.method)
            else:
                raise TypeError(f"{type(self.method).__name__} is neither PerProblem nor DatasetLevel")
        except BaseExceptionGroup as errors:
            raise first_error(errors) from None
        self.wasted = sum_usages(meter.total for meter in spent).wasted
        for meter in spent:
            for role, usage in sorted(meter.by_role.items()):
                self.seconds_by_role[role] = self.seconds_by_role.get(role, 0.0) + usage.seconds
                if usage.refused:
                    self.refused[role] = self.refused.get(role, 0) + usage.refused

    async def _solve_all(self, method: PerProblem) -> list[Meter]:
        """Work on each problem by itself, at most `concurrency` at once; return all meters."""
        problems = self.loaded.problems
        self.progress.meters = {problem.id: own for problem, own in zip(problems, self.shares, strict=True)}
        # Preparation must leave every problem the calls that one answer takes.
        shared = make_run_meter(
            self.shares, reserved=sum(max_turns_on(self.loaded.task, problem) for problem in problems)
        )
        # Prepare before any problem starts: the cost is then known, and every share bears an equal part.
        await method.prepare(self._run_context(shared, {}))
        paid = shared.total.calls, shared.total.tokens, shared.price
        searches = []
        for index, (problem, own) in enumerate(zip(problems, self.shares, strict=True)):
            own.deduct(*(allot(amount, len(problems), index) for amount in paid))
            searches.append(_Search(_Account(own, shared, len(problems), index), partial(self._begin, method, problem)))
        await self._advance_all(searches, pausing=self.redistribute)
        # Only once all have ended or paused: the calls moved then depend on no problem's speed.
        while paused := [search for search in searches if not search.ended]:
            ended = [search.account.own for search in searches if search.ended]
            moved = redistribute_calls(ended, [search.account.own for search in paused])
            if moved:
                log.info("%d calls that ended problems have left go to %d others", moved, len(paused))
            await self._advance_all(paused, pausing=moved > 0)
        return [shared, *self.shares]

    async def _advance_all(self, searches: Sequence["_Search"], pausing: bool) -> None:
        """Advance searches to their ends, at most `concurrency` at once; pausing: or to where a step may not fit."""
        waiting = iter(searches)

        async def advance_in_turn() -> None:
            for search in waiting:
                await search.advance(pausing)

        async with asyncio.TaskGroup() as group:
            # not a task for each problem: those that wait would be in memory with all that they need
            for _ in range(min(self.concurrency, len(searches))):
                group.create_task(advance_in_turn())

    def _begin(self, method: PerProblem, problem: Problem, own: Meter) -> tuple[AsyncIterator[Step], ProblemRecorder]:
        return method.solve(self._context(problem, own)), self._recorder(problem)

    async def _learn(self, method: DatasetLevel) -> list[Meter]:
        """Work on all problems together; return the meter of the whole run, which counts every problem's calls."""
        problems = self.loaded.problems
        # Every call counts twice: against its problem's share, or those made for all, and against the whole run.
        everything = self.progress.meter = make_run_meter(self.shares)
        shared = Meter(parent=everything)
        for meter in self.shares:
            meter.parent = everything
        accounts = [_Account(own, shared, len(problems), index) for index, own in enumerate(self.shares)]
        recorders = [self._recorder(problem) for problem in problems]
        contexts = {p.id: self._context(p, a.own) for p, a in zip(problems, accounts, strict=True)}
        ctx = self._run_context(shared, contexts)
        async with asyncio.TaskGroup() as group:
            for recorder in recorders:
                group.create_task(recorder.write_steps())
            # Inside the group: an error of a grader ends the method at once, and the other way round.
            await method.prepare(ctx)
            async for steps in method.learn(ctx):
                figures, self._search_figures = self._search_figures, {}
                for problem, recorder, account in zip(problems, recorders, accounts, strict=True):
                    if problem.id in steps:
                        step = steps[problem.id]
                        recorder.offer(replace(step, extra={**figures, **step.extra}), account.cost())
            for recorder in recorders:
                recorder.close()
        for recorder, account in zip(recorders, accounts, strict=True):
            await recorder.write_end(account.cost(), account.own.exhausted or everything.exhausted)
        return [everything]

    def _roles(self) -> dict[str, Role]:
        """Return the model role of each call role; each judge of a panel and each of several generators has its own."""
        judges = {name: Role(name) for name in self.models if name.startswith(PANEL)}
        generators = {
            GENERATE + name.removeprefix(GENERATOR): Role(name)
            for name in self.models
            if name.startswith(f"{GENERATOR}.")
        }
        roles = {**self.method.active_roles, **judges, **generators}
        ahead = self.method.plays_ahead
        if self.policy is not None and ahead is not None:
            roles[ahead] = roles[ahead]._replace(lag=roles[ahead].lag + self.policy.max_lag)
        return roles

    def _recorder(self, problem: Problem) -> ProblemRecorder:
        primary = self.loaded.task.scores[0]
        return ProblemRecorder(problem, self.loaded, self.tools, primary, self.directory, self.progress)

    def _context(self, problem: Problem, meter: Meter) -> Context:
        return Context(
            task=self.loaded.task,
            problem=problem,
            seed=self.seed,
            meter=meter,
            models=self.models,
            roles=self._roles(),
            remember=partial(remember_counted, self.directory.journal, self.progress.traffic),
            tools=MethodTools(self.tools),
            archive=self._archive,
        )

    def _run_context(self, meter: Meter, contexts: Mapping[str, Context]) -> RunContext:
        # Labels of the validation split are out of reach of a method that does not declare them.
        may_see = self.method.information_regime(type(self.loaded.task)) in ("demonstrations", "labels")
        shared = Calls(
            name=SHARED,
            task=self.loaded.task,
            seed=self.seed,
            meter=meter,
            models=self.models,
            roles=self._roles(),
            remember=partial(remember_counted, self.directory.journal, self.progress.traffic),
            tools=MethodTools(self.tools),
        )
        training = None
        if (split := self.training) is not None:
            labels = split.answers if self.method.information_regime(type(split.task)) == "labels" else {}
            training = TrainingSplit(
                task=split.task,
                problems=split.problems,
                grade=lambda problem, response: split.grade(problem, response, MethodTools(self.tools)),
                demonstrations={
                    problem.id: Demonstration(
                        problem=problem, answer=labels[problem.id], reasoning=split.solutions.get(problem.id, "")
                    )
                    for problem in split.problems
                    if problem.id in labels
                },
            )
        return RunContext(
            contexts=contexts,
            shared=shared,
            demonstrations=self.loaded.validation if may_see else (),
            grade=self._grade_demonstration,
            artifacts=self.directory.path / ARTIFACTS,
            record=partial(self._record, meter, SharedRecorder(self.directory)),
            # The first rollout creates the file.
            record_rollouts=lambda records: self.directory.records(ROLLOUTS).append(records),
            policy=self.policy,
            training=training,
        )

    def _record(
        self,
        meter: Meter,
        recorder: SharedRecorder,
        step: int,
        figures: Mapping[str, float],
        candidates: Sequence[Candidate],
    ) -> None:
        if not self.method.records_training:
            self._search_figures |= figures
        elif figures:
            # The parent counts the problems' own calls too, which the shared meter does not.
            spent = (meter.parent or meter).total
            record = TrainingRecord(step, spent.calls, spent.tokens, dict(figures))
            self.directory.records(TRAINING).append([record])
            self.progress.count_training_step(step, figures)
            stopwatch = None if self.policy is None else self.policy.stopwatch
            if stopwatch is not None and (speed := stopwatch.take()):
                append_speed(self.directory.path, step, speed)
        recorder.record(step, candidates)

    async def _grade_demonstration(self, demonstration: Demonstration, response: Response) -> Grade:
        # Otherwise a method could learn the run's own answers by asking for grades.
        if demonstration not in self.loaded.validation:
            raise DataError(
                f"problem '{demonstration.problem.id}': expected a demonstration of the validation split; only the run "
                "grades its other problems"
            )
        return await self.loaded.grade(demonstration.problem, response, MethodTools(self.tools))


@dataclass(frozen=True)
class _Account:
    """The cost of one problem: its own calls, and its share of the calls made for all problems."""

    own: Meter
    shared: Meter
    problems: int
    index: int

    def cost(self) -> Cost:
        """Return the cost so far, by role."""
        cost: dict[str, Spent] = {}
        for role in sorted({*self.own.by_role, *self.shared.by_role}):
            usages = [self.own.by_role[role]] if role in self.own.by_role else []
            if role in self.shared.by_role:
                usages.append(allot_usage(self.shared.by_role[role], self.problems, self.index))
            cost[role] = Spent(**sum_usages(usages).counts())
        return cost


MAX_IDLE_STEPS = 1_000
"""Steps without a call after which a search counts as endless (ours): no method makes more than a few."""


@dataclass
class _Search:
    """A method's work on one problem, which may pause between two steps."""

    account: _Account
    begin: Callable[[Meter], tuple[AsyncIterator[Step], ProblemRecorder]]
    ended: bool = False
    _begun: tuple[AsyncIterator[Step], ProblemRecorder] | None = None
    _largest: int = 0
    """Calls of the step that took most."""
    _idle: int = 0
    """Latest steps that made no call."""

    async def advance(self, pausing: bool) -> None:
        """Take steps to the end; pausing: or until the calls left are fewer than a step has taken."""
        steps, recorder = self._begun = self._begun or self.begin(self.account.own)
        own = self.account.own
        # Grading runs beside the search: a slow grader (programs, proofs) delays no model call.
        async with asyncio.TaskGroup() as group:
            group.create_task(recorder.write_steps())
            made = own.total.calls
            async for step in steps:
                recorder.offer(step, self.account.cost())
                self._largest = max(self._largest, own.total.calls - made)
                self._idle = 0 if own.total.calls > made else self._idle + 1
                if self._idle >= MAX_IDLE_STEPS:
                    raise PluginError(
                        f"the method made no call in {MAX_IDLE_STEPS:,} steps on a problem; without a limit of its "
                        "own, it must end where the budget gives no reply (`ctx.affordable`, `ctx.out_of_budget`)"
                    )
                made = own.total.calls
                if pausing and own.calls_left is not None and own.calls_left < self._largest and not own.exhausted:
                    break
            else:
                self.ended = True
            recorder.close()
        if self.ended:
            self._begun = None  # its candidates need not stay in memory
            await recorder.write_end(self.account.cost(), own.exhausted)


def first_error(errors: BaseExceptionGroup[BaseException]) -> BaseException:
    """Return the first single exception in a group, however deep."""
    # Task groups nest; the user should see a single line, the first error.
    error: BaseException = errors
    while isinstance(error, BaseExceptionGroup):
        error = error.exceptions[0]
    return error
