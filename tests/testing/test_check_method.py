"""Every method of evorun's own passes the suite; what each can be paired with; and methods that break a rule do not."""

import itertools
import json
import signal
from collections.abc import AsyncIterator
from pathlib import Path
from typing import Any

import msgspec
import pytest

from building import make_config, simulated_run, task_config
from evorun.methods.base import PerProblem
from evorun.methods.context import Context
from evorun.methods.learning.parts import UpdateRule
from evorun.methods.learning.policy_gradient import Rloo
from evorun.models import Sampling
from evorun.runner import registry
from evorun.runner.settings import missing_capabilities
from evorun.runs.candidates import Candidate, Step
from evorun.testing import check_method
from evorun_process import evorun_here, records, start
from test_resume import wait_for_effects
from text_tasks import HaikusConfig

SMALL: dict[str, dict[str, Any]] = {
    "zero_shot": {},
    "few_shot": {"shots": 2},
    "self_consistency": {"samples": 4},
    "v1_infer": {"samples": 4, "comparisons": 6},
    "deepconf": {"mode": "online", "samples": 7, "warmup": 3, "batch": 2, "window": 16, "keep": 0.5},
    "ab_mcts": {"nodes": 11, "batch": 3},
    "islands": {
        **{"policy": "shinka", "generations": 3, "children": 4, "notes_every": 4},
        **{"paradigms": 2, "paradigm_window": 4, "paradigm_below": 1.0},
    },
    "rsa": {"population": 4, "subset": 2, "steps": 3},
    "pdr": {"drafts": [3, 2, 1]},
    "squeeze_evolve": {"population": 4, "groups": 3, "subset": 2, "steps": 3},
    "best_of_n": {"samples": 4, "rounds": 3, "duels": 3},
    "feedback_descent": {"generations": 3},
    "gepa": {"generations": 3, "minibatch": 2},
    "ace": {"problems": 3, "eval_every": 2, "rounds": 1},
    "lyria": {"population": 4, "generations": 2, "elites": 1},
    "duel_evolve": {"generations": 2, "initial_candidates": 4, "children": 3, "parents": 2, "duels": 3},
    "espl_evolution": {"steps": 3, "problems_per_step": 2, "group": 3, "crossover_rate": 0.5, "eval_samples": 2},
    "espl_self_reflection": {"steps": 2, "problems_per_step": 2, "group": 3, "eval_samples": 1},
    "fixed_prompts": {"prompts": str(Path(__file__).parents[1] / "given_prompts.json"), "eval_samples": 1},
}
PROBLEMS: dict[str, dict[str, Any]] = {
    "mathbench": {"source": "sample"},
    "livecodebench": {"source": "sample"},
    "sudoku": {},
    "graph_coloring": {},
    "tsp": {},
    "aime": {"source": "sample"},
    "hmmt": {"source": "sample"},
    "math": {"source": "sample"},
    "arithmetic": {},
    "search_qa": {"source": "sample"},
    "essay": {"source": "sample"},
    "ethics": {"source": "sample"},
    "billsum": {"source": "sample"},
    "rows": {"source": "sample"},
    "circle_packing": {},
    "autocorrelation": {},
    "matrix_product": {},
}
"""Tasks that are one class with other data stand for each other (here: contests with integers and with expressions)."""

CONSTRUCTIONS = ("autocorrelation", "circle_packing", "matrix_product")
"""Tasks with programs that can be changed in parts."""

ON = {
    "zero_shot": "arithmetic",
    "few_shot": "graph_coloring",
    "self_consistency": "hmmt",
    "v1_infer": "math",
    "deepconf": "search_qa",
    "ab_mcts": "sudoku",
    "islands": "circle_packing",
    "rsa": "search_qa",
    "pdr": "essay",
    "squeeze_evolve": "mathbench",
    "best_of_n": "tsp",
    "feedback_descent": "livecodebench",
    "gepa": "mathbench",
    "ace": "mathbench",
    "lyria": "sudoku",
    "duel_evolve": "livecodebench",
    "espl_evolution": "arithmetic",
    "espl_self_reflection": "aime",
    "fixed_prompts": "mathbench",
}
"""Other tasks than these are covered by tests/net: all pairs' requests and records."""

WITHOUT_TRAINING = [
    name
    for name in registry.METHODS
    if not (registry.method_class(name).trains or registry.method_class(name).requires_student)
]
"""Methods that a simulated model can serve; those that need weights have tests of their own."""


REWARDED = {"steps": 2, "problems_per_step": 2, "group": 3, "eval_every": 1, "eval_samples": 1}
TRAINING: dict[str, tuple[str, dict[str, Any]]] = {
    "grpo": ("arithmetic", REWARDED),
    "cispo": ("mathbench", REWARDED),
    "rloo": ("hmmt", REWARDED),
    "ppo": ("billsum", {**REWARDED, "rubric": "initial"}),
    "espl": ("aime", {**REWARDED, "crossover_rate": 0.5}),
    "mpo": ("essay", {**REWARDED, "refine_every": 1, "refine_samples": 2}),
    "rler": ("search_qa", REWARDED),
    "ttt_discover": ("graph_coloring", {"steps": 2, "states": 2, "group": 4}),
}
"""Methods that train weights by rewards, each with its task and size; `sft` reads a file."""


def check(name: str) -> None:
    task = ON[name]
    config = make_config("method", name, **SMALL[name])
    check_method(registry.method_class(name), config, task_config(task, limit=3, **PROBLEMS[task]))


@pytest.mark.sample(1)  # tests/net has each method's requests and records
@pytest.mark.parametrize("name", WITHOUT_TRAINING)
def test_every_method_passes(name: str) -> None:
    check(name)


@pytest.mark.parametrize(
    "name", [pytest.param(name, marks=[pytest.mark.nightly] * (name != "rloo")) for name in TRAINING]
)
def test_a_method_that_trains_passes_on_a_simulated_model(name: str) -> None:
    task, size = TRAINING[name]
    method = registry.method_class(name)
    check_method(method, make_config("method", name, **size), task_config(task, limit=3, **PROBLEMS[task]))


def test_each_method_that_trains_by_rewards_is_checked() -> None:
    training = {name for name in registry.METHODS if registry.method_class(name).trains}
    assert set(TRAINING) == training - {"sft"}


@pytest.mark.nightly
@pytest.mark.parametrize("name", ["few_shot", "duel_evolve", "gepa"])
def test_a_method_passes_on_a_task_with_tools(name: str) -> None:
    config = make_config("method", name, **SMALL[name])
    check_method(registry.method_class(name), config, task_config("search_qa", limit=3, source="sample"))


@pytest.mark.nightly
def test_a_method_passes_on_a_task_without_right_and_wrong() -> None:
    config = make_config("method", "duel_evolve", **SMALL["duel_evolve"])
    check_method(registry.method_class("duel_evolve"), config, HaikusConfig())


@pytest.mark.nightly  # by day a task with such programs passes, in test_check_task.py
def test_a_method_passes_with_programs_that_really_run() -> None:
    small = {**SMALL["duel_evolve"], "generations": 1, "initial_candidates": 2, "children": 2, "duels": 2}
    config = make_config("method", "duel_evolve", **small)
    one = task_config("livecodebench", limit=1, source="sample")
    check_method(registry.method_class("duel_evolve"), config, one, real_programs=True)


def test_lyrias_symbolic_operators_change_programs(tmp_path: Path) -> None:
    """With the public tests for an oracle it would mostly end before they are used."""
    finished = simulated_run(
        tmp_path / "run",
        *("method=lyria", "method.fitness=model", "method.population=4", "method.generations=2", "method.elites=1"),
        *("method.crossover_rate=1", "method.external_crossover_rate=0.6", "method.external_mutation_rate=0.6"),
        *("task=livecodebench", "task.source=sample", "task.limit=3"),
    )
    children = [record for record in finished.records("candidates") if record["operator"].startswith("external")]
    assert {record["operator"] for record in children} == {"external_crossover", "external_mutation"}
    parents = {(record["problem"], record["id"]): record["answer"] for record in finished.records("candidates")}
    assert [c for c in children if c["answer"] not in [parents[c["problem"], p] for p in c["parents"]]]
    assert all(child["call"] is None for child in children)


@pytest.mark.nightly
@pytest.mark.parametrize("method", ["gepa", "few_shot"])
def test_a_signal_ends_a_run_that_shares_calls_and_a_resume_completes_it(tmp_path: Path, method: str) -> None:
    """GEPA waits in a thread of its own, few-shot is still preparing: both end at once, and go on where they were."""
    size = (f"method.{key}={value}" for key, value in SMALL[method].items())
    task = ("task=mathbench", "task.source=sample", "task.limit=3", "engine=simulated")
    arguments = (f"method={method}", *size, *task, "engine.seconds_per_token=0.001")
    reference = evorun_here(*arguments, "hydra.run.dir=reference", cwd=tmp_path)
    assert reference.returncode == 0, reference.stderr
    process = start(*arguments, "hydra.run.dir=run", cwd=tmp_path)
    wait_for_effects(tmp_path / "run", 3, process)
    process.send_signal(signal.SIGINT)
    assert process.wait(timeout=120) == 130
    assert json.loads((tmp_path / "run" / "manifest.json").read_text())["status"] == "interrupted"
    assert "never retrieved" not in (tmp_path / "run" / "evorun.log").read_text()
    assert evorun_here("resume", "run", cwd=tmp_path).returncode == 0
    assert records(tmp_path / "run") == records(tmp_path / "reference")


def test_every_method_suits_every_task() -> None:
    for method in WITHOUT_TRAINING:
        for task in registry.TASKS if method != "islands" else CONSTRUCTIONS:
            assert not missing_capabilities(registry.method_class(method), registry.task_config_class(task))
    classes = {task: registry.task_config_class(task).task_class for task in registry.TASKS}
    assert set(classes.values()) == {
        classes[task] for task in (*PROBLEMS, "environment", "inspect", "reasoning_gym", "verifiers")
    }  # those from outside have tests of their own


def test_a_limit_that_only_a_budget_sets_is_refused_before_a_run_without_end() -> None:
    config = make_config("method", "self_consistency", samples=None)
    said = r"^samples: expected a number, since the first run has no budget, .* budget\.calls_per_problem takes null by"
    with pytest.raises(AssertionError, match=said):
        check_method(registry.method_class("self_consistency"), config, task_config("arithmetic", limit=1))


# --- methods that break a rule ---


class Asks(PerProblem):
    """Asks once and reports the reply."""

    name = "asks"
    description = ""
    regime = "problem_only"
    needs = ()
    Config: Any = type(make_config("method", "zero_shot"))
    runs = 0

    def __init__(self, config: Any) -> None:
        type(self).runs += 1

    async def solve(self, ctx: Context) -> AsyncIterator[Step]:
        [reply] = await ctx.generate([self.prompt(ctx)], role="generate", step=0, sampling=Sampling(max_tokens=99))
        response = ctx.task.parse(ctx.problem, self.text(reply.completions[0].text))
        candidate = Candidate.from_response(response, id="0.0", generation=0, operator="init", survivor=True)
        yield Step(step=0, best=self.best(candidate), candidates=[candidate])

    def prompt(self, ctx: Context) -> Any:
        return ctx.task.generation_prompt(ctx.problem)

    def text(self, reply: str) -> str:
        return reply

    def best(self, candidate: Candidate) -> Candidate:
        return candidate


class Peeks(Asks):
    def prompt(self, ctx: Context) -> Any:
        [example, *_] = task_config("arithmetic").load().validation
        return ctx.task.generation_prompt(example.problem)


class IsOtherwiseEachTime(Asks):
    def text(self, reply: str) -> str:
        return f"{reply} in run {self.runs}"


class AsksOtherwiseEachTime(Asks):
    def prompt(self, ctx: Context) -> Any:
        prompt = super().prompt(ctx)
        told = [{"role": "user", "content": f"This is run {self.runs}."}]
        return msgspec.structs.replace(prompt, messages=(*prompt.messages, *told))


class FailsByMistake(Asks):
    def text(self, reply: str) -> str:
        return reply.splitlines()[1_000]


class NeverEnds(Asks):
    """Does not notice that its budget is used up."""

    optional_limits = {"retries": 1}  # noqa: RUF012 - null in the check of a budget

    def __init__(self, config: Any) -> None:
        self.steps = range(2) if config.retries is not None else itertools.count()

    async def solve(self, ctx: Context) -> AsyncIterator[Step]:
        for step in self.steps:
            await ctx.generate([self.prompt(ctx)], role="generate", step=step, sampling=Sampling(max_tokens=99))
            yield Step(step=step, best=None, candidates=[])


class KeepsAnUnknownRegime(Asks):
    regime: Any = "problem-only"


class ReportsWhatItDoesNotHave(Asks):
    def best(self, candidate: Candidate) -> Candidate:
        return msgspec.structs.replace(candidate, id="0.1")


class TrainsByNothing(Rloo):
    """Gives each completion the same advantage."""

    advantages: Any = staticmethod(lambda rewards: [0.0] * len(rewards))

    @property
    def update_rule(self) -> UpdateRule:
        return self.group_relative(advantages=self.advantages)


class TrainsByTooFew(TrainsByNothing):
    advantages = staticmethod(lambda rewards: rewards[1:])


class TrainsByNoNumber(TrainsByNothing):
    advantages = staticmethod(lambda rewards: [float("nan")] * len(rewards))


@pytest.mark.parametrize(
    ("method", "message"),
    [
        (TrainsByNothing, "^expected an update of the weights, found none: .* or look at the advantages$"),
        (
            TrainsByTooFew,
            r"PluginError.*expected a finite number for each of the 3 rewards \[.*\], got \[\d.., \d..\];",
        ),
        (
            TrainsByNoNumber,
            r"PluginError.*expected a finite number for each of the 3 rewards \[.*\], got \[nan, nan, nan",
        ),
    ],
)
def test_a_method_that_trains_by_no_advantages_fails(method: type[Rloo], message: str) -> None:
    config = make_config("method", "rloo", **REWARDED)
    with pytest.raises(AssertionError, match=message):
        check_method(method, config, task_config("arithmetic", limit=2))


@pytest.mark.parametrize(
    ("method", "message"),
    [
        (Peeks, "expected no prompt to show the validation split"),
        (
            IsOtherwiseEachTime,
            r"^\w+\.jsonl of a run with one problem in flight: \[0\]\.[\w.]+ from character \d+: "
            r"expected '.{,30} in run 2', found '.{,30} in run 3'; random choices come from ctx\.rng$",
        ),
        (
            AsksOtherwiseEachTime,
            r"^calls of a run with one problem in flight: .*\|0\|generate\|.*; random choices come from ctx\.rng$",
        ),
        (
            KeepsAnUnknownRegime,
            "^regime: expected one of problem_only, demonstrations, public_tests, oracle, labels, found 'problem-only'",
        ),
        (
            FailsByMistake,
            r"^how an undisturbed run ends: .*IndexError.* from its `text` \(test_check_method.py, line \d+\)",
        ),
        (NeverEnds, r"^how a run under budget.calls_per_problem=\d+ ends: .*made no call in 40 steps on a problem"),
        (ReportsWhatItDoesNotHave, "text of the best candidate of step 0"),
    ],
)
def test_a_method_that_breaks_a_rule_fails(method: type[Asks], message: str, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("evorun.runner.driver.MAX_IDLE_STEPS", 40)
    with pytest.raises(AssertionError, match=message):
        check_method(method, make_config("method", "zero_shot"), task_config("arithmetic", limit=2))
