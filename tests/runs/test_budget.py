import pytest
from hypothesis import given
from hypothesis import strategies as st

from building import make_budget
from evorun.errors import ConfigError
from evorun.models import Completion, Reply
from evorun.runs.budget import BudgetConfig, Meter, Usage, allot, allot_usage, divide_budget, make_run_meter, sum_usages


def reply(prompt: int, completion: int) -> Reply:
    texts = (Completion(text="x", finish_reason="stop", tokens=completion),)
    return Reply(completions=texts, prompt_tokens=prompt, seconds=0.25)


@given(calls=st.integers(60, 500), problems=st.integers(1, 60))
def test_the_run_budget_is_divided_evenly_and_wholly(calls: int, problems: int) -> None:
    shares = [meter.max_calls for meter in divide_budget(make_budget(calls=calls), problems)]
    assert all(share is not None for share in shares)
    given = [share or 0 for share in shares]
    assert sum(given) == calls
    assert max(given) - min(given) <= 1


@pytest.mark.parametrize("key", ["calls", "tokens"])
def test_a_budget_that_leaves_a_problem_with_nothing_is_refused(key: str) -> None:
    with pytest.raises(ConfigError, match=rf"budget\.{key}: expected at least one for each of the 9 problems, got 5"):
        divide_budget(make_budget(**{key: 5}), 9)


def test_tokens_admit_what_fits_at_the_mean_cost_so_far() -> None:
    meter = Meter(max_tokens=1_000)
    assert meter.admit(4, "generate") == 4  # nothing is known yet
    for _ in range(4):
        meter.charge("generate", reply(90, 10))
    assert meter.admit(12, "judge") == 12  # another role: nothing is known yet either
    assert meter.admit(12, "generate") == 6
    assert meter.exhausted


def test_reserved_calls_are_left_over_of_both_limits() -> None:
    assert Meter(max_calls=10, reserved=3).admit(10) == 7
    meter = Meter(max_tokens=1_000, reserved=2)
    meter.charge("generate", reply(90, 10))
    assert meter.admit(20, "generate") == 7  # 9 fit at 100 tokens each


def test_the_tighter_limit_counts() -> None:
    (meter,) = divide_budget(make_budget(calls=100, calls_per_problem=7), 1)
    assert meter.max_calls == 7
    (meter,) = divide_budget(make_budget(tokens=5, tokens_per_problem=7), 1)
    assert meter.max_tokens == 5


def test_the_calls_left_in_a_share_are_those_of_the_tighter_limit() -> None:
    meter = Meter(max_calls=40, max_tokens=1_000)
    assert meter.calls_left_in_share(0.5, "generate") is None  # nobody knows yet what a call takes
    for _ in range(4):
        meter.charge("generate", reply(90, 10))
    assert meter.calls_left_in_share(0.5, "generate") == 5 - 4
    assert meter.calls_left_in_share(0.2, "generate") == 0
    assert Meter(max_calls=40).calls_left_in_share(0.5, "generate") == 20


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
        "generate": {"calls": 1, "prompt_tokens": 7, "completion_tokens": 3, "cached_tokens": 0, "tool_calls": 0},
        "judge": {"calls": 2, "prompt_tokens": 6, "completion_tokens": 3, "cached_tokens": 0, "tool_calls": 0},
    }
    assert meter.by_role["judge"].seconds == 0.5
    assert not meter.exhausted


@pytest.mark.parametrize("key", ["calls", "tokens", "calls_per_problem", "tokens_per_problem"])
def test_a_budget_that_allows_nothing_is_refused(key: str) -> None:
    with pytest.raises(ConfigError, match=rf"budget\.{key}: expected a number >= 1, got -5"):
        make_budget(**{key: -5})


@pytest.mark.parametrize("role", ["generate", "judge"])
def test_nothing_is_admitted_at_exactly_the_token_limit(role: str) -> None:
    below, at = Meter(max_tokens=41), Meter(max_tokens=40)
    for meter in (below, at):
        meter.charge("generate", reply(30, 10))
    assert below.admit(1, role) == 1
    assert not below.exhausted
    assert at.admit(1, role) == 0
    assert at.exhausted


@given(amount=st.integers(0, 500), problems=st.integers(1, 40))
def test_shares_add_up_and_are_even(amount: int, problems: int) -> None:
    shares = [allot(amount, problems, i) for i in range(problems)]
    assert sum(shares) == amount
    assert max(shares) - min(shares) <= 1
    assert shares == sorted(shares, reverse=True)
    # a problem's part never shrinks while the whole grows: curves of cost do not go down
    assert all(allot(amount + 1, problems, i) >= given for i, given in enumerate(shares))


@given(usage=st.tuples(*[st.integers(0, 300)] * 3), problems=st.integers(1, 25))
def test_parts_of_a_usage_add_up(usage: tuple[int, int, int], problems: int) -> None:
    spent = Usage(*usage)
    parts = sum_usages(allot_usage(spent, problems, i) for i in range(problems))
    assert parts.counts() == spent.counts()


BUDGETS = st.builds(
    BudgetConfig,
    calls=st.none() | st.integers(10, 80),
    tokens=st.none() | st.integers(10, 800),
    calls_per_problem=st.none() | st.integers(1, 12),
    tokens_per_problem=st.none() | st.integers(1, 120),
)


@given(budget=BUDGETS, problems=st.integers(1, 10), shared=st.integers(0, 40), wanted=st.integers(0, 15))
def test_shared_calls_and_the_problems_own_keep_to_every_limit(
    budget: BudgetConfig, problems: int, shared: int, wanted: int
) -> None:
    """As a driver does: first the calls for all problems, then those of each problem, from the rest of its part."""
    shares = divide_budget(budget, problems)
    together = make_run_meter(shares)
    for _ in range(together.admit(shared, "shared")):
        together.charge("shared", reply(6, 2))
    spent = together.total
    made = [0] * problems
    for index, meter in enumerate(shares):
        meter.deduct(allot(spent.calls, problems, index), allot(spent.tokens, problems, index))
        # one call at a time, so that tokens may be off by one call at most
        for _ in range(wanted):
            if meter.admit(1, "own"):
                meter.charge("own", reply(6, 2))
                made[index] += 1
        assert (made[index] < wanted) is meter.exhausted
    calls = spent.calls + sum(made)
    assert budget.calls is None or calls <= budget.calls
    for index in range(problems):
        costs = made[index] + allot(spent.calls, problems, index)
        assert budget.calls_per_problem is None or costs <= budget.calls_per_problem


@given(
    limit=st.none() | st.integers(0, 30),
    own=st.lists(st.none() | st.integers(0, 20), min_size=1, max_size=4),
    batches=st.lists(st.tuples(st.integers(0, 3), st.integers(0, 9)), max_size=20),
)
def test_a_parents_limit_holds_for_all_its_children_together(
    limit: int | None, own: list[int | None], batches: list[tuple[int, int]]
) -> None:
    parent = Meter(max_calls=limit)
    children = [Meter(max_calls=calls, parent=parent) for calls in own]
    for number, calls in batches:
        child = children[number % len(children)]
        limits = ((limit, parent.total.calls), (child.max_calls, child.total.calls))
        left = [most - spent for most, spent in limits if most is not None]
        assert child.calls_left == min(left, default=None)
        allowed = child.admit(calls, "generate")
        assert allowed == min([calls, *left])
        for _ in range(allowed):
            child.charge("generate", reply(1, 1))
    assert parent.total.counts() == sum_usages(child.total for child in children).counts()
    assert limit is None or parent.total.calls <= limit
    assert all(child.max_calls is None or child.total.calls <= child.max_calls for child in children)


def test_a_child_that_is_refused_by_its_parent_is_exhausted() -> None:
    parent = Meter(max_calls=3)
    child, other = Meter(max_calls=10, parent=parent), Meter(parent=parent)
    assert child.admit(4) == 3
    assert child.exhausted
    assert parent.exhausted
    assert not other.exhausted


@given(budget=BUDGETS, problems=st.integers(1, 10))
def test_the_whole_allows_what_the_budget_does(budget: BudgetConfig, problems: int) -> None:
    together = make_run_meter(divide_budget(budget, problems))
    for limit, amount, each in (
        (together.max_calls, budget.calls, budget.calls_per_problem),
        (together.max_tokens, budget.tokens, budget.tokens_per_problem),
    ):
        limits = [one for one in (amount, None if each is None else problems * each) if one is not None]
        assert limit == min(limits, default=None)
