"""Conformance of methods: records agree, costs add up, and runs resume and replay byte for byte."""

import copy
import json
import tempfile
from collections import Counter
from collections.abc import Callable, Mapping
from dataclasses import asdict
from pathlib import Path
from typing import Any

from evorun.cli.compose import yaml_values
from evorun.errors import ConfigError, EngineError
from evorun.methods.base import REGIMES, Method
from evorun.models.config import EngineConfig, ModelConfig
from evorun.runner.settings import ProgramSettings, RunConfig, RunSettings, refuse_impossible_pair
from evorun.runner.typed import typed
from evorun.runs.budget import BudgetConfig
from evorun.runs.call_keys import read_role
from evorun.runs.replay import ReplayConfig
from evorun.runs.spending import GOLD
from evorun.simulation.engine import SimulatedConfig
from evorun.tasks.base import Problem, TaskConfig
from evorun.testing.expectations import expect, expect_equal, expect_same, locate
from evorun.testing.runs import COMPLETED, FakeSandbox, Run, carry_out
from evorun.training.config import TrainingConfig
from evorun.training.updates import ROLE as UPDATE

# Information regimes in which a method must not see the validation split.
UNINFORMED = ("problem_only", "public_tests")

FROM_RNG = "random choices come from ctx.rng"

RunOnce = Callable[..., Run]
"""Carries out the run in a folder with this name, with changed values for some fields of RunConfig."""


def check_method(method: type[Method], config: Any, task: TaskConfig, *, real_programs: bool = False) -> None:
    """Check a method on a task's simulator. Raises AssertionError for the first broken rule.

    A method that trains weights trains the simulated model, whose skill its updates raise or lower.
    config: an instance of the method's `Config`, small enough for a few dozen calls. What `optional_limits` names has a
    number there, and is null in the run under `budget.calls_per_problem`, as in a sweep with a budget. task: a task
    with a few problems and available data. real_programs: run the programs of a task that has any; otherwise they get
    fake verdicts.
    """
    make: Any = method
    unlimited = copy.deepcopy(config)
    for key, limit in make(copy.deepcopy(config)).optional_limits.items():
        expect(
            limit is not None,
            f"{key}: expected a number, since the first run has no budget, got null; give {key}=N, and the run under "
            "budget.calls_per_problem takes null by itself",
        )
        setattr(unlimited, key, None)
    with tempfile.TemporaryDirectory() as folder:

        def run(name: str, breaks_after: int | None = None, *, limited: bool = True, **changes: Any) -> Run:
            made = _run_config(method, config if limited else unlimited, task, changes)
            return carry_out(made, Path(folder) / name, breaks_after=breaks_after, real_programs=real_programs)

        finished = run("finished")
        _expect_completed(finished, "how an undisturbed run ends")
        _check_predictions(finished)
        _check_references(finished)
        _check_costs(finished)
        _check_updates(finished, method)
        if not method.learns_from_problems:  # whose rollouts may be on the validation split
            _check_regime(finished, task)
        # The order in which problems finish must not matter: seeds and keys derive from names, not from the order.
        _check_same(run("alone", run=RunSettings(concurrency=1)), finished, "a run with one problem in flight")
        _check_replay(finished, run)
        _check_resume(finished, run, counted=not real_programs)
        _check_budgets(finished, run)


def _run_config(method: type[Method], config: Any, task: TaskConfig, changes: Mapping[str, Any]) -> RunConfig:
    refuse_impossible_pair(method, task)
    make: Any = method
    made, engine = make(copy.deepcopy(config)), SimulatedConfig(name="simulated")
    incompatibility = made.incompatibility(task.task_class)
    expect(incompatibility is None, f"expected a task that suits the method: {incompatibility}")
    regime = made.information_regime(task.task_class)
    expect(regime in REGIMES, f"regime: expected one of {', '.join(REGIMES)}, found {regime!r}")
    values: dict[str, Any] = {
        **{"seed": 0, "method": made, "task": copy.deepcopy(task), "budget": BudgetConfig()},
        **{"model": ModelConfig(name="simulated", id="simulated"), "engine": engine},
        "evorun": ProgramSettings(progress="off"),
        **changes,
    }
    raw = {"seed": 0, "method": asdict(config), "task": asdict(task), "budget": asdict(values["budget"])}
    if method.trains:
        training = yaml_values("training", "lora")  # a simulated model has no adapter: any settings do
        raw["training"], values["training"] = dict(training), typed(TrainingConfig, training, "training")
    return RunConfig(**values, raw=raw)


def _check_predictions(finished: Run) -> None:
    problems = [record["problem"] for record in finished.records("problems")]
    predictions = finished.records("predictions")
    expect(problems, "expected problems to work on")
    expect_equal([record["problem"] for record in predictions], problems, "problems with a prediction, in order")
    stops = {record["stop"] for record in predictions}
    expect("budget" not in stops, f"stop: expected generations, goal or failed without a budget, found {stops}")
    expect_equal(finished.json("results.json")["counts"]["problems"], len(problems), "problems in results.json")


def _check_references(finished: Run) -> None:
    candidates = {(record["problem"], record["id"]): record for record in finished.records("candidates")}
    expect_equal(len(candidates), len(finished.records("candidates")), "candidates with a unique id")
    seen: dict[tuple[str, str], dict[str, Any]] = {}
    for (problem, name), candidate in candidates.items():
        for parent in candidate["parents"]:
            # Parents come first; a mutant and its original may belong to the same generation.
            expect((problem, parent) in seen, f"candidate {name}: expected its parent {parent} to stand before it")
            older = seen[problem, parent]["generation"] <= candidate["generation"]
            expect(older, f"candidate {name}: its parent {parent} is of a later generation")
        seen[problem, name] = candidate
    for step in finished.records("steps"):
        if step["best"] is not None:
            recorded = candidates.get((step["problem"], step["best"]["id"]), {}).get("text")
            expect_equal(step["best"]["text"], recorded, f"text of the best candidate of step {step['step']}")
    for duel in finished.records("comparisons"):
        sides = {(duel["problem"], duel["first"]), (duel["problem"], duel["second"])}
        expect(len(sides) == 2 and sides <= set(candidates), f"a duel: expected two candidates, found {sides}")
        expect_equal(len(duel["reasons"]), len(duel["verdicts"]), "reasons of a duel's verdicts")
    for record in finished.records("predictions"):
        if record["candidate"] is not None:
            chosen = candidates[record["problem"], record["candidate"]]
            expect_equal(record["answer"], chosen["answer"], f"answer to {record['problem']}")


def _check_costs(finished: Run) -> None:
    # Count calls from the journal, independently of the code for costs.
    made = Counter(read_role(key) for key in finished.calls())
    cost = finished.json("results.json")["cost"]
    paid = {role: spent["calls"] for role, spent in cost.items() if role != "total"}
    expect_equal(paid, dict(made), "calls that are paid for, by role")
    expect_equal(cost["total"]["calls"], len(finished.asked) - made[GOLD], "calls of all roles")
    usages = [
        json.loads(usage) for key, _, _, usage, _ in finished.effects() if usage is not None and read_role(key) != GOLD
    ]
    # The tokens in results.json and in predictions.jsonl must each add up to those in the journal.
    for kind in ("prompt_tokens", "completion_tokens"):
        expect_equal(cost["total"][kind], sum(usage[kind] for usage in usages), kind)
        predicted = [spent[kind] for p in finished.records("predictions") for spent in p["cost"].values()]
        expect_equal(sum(predicted), cost["total"][kind], f"{kind} of all problems together")
    last: dict[str, dict[str, Any]] = {}
    for step in finished.records("steps"):
        for role, spent in last.get(step["problem"], {}).items():
            grows = all(step["cost"][role][kind] >= amount for kind, amount in spent.items())
            expect(grows, f"step {step['step']} of {step['problem']}: expected costs that only grow")
        last[step["problem"]] = step["cost"]


def _check_updates(finished: Run, method: type[Method]) -> None:
    # Without an update the runs below would show nothing of what a resume or a replay does with one.
    updated = any(read_role(key) == UPDATE for key, *_ in finished.effects())
    expect(
        updated or not method.trains,
        "expected an update of the weights, found none: in each step no episode had a reward, or all advantages were "
        "0; give the config a larger method.group or more method.problems_per_step, or look at the advantages",
    )


def _check_regime(finished: Run, config: TaskConfig) -> None:
    regime = finished.json("manifest.json")["regime"]
    if regime not in UNINFORMED:
        return
    loaded = config.load()
    task: Any = loaded.task

    def lines(problem: Problem) -> set[str]:
        messages = task.generation_prompt(problem).messages
        return {line for message in messages for line in message["content"].splitlines()}

    # The longest line of its prompt that no problem of the run shares identifies a validation problem.
    common = {line for problem in loaded.problems for line in lines(problem)}
    prompts = [message["content"] for request in finished.asked for message in request.messages]
    for example in loaded.validation:
        line = max(lines(example.problem) - common, key=len)
        seen = any(line in prompt for prompt in prompts)
        expect(not seen, f"regime {regime}: expected no prompt to show the validation split, found {line!r}")


def _expect_completed(run: Run, what: str) -> None:
    """Raise AssertionError with the place of the method's error unless a run has completed."""
    error = run.outcome.error
    if run.outcome.status == "failed" and error is not None:
        raise AssertionError(f"{what}: expected it to complete, got {locate(error, Method)}") from error
    expect_equal(run.outcome, COMPLETED, what)


def _check_same_records(again: Run, finished: Run, what: str) -> None:
    _expect_completed(again, f"how {what} ends")
    for name, content in finished.files().items():
        expect_same(again.records(name), finished.records(name), f"{name}.jsonl of {what}", FROM_RNG)
        expect_equal(again.files()[name], content, f"{name}.jsonl of {what}")
    expect_same(again.results_without_times(), finished.results_without_times(), f"results.json of {what}", FROM_RNG)


def _check_same(again: Run, finished: Run, what: str) -> None:
    _expect_completed(again, f"how {what} ends")
    # Calls before records: what a method asks decides what it records.
    expect_same(_requests(again), _requests(finished), f"calls of {what}", FROM_RNG)
    _check_same_records(again, finished, what)


def _requests(run: Run) -> dict[str, str]:
    """Return the digest of each request in the journal, by the key of its effect."""
    return {key: request.hex() for key, request, *_ in run.effects()}


def _check_replay(finished: Run, run: RunOnce) -> None:
    tested = FakeSandbox.tested
    engine: EngineConfig = ReplayConfig(name="replay", run=str(finished.path))
    again = run("replayed", engine=engine)
    _check_same_records(again, finished, "a replayed run")
    kept = [key for key, _, _, usage, _ in again.effects() if usage is not None or key.startswith("sandbox|")]
    expect_equal(kept, [], "calls and programs in the journal of a replayed run, since its recording has them")
    results = [(path / "results.json").read_bytes() for path in (again.path, finished.path)]
    expect(results[0] == results[1], "expected a replayed run to have the recorded times too")
    expect_equal(FakeSandbox.tested, tested, "programs tested, with those of a replayed run")


def _check_resume(finished: Run, run: RunOnce, counted: bool) -> None:
    """Interrupt a run early, resume and interrupt it again, then let it finish.

    counted: programs get fake verdicts, so their number is known.
    """
    before: list[tuple[str, bytes, bytes, str | None, float]] = []
    asked = 0
    tested = FakeSandbox.tested
    for share in (0.1, 0.6):
        # The limit counts only calls that reach the engine, not those in the journal.
        broken = run("resumed", breaks_after=max(0, int(share * len(finished.asked)) - asked))
        expect(isinstance(broken.outcome.error, EngineError), f"expected the engine's error, got {broken.outcome}")
        asked += len(broken.asked)
        _check_kept(before, broken)
        before = broken.effects()
    resumed = run("resumed")
    _check_same(resumed, finished, "a resumed run")
    _check_kept(before, resumed)
    # No call happens twice: neither a recorded one nor one that another coroutine has made.
    recorded = sum(effect[3] is not None for effect in before)
    expect_equal(len(resumed.asked), len(resumed.calls()) - recorded, "calls of a resumed run beside those recorded")
    if counted:
        programs = sum(effect[0].startswith("sandbox|") for effect in resumed.effects())
        expect_equal(FakeSandbox.tested - tested, programs, "programs tested by a run and its resumptions")


def _check_kept(before: list[tuple[str, bytes, bytes, str | None, float]], run: Run) -> None:
    after = {effect[0]: effect for effect in run.effects()}
    expect([after.get(effect[0]) for effect in before] == before, "expected recorded effects to stay as they were")


def _check_budgets(finished: Run, run: RunOnce) -> None:
    problems = len(finished.records("problems"))
    # Two thirds of what the method would spend, so that the budget must stop it.
    whole = max(problems, 2 * len(finished.charged_calls()) // 3)
    each = max(1, whole // problems)
    for key, limit, budget in (
        ("calls", whole, BudgetConfig(calls=whole)),
        ("calls_per_problem", each, BudgetConfig(calls_per_problem=each)),
    ):
        try:  # a budget for each problem, as most are, with all else left to it
            limited = run(key, limited=key == "calls", budget=budget)
        except ConfigError as error:  # too small for a response of several turns
            expect("\n" not in str(error), "expected a refusal of one line")
            continue
        expect_equal(len(limited.asked), len(limited.calls()), f"calls under budget.{key}={limit}")
        allowed, charged = limit if key == "calls" else limit * problems, len(limited.charged_calls())
        expect(charged <= allowed, f"budget.{key}={limit}: found {charged} calls")
        if isinstance(limited.outcome.error, ConfigError):  # a method may refuse a budget that is too small
            expect_equal(limited.asked, [], "calls of a run that was refused")
            expect("\n" not in str(limited.outcome.error), "expected a refusal of one line")
            continue
        _expect_completed(limited, f"how a run under budget.{key}={limit} ends")
        costs = [sum(spent["calls"] for spent in p["cost"].values()) for p in limited.records("predictions")]
        expect_equal(sum(costs), charged, "calls of all problems together")
        if key == "calls_per_problem":
            expect(max(costs) <= limit, f"budget.{key}={limit}: a problem cost {max(costs)} calls")
