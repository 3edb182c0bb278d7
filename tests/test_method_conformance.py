"""Every method of evorun's own on every task of its own that suits it."""

import pytest

from evorun import registry
from evorun.settings import missing_capabilities
from method_conformance import MethodConformance

SMALL: dict[str, tuple[str, ...]] = {
    "zero_shot": (),
    "few_shot": ("method.shots=2",),
    "self_consistency": ("method.samples=4",),
    "best_of_n": ("method.samples=4", "method.rounds=3", "method.duels=3"),
    "feedback_descent": ("method.generations=3",),
    "gepa": ("method.generations=3", "method.minibatch=2"),
    "duel_evolve": (
        *("method.generations=2", "method.initial_candidates=4", "method.children=3"),
        *("method.parents=2", "method.duels=3"),
    ),
}
PROBLEMS: dict[str, tuple[str, ...]] = {
    "mathbench": ("task.source=sample", "task.limit=3"),
    "livecodebench": ("task.source=sample", "task.limit=3"),
}

PAIRS = [
    (method, task)
    for method in registry.METHODS
    for task in registry.TASKS
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


def test_every_method_suits_every_task() -> None:
    assert set(PAIRS) == {(method, task) for method in registry.METHODS for task in registry.TASKS}
