"""Diversity of system prompts by their texts and by their scores, and fitness that is shared among equals."""

import numpy as np
import pytest

from evorun.methods.espl.population import genotypic_diversity, phenotypic_diversity, shared_fitness
from evorun.methods.espl.system_prompts import SystemPrompt


def test_a_problem_is_worth_more_to_those_who_solve_it_alone() -> None:
    # The first two solve the same two problems; the third solves one that no other does, and is worse on average.
    scores = np.array([[1.0, 1.0, 0.0, 0.0], [1.0, 1.0, 0.0, 0.0], [0.0, 0.0, 0.8, 0.0]])
    assert shared_fitness(scores).tolist() == [0.25, 0.25, 0.25]
    assert shared_fitness(scores[:, [0, 2, 3]]).tolist() == pytest.approx([1 / 6, 1 / 6, 1 / 3])
    rng = np.random.default_rng(0)
    drawn = rng.random((4, 5))
    expected = [np.mean([drawn[i, b] / sum(drawn[j, b] for j in range(4)) for b in range(5)]) for i in range(4)]
    assert shared_fitness(drawn) == pytest.approx(expected)


def test_what_nobody_solves_is_worth_nothing_and_penalties_do_not_turn_the_order_round() -> None:
    assert shared_fitness(np.zeros((2, 3))).tolist() == [0.0, 0.0]
    worse, better = shared_fitness(np.array([[-1.0, -0.5], [-0.5, 0.0]]))
    assert 0 == worse < better


def test_genotypes_differ_by_the_principles_that_two_do_not_share() -> None:
    known = [SystemPrompt("x", ("a", "b")), SystemPrompt("x", ("b", "a")), SystemPrompt("x", ("a", "c", "d"))]
    assert genotypic_diversity(known[:2]) == 0  # the same set
    assert genotypic_diversity(known) == pytest.approx((0 + 3 / 4 + 3 / 4) / 3)
    assert genotypic_diversity([SystemPrompt("x"), SystemPrompt("y")]) == 0
    assert genotypic_diversity(known[:1]) is None


def test_phenotypes_differ_by_the_scores_on_each_problem() -> None:
    assert phenotypic_diversity(np.array([[1.0, 0.0], [0.0, 1.0], [1.0, 0.0]])) == pytest.approx(2 / 3)
    assert phenotypic_diversity(np.array([[1.0, 0.0]])) is None
