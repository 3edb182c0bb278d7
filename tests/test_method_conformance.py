"""Every method of evorun's own on every task of its own that suits it."""

import json
import signal
from pathlib import Path

import pytest

from evorun.runner import registry
from evorun.runner.settings import missing_capabilities
from evorun_process import evorun, records, start
from method_conformance import MethodConformance, Run
from test_resume import wait_for_effects

SMALL: dict[str, tuple[str, ...]] = {
    "zero_shot": (),
    "few_shot": ("method.shots=2",),
    "self_consistency": ("method.samples=4",),
    "best_of_n": ("method.samples=4", "method.rounds=3", "method.duels=3"),
    "feedback_descent": ("method.generations=3",),
    "gepa": ("method.generations=3", "method.minibatch=2"),
    "lyria": ("method.population=4", "method.generations=2", "method.elites=1"),
    "duel_evolve": (
        *("method.generations=2", "method.initial_candidates=4", "method.children=3"),
        *("method.parents=2", "method.duels=3"),
    ),
}
PROBLEMS: dict[str, tuple[str, ...]] = {
    "mathbench": ("task.source=sample", "task.limit=3"),
    "livecodebench": ("task.source=sample", "task.limit=3"),
    "sudoku": ("task.limit=3",),
    "graph_coloring": ("task.limit=3",),
    "tsp": ("task.limit=3",),
    "aime": ("task.source=sample", "task.limit=3"),
    "hmmt": ("task.source=sample", "task.limit=3"),
    "arithmetic": ("task.limit=3",),
}
"""Tasks that are one class with other data stand for each other (here: contests with integers and with expressions)."""

WITHOUT_TRAINING = [
    name
    for name in registry.METHODS
    if not (registry.method_class(name).trains or registry.method_class(name).requires_student)
]
"""Methods that a simulated model can serve; those that need weights have tests of their own."""

PAIRS = [
    (method, task)
    for method in WITHOUT_TRAINING
    for task in PROBLEMS
    if not missing_capabilities(registry.method_class(method), registry.task_config_class(task))
]


@pytest.mark.parametrize("pair", PAIRS, ids="-".join, scope="class")
class TestMethods(MethodConformance):
    @pytest.fixture(scope="class")
    @classmethod
    def arguments(cls, pair: tuple[str, str]) -> tuple[str, ...]:
        method, task = pair
        return (f"method={method}", f"task={task}", *SMALL[method], *PROBLEMS[task])


@pytest.mark.slow
class TestRealPrograms(MethodConformance):
    """The method that looks at public tests the most, with programs that really run."""

    real_sandbox = True

    @pytest.fixture(scope="class")
    @classmethod
    def arguments(cls) -> tuple[str, ...]:
        return ("method=duel_evolve", "task=livecodebench", *SMALL["duel_evolve"], *PROBLEMS["livecodebench"])


class TestSymbolicOperators(MethodConformance):
    """Lyria's operators on programs; with the public tests for an oracle it would mostly end before they are used."""

    @pytest.fixture(scope="class")
    @classmethod
    def arguments(cls) -> tuple[str, ...]:
        shares = ("method.crossover_rate=1", "method.external_crossover_rate=0.6", "method.external_mutation_rate=0.6")
        problems = PROBLEMS["livecodebench"]
        return ("method=lyria", "task=livecodebench", "method.fitness=model", *SMALL["lyria"], *shares, *problems)

    def test_the_operators_were_at_work(self, finished: Run) -> None:
        children = [record for record in finished.records("candidates") if record["operator"].startswith("external")]
        assert {record["operator"] for record in children} == {"external_crossover", "external_mutation"}
        parents = {(record["problem"], record["id"]): record["answer"] for record in finished.records("candidates")}
        changed = [c for c in children if c["answer"] not in [parents[c["problem"], p] for p in c["parents"]]]
        assert changed
        assert all(child["call"] is None for child in children)


@pytest.mark.parametrize("method", ["gepa", "few_shot"])
def test_a_signal_ends_a_run_that_shares_calls_and_a_resume_completes_it(tmp_path: Path, method: str) -> None:
    """GEPA waits in a thread of its own, few-shot is still preparing: both end at once, and go on where they were."""
    task = (f"method={method}", "task=mathbench", *SMALL[method], *PROBLEMS["mathbench"], "engine=simulated")
    arguments = (*task, "engine.seconds_per_token=0.001")
    reference = evorun(*arguments, "hydra.run.dir=reference", cwd=tmp_path)
    assert reference.returncode == 0, reference.stderr
    process = start(*arguments, "hydra.run.dir=run", cwd=tmp_path)
    wait_for_effects(tmp_path / "run", 3, process)
    process.send_signal(signal.SIGINT)
    assert process.wait(timeout=20) == 130
    assert json.loads((tmp_path / "run" / "manifest.json").read_text())["status"] == "interrupted"
    assert "never retrieved" not in (tmp_path / "run" / "evorun.log").read_text()
    assert evorun("resume", "run", cwd=tmp_path).returncode == 0
    assert records(tmp_path / "run") == records(tmp_path / "reference")


def test_every_method_suits_every_task() -> None:
    assert set(PAIRS) == {(method, task) for method in WITHOUT_TRAINING for task in PROBLEMS}
    classes = {task: registry.task_config_class(task).task_class for task in registry.TASKS}
    assert set(classes.values()) == {classes[task] for task in PROBLEMS}
