"""Self-consistency: a majority vote, its ties drawn by the problem's own stream."""

from collections import Counter

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from building import make_meter, make_method
from evorun.methods.search.chain_of_thought import SelfConsistency, majority
from evorun.runner.registry import task_config_class
from evorun.runs.budget import Meter
from method_fixture import TOKENS, Ask, Scripted, solve


def says(*texts: str) -> Scripted:
    """Return a model that says the texts by index."""
    return Scripted(lambda ask: texts[ask.index])


def vote(samples: int | None, **config: int) -> SelfConsistency:
    return make_method("self_consistency", samples=samples, **{"retries": 0, **config})


@given(ballots=st.lists(st.sampled_from("abcde"), max_size=12), seed=st.integers(0, 1000))
def test_majority_by_brute_force(ballots: list[str], seed: int) -> None:
    chosen = majority(ballots, np.random.default_rng(seed))
    if not ballots:
        assert chosen is None
        return
    assert chosen is not None
    counts = [ballots.count(answer) for answer in ballots]
    assert counts[chosen] == max(counts)
    assert ballots[chosen] not in ballots[:chosen]
    assert majority(ballots, np.random.default_rng(seed)) == chosen


def test_every_leader_of_a_tie_is_as_likely() -> None:
    ballots = ["a", "b", "c", "b", "a", "c", "d"]
    chosen = Counter(ballots[majority(ballots, np.random.default_rng(seed)) or 0] for seed in range(3000))
    assert set(chosen) == {"a", "b", "c"}
    assert all(900 < count < 1100 for count in chosen.values())


async def test_the_vote_is_on_signatures_and_its_share_is_the_belief() -> None:
    (step,) = await solve(vote(5), says("x", "Yes", "YES", "y", "yes;a note"))
    assert step.best is not None
    assert step.best.answer == "Yes"
    assert [rated.mean for rated in step.candidates] == [0.2, 0.6, 0.6, 0.2, 0.6]
    assert step.extra["distinct_answers"] == 3


async def test_ties_depend_on_seed_and_problem_only() -> None:
    async def winner(seed: int, number: int) -> str:
        (step,) = await solve(vote(4), says("a", "b", "b", "a"), seed=seed, number=number)
        assert step.best is not None
        return str(step.best.answer)

    by_seed = [await winner(seed, 0) for seed in range(20)]
    assert by_seed == [await winner(seed, 0) for seed in range(20)]
    assert set(by_seed) == {"a", "b"}
    assert {await winner(0, number) for number in range(20)} == {"a", "b"}


async def test_texts_that_do_not_parse_have_no_vote() -> None:
    (step,) = await solve(vote(5), says("?", "b", "?", "?", "b"))
    assert step.best is not None
    assert step.best.answer == "b"
    assert step.best.mean == 1.0
    assert sorted(rated.id for rated in step.candidates if rated.mean is None) == ["0.0", "0.2", "0.3"]


@pytest.mark.parametrize("said", ["?", None])
async def test_nothing_but_failures_gives_no_answer(said: str | None) -> None:
    (step,) = await solve(vote(3), Scripted(lambda ask: said))
    assert step.best is None
    assert len(step.candidates) == 3


async def test_the_responses_are_independent_and_within_the_budget() -> None:
    model = Scripted(lambda ask: "a")
    meter = make_meter(6)
    (step,) = await solve(vote(9), model, meter=meter)
    assert len(model.asked) == len(step.candidates) == 6
    assert {tuple(ask.shown) for ask in model.asked} == {("ask", "problem")}
    assert len({ask.request.seed for ask in model.asked}) == 6
    assert meter.exhausted


@pytest.mark.parametrize("limit", [{"max_calls": 400}, {"max_tokens": 400 * TOKENS}])
async def test_without_a_number_all_of_a_budget_votes(limit: dict[str, int]) -> None:
    model = Scripted(lambda ask: "?" if ask.index == 7 else "a")
    (step,) = await solve(vote(None), model, meter=Meter(**limit))
    assert sorted(ask.index for ask in model.asked) == list(range(400))
    assert len(step.candidates) == 400


async def test_a_retry_replaces_the_text_in_its_place() -> None:
    def script(ask: Ask) -> str:
        return "?" if ask.index == 1 and ask.attempt == 0 else f"answer {ask.index}"

    (step,) = await solve(vote(3, retries=1), Scripted(script))
    found = {rated.id: rated.answer for rated in step.candidates}
    assert found == {"0.0": "answer 0", "0.1": "answer 1", "0.2": "answer 2"}


@pytest.mark.parametrize(("task", "votes"), [("essay", False), ("billsum", False), ("ethics", True), ("tsp", True)])
def test_texts_at_length_are_not_voted_on(task: str, votes: bool) -> None:
    reason = make_method("self_consistency").incompatibility(task_config_class(task).task_class)
    assert (reason is None) == votes
