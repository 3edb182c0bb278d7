"""Policies of the tree search: beliefs by integration, backups by the tree's own sets, and treequest's choices."""

from collections import Counter
from collections.abc import Callable
from itertools import count, pairwise
from typing import Any

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from scipy import integrate, stats

from evorun.methods.tree.beliefs import Beta, Gaussian, GaussianPrior
from evorun.methods.tree.policies import (
    AdaptiveBranching,
    BestFirst,
    BreadthFirst,
    Expansion,
    ModelChoice,
    Node,
    Policy,
    Ucb,
    upper_confidence_bound,
)

PRIORS = [GaussianPrior(), GaussianPrior(0.4, 2.0, 0.3, 5.0)]
SCORES = [0.2, 0.9, 0.9, 0.4]


@pytest.mark.parametrize("prior", PRIORS)
def test_a_gaussian_belief_is_the_posterior_by_integration(prior: GaussianPrior) -> None:
    """Prior times likelihood on a grid of means and variances, against draws and their Student's t distribution."""
    belief = Gaussian(prior)
    for score in SCORES:
        belief.add(score)
    means, variances = np.linspace(-4, 5, 601), np.geomspace(1e-3, 1e3, 401)
    mean, variance = np.meshgrid(means, variances, indexing="ij")
    weight, nu = prior.mean_weight, prior.variance_weight
    density = stats.invgamma.logpdf(variance, nu / 2, scale=nu * prior.variance / 2)
    density += stats.norm.logpdf(mean, prior.mean, np.sqrt(variance / weight))
    density += sum(stats.norm.logpdf(score, mean, np.sqrt(variance)) for score in SCORES)
    marginal = np.trapezoid(np.exp(density), variances, axis=1)
    cumulative = integrate.cumulative_trapezoid(marginal, means, initial=0)
    now = belief.posterior
    exact = stats.t(now.variance_weight, now.mean, np.sqrt(now.variance / now.mean_weight))
    assert exact.cdf(means) == pytest.approx(cumulative / cumulative[-1], abs=0.002)
    rng = np.random.default_rng(0)
    assert stats.kstest([belief.draw(rng) for _ in range(4000)], exact.cdf).pvalue > 0.01


def test_a_beta_belief_is_the_conjugate_posterior() -> None:
    belief, rng = Beta(0.5), np.random.default_rng(0)
    for score in (1.0, 0.0, 1.0, 0.25):
        belief.add(score)
    assert stats.kstest([belief.draw(rng) for _ in range(4000)], stats.beta(2.75, 2.25).cdf).pvalue > 0.01


class Seen:
    """A belief that keeps its scores and draws their mean under the Gaussian prior: no chance at all."""

    def __init__(self) -> None:
        self.scores: list[float] = []

    def add(self, score: float) -> None:
        self.scores.append(score)

    def draw(self, rng: np.random.Generator | None = None) -> float:
        return sum(self.scores) / (1 + len(self.scores))


def rngs(index: int) -> np.random.Generator:
    return np.random.default_rng(index)


def grow_by(policy: Policy, expansion: Expansion, score: float) -> Node:
    """Attach the child of an expansion to the tree, with its score."""
    child = Node(expansion.node, score, expansion.model)
    expansion.node.children.append(child)
    policy.add(child)
    return child


def grow(policy: Policy, score: Callable[[int, Expansion], float], nodes: int, batch: int = 1) -> list[Node]:
    """Let a policy grow a tree, whose n-th node has the score `score(n, expansion)`; return the nodes in order."""
    grown: list[Node] = []
    while len(grown) < nodes:
        for expansion in policy.choose(min(batch, nodes - len(grown)), rngs):
            grown.append(grow_by(policy, expansion, score(len(grown), expansion)))
    return grown


def below(node: Node) -> list[Node]:
    """Return all nodes below a node."""
    return [found for child in node.children for found in (child, *below(child))]


@given(scores=st.lists(st.floats(0, 1), min_size=2, max_size=40), batch=st.integers(1, 5))
def test_each_belief_of_a_node_has_the_scores_of_its_part_of_the_tree(scores: list[float], batch: int) -> None:
    root = Node()
    policy = AdaptiveBranching(root, ModelChoice(1, "thompson", Seen), Seen)
    grown = grow(policy, lambda number, _: scores[number], len(scores), batch)
    for node in (root, *grown):
        arms: Any = policy._arms[node]
        assert sorted(arms.generate.scores) == sorted(child.score for child in node.children)
        assert sorted(arms.go_on.scores) == sorted(found.score for child in node.children for found in below(child))
        own = [] if node is root else [node.score, *(found.score for found in below(node))]
        assert sorted(arms.own.scores) == sorted(own)
    # In a batch nothing is known of the others.
    assert len(root.children) >= min(batch, len(scores))


def test_draws_of_a_descent_follow_the_random_stream() -> None:
    def tree(seed: int) -> list[int]:
        root = Node()
        policy = AdaptiveBranching(
            root, ModelChoice(2, "thompson", lambda: Beta(0.5)), lambda: Gaussian(GaussianPrior())
        )
        streams = count(seed)
        grown: list[Node] = []
        for _ in range(30):
            (expansion,) = policy.choose(1, lambda _: np.random.default_rng(next(streams)))
            grown.append(grow_by(policy, expansion, 0.3 + 0.2 * expansion.model))
        return [node.depth * 2 + node.model for node in grown]

    assert tree(0) == tree(0) != tree(1000)


@given(st.lists(st.lists(st.floats(0, 1), min_size=1, max_size=9), min_size=1, max_size=5))
def test_the_upper_confidence_bound_by_its_formula(scores: list[list[float]]) -> None:
    total = sum(len(own) for own in scores)
    bounds = [np.mean(own) + np.sqrt(2) * np.sqrt(np.log(total) / len(own)) for own in scores]
    assert bounds[upper_confidence_bound(scores)] == pytest.approx(max(bounds), abs=1e-12)
    assert upper_confidence_bound([*scores, []]) == len(scores)


@pytest.mark.parametrize("rule", ["thompson", "ucb"])
def test_models_are_chosen_by_their_scores_in_the_whole_tree(rule: str) -> None:
    rng = np.random.default_rng(1)
    policy = AdaptiveBranching(Node(), ModelChoice(3, rule, lambda: Beta(0.5)), lambda: Beta(0.5))
    for _ in range(150):
        (expansion,) = policy.choose(1, lambda _: rng)
        grow_by(policy, expansion, (0.1, 0.8, 0.3)[expansion.model])
    used = Counter(node.model for node in policy._arms) - Counter([0])  # less the root
    assert used.total() == 150
    assert len(used) == 3
    assert used[1] > max(used[0], used[2])


def spread(number: int, expansion: Expansion) -> float:
    """A score that no two nodes share, and that favours no depth."""
    return (number * 0.618034 + 0.1 * expansion.model) % 1


def test_best_first_expands_the_best_leaf_and_breadth_first_a_level() -> None:
    grown = grow(BestFirst(root := Node(), 1, 2), spread, 12)
    assert root.children == grown[:2]
    for first in range(2, 12, 2):
        leaves = [node for node in grown[:first] if not any(other.parent is node for other in grown[:first])]
        assert {grown[first].parent, grown[first + 1].parent} == {max(leaves, key=lambda node: node.score)}
    grown = grow(BreadthFirst(root := Node(), 2, 3, 5), spread, 4 + 3 * 4 * 2, batch=5)
    levels = [[node for node in grown if node.depth == depth] for depth in (1, 2, 3)]
    assert [len(level) for level in levels] == [4, 12, 12]
    for level, following in pairwise(levels):
        best = sorted(level, key=lambda node: -node.score)[:3]
        assert {node.parent for node in following} == set(best)


@pytest.mark.parametrize("models", [1, 2])
@pytest.mark.parametrize("name", ["ABMCTSA", "MultiArmedBanditUCBAlgo", "BestFirstSearchAlgo"])
def test_treequest_grows_the_same_tree(monkeypatch: pytest.MonkeyPatch, name: str, models: int) -> None:
    """With draws replaced by means, so that both choose without chance."""
    pytest.importorskip("treequest")
    from treequest.algos.ab_mcts_a import algo, prob_state
    from treequest.algos.best_first_search import BestFirstSearchAlgo
    from treequest.algos.multi_armed_bandit_ucb import MultiArmedBanditUCBAlgo

    def mean(belief: Any) -> float:
        return sum(belief.all_obs) / (1 + len(belief.all_obs))

    monkeypatch.setattr(prob_state.ProbabilisticDist, "draw_sample", mean)
    algorithm: Any = {each.__name__: each for each in (algo.ABMCTSA, MultiArmedBanditUCBAlgo, BestFirstSearchAlgo)}[
        name
    ]()
    root = Node()
    policy: Policy = {
        "ABMCTSA": AdaptiveBranching(root, ModelChoice(models, "thompson", Seen), Seen),
        "MultiArmedBanditUCBAlgo": Ucb(root, models),
        "BestFirstSearchAlgo": BestFirst(root, models, 2),
    }[name]
    asked = count()

    def make_reply(model: int) -> Callable[[Any], tuple[int, float]]:
        def reply(parent: Any) -> tuple[int, float]:
            number = next(asked)
            return number, spread(number, Expansion(root, model))

        return reply

    replies = {f"m{model}": make_reply(model) for model in range(models)}
    state = algorithm.init_tree()
    for _ in range(60):
        state = algorithm.step(state, replies, inplace=True)
    theirs = {node.state: node.parent.state for node in state.tree.get_nodes() if node.parent is not None}
    grown = grow(policy, spread, 60)
    places: dict[Node | None, int] = {node: number for number, node in enumerate(grown)}
    assert {places[node]: places.get(node.parent) for node in grown} == theirs
