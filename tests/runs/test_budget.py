import pytest
from hypothesis import given
from hypothesis import strategies as st

from evorun.errors import ConfigError
from evorun.models import Completion, Reply
from evorun.runs.budget import BudgetConfig, Meter, meters


def reply(prompt: int, completion: int) -> Reply:
    texts = (Completion(text="x", finish_reason="stop", tokens=completion),)
    return Reply(completions=texts, prompt_tokens=prompt, seconds=0.25)


@given(calls=st.integers(60, 500), problems=st.integers(1, 60))
def test_the_run_budget_is_divided_evenly_and_wholly(calls: int, problems: int) -> None:
    shares = [meter.max_calls for meter in meters(BudgetConfig(calls=calls), problems)]
    assert all(share is not None for share in shares)
    given = [share or 0 for share in shares]
    assert sum(given) == calls
    assert max(given) - min(given) <= 1


@pytest.mark.parametrize("key", ["calls", "tokens"])
def test_a_budget_that_leaves_a_problem_with_nothing_is_refused(key: str) -> None:
    with pytest.raises(ConfigError, match=rf"budget\.{key}: expected at least one for each of the 9 problems, got 5"):
        meters(BudgetConfig(**{key: 5}), 9)


def test_tokens_admit_what_fits_at_the_mean_cost_so_far() -> None:
    meter = Meter(max_tokens=1_000)
    assert meter.admit(4, "generate") == 4  # nothing is known yet
    for _ in range(4):
        meter.charge("generate", reply(90, 10))
    assert meter.admit(12, "judge") == 12  # another role: nothing is known yet either
    assert meter.admit(12, "generate") == 6
    assert meter.exhausted


def test_the_tighter_limit_counts() -> None:
    (meter,) = meters(BudgetConfig(calls=100, calls_per_problem=7), 1)
    assert meter.max_calls == 7
    (meter,) = meters(BudgetConfig(tokens=5, tokens_per_problem=7), 1)
    assert meter.max_tokens == 5


@given(limit=st.integers(1, 50), batches=st.lists(st.integers(0, 12), max_size=20))
def test_calls_never_exceed_their_limit(limit: int, batches: list[int]) -> None:
    meter = Meter(max_calls=limit)
    made = 0
    for batch in batches:
        allowed = meter.admit(batch)
        assert allowed == min(batch, limit - made)
        for _ in range(allowed):
            meter.charge("generate", reply(1, 1))
        made += allowed
    assert meter.total.calls == made <= limit
    assert meter.exhausted == (sum(batches) > limit)


def test_tokens_overshoot_by_one_batch_at_most() -> None:
    meter = Meter(max_tokens=100)
    assert meter.admit(3) == 3
    for _ in range(3):
        meter.charge("generate", reply(30, 10))
    assert meter.total.tokens == 120
    assert meter.admit(3) == 0
    assert meter.exhausted


def test_counts_are_kept_by_role() -> None:
    meter = Meter()
    meter.charge("judge", reply(5, 2))
    meter.charge("generate", reply(7, 3))
    meter.charge("judge", reply(1, 1))
    assert meter.counts() == {
        "generate": {"calls": 1, "prompt_tokens": 7, "completion_tokens": 3},
        "judge": {"calls": 2, "prompt_tokens": 6, "completion_tokens": 3},
    }
    assert meter.by_role["judge"].seconds == 0.5
    assert not meter.exhausted


@pytest.mark.parametrize("key", ["calls", "tokens", "calls_per_problem", "tokens_per_problem"])
def test_a_budget_that_allows_nothing_is_refused(key: str) -> None:
    with pytest.raises(ConfigError, match=rf"budget\.{key}: expected a number >= 1, got -5"):
        BudgetConfig(**{key: -5})


@pytest.mark.parametrize("role", ["generate", "judge"])
def test_nothing_is_admitted_at_exactly_the_token_limit(role: str) -> None:
    below, at = Meter(max_tokens=41), Meter(max_tokens=40)
    for meter in (below, at):
        meter.charge("generate", reply(30, 10))
    assert below.admit(1, role) == 1
    assert not below.exhausted
    assert at.admit(1, role) == 0
    assert at.exhausted
