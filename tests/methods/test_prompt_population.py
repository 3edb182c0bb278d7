"""A population of system prompts: who is drawn, who is rated, and what a child is born with."""

from collections import Counter
from dataclasses import replace
from math import sqrt
from typing import Any

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from evorun.errors import ConfigError
from evorun.methods.espl.population import SELECTIONS, Member, Population, PopulationSettings, tied_ranks
from evorun.methods.espl.system_prompts import SystemPrompt
from evorun.ratings import trueskill

PAPER = PopulationSettings(
    prompts=3,
    window=10,
    selection="best_and_uniform",
    optimism=2.0,
    selection_temperature=1.0,
    mu0=25.0,
    sigma0=25 / 3,
    beta=25 / 6,
    tau=25 / 300,
    draw_probability=0.1,
    tie=0.01,
    ranking="batch_mean",
    drift="by_batch",
    fitness_sharing=False,
    islands=1,
    migration_every=None,
    mutation_sd=1.0,
    mutation_sd_by="sum",
)


def population(children: int = 0, **settings: Any) -> Population:
    """A root and a line of mutants, each of its predecessor."""
    grown = Population([SystemPrompt("root")], replace(PAPER, **settings))
    for step in range(1, children + 1):
        grown.add_mutant(SystemPrompt("root", (f"principle {step}",)), grown.latest, step)
    return grown


def ids(members: list[Member]) -> list[str]:
    return [member.id for member in members]


def draws(grown: Population, count: int = 300) -> list[list[str]]:
    return [ids(grown.select(np.random.default_rng(seed), 1)) for seed in range(count)]


def test_a_root_alone_fills_the_batch():
    for selection in SELECTIONS:
        assert ids(population(selection=selection).select(np.random.default_rng(0), 1)) == ["0.0"] * 3


def test_the_highest_score_is_always_drawn_and_the_others_uniformly():
    grown = population(11)  # the latest has the highest sd, and the same mean
    drawn = draws(grown)
    assert {batch[0] for batch in drawn} == {"11.0"}
    assert all(len(set(batch)) == 3 for batch in drawn)
    others = Counter(name for batch in drawn for name in batch[1:])
    assert set(others) == {f"{step}.0" for step in range(2, 11)}  # the window, without the best
    assert max(others.values()) < 2 * min(others.values())  # each 67 times on average


def test_softmax_draws_by_equation_4():
    grown = population(1, selection="softmax", selection_temperature=2.0, mutation_sd=1.0)
    drawn = Counter(name for batch in draws(grown, 1_000) for name in batch)
    odds = np.exp(2.0 * 1.0 / 2.0)  # lambda times the difference of the sds, over T
    assert drawn["1.0"] / 3_000 == pytest.approx(odds / (1 + odds), abs=0.03)


def test_the_other_selections():
    grown = population(4)
    grown.rate({"3.0": 0.9, "4.0": 0.1, "2.0": 0.5})
    grown.add_mutant(SystemPrompt("root", ("x",)), grown.best, 5)  # as good as 3.0, and less surely so
    grown.add_mutant(SystemPrompt("root", ("y",)), grown.window[4], 6)  # of the one that lost
    by_score = sorted(grown.window, key=lambda one: -(one.rating.mean + 2 * one.rating.sd))
    assert draws(replaced(grown, selection="ucb"), 1) == [ids(by_score)[:3]]
    assert ids(by_score)[:2] == ["5.0", "3.0"]
    assert draws(replaced(grown, selection="champion"), 1) == [["3.0", "6.0", "5.0"]]  # surest, newest, highest score
    uniform = Counter(name for batch in draws(replaced(grown, selection="uniform")) for name in batch)
    assert set(uniform) == set(ids(grown.window))
    assert any(len(set(batch)) < 3 for batch in draws(grown))


def test_a_prompt_is_drawn_with_its_probability_of_being_the_best():
    grown = population(2, selection="probability_of_best")
    grown.rate({"1.0": 0.9, "0.0": 0.5, "2.0": 0.1})
    drawn = draws(grown, 2_000)
    assert all(len(set(batch)) == 3 for batch in drawn)
    skills = np.random.default_rng(1).normal(*zip(*(one.rating for one in grown.window), strict=True), (100_000, 3))
    first = Counter(batch[0] for batch in drawn)
    for index, member in enumerate(grown.window):
        assert first[member.id] / 2_000 == pytest.approx(np.mean(skills.argmax(axis=1) == index), abs=0.03)
    # The second one: the best of two, of what the first leaves
    behind = [batch[1] for batch in drawn if batch[0] == "1.0"]
    expected = np.mean(skills[:, 0] > skills[:, 2])
    assert behind.count("0.0") / len(behind) == pytest.approx(expected, abs=0.04)


def test_islands_take_turns_and_share_the_root_alone_until_their_best_migrate():
    grown = population(8, islands=2, window=3, prompts=2, selection="ucb")
    turns = [{one.id for one in grown.select(np.random.default_rng(0), step)} for step in (1, 2)]
    assert turns[0] < {"3.0", "5.0", "7.0"}
    assert turns[1] < {"4.0", "6.0", "8.0"}
    assert ids(grown.window) == ["3.0", "4.0", "5.0", "6.0", "7.0", "8.0"]
    young = population(2, islands=2)
    assert [sorted(ids(young.select(np.random.default_rng(0), step))[:2]) for step in (1, 2)] == [
        ["0.0", "1.0"],
        ["0.0", "2.0"],
    ]
    grown.rate({"5.0": 0.9, "3.0": 0.1})
    grown.rate({"4.0": 0.9, "8.0": 0.1})
    grown.migrate()  # 5.0 to the island of even steps, 4.0 to the other; the oldest there leaves its window
    assert {one.id for one in grown._window(0)} == {"5.0", "7.0", "4.0"}
    assert {one.id for one in grown._window(1)} == {"6.0", "8.0", "5.0"}
    assert {one.id for one in grown.candidates if one.survivor} == {"4.0", "5.0", "6.0", "7.0", "8.0"}


def test_skills_drift_before_a_batchs_first_ranking_or_after_updates():
    sds = {}
    for name, how in {"batch": {}, "update": {"drift": "by_update"}, "none": {"tau": 0.0}}.items():
        grown = population(11, **{"tau": 3.0, **how})
        before = grown.window[0].rating
        grown.follow_update()
        sds[name, "unranked"] = grown.window[0].rating.sd
        assert before == population(11).window[0].rating
        grown.rate({"2.0": 0.9, "3.0": 0.1})
        sds[name, "ranked"] = grown.window[0].rating.sd
        grown.rate({"2.0": 0.9, "3.0": 0.1}, first_of_batch=False)
        sds[name, "again"] = grown.window[0].rating.sd
    assert sds["update", "unranked"] == pytest.approx(sqrt(before.sd**2 + 9))
    assert sds["batch", "unranked"] == sds["none", "unranked"] == before.sd
    for moment in ("ranked", "again"):  # after the drift, a ranking tells as much, wherever the drift came from
        assert sds["update", moment] == pytest.approx(sds["batch", moment]) != pytest.approx(sds["none", moment])


def replaced(grown: Population, **settings: Any) -> Population:
    grown._settings = replace(grown._settings, **settings)
    return grown


def test_the_same_stream_draws_the_same():
    for selection in SELECTIONS:
        grown = population(8, selection=selection)
        assert draws(grown, 5) == draws(grown, 5)


def test_a_batch_is_ranked_once_with_ties():
    grown, parameters = population(3), {"beta": 25 / 6, "tau": 25 / 300, "draw_probability": 0.1}
    before = {member.id: member.rating for member in grown.window}
    grown.rate({"1.0": 0.2, "3.0": 0.505, "2.0": 0.51})
    names = ["2.0", "3.0", "1.0"]  # by value, which ties leave as it is
    expected = trueskill.rate(
        [before[name].mean for name in names], [before[name].sd for name in names], [0, 0, 1], **parameters
    )
    after = {member.id: member.rating for member in grown.window}
    assert [after[name] for name in names] == [*zip(*(one.tolist() for one in expected), strict=True)]
    assert after["0.0"] == before["0.0"]
    assert [one.mean for one in grown.candidates] == [one.mean for one in after.values()]


def test_one_alone_is_not_ranked():
    grown = population()
    grown.rate({"0.0": 1.0})
    assert grown.best.rating == (25, 25 / 3)
    grown.rate({})


@pytest.mark.parametrize(
    ("values", "ranks"),
    [
        ([0.9, 0.5, 0.1], [0, 1, 2]),
        ([0.5, 0.49, 0.47], [0, 0, 1]),
        ([0.3 + 0.01, 0.3], [0, 0]),  # a difference of 0.010000000000000009
        ([0.52, 0.515, 0.51, 0.505], [0, 0, 0, 0]),  # a chain
        ([0.5, 0.48999], [0, 1]),
    ],
)
def test_neighbours_within_the_tie_share_a_rank(values, ranks):
    assert tied_ranks(values, 0.01) == ranks


@given(st.lists(st.floats(0, 1), min_size=1))
def test_ranks_are_dense_and_follow_the_values(values):
    values = sorted(values, reverse=True)
    ranks = tied_ranks(values, 0.01)
    assert sorted(set(ranks)) == list(range(max(ranks) + 1))
    assert ranks == sorted(ranks)
    assert tied_ranks(values, 1.0) == [0] * len(values)


def test_a_mutant_has_its_parents_mean_and_is_less_sure_of_it():
    for how, sd in (("sum", 25 / 3 + 2), ("root_of_squares", sqrt((25 / 3) ** 2 + 4))):
        child = population(1, mutation_sd=2.0, mutation_sd_by=how).latest
        assert child.rating == pytest.approx((25, sd))


def test_a_crossover_weighs_its_parents_by_precision():
    grown = population(1, mutation_sd=3.0)
    grown.rate({"1.0": 0.2, "0.0": 0.8})
    parents = grown.window
    child = grown.add_crossover(SystemPrompt("root", ("joined",)), parents, 1, call="key", reflection="why")
    precisions = np.array([1 / one.rating.sd**2 for one in parents])
    assert child.rating.mean == pytest.approx(np.average([one.rating.mean for one in parents], weights=precisions))
    assert child.rating.sd == pytest.approx(sqrt(1 / precisions.sum() + 9))
    assert (child.id, child.candidate.parents, child.candidate.operator) == ("1.1", ("0.0", "1.0"), "crossover")
    assert (child.candidate.call, child.candidate.reflection) == ("key", "why")


def test_a_child_is_born_of_its_parents_present_rating():
    grown = population()
    drawn = grown.select(np.random.default_rng(0), 1)  # before the rating
    grown.add_mutant(SystemPrompt("root", ("x",)), drawn[0], 1)
    grown.rate({"0.0": 0.1, "1.0": 0.9})
    child = grown.add_mutant(SystemPrompt("root", ("y",)), drawn[0], 2)
    assert child.rating.mean == grown.window[0].rating.mean < 25


def test_candidates_are_the_tree_and_mark_the_window():
    grown = population(3, window=2)
    candidates = grown.candidates
    assert [one.id for one in candidates] == ["0.0", "1.0", "2.0", "3.0"]
    assert [one.parents for one in candidates] == [(), ("0.0",), ("1.0",), ("2.0",)]
    assert [one.survivor for one in candidates] == [False, False, True, True]
    assert [one.operator for one in candidates] == ["root", "mutation", "mutation", "mutation"]
    assert candidates[2].text == SystemPrompt("root", ("principle 2",)).text
    assert {one.kind for one in candidates} == {"system_prompt"}
    assert {name for batch in draws(grown) for name in batch} == {"2.0", "3.0"}


def test_the_best_is_the_surest_of_the_highest_means_in_the_window():
    grown = population(2)
    assert grown.best.id == "0.0"  # all have one mean
    grown.rate({"2.0": 0.9, "1.0": 0.1})
    assert grown.best.id == "2.0"
    assert population(20).best.id == "11.0"  # the root has left the window


@pytest.mark.parametrize(
    ("setting", "message"),
    [
        ({"selection": "elite"}, "method.selection: expected one of best_and_uniform, .*, got 'elite'"),
        ({"draw_probability": 0.0}, "method.draw_probability: expected a number in .0, 0.999."),
        ({"mutation_sd": -1.0}, "method.mutation_sd: expected a number >= 0"),
        ({"prompts": 0}, "method.prompts: expected a number >= 1"),
        ({"ranking": "best"}, "method.ranking: expected one of batch_mean, by_problem, random"),
        ({"drift": "never"}, "method.drift: expected one of by_batch, by_update"),
        ({"fitness_sharing": True, "ranking": "by_problem"}, "method.fitness_sharing: has no effect"),
        ({"islands": 0}, "method.islands: expected a number >= 1"),
        ({"migration_every": 5}, "method.migration_every: expected null with one island"),
        ({"mutation_sd_by": "max"}, "method.mutation_sd_by: expected one of root_of_squares, sum"),
    ],
)
def test_settings_out_of_range_are_refused(setting, message):
    with pytest.raises(ConfigError, match=message):
        replace(PAPER, **setting)
