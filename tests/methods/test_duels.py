from collections import Counter
from itertools import combinations, pairwise, product

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from msgspec.structs import replace

from building import make_context, make_method
from evorun.methods.duels.arena import Arena
from evorun.methods.duels.duel_evolve import select_parents
from evorun.methods.duels.duels import OUTCOMES, judge_pairs, select_duels
from evorun.models.base import Sampling
from evorun.runs.candidates import Candidate, Comparison, Response, Verdict
from evorun.tasks.capabilities import Explanation
from method_fixture import Ask, Quiz, Scripted, problem, solve


def candidate(number: int, generation: int = 0) -> Candidate:
    response = Response(text=str(number), answer="A")
    return Candidate.from_response(response, id=str(number), generation=generation, operator="init")


def arena_of(means: list[float], sds: list[float] | None = None, generations: list[int] | None = None) -> Arena:
    """Candidates that judges have seen, with this belief in them."""
    arena = Arena(1.0)
    arena.add([candidate(i, (generations or [0] * len(means))[i]) for i in range(len(means))])
    arena.update([tied(i, (i + 1) % len(means)) for i in range(len(means))])
    arena.mean = np.array(means)
    arena.sd = np.array(sds or [0.1] * len(means))
    return arena


def won(winner: int, loser: int) -> Comparison:
    return Comparison(first=str(winner), second=str(loser), verdicts=("A", "B"), outcome="first", reasons=("x", "y"))


def tied(one: int, other: int, verdicts: tuple[Verdict, ...] = ("T", "A")) -> Comparison:
    return Comparison(first=str(one), second=str(other), verdicts=verdicts, outcome=None, reasons=("x", "y"))


def test_only_concordant_verdicts_decide() -> None:
    # appendix A.1: d = 1 iff (A, B) or (B, A); a judge that always says A prefers nobody
    verdicts: tuple[Verdict, ...] = ("A", "B", "T", "invalid")
    decided = {pair: OUTCOMES[pair] for pair in product(verdicts, repeat=2) if pair in OUTCOMES}
    assert decided == {("A", "B"): "first", ("B", "A"): "second"}


def test_indecisive_duels_leave_the_posterior_as_it_was() -> None:
    arena = arena_of([0.0, 0.0, 0.0], [1.0, 1.0, 1.0])
    arena.update([won(0, 1)])
    before = arena.mean.copy(), arena.sd.copy()
    arena.update([tied(0, 1)])
    np.testing.assert_allclose(arena.mean, before[0], atol=1e-8)
    np.testing.assert_allclose(arena.sd, before[1], atol=1e-8)


def test_the_posterior_uses_the_whole_history() -> None:
    step_by_step, at_once = arena_of([0.0] * 4, [1.0] * 4), arena_of([0.0] * 4, [1.0] * 4)
    duels = [won(0, 1), won(2, 1), won(0, 3), won(3, 2), won(0, 1)]
    for duel in duels:
        step_by_step.update([duel])
    at_once.update(duels)
    np.testing.assert_allclose(step_by_step.mean, at_once.mean, atol=1e-6)
    assert at_once.best() == 0


def test_rated_candidates_are_a_sequence_with_the_belief_of_their_moment() -> None:
    arena = arena_of([0.5, -0.25, 1.0], [0.1, 0.2, 0.3])
    unread = candidate(9)
    arena.note_lost([unread])
    rated = arena.rated(np.array([0, 2]))
    arena.add([candidate(3)])
    arena.update([won(1, 0)])
    arena.keep(np.array([0]))
    assert [(one.id, one.mean, one.sd, one.survivor) for one in rated] == [
        *[("0", 0.5, 0.1, True), ("1", -0.25, 0.2, False), ("2", 1.0, 0.3, True)],
        ("9", None, None, False),
    ]
    assert (rated[-1], rated[1:3], len(rated)) == (unread, [rated[1], rated[2]], 4)
    with pytest.raises(IndexError):
        rated[4]


def test_who_left_the_pool_comes_back_with_what_judges_said() -> None:
    arena, never_left = arena_of([0.0] * 4), arena_of([0.0] * 4)
    for one in (arena, never_left):
        one.update([won(0, 1), won(2, 1)])
    arena.keep(np.array([3]))
    assert arena.scored(1).loss == Explanation(reason="y", letter="A")  # it was shown as A in the second order
    assert (arena.candidates[2], len(arena.candidates)) == (candidate(2), 4)
    for one in (arena, never_left):
        one.update([won(1, 2)])
    arena.keep(np.array([], dtype=int))
    assert [arena.scored(i) for i in range(4)] == [never_left.scored(i) for i in range(4)]


def test_a_win_as_second_counts_for_the_second() -> None:
    arena = arena_of([0.0, 0.0], [1.0, 1.0])
    arena.update([Comparison(first="0", second="1", verdicts=("B", "A"), outcome="second", reasons=("", ""))])
    assert arena.mean[1] > 0 > arena.mean[0]


@given(
    means=st.lists(st.floats(-3, 3), min_size=1, max_size=12),
    newcomers=st.integers(0, 8),
    width=st.floats(0, 3),
    limit=st.integers(2, 12),
    rank=st.sampled_from(["mean", "upper", "lower"]),
    data=st.data(),
)
def test_survivors_by_definition(
    means: list[float], newcomers: int, width: float, limit: int, rank: str, data: st.DataObject
) -> None:
    sds = data.draw(st.lists(st.floats(0.01, 1), min_size=len(means), max_size=len(means)))
    arena = arena_of(means, sds)
    arena.add([candidate(len(means) + i) for i in range(newcomers)])
    waiting = arena.waiting
    assert waiting == list(range(len(means), len(means) + newcomers))
    due = waiting[: data.draw(st.integers(0, limit - 1))]
    mean, sd = arena.mean, arena.sd
    # nobody is pruned whom no judge has seen
    spared = {i for i in range(len(arena)) if mean[i] + width * sd[i] >= max(mean - width * sd)} | set(waiting)
    found = arena.survivors(width, limit, rank, due)
    survivors = found.indices.tolist()
    assert set(due) <= set(survivors) <= spared
    assert survivors == sorted(survivors)
    assert len(survivors) == min(len(spared), limit)
    assert (found.pruned, found.capped) == (len(arena) - len(spared), len(spared) - len(survivors))
    # whom the limit cut is worth no more than anyone that stayed and was not due
    worth = {"mean": mean, "upper": mean + width * sd, "lower": mean - width * sd}[rank]
    ranked = [worth[i] for i in survivors if i not in due]
    assert all(worth[cut] <= min(ranked, default=np.inf) for cut in spared - set(survivors))


@pytest.mark.parametrize("verdicts", [("T", "A"), ("A", "A"), ("B", "B"), ("T", "T"), ("T",)])
def test_a_tie_may_count_as_half_a_win_of_each(verdicts: tuple[Verdict, ...]) -> None:
    """Against a proven winner a tie is good news for the other one; two ties are a win of each."""
    arena, wins = Arena(1.0, half_wins=True), Arena(1.0)
    for one in (arena, wins):
        one.add([candidate(i) for i in range(3)])
        one.update([won(0, 1), won(0, 1)])
    assert arena.mean.tolist() == wins.mean.tolist()
    arena.update([tied(0, 2, verdicts), tied(2, 0, verdicts)])
    assert arena.mean[2] > 0.1
    wins.update([won(0, 2), won(2, 0)])
    np.testing.assert_allclose(arena.mean, wins.mean, atol=1e-8)
    np.testing.assert_allclose(arena.sd, wins.sd, atol=1e-8)
    # nobody won: there is nothing to tell of
    assert (arena.scored(2).win.reason, arena.scored(2).loss.reason) == ("", "")


def test_a_duel_that_a_judge_did_not_decide_readably_is_no_tie() -> None:
    arena = Arena(1.0, half_wins=True)
    arena.add([candidate(i) for i in range(2)])
    arena.update([tied(0, 1, ("A", "invalid")), tied(0, 1, ("invalid",))])
    assert arena.sd.tolist() == [1, 1]


def test_the_rating_may_be_the_win_rate_or_elo() -> None:
    """0 has beaten the weak 1 three times; 3 the strong 2, once. Only the posterior sees whom they met."""
    history = [won(0, 1), tied(4, 5), won(0, 1), won(0, 1), *[won(2, 1)] * 6, won(3, 2)]
    by = {rating: Arena(1.0, rating=rating, half_wins=True) for rating in ("posterior", "win_rate", "elo")}
    for arena in by.values():
        arena.add([candidate(i) for i in range(6)])
        for duel in history:
            arena.update([duel])
    posterior, rate, elo = by.values()
    # Beta(2, 2): the logit of its rate has a standard deviation of about 1, that of the prior
    assert rate.mean == pytest.approx(np.log([5 / 2, 2 / 11, 8 / 3, 3 / 2, 1, 1]))
    order = {rating: np.argsort(-arena.mean).tolist() for rating, arena in by.items()}
    assert order["win_rate"] == [2, 0, 3, 4, 5, 1]
    assert order["posterior"].index(3) < order["posterior"].index(0)
    games = np.zeros(6)
    for winner, loser, score in ((int(d.first), int(d.second), 1 if d.outcome else 0.5) for d in history):
        gain = 0.7 * (score - 1 / (1 + np.exp(games[loser] - games[winner])))
        games[[winner, loser]] += gain, -gain
    assert elo.mean == pytest.approx(games)
    for arena in (rate, elo):
        assert arena.best() == int(np.argmax(arena.mean))
        np.testing.assert_allclose(arena.sd, posterior.sd, atol=1e-8)


@given(size=st.integers(0, 9), count=st.integers(0, 40), newcomers=st.sets(st.integers(0, 8)), seed=st.integers(0, 99))
def test_duels_are_different_pairs_of_survivors_and_place_newcomers(
    size: int, count: int, newcomers: set[int], seed: int
) -> None:
    arena = arena_of([0.1 * i for i in range(9)])
    survivors = np.arange(9)[9 - size :] if size else np.zeros(0, dtype=np.intp)
    pairs = select_duels(arena, survivors, sorted(newcomers), count, np.random.default_rng(seed))
    assert len({frozenset(pair) for pair in pairs}) == len(pairs) == min(count, size * (size - 1) // 2)
    assert all(i != j and {i, j} <= set(survivors.tolist()) for i, j in pairs)
    present = [i for i in sorted(newcomers) if i in survivors]
    if size >= 2:
        # each of the first newcomers is in its own duel, or had all its pairs taken already
        covered = {i for pair in pairs for i in pair}
        assert set(present[: len(pairs)]) <= covered


def test_double_thompson_sampling_follows_the_maximiser_probabilities() -> None:
    """One duel: the two sides are independent draws from p* given that they differ (section 2.2)."""
    arena = arena_of([0.0, 0.5, 1.0], [1.0, 0.5, 0.8])
    rng = np.random.default_rng(0)
    draws = rng.normal(arena.mean, arena.sd, size=(200_000, 3))
    p = np.bincount(np.argmax(draws, axis=1), minlength=3) / len(draws)
    # the second side: the best of its draw among the others, so P(second = j | first = i) = P(j beats k)
    beats = {(j, k): float(np.mean(draws[:, j] > draws[:, k])) for j in range(3) for k in range(3) if j != k}
    expected = {
        frozenset((i, j)): p[i] * beats[j, 3 - i - j] + p[j] * beats[i, 3 - i - j] for i, j in combinations(range(3), 2)
    }
    trials = 6_000
    survivors = np.arange(3)
    found = Counter(frozenset(select_duels(arena, survivors, [], 1, rng)[0]) for _ in range(trials))
    for pair, probability in expected.items():
        assert found[pair] / trials == pytest.approx(probability, abs=0.025)


def test_uniform_duels_prefer_nobody_but_newcomers() -> None:
    arena = arena_of([0.0, 0.5, 9.0, -9.0], [0.1] * 4)
    rng = np.random.default_rng(0)
    found = Counter(frozenset(select_duels(arena, np.arange(4), [], 1, rng, choice="uniform")[0]) for _ in range(3_000))
    assert len(found) == 6
    assert all(count == pytest.approx(500, abs=90) for count in found.values())
    assert all(3 in select_duels(arena, np.arange(4), [3], 1, rng, choice="uniform")[0] for _ in range(20))


def test_uniform_parents_prefer_nobody() -> None:
    arena = arena_of([3.0, 0.0, -3.0, 0.0], [0.1, 0.1, 0.1, 0.9], [0, 0, 0, 1])
    rng, survivors = np.random.default_rng(0), np.array([0, 1, 2, 3])
    found = [select_parents(arena, survivors, 2, 0.5, rng, choice="uniform") for _ in range(1_200)]
    assert all(count == pytest.approx(600, abs=90) for count in Counter(i for pair in found for i in pair).values())
    assert all(arena.mean[a] >= arena.mean[b] for a, b in found)
    assert sorted(select_parents(arena, survivors, 9, 0.5, rng, choice="uniform")) == [0, 1, 2, 3]


def test_who_is_shown_first_is_random() -> None:
    arena = arena_of([0.0, 5.0])
    rng = np.random.default_rng(0)
    firsts = Counter(select_duels(arena, np.arange(2), [], 1, rng)[0][0] for _ in range(400))
    assert 150 < firsts[0] < 250


def test_parents_mix_recent_uncertain_arrivals_with_thompson_winners() -> None:
    #                 old and good              latest generation, of growing uncertainty
    arena = arena_of([3.0, 2.9, 2.8, 2.7, -4.0, -4.0, -4.0], [0.01] * 4 + [0.1, 0.2, 0.3], [0, 0, 0, 0, 1, 1, 1])
    parents = select_parents(arena, np.arange(7), 6, 0.34, np.random.default_rng(0))
    assert parents == [0, 1, 2, 3, *sorted(parents[4:], key=lambda i: -arena.mean[i])]
    assert set(parents[4:]) == {5, 6}
    assert select_parents(arena, np.arange(7), 6, 0.0, np.random.default_rng(0))[:4] == [0, 1, 2, 3]
    assert set(select_parents(arena, np.arange(7), 3, 1.0, np.random.default_rng(0))) == {4, 5, 6}
    assert len(select_parents(arena, np.array([1, 5]), 6, 0.34, np.random.default_rng(0))) == 2


async def test_newcomers_duel_though_narrow_bounds_would_rule_the_prior_out() -> None:
    """Section 2.3.3: new arrivals are always evaluated."""

    def one_is_best(ask: Ask) -> str:
        if ask.role == "generate":
            return "best" if (ask.step, ask.index) == (0, 0) else f"{ask.step}.{ask.index}"
        return "A" if ask.shown["a"]["answer"] == "best" else "B" if ask.shown["b"]["answer"] == "best" else "T"

    sizes = {"generations": 4, "initial_candidates": 8, "children": 30, "duels": 60}
    steps = await solve(make_method("duel_evolve", **sizes, bound_width=0.3, prior_sd=1.0), Scripted(one_is_best))
    ruled_out = 0
    for before, step in pairwise(steps):
        lowest = max(r.mean - 0.3 * r.sd for r in before.candidates if r.mean is not None and r.sd is not None)
        ruled_out += lowest > 0.3 * 1.0
        dueled = {side for duel in step.comparisons for side in (duel.first, duel.second)}
        born = {r.id for r in step.candidates if r.generation == step.step}
        assert len(born) == 30
        assert born <= dueled
    assert ruled_out > 0


def test_an_explanation_comes_with_the_letter_that_the_candidate_had_in_it() -> None:
    arena = arena_of([0.0] * 3)
    twice = Comparison(first="0", second="1", verdicts=("A", "B"), outcome="first", reasons=("A is 0", "B is 0"))
    once = Comparison(first="0", second="2", verdicts=("B",), outcome="second", reasons=("B is 2",))
    arena.update([twice, once])
    assert arena.scored(0).win == Explanation(reason="A is 0", letter="A")
    assert arena.scored(1).loss == Explanation(reason="B is 0", letter="A")
    assert arena.scored(0).loss == Explanation(reason="B is 2", letter="A")
    assert arena.scored(2).win == Explanation(reason="B is 2", letter="B")
    assert arena.scored(2).loss == arena.scored(1).win == Explanation()


async def test_a_knock_out_tournament_is_judged_in_rounds_of_one_step() -> None:
    """The judge prefers the later letter; each call of the step has a key of its own."""

    def judge(ask: Ask) -> str:
        return "A" if ask.shown["a"]["answer"] > ask.shown["b"]["answer"] else "B"

    model = Scripted(judge)
    context = make_context(Quiz(), problem(0), model)
    players = [replace(candidate(number), answer=letter) for number, letter in enumerate("ADBC")]
    while len(players) > 1:
        pairs = [(first, first + 1) for first in range(0, len(players), 2)]
        sampling = Sampling(temperature=0.0, max_tokens=8)
        comparisons = await judge_pairs(context, players, pairs, orders=2, step=1, sampling=sampling)
        winners = {duel.first if duel.outcome == "first" else duel.second for duel in comparisons}
        players = [player for player in players if player.id in winners]
    assert [player.answer for player in players] == ["D"]
    assert sorted(ask.index for ask in model.asked) == list(range(6))
    pairs = [(0, 1)] * 60  # the same pair again and again
    for orders in (2, 1):
        await judge_pairs(context, [candidate(0), candidate(1)], pairs, orders=orders, step=1, sampling=sampling)
    assert sorted(ask.index for ask in model.asked) == list(range(6 + 3 * 60))
