"""TTT-Discover: its buffer against the definition, the calls and updates of its steps, and what it leaves."""

import math
from collections import Counter
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import msgspec
import numpy as np
import pytest

from building import composed, make_budget, make_config, make_driver, make_method, simulated_run
from evorun.errors import ConfigError
from evorun.methods.learning.group_advantages import weight_entropically
from evorun.methods.ttt_discover.states import State, States
from evorun.runner.branches import plan_weights
from evorun.runner.estimates import count_calls
from evorun.runner.registry import task_config_class
from evorun.runner.settings import check
from evorun.runs.candidates import Feedback, Response
from evorun.runs.directory import RunDirectory, load_manifest
from evorun.runs.reading import read_rollouts
from evorun.tasks.base import Problem, Tools
from evorun.testing.runs import COMPLETED, carry_out
from learning_fixture import NotedPolicy, Sampled, Trained
from method_fixture import Ask, TestedQuiz, quiz

SMALL: dict[str, Any] = {"steps": 3, "states": 2, "group": 3, "buffer": 6}


class ScoredQuiz(TestedQuiz):
    """A quiz whose answers begin with their score: `0.25 and so on`."""

    async def observe(self, problem: Problem, response: Response, tools: Tools) -> Response:
        score = float((response.answer or "0").split()[0])
        return msgspec.structs.replace(response, feedback=Feedback(text=f"earns {score}", score=score))


class StartedQuiz(ScoredQuiz):
    """A quiz that has an answer to begin with."""

    def starting_response(self, problem: Problem) -> Response:
        return self.parse(problem, "0.25 seed")


def rising(ask: Ask) -> str | None:
    """Say better answers at later steps; one is refused and one cannot be read."""
    if ask.index == 4:
        return "?"
    return None if (ask.step, ask.index) == (2, 1) else f"{ask.step / 20 + ask.index / 100:.2f} by {ask.index}"


async def discover(folder: Path, *, task: Any = None, **config: Any) -> Trained:
    budget = config.pop("budget", None)
    directory, model, policy = RunDirectory(folder), Sampled(rising), NotedPolicy()
    method = make_method("ttt_discover", **{**SMALL, **config})
    loaded = quiz(task or ScoredQuiz(), problems=2)
    try:
        driver = make_driver(method, loaded, directory, model, policy=policy, budget=budget)
        await driver.run()
        directory.finish_records([problem.id for problem in loaded.problems])
    finally:
        directory.close()
    return Trained(folder, model, driver, policy)


async def test_each_step_learns_from_groups_that_go_on_from_the_best_states(tmp_path: Path) -> None:
    found = await discover(tmp_path / "run")
    asked = sorted(found.model.of("rollout"), key=lambda ask: (ask.step, ask.index))
    # The weights begin anew before the second problem, in place of an update: 1 to 3, and 5 to 7.
    assert Counter((ask.name, ask.step) for ask in asked) == {
        ("p0" if step < 4 else "p1", step): 6 for step in (1, 2, 3, 5, 6, 7)
    }
    assert found.policy.restarts == [(4, 3)]
    assert all(ask.shown["ask"] == "generate" for ask in asked if ask.step in (1, 5))
    shown = [[parent["answer"] for parent in ask.shown["parents"]] for ask in asked if ask.step == 2]
    # The best two go on, though they have one parent: only ancestors and descendants exclude one another.
    assert shown == [["0.10 by 5"]] * 3 + [["0.08 by 3"]] * 3
    assert all(ask.shown["parents"][0]["feedback"] == "earns 0.1" for ask in asked[6:9])
    rewards = [[0.05, 0.06, 0.07], [0.08, 0.0, 0.1]]
    expected = [advantage for group in rewards for advantage in weight_entropically(group, None)]
    assert [row.advantage for row in found.policy.batches[0]] == pytest.approx(expected)
    # A group that a refusal leaves with two completions has no adaptive beta, and teaches nothing.
    assert [row.advantage for row in found.policy.batches[1]][:2] == [0.0, 0.0]
    assert len(found.policy.batches[1]) == 5


async def test_the_best_response_ever_is_returned_with_its_reward_and_its_lineage(tmp_path: Path) -> None:
    found = await discover(tmp_path / "run", task=StartedQuiz(), steps=2)
    steps = [record for record in found.records("steps") if record["problem"] == "p0"]
    assert [(step["step"], step["best"]["id"], step["belief"]["mean"]) for step in steps] == [
        *((0, "start", 0.25), (1, "start", 0.25), (2, "start", 0.25)),
    ]
    candidates = {record["id"]: record for record in found.records("candidates") if record["problem"] == "p0"}
    assert len(candidates) == 1 + 2 * 6
    assert {candidate["parents"][0] for candidate in candidates.values() if candidate["generation"] == 1} == {"start"}
    assert candidates["1.5"]["mean"] == pytest.approx(0.1)
    assert not candidates["1.4"]["survivor"]  # it cannot be read
    assert candidates["2.1"]["answer"] is None  # it was refused, and does not take the answer of 1.1
    assert len(read_rollouts(tmp_path / "run")) == 2 * 2 * 6


class Naive:
    """The buffer as the paper and the released code describe it, state by state."""

    def __init__(self, initial: Sequence[str], size: int, children: int) -> None:
        self.initial, self.size, self.children = list(initial), size, children
        self.states = [(name, 0.0, "") for name in initial]
        self.parent: dict[str, str] = {}
        self.visits, self.best, self.total = Counter[str](), dict[str, float](), 0

    def line(self, name: str) -> list[str]:
        return [name, *(self.line(self.parent[name]) if name in self.parent else [])]

    def choose(self, count: int) -> list[str]:
        found = [reward for name, reward, _ in self.states if name not in self.initial] or [0.0]
        scale = max(max(found) - min(found), 1e-6)
        ranked = sorted(range(len(self.states)), key=lambda at: -self.states[at][1])
        weights = {at: len(self.states) - rank for rank, at in enumerate(ranked)}
        scores = []
        for at, (name, reward, _) in enumerate(self.states):
            prior = weights[at] / sum(weights.values())
            bonus = scale * prior * math.sqrt(1 + self.total) / (1 + self.visits[name])
            scores.append((-(self.best.get(name, reward) + bonus), -reward, at, name))
        chosen: list[str] = []
        for *_, name in sorted(scores):
            related = any(name in self.line(other) or other in self.line(name) for other in chosen)
            if not related and len(chosen) < count:
                chosen.append(name)
        return chosen

    def add(self, parent: str, made: Sequence[tuple[str, float, str]]) -> None:
        self.visits.update(self.line(parent))
        self.total += 1
        for name, reward, _ in made:
            self.parent[name] = parent
            self.best[parent] = max(reward, self.best.get(parent, reward))
        for name, reward, key in sorted(made, key=lambda child: -child[1])[: self.children]:
            if key not in [known for *_, known in self.states]:
                self.states.append((name, reward, key))

    def trim(self) -> None:
        found = [state for state in self.states if state[0] not in self.initial]
        kept = sorted(found, key=lambda state: -state[1])[: self.size - len(self.initial)]
        self.states = [state for state in self.states if state[0] in self.initial or state in kept]


@pytest.mark.parametrize("seed", range(4))
def test_the_buffer_is_that_of_the_definition(seed: int) -> None:
    rng = np.random.default_rng(seed)
    names = ["start.0", "start.1", "start.2"]
    naive = Naive(names, size=12, children=2)
    states = States([State(name, None, 0.0) for name in names], size=12, children=2, exploration=1.0)
    for step in range(25):
        parents = states.choose(3)
        assert [parent.name for parent in parents] == naive.choose(3)
        for place, parent in enumerate(parents):
            made = [
                (f"{step}.{place}.{child}", float(np.round(rng.random() * step, 2)), f"key {rng.integers(40)}")
                for child in range(rng.integers(5))
            ]
            states.add(parent, [State(name, None, reward, key) for name, reward, key in made])
            naive.add(parent.name, made)
        states.trim()
        naive.trim()
        assert [state.name for state in states.held] == [name for name, *_ in naive.states]
    assert len(states) == 12


async def test_a_budget_buys_whole_steps_of_each_problem(tmp_path: Path) -> None:
    found = await discover(tmp_path / "run", budget=make_budget(calls_per_problem=17))
    assert Counter(ask.name for ask in found.model.asked) == {"p0": 12, "p1": 12}
    assert found.policy.restarts == [(3, 2)]
    assert [record["stop"] for record in found.records("predictions")] == ["budget", "budget"]


@pytest.mark.parametrize(
    ("task", "reward", "said"),
    [
        ("mathbench", "auto", "method.reward=auto: task=mathbench lacks feedback and a verifier"),
        ("tsp", "feedback", "method.reward=feedback: task=tsp lacks feedback"),
        ("mathbench", "verifier", "method.reward=verifier: task=mathbench lacks a verifier"),
    ],
)
def test_a_task_that_scores_nothing_during_the_search_is_refused(task: str, reward: str, said: str) -> None:
    assert str(
        make_method("ttt_discover", reward=reward).incompatibility(task_config_class(task).task_class)
    ).startswith(said)


def test_the_verifier_is_an_oracle_and_feedback_are_public_tests() -> None:
    method = make_method("ttt_discover")
    regimes = {name: method.information_regime(task_config_class(name).task_class) for name in ("tsp", "livecodebench")}
    assert regimes == {"tsp": "oracle", "livecodebench": "public_tests"}


def test_settings_without_sense_are_refused() -> None:
    with pytest.raises(ConfigError, match=r"method.buffer: expected room for the 64 initial states .*, got 63"):
        make_config("method", "ttt_discover", buffer=63)
    with pytest.raises(ConfigError, match=r"method.group: expected at least 3"):
        make_config("method", "ttt_discover", group=2)


WORDS = (
    *("task=tsp", "task.instances=3", "method=ttt_discover", "method.steps=4", "method.states=2", "method.group=4"),
    *("engine=simulated", "engine.mean_tokens=5", "evorun.progress=off"),
)


def test_killed_and_resumed_and_replayed_it_is_the_same(tmp_path: Path) -> None:
    whole = simulated_run(tmp_path / "whole", *WORDS)
    assert whole.outcome == COMPLETED
    calls = whole.json("results.json")["cost"]["total"]["calls"]
    assert calls == 3 * 4 * 2 * 4 == sum(part.calls for part in count_calls(composed(*WORDS)))
    for after in (10, 70):  # within the first problem, and the third
        broken = carry_out(check(composed(*WORDS)), tmp_path / "broken", breaks_after=after)
        assert broken.outcome != COMPLETED
    resumed = carry_out(check(composed(*WORDS)), tmp_path / "broken")
    assert resumed.outcome == COMPLETED
    assert resumed.files() == whole.files()
    replayed = carry_out(
        check(composed(*WORDS[:-3], "evorun.progress=off", "engine=replay", f"engine.run={whole.path}")),
        tmp_path / "replayed",
    )
    assert replayed.outcome == COMPLETED
    assert replayed.files() == whole.files()
    with pytest.raises(ConfigError, match="got one that begins anew with each problem; start a new run"):
        plan_weights(whole.path, load_manifest(whole.path), composed(*WORDS, "method.steps=5"), None)


def test_a_budget_takes_whole_steps_and_one_without_room_for_a_step_is_refused() -> None:
    words = ("method=ttt_discover", "task=circle_packing", "task.limit=1", "engine=simulated")
    for calls, whole in ((50, 48), (150, 144), (450, 448)):
        sized = composed(*words, f"budget=calls_{calls}")
        check(sized)
        assert sum(part.calls for part in count_calls(sized)) == whole
    part_of_a_step = (*words, "method.states=3", "budget.calls_per_problem=71")
    assert sum(part.calls for part in count_calls(composed(*part_of_a_step))) == 2 * 3 * 8
    with pytest.raises(ConfigError, match=r"calls per problem of the budget.*got 512; set method.states=8"):
        check(composed(*words, "budget.calls_per_problem=71"))


ARMS = {"ttt_discover": WORDS[2:6], "best_of_n": ("method=best_of_n", "method.choose=oracle", "method.samples=32")}


@pytest.mark.nightly
@pytest.mark.parametrize(
    ("world", "wins"),
    [
        (("engine.training_gain=0.5", "engine.training_speed=0.5"), True),
        (("engine.improvement=0", "engine.training_gain=-0.3", "engine.training_speed=0.5"), False),
    ],
)
def test_it_wins_and_loses_with_what_training_and_states_are_worth(
    tmp_path: Path, world: Sequence[str], wins: bool
) -> None:
    """The other arm takes the best of as many independent responses, by the same verifier."""
    scores = {}
    for name, sizes in ARMS.items():
        run = simulated_run(
            tmp_path / name, "task=tsp", "task.instances=8", *sizes, "engine.skill=0.1", "engine.mean_tokens=5", *world
        )
        results = run.json("results.json")
        assert results["cost"]["total"]["calls"] == 32 * 8
        scores[name] = results["metrics"]["penalised_score"]["value"]
    assert (scores["ttt_discover"] > scores["best_of_n"]) == wins
