"""Islands: choices against formulas, the grid and migration, calls, replay, and worlds in which it wins and loses."""

import dataclasses
import json
import math
from collections import Counter
from collections.abc import Sequence
from pathlib import Path
from statistics import fmean
from typing import Any

import numpy as np
import pytest
from msgspec import UNSET

from building import make_budget, make_config, make_method
from construction_worlds import pack_circles, sum_of_radii
from evorun.errors import ConfigError
from evorun.methods.islands.choices import (
    ModelBandit,
    Progress,
    choose_island,
    fitness_weights,
    intensity_weights,
    shinka_weights,
)
from evorun.methods.islands.islands import Islands
from evorun.methods.islands.population import (
    Features,
    Island,
    Member,
    find_similar,
    migrate,
    rough_difference,
    split_words,
)
from evorun.methods.islands.settings import POLICIES
from evorun.models.base import Message
from evorun.runs.candidates import Candidate, Response
from evorun.tasks.base import Problem, Prompt, Tools
from evorun.tasks.capabilities import Diagnosis, Paradigm, PatchForm, Verification
from method_fixture import Ask, Driven, Quiz, Scripted, drive, solve


class Values(Quiz):
    """Programs `x = N words...`, worth N; a patch is a whole program, and all prompts are JSON."""

    def starting_response(self, problem: Problem) -> Response:
        return Response(text="x = 1", answer="x = 1")

    def patch_prompt(
        self,
        problem: Problem,
        parent: Response,
        others: Sequence[Response],
        form: PatchForm,
        *,
        paradigm: Paradigm | None = None,
        recommendation: str = "",
    ) -> Prompt:
        shown, title = [other.answer for other in others], paradigm and paradigm.title
        return _prompt(ask=form, parent=parent.answer, others=shown, paradigm=title, recommendation=recommendation)

    def paradigms_prompt(
        self, problem: Problem, best: Response, tried: Sequence[tuple[Paradigm, float]], count: int
    ) -> Prompt:
        shown = [[paradigm.title, gain] for paradigm, gain in tried]
        return _prompt(ask="paradigms", best=best.answer, tried=shown, count=count)

    def parse_paradigms(self, text: str) -> Sequence[Paradigm]:
        """Read one title a line; a question mark is unreadable."""
        return [] if text.startswith("?") else [Paradigm(title=line, plan=line) for line in text.splitlines()]

    def summary_prompt(self, problem: Problem, program: Response) -> Prompt:
        return _prompt(ask="summary", program=program.answer)

    def insights_prompt(
        self, problem: Problem, summaries: Sequence[tuple[Response, str]], insights: str, best: Response
    ) -> Prompt:
        shown = [[program.answer, summary] for program, summary in summaries]
        return _prompt(ask="insights", summaries=shown, insights=insights, best=best.answer)

    def recommendations_prompt(
        self, problem: Problem, insights: str, earlier: Sequence[str], best: Response, count: int
    ) -> Prompt:
        return _prompt(ask="recommend", insights=insights, earlier=list(earlier), best=best.answer, count=count)

    def parse_recommendations(self, text: str) -> Sequence[str]:
        """Read one recommendation a line; a question mark is unreadable."""
        return [] if text.startswith("?") else text.splitlines()

    def read_patch(self, problem: Problem, parent: Response, response: Response, form: PatchForm) -> Response:
        return response

    async def verify(self, problem: Problem, response: Response, max_errors: int, tools: Tools) -> Verification:
        words = (response.answer or "").split()
        return Verification(fitness=float(words[2]) if len(words) > 2 else 0.0, errors=Diagnosis())


def _prompt(**content: object) -> Prompt:
    return Prompt(messages=(Message(role="user", content=json.dumps(content)),))


def islands(**config: object) -> Islands:
    return make_method("islands", **{"generations": 4, "children": 5, "retries": 0, "novelty_tries": 1, **config})


def rising(ask: Ask) -> str:
    return f"x = {ask.step * 10 + ask.index} {'y ' * (ask.index + 1)}"


def member(name: str, fitness: float, program: str = "") -> Member:
    candidate = Candidate(id=name, generation=0, operator="seed", text="", answer=program or name)
    return Member(candidate, fitness, split_words(program or name))


# --- choices, against formulas ---


def test_parents_of_shinka_weigh_fitness_against_children() -> None:
    fitness, children = [1.0, 2.0, 4.0, 8.0], [0, 1, 0, 3]
    median, spread = 3.0, 1.5  # deviations 2, 1, 1, 5
    raw = [1 / (1 + math.exp(-10 * (f - median) / spread)) / (1 + c) for f, c in zip(fitness, children, strict=True)]
    assert shinka_weights(fitness, children, 10) == pytest.approx([weight / sum(raw) for weight in raw])
    assert shinka_weights([5.0, 5.0], [0, 1], 10) == pytest.approx([2 / 3, 1 / 3])
    assert np.isfinite(shinka_weights([0.0, 0.0, 0.0, 1e9], [0] * 4, 10)).all()


def test_the_parents_of_an_island_are_its_fittest_quarter_any_or_by_fitness() -> None:
    fitness = [50.0, 30.0, 10.0, 10.0]
    by_fitness = [0.5, 0.3, 0.1, 0.1]
    expected = [0.4 / 4 + 0.6 * (0.7 * (place == 0) + 0.3 * by_fitness[place]) for place in range(4)]
    assert intensity_weights(fitness, 0.4) == pytest.approx(expected)
    assert intensity_weights(fitness, 1.0) == pytest.approx([0.25] * 4)
    assert fitness_weights([0.0, 0.0]) == pytest.approx([0.5, 0.5])


def test_an_island_that_improves_explores_less_and_gets_the_next_turn() -> None:
    progress = Progress(0.9)
    assert progress.intensity(0.15, 0.5) == 0.5
    progress.receive(10)  # the first value is a gain of 1
    assert progress.signal == pytest.approx(0.1)
    progress.visit(12, 40)  # 2 of 10 on the island, 2 of 40 over all
    signal = 0.9 * 0.1 + 0.1 * 0.2**2
    assert progress.signal == pytest.approx(signal)
    assert progress.intensity(0.15, 0.5) == pytest.approx(0.15 + 0.35 / (1 + math.sqrt(signal)))
    assert progress.decayed_gains == pytest.approx(0.05)
    progress.visit(11, 40)
    assert (progress.signal, progress.decayed_gains) == (pytest.approx(signal), pytest.approx(0.045))
    assert progress.decayed_visits == pytest.approx(1.9)
    idle = Progress(0.9)
    idle.receive(10)
    for _ in range(10):
        progress.visit(0, 40)
        idle.visit(0, 40)
    progress.visit(30, 40)
    rng = np.random.default_rng(0)
    assert choose_island([idle, progress], [1, 0], rng) == 1
    assert choose_island([idle, progress], [0, 500], rng) == 0  # children under way count as visits
    assert choose_island([Progress(0.9), progress], [0, 0], rng) == 0  # three visits first


def test_the_bandit_rewards_gains_alone_and_forgets() -> None:
    bandit = ModelBandit(3, exploration=1.0, epsilon=0.2, decay=0.5)
    assert bandit.probabilities([1, 1, 1]) == pytest.approx([1 / 3] * 3)
    for model in (0, 1, 2):
        bandit.submit(model)
    for model, fitness in ((0, 60.0), (1, 90.0), (2, 40.0)):
        bandit.update(model, fitness, 60.0)
    assert bandit.probabilities([1, 1, 1]) == pytest.approx([0.1, 0.8, 0.1])
    assert bandit.calls == pytest.approx([1, 1, 1])
    for _ in range(40):  # a leader without further gains is overtaken
        bandit.submit(1)
        bandit.update(1, 0.0, 60.0)
    assert bandit.probabilities([1, 1, 1]) == pytest.approx([0.4, 0.2, 0.4])


def test_the_bandit_weighs_cheapness_against_gains() -> None:
    """Two models, the dearer one the only one with gains: it leads where it is little dearer."""
    for costs, leader in (([1.0, 1.5], 1), ([1.0, 4.0], 0), ([0.0, 0.0], 1)):
        bandit = ModelBandit(2, exploration=0.0, epsilon=0.2, decay=1.0, cost_weight=0.6)
        for model, fitness in ((0, 71.0), (1, 80.0)):  # gains of 1 and 10: means of 0.096 and 1
            bandit.submit(model)
            bandit.update(model, fitness, 70.0)
        assert bandit.probabilities(costs)[leader] == pytest.approx(0.8), costs


# --- populations ---


def test_a_cell_keeps_its_fittest_program_and_an_island_its_fittest() -> None:
    island = Island(2, {})
    assert island.add(member("a", 1), (0, 0))
    assert not island.add(member("b", 1), (0, 0))  # the first of equals stays
    assert island.add(member("c", 2), (0, 0))
    assert island.add(member("d", 5), (1, 0))
    assert [other.candidate.id for other in island.members] == ["d", "c"]
    assert not island.add(member("e", 1), (2, 2))  # two are enough
    assert island.cells is not None
    assert (2, 2) not in island.cells
    assert island.add(member("f", 3), (2, 2))
    assert [other.candidate.id for other in island.members] == ["d", "f"]
    assert set(island.cells) == {(1, 0), (2, 2)}
    plain = Island(3, None)
    assert [plain.add(member(name, 1), (0, 0)) for name in "abcd"] == [True, True, True, False]


def test_the_grid_spans_what_it_has_seen() -> None:
    features = Features(10)
    assert features.cell("x" * 10) == (0, 0)
    assert features.cell("x" * 110)[0] == 9
    assert features.cell("x" * 60)[0] == 5
    assert features.cell("x" * 1010)[0] == 9
    assert features.cell("x" * 110)[0] == 1  # bins have widened
    assert features.cell("abcdefghij" + 50 * "\n")[1] == 9


def test_the_fittest_migrate_once_around_the_ring() -> None:
    def ring(count: int) -> list[Island]:
        made = [Island(9, None) for _ in range(count)]
        for number, island in enumerate(made):
            for place in range(4):
                island.add(member(f"{number}{place}", 10 * number - place), (0, 0))
        return made

    def ids(island: Island) -> set[str]:
        return {other.candidate.id for other in island.members}

    three = ring(3)
    assert migrate(three, 0.5, lambda program: (0, 0), both_ways=False, keep_best=False) == 6
    assert [ids(island) - {f"{n}{p}" for p in range(4)} for n, island in enumerate(three)] == [
        {"20", "21"},
        {"00", "01"},
        {"10", "11"},
    ]
    # What came by migration stays, though island 0's best came from island 2: now a third of its own follows.
    assert migrate(three, 0.5, lambda program: (0, 0), both_ways=False, keep_best=False) == 3
    assert ids(three[1]) == {"10", "11", "12", "13", "00", "01", "02"}
    four = ring(4)
    migrate(four, 0.1, lambda program: (0, 0), both_ways=True, keep_best=True)
    assert ids(four[0]) == {"00", "01", "02", "03", "11", "31"}


def test_similar_programs_are_found_by_their_matching_words() -> None:
    base = member("m", 1, "def f(a, b):\n    return a + b")
    same = split_words("def f( a,b ):\n  return a+b  ")
    near = split_words("def f(a, b):\n    return a - b")
    assert find_similar(same, [base], 1.0) is base
    assert find_similar(near, [base], 1.0) is None
    assert find_similar(near, [base], 0.9) is base  # 11 of 12 words
    assert find_similar(near, [base], 0.93) is None


# --- runs ---


async def test_a_policy_gives_what_is_null_and_a_run_asks_for_generations_times_children() -> None:
    for policy, values in POLICIES.items():
        method = islands(policy=policy, elites=7)
        assert {name: getattr(method.config, name) for name in values} == {**values, "elites": 7}
        model = Scripted(rising)
        history = await solve(method, model, task=Values())
        generated = model.of("generate")
        assert len(generated) == 4 * 5
        last = history[-1]
        assert last.best is not None
        assert (last.best.answer, last.best.fitness) == ("x = 44 y y y y y ", 44)
        assert [step.step for step in history] == [0, 1, 2, 3, 4]
        assert last.candidates[0].operator == "seed"
        assert last.extra["islands"] >= values["islands"]
        parents = {candidate.id: candidate.parents[0] for candidate in last.candidates if candidate.parents}
        known = {candidate.id: candidate.answer for candidate in last.candidates}
        for ask in generated:
            assert known[parents[f"{ask.step}.{ask.index}"]] == ask.shown["parent"]


async def test_the_programs_of_a_grid_have_their_length_and_difference() -> None:
    for policy in ("openevolve", "shinka"):
        (*_, last) = await solve(islands(policy=policy, max_similarity=1.0), Scripted(rising_or_bad), task=Values())
        measured = {candidate.id: candidate.features for candidate in last.candidates}
        placed = {candidate.id for candidate in last.candidates if (candidate.fitness or 0) > 0}
        grid = policy == "openevolve"
        assert {name for name, features in measured.items() if features is not UNSET} == (placed if grid else set())
        assert last.extra.get("grid_bins") == (10 if grid else None)
        if grid:
            texts = [candidate.answer or "" for candidate in last.candidates if candidate.id in placed]
            # Here few enough programs are seen that each is measured against all before it, the seed against itself.
            expected = [0.0] + [
                fmean(rough_difference(text, o) for o in texts[:k]) for k, text in enumerate(texts) if k
            ]
            found = [measured[candidate.id] for candidate in last.candidates if candidate.id in placed]
            assert found == [(len(text), pytest.approx(mean)) for text, mean in zip(texts, expected, strict=True)]


def rising_or_bad(ask: Ask) -> str:
    return f"bad {ask.step}" if ask.index == 1 else rising(ask)


async def test_shares_decide_the_form_of_changes() -> None:
    model = Scripted(rising)
    await solve(islands(generations=20, policy="shinka"), model, task=Values())
    forms = Counter(ask.shown["ask"] for ask in model.of("generate"))
    assert forms["diff"] == pytest.approx(60, abs=18)
    assert forms["cross"] == pytest.approx(10, abs=9)
    assert all(len(ask.shown["others"]) == 1 for ask in model.asked if ask.shown["ask"] == "cross")
    model = Scripted(rising)
    await solve(islands(diff_share=0.0), model, task=Values())
    assert {ask.shown["ask"] for ask in model.asked} == {"full"}


async def test_what_is_not_new_is_asked_for_again_and_then_left_out() -> None:
    def repeats(ask: Ask) -> str:
        return "x = 1" if ask.attempt < ask.index else rising(ask)

    model = Scripted(repeats)
    history = await solve(islands(generations=1, novelty_tries=3), model, task=Values())
    assert Counter(ask.index for ask in model.asked) == {0: 1, 1: 2, 2: 3, 3: 3, 4: 3}
    assert history[-1].extra["similar"] == 2
    assert len(history[-1].candidates) == 6  # all are recorded
    assert sum(candidate.survivor for candidate in history[-1].candidates) == 4


async def test_islands_stay_apart_until_they_migrate() -> None:
    history = await solve(
        islands(island_choice="turns", islands=5, grid_bins=0, parents="weighted"), Scripted(rising), task=Values()
    )
    ancestors: dict[str, set[int]] = {"0.seed": set()}
    for candidate in history[-1].candidates[1:]:
        island = int(candidate.id.split(".")[1]) % 5
        ancestors[candidate.id] = {island}.union(*(ancestors[parent] for parent in candidate.parents))
    assert all(len(found) <= 1 for found in ancestors.values())
    history = await solve(islands(islands=5, migration_every=5), Scripted(rising), task=Values())
    assert any(
        candidate.id.split(".")[1] != parent.split(".")[1]
        for candidate in history[-1].candidates
        for parent in candidate.parents
        if parent != "0.seed"
    )


@pytest.mark.parametrize(("choice", "by_progress"), [("turns", 0), ("uniform", 0), ("ucb", 20)])
async def test_progress_chooses_islands_under_ucb_alone(
    choice: str, by_progress: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    chosen: list[int] = []

    def choose(progress: Sequence[Progress], planned: Sequence[int], rng: np.random.Generator) -> int:
        chosen.append(choose_island(progress, planned, rng))
        return chosen[-1]

    monkeypatch.setattr("evorun.methods.islands.islands.choose_island", choose)
    await solve(islands(island_choice=choice), Scripted(rising), task=Values())
    assert len(chosen) == by_progress


async def test_a_new_island_starts_where_the_others_stagnate() -> None:
    history = await solve(
        islands(policy="adaevolve", generations=10, spawn_pause=10, spawn_below=0.2),
        Scripted(lambda ask: f"x = 0.5 {ask.step} {ask.index}"),
        task=Values(),
    )
    assert [step.extra["islands"] for step in history] == [2, 2, 3, 3, 4, 4, 5, 5, 5, 5, 5]


async def test_a_budget_buys_whole_steps(tmp_path: Path) -> None:
    driven = await drive(
        islands(generations=None),
        tmp_path,
        rising,
        task=Values(),
        problems=2,
        budget=make_budget(calls_per_problem=17),
    )
    assert Counter(ask.name for ask in driven.model.asked) == {"p0": 15, "p1": 15}


_STUCK = {"paradigms": 2, "paradigm_window": 5, "paradigm_below": 0.5, "paradigm_uses": 1, "children": 3}
GIVEN: dict[str, dict[str, Any]] = {
    "max_islands": {"policy": "adaevolve", "spawn_pause": 3, "spawn_below": 0.9},
    "spawn_below": {"policy": "adaevolve", "spawn_pause": 3},
    "spawn_pause": {"policy": "adaevolve", "spawn_below": 0.9},
    "pressure": {"parents": "weighted"},
    **{key: {"parents": "intensity"} for key in ("intensity_low", "intensity_high", "decay")},
    "migration_share": {"migration_every": 5},
    "migration_both_ways": {"migration_every": 5, "islands": 4},
    "keep_best": {"migration_every": 5},
    "novelty_tries": {"max_similarity": 0.5},
    "elites": {"exploit": 0.8},
    **dict.fromkeys(("paradigms", "paradigm_window", "paradigm_below", "paradigm_uses", "paradigm_memory"), _STUCK),
    "recommendations": {"notes_every": 4},
}
CHANGED: dict[str, Any] = {
    **{"policy": "shinka", "generations": 2, "children": 3, "novelty_tries": 3, "islands": 2, "max_islands": 2},
    **{"spawn_below": 0.95, "spawn_pause": 20, "capacity": 2, "grid_bins": 0, "island_choice": "uniform"},
    **{"parents": "weighted", "explore": 0.0, "exploit": 0.1, "elites": 1, "pressure": 0.0, "intensity_low": 0.49},
    **{"intensity_high": 1.0, "decay": 0.0, "migration_every": 5, "migration_share": 1.0, "migration_both_ways": False},
    **{"keep_best": True, "shown_best": 1, "shown_others": 0, "diff_share": 0.0, "cross_share": 0.0},
    **{"paradigms": 3, "paradigm_window": 1, "paradigm_below": 0.1, "paradigm_uses": 2, "paradigm_memory": 0},
    **{"notes_every": 3, "recommendations": 1},
    **{"max_similarity": 0.5, "temperature": 0.31, "top_p": 0.83, "max_tokens": 77, "retries": 2},
}
OF_MODELS = ("model_choice", "model_exploration", "model_epsilon", "model_decay", "model_cost_weight")
"""Without effect on a run with one generator."""


def varied(ask: Ask) -> str:
    if ask.role != "generate":
        return f"first of {ask.step}\nsecond\nthird"
    if ask.attempt == 0 and ask.index % 4 == 1:
        return "?"
    return f"x = {(ask.step * 7 + ask.index * 5 + ask.attempt) % 23} {'y ' * (ask.index % 3)}"


@pytest.fixture(scope="module")
def baselines() -> dict[str, list[tuple[Any, ...]]]:
    """Return what was asked before a field was changed, by the settings that were given."""
    return {}


@pytest.mark.parametrize(
    "field", [f.name for f in dataclasses.fields(Islands.Config) if f.name not in ("name", *OF_MODELS)]
)
async def test_a_field_changes_what_is_asked(
    tmp_path: Path, field: str, baselines: dict[str, list[tuple[Any, ...]]]
) -> None:
    base = {"generations": 8, "novelty_tries": 2, "diff_share": 0.5, "cross_share": 0.3, **GIVEN.get(field, {})}

    async def asked(name: str, **config: Any) -> list[tuple[Any, ...]]:
        driven: Driven = await drive(islands(**{**base, **config}), tmp_path / name, varied, task=Values(), problems=1)
        return driven.model.everything()

    if (key := json.dumps(base)) not in baselines:
        baselines[key] = await asked("before")
    assert baselines[key] != await asked("after", **{field: CHANGED[field]})


HOSTILE = ("", "\x00", "```", "<<<<<<< SEARCH\n=======\n>>>>>>> REPLACE", "A" * 20_000, "x = 1e999", "x = nan")


async def test_hostile_texts_end_no_run(tmp_path: Path) -> None:
    advised = {"notes_every": 5, "paradigms": 2, "paradigm_window": 3, "paradigm_below": 1.0}
    method = islands(policy="shinka", generations=4, children=len(HOSTILE), retries=1, novelty_tries=2, **advised)

    def say(ask: Ask) -> str | None:
        return None if ask.role == "paradigm" and ask.step == 3 else HOSTILE[(ask.index + ask.step) % len(HOSTILE)]

    driven = await drive(method, tmp_path, say, task=HostileValues(), problems=2)
    assert len(driven.records("predictions")) == 2
    assert sum(driven.cost().values()) == len(driven.model.asked)
    assert min(driven.cost()[role] for role in ("paradigm", "summary", "insights", "recommend")) > 2


class HostileValues(Values):
    async def verify(self, problem: Problem, response: Response, max_errors: int, tools: Tools) -> Verification:
        return Verification(fitness=len(response.answer or "") % 7, errors=Diagnosis())


@pytest.mark.parametrize(
    ("config", "message"),
    [
        ({"explore": 0.5, "exploit": 0.6}, "method.explore and method.exploit: expected shares of at most 1 together"),
        ({"diff_share": 0.8, "cross_share": 0.3}, "method.diff_share and method.cross_share"),
        ({"intensity_low": 0.6}, "method.intensity_low: expected at most method.intensity_high=0.5, got 0.6"),
        ({"policy": "mapelites"}, "method.policy"),
    ],
)
def test_settings_that_contradict_each_other_are_refused(config: dict[str, Any], message: str) -> None:
    with pytest.raises(ConfigError, match=message):
        make_config("method", "islands", **config)


# --- on a task ---

ISLANDS = (
    *("method=islands", "method.policy=shinka", "method.notes_every=0"),
    *("method.islands=1", "method.generations=10", "method.children=6"),
)


@pytest.mark.nightly
@pytest.mark.parametrize(("skill", "wins"), [(0.2, True), (0.57, False)])
def test_it_wins_where_programs_from_scratch_are_poor_and_loses_elsewhere(
    tmp_path: Path, skill: float, wins: bool
) -> None:
    """The arm without it draws as many programs from scratch, and the score chooses the best.

    The first world is chosen so that islands win: programs from scratch are poor, and changes keep nearly all that is
    right. The second has the skill of `rivals/constructions`; both have one of its values of `improvement`.
    """
    words = (f"engine.skill={skill}", "engine.improvement=0.9")
    radii = {}
    for name, arm in (
        ("islands", (*ISLANDS, "method.novelty_tries=1")),
        ("best_of_n", ("method=best_of_n", "method.choose=oracle", "method.samples=60")),
    ):
        run = pack_circles(tmp_path / name, *words, *arm, "method.retries=0")
        assert run.json("results.json")["cost"]["total"]["calls"] == 60
        radii[name] = sum_of_radii(run)
    assert (radii["islands"] > radii["best_of_n"] + 0.01) == wins, radii
    assert (radii["islands"] < radii["best_of_n"] - 0.01) != wins, radii
    assert radii["islands"] > 10 / 8 + 0.01  # the seed program's


def test_several_models_are_asked_and_their_costs_are_apart(tmp_path: Path) -> None:
    words = (
        "method.model_cost_weight=0.5",
        *("method=islands", "method.generations=6", "method.model_choice=bandit", "method.novelty_tries=1"),
        *("engine.skill=0.2",),
        *("generator=[{name:api,id:good},policy]", "generator_engine=[{name:simulated,skill:0.9,spread:0},policy]"),
    )
    run = pack_circles(tmp_path, *words)
    cost = run.json("results.json")["cost"]
    asked = [step["extra"] for step in run.records("steps")[1:]]
    assert all(step["model_0_children"] + step["model_1_children"] == 8 for step in asked)
    assert min(cost["generate.0"]["calls"], cost["generate.1"]["calls"]) >= 10
    assert cost["generate.0"]["calls"] + cost["generate.1"]["calls"] == cost["total"]["calls"]
