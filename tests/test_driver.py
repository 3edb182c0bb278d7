"""The driver with a scripted method: problems in flight, what they share, and how it says that a problem has ended."""

import asyncio
import gc
from collections.abc import AsyncIterator, Mapping
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from building import make_budget
from evorun.errors import DataError, EngineError, RunDirectoryError
from evorun.methods.base import DatasetLevel, Method, PerProblem
from evorun.methods.context import Context, RunContext
from evorun.models import Sampling
from evorun.rollouts.calls import Calls
from evorun.rollouts.episodes import Asked
from evorun.rollouts.responses import respond
from evorun.runner.recorder import ProblemRecorder
from evorun.runs.budget import BudgetConfig
from evorun.runs.candidates import Candidate, Response, Step
from evorun.runs.directory import RunDirectory
from evorun.tasks.base import Demonstration, Prompt, Task
from method_fixture import Driven, Quiz, TestedQuiz, drive, example, problem, quiz

BEST = Candidate(id="0.0", generation=0, operator="init", text="right", answer="right", mean=0.0, sd=1.0, survivor=True)
ANSWERED = Step(step=0, best=BEST, candidates=[BEST])
NOTHING = Step(step=0, best=None, candidates=[])


async def ask(calls: Calls, count: int, role: str, step: int = 0) -> int:
    """Make so many calls; return how many there were."""
    prompts = [Prompt(messages=({"role": "user", "content": "{}"},))] * count
    return len(await calls.generate(prompts, role=role, step=step, sampling=Sampling()))


async def driven(method: Method, folder: Path, **how: Any) -> Driven:
    return await drive(method, folder, lambda asked: "right", **how)


class Scripted(PerProblem):
    """A method whose only step is a function of the context."""

    name = "scripted"
    description = ""
    regime = "problem_only"
    needs = ()
    Config = object

    async def step(self, ctx: Context) -> Step | None:
        raise NotImplementedError

    async def solve(self, ctx: Context) -> AsyncIterator[Step]:
        step = await self.step(ctx)
        if step is not None:
            yield step


class Together(Scripted):
    """Ends a problem only when so many others are in flight beside it; notes the most that ever were."""

    def __init__(self, parties: int) -> None:
        self.barrier = asyncio.Barrier(parties)
        self.in_flight = self.most = 0

    async def step(self, ctx: Context) -> Step:
        self.in_flight += 1
        self.most = max(self.most, self.in_flight)
        await self.barrier.wait()
        await asyncio.sleep(0)
        self.in_flight -= 1
        return ANSWERED


@pytest.mark.parametrize(("concurrency", "problems"), [(1, 3), (3, 9), (256, 512)])
async def test_as_many_problems_are_in_flight_as_asked_for_and_no_more(
    tmp_path: Path, concurrency: int, problems: int
) -> None:
    method = Together(concurrency)
    run = await driven(method, tmp_path, problems=problems, concurrency=concurrency)
    assert [record["problem"] for record in run.records("predictions")] == [f"p{i}" for i in range(problems)]
    assert method.most == concurrency


class CountsRecorders(Scripted):
    """Notes the most recorders of problems that are in memory at once."""

    most = 0

    async def step(self, ctx: Context) -> Step:
        gc.collect()
        self.most = max(self.most, sum(isinstance(one, ProblemRecorder) for one in gc.get_objects()))
        return ANSWERED


async def test_problems_that_wait_are_not_in_memory_with_all_that_they_need(tmp_path: Path) -> None:
    method = CountsRecorders()
    await driven(method, tmp_path, problems=20, concurrency=2)
    assert method.most <= 4  # one that has ended is there until the next is made


class Ends(Scripted):
    """Spends and answers as its script says for each problem, in turn."""

    def __init__(self, script: list[tuple[int, Step | None]]) -> None:
        self.script = {f"p{i}": entry for i, entry in enumerate(script)}

    async def step(self, ctx: Context) -> Step | None:
        calls, step = self.script[ctx.problem.id]
        await ask(ctx, calls, "generate")
        return step


async def test_how_problems_end(tmp_path: Path) -> None:
    script = [(1, ANSWERED), (2, ANSWERED), (1, NOTHING), (2, NOTHING), (1, None), (2, None)]
    run = await driven(Ends(script), tmp_path, problems=6, budget=make_budget(calls_per_problem=1))
    predictions = run.records("predictions")
    assert [p["stop"] for p in predictions] == ["generations", "budget", "failed", "budget", "failed", "budget"]
    assert [p["correct"] for p in predictions] == [True, True, False, False, False, False]
    assert [p["answer"] for p in predictions] == ["right", "right", None, None, None, None]
    assert [p["steps"] for p in predictions] == [1, 1, 1, 1, 0, 0]
    one_call = {"generate": {"calls": 1, "prompt_tokens": 5, "completion_tokens": 3}}
    assert all(p["cost"] == one_call for p in predictions)


class FailsAtOne(Scripted):
    async def step(self, ctx: Context) -> Step:
        if ctx.problem.id == "p3":
            raise EngineError("the server is gone")
        await asyncio.Event().wait()  # for ever, unless cancelled
        raise AssertionError


async def test_the_first_error_stops_the_other_problems(tmp_path: Path) -> None:
    with pytest.raises(EngineError, match=r"^the server is gone"):
        await driven(FailsAtOne(), tmp_path, problems=8)


class Demanding(Scripted):
    """Spends calls for all problems beforehand, then as many a problem as it gets; keeps what it was shown."""

    observes = True

    def __init__(self, beforehand: int, each: int, regime: Any = "problem_only") -> None:
        self.beforehand = beforehand
        self.each = each
        self.regime = regime  # type: ignore[misc]
        self.made: dict[str, int] = {}
        self.contexts: list[RunContext] = []

    async def prepare(self, ctx: RunContext) -> None:
        self.contexts.append(ctx)
        self.made["*"] = await ask(ctx.shared, self.beforehand, "prepare")

    async def step(self, ctx: Context) -> Step:
        self.made[ctx.problem.id] = await ask(ctx, self.each, "generate")
        return ANSWERED


@pytest.mark.parametrize(
    ("beforehand", "budget"),
    [
        (7, make_budget()),
        (0, make_budget(calls=17)),
        (7, make_budget(calls=17)),
        (40, make_budget(calls=17)),
        (1, make_budget(calls_per_problem=4)),
        (40, make_budget(calls_per_problem=4)),
        (5, make_budget(calls=17, calls_per_problem=3)),
        (7, make_budget(calls=5, calls_per_problem=4)),
    ],
)
async def test_what_is_shared_is_attributed_once_and_counts_against_every_problem(
    tmp_path: Path, beforehand: int, budget: BudgetConfig
) -> None:
    method = Demanding(beforehand, each=6)
    run = await driven(method, tmp_path, problems=5, budget=budget)
    predictions = run.records("predictions")
    of_role = {
        role: [p["cost"].get(role, {"calls": 0})["calls"] for p in predictions] for role in ("prepare", "generate")
    }
    assert sum(of_role["prepare"]) == method.made["*"]
    assert max(of_role["prepare"]) - min(of_role["prepare"]) <= 1
    assert of_role["generate"] == [method.made[f"p{i}"] for i in range(5)]
    made = sum(method.made.values())
    assert made == len(run.model.asked)
    assert made <= (budget.calls or made)
    if budget.calls_per_problem is not None:
        assert max(map(sum, zip(*of_role.values(), strict=True))) <= budget.calls_per_problem
    seconds = run.driver.seconds_by_role
    assert set(seconds) == {ask.role for ask in run.model.asked}


@pytest.mark.parametrize(
    ("regime", "task", "sees"),
    [
        ("problem_only", Quiz(), False),
        ("problem_only", TestedQuiz(), False),
        ("public_tests", TestedQuiz(), False),
        ("demonstrations", Quiz(), True),
        ("labels", Quiz(), True),
    ],
)
async def test_only_regimes_that_allow_it_see_the_validation_split(
    tmp_path: Path, regime: str, task: Task, sees: bool
) -> None:
    method = Demanding(0, each=1, regime=regime)
    await driven(method, tmp_path, task=task)
    assert (len(method.contexts[0].demonstrations) == 8) is sees


@pytest.mark.parametrize("regime", ["problem_only", "labels"])
async def test_only_labels_tell_the_answers_and_solutions_of_what_is_trained_on(tmp_path: Path, regime: str) -> None:
    training = replace(quiz(), answers={"p0": "12", "p1": "13"}, solutions={"p1": "12 + 1 = 13"})
    method = Demanding(0, each=1, regime=regime)
    await driven(method, tmp_path, training=training)
    known = method.contexts[0].training.demonstrations
    assert {name: one.reference for name, one in known.items()} == (
        {"p0": "12", "p1": "12 + 1 = 13"} if regime == "labels" else {}
    )


def test_feedback_makes_public_tests_of_problem_only_for_methods_that_look() -> None:
    method = Demanding(0, 0)
    assert method.information_regime(Quiz) == "problem_only"
    assert method.information_regime(TestedQuiz) == "public_tests"
    method.observes = False  # type: ignore[misc]
    assert method.information_regime(TestedQuiz) == "problem_only"
    for regime in ("demonstrations", "labels"):
        assert Demanding(0, 0, regime).information_regime(TestedQuiz) == regime


async def test_problems_of_the_run_are_not_graded_for_a_method(tmp_path: Path) -> None:
    method = Demanding(0, each=0, regime="labels")
    await driven(method, tmp_path)
    (ctx,) = method.contexts
    right = Response(text="right", answer="right")
    assert (await ctx.grade(example(1), right)).correct
    for forged in (
        Demonstration(problem=problem(0), answer="right"),
        Demonstration(problem=example(1).problem, answer="x"),
    ):
        with pytest.raises(DataError, match="expected a demonstration of the validation split"):
            await ctx.grade(forged, right)


class Learns(DatasetLevel):
    """A few steps over all problems, with calls of their own and calls for all."""

    name = "learns"
    description = ""
    regime = "problem_only"
    needs = ()
    Config = object

    def __init__(self, steps: int = 3, answered: tuple[str, ...] | None = None) -> None:
        self.steps = steps
        self.answered = answered

    async def learn(self, ctx: RunContext) -> AsyncIterator[Mapping[str, Step]]:
        for number in range(self.steps):
            await ask(ctx.shared, 2, "reflect", number)
            for one in ctx.problems:
                await ask(ctx.context_for(one), int(one.id[1:]), "generate", number)
            yield {
                one.id: Step(step=number, best=BEST, candidates=[BEST])
                for one in ctx.problems
                if self.answered is None or one.id in self.answered
            }


async def test_a_method_over_all_problems_reports_each_ones_course(tmp_path: Path) -> None:
    run = await driven(Learns(), tmp_path, problems=4)
    steps = run.records("steps")
    assert [(s["problem"], s["step"]) for s in steps] == [(f"p{i}", n) for i in range(4) for n in range(3)]
    costs = [[s["cost"].get(role, {"calls": 0})["calls"] for s in steps] for role in ("generate", "reflect")]
    assert costs[0] == [i * (n + 1) for i in range(4) for n in range(3)]
    # 2, 4, 6 shared calls among four problems
    assert costs[1] == [*(1, 1, 2), *(1, 1, 2), *(0, 1, 1), *(0, 1, 1)]
    assert sum(run.cost().values()) == len(run.model.asked) == 3 * (6 + 2)
    assert {p["stop"] for p in run.records("predictions")} == {"generations"}


@pytest.mark.parametrize("trains", [False, True])
async def test_figures_of_a_search_make_no_training_of_it(tmp_path: Path, trains: bool) -> None:
    class Figures(Learns):
        records_training = trains  # type: ignore[assignment]

        async def learn(self, ctx: RunContext) -> AsyncIterator[Mapping[str, Step]]:
            async for steps in super().learn(ctx):
                number = steps["p0"].step
                ctx.record(number, {"gain": 0.5} if number > 0 else {})
                yield steps

    run = await driven(Figures(), tmp_path, problems=2)
    recorded = [step.get("extra", {}) for step in run.records("steps")]
    assert (run.folder / "training.jsonl").exists() == trains
    assert recorded == ([{}] * 6 if trains else [{}, {"gain": 0.5}, {"gain": 0.5}] * 2)


async def test_a_search_records_its_tries_of_a_prompt_with_their_rewards(tmp_path: Path) -> None:
    class Tries(Learns):
        regime = "labels"

        async def learn(self, ctx: RunContext) -> AsyncIterator[Mapping[str, Step]]:
            prompt = Prompt(messages=({"role": "user", "content": "{}"},))
            asked = [Asked(demonstration.problem, prompt, candidate_id="0.0") for demonstration in ctx.demonstrations]
            episodes = await respond(ctx.shared, asked[:2], role="evaluate", step=0, sampling=Sampling())
            rewards = [(0.5, True), (None, None)]
            tried = zip(episodes, rewards, strict=True)
            ctx.record_rollouts([episode.rewarded(*reward).record(0) for episode, reward in tried])
            yield {one.id: ANSWERED for one in ctx.problems}

    run = await driven(Tries(), tmp_path, problems=1)
    rollouts = run.records("rollouts")
    assert [(r["candidate"], r["reward"], r["correct"]) for r in rollouts] == [("0.0", 0.5, True), ("0.0", None, None)]


async def test_its_calls_all_come_out_of_one_budget(tmp_path: Path) -> None:
    run = await driven(Learns(), tmp_path, problems=4, budget=make_budget(calls=11))
    assert len(run.model.asked) == 11
    assert {p["stop"] for p in run.records("predictions")} == {"budget"}


@pytest.mark.parametrize("limits", [{"calls": 24}, {"calls_per_problem": 6}])
async def test_calls_for_all_problems_see_what_the_runs_limit_still_allows(
    tmp_path: Path, limits: dict[str, int]
) -> None:
    seen = []

    class Looks(Learns):
        async def learn(self, ctx: RunContext) -> AsyncIterator[Mapping[str, Step]]:
            async for steps in super().learn(ctx):
                seen.append((ctx.shared.calls_left, ctx.shared.calls_left_in_share(0.5, "reflect")))
                yield steps

    await driven(Looks(2), tmp_path, problems=4, budget=make_budget(**limits))
    # a step takes 2 calls for all, of the role `reflect`, and 6 of the problems' own
    assert seen == [(24 - 8, 12 - 2), (24 - 16, 12 - 4)]


async def test_a_problem_that_it_never_mentions_ends_without_an_answer(tmp_path: Path) -> None:
    run = await driven(Learns(answered=("p1",)), tmp_path, problems=3)
    assert [p["stop"] for p in run.records("predictions")] == ["failed", "generations", "failed"]
    assert [p["steps"] for p in run.records("predictions")] == [0, 3, 0]


async def test_a_call_of_the_same_place_is_a_defect(tmp_path: Path) -> None:
    class Twice(Scripted):
        async def step(self, ctx: Context) -> Step:
            await ask(ctx, 1, "generate")
            await ask(ctx, 1, "generate")
            return ANSWERED

    with pytest.raises(ValueError, match="two calls with the same step, role, index and attempt"):
        await driven(Twice(), tmp_path)


class Endless(DatasetLevel):
    """Yields for ever, and says when it has been ended."""

    name = "endless"
    description = ""
    regime = "problem_only"
    needs = ()
    Config = object
    ended = False

    async def learn(self, ctx: RunContext) -> AsyncIterator[Mapping[str, Step]]:
        try:
            number = 0
            while True:
                yield {one.id: Step(step=number, best=BEST, candidates=[BEST]) for one in ctx.problems}
                number += 1
                await asyncio.sleep(0)
        finally:
            self.ended = True


async def test_a_disk_that_is_full_ends_a_method_over_all_problems(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def full(*args: object) -> None:
        raise RunDirectoryError("cannot write: no space left")

    monkeypatch.setattr(RunDirectory, "records", full)
    method = Endless()
    with pytest.raises(RunDirectoryError, match=r"^cannot write"):
        await driven(method, tmp_path)
    assert method.ended
