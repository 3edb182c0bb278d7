"""A batch's rows in minibatches and passes."""

import numpy as np
import pytest

from evorun.training.wire import Row

pytest.importorskip("torch")
from evorun.training.batches import NOTHING, minibatches, passes, token_weight


def row(number: int, length: int) -> Row:
    """Return a row of so many tokens in all; its number is its prompt."""
    tokens = length - 1
    return Row(
        prompt=(number,),
        tokens=(1,) * tokens,
        learned=(True,) * tokens,
        reward=1.0,
        advantage=1.0,
        logprobs=(0.0,) * tokens,
    )


def lengths(rows: list[Row]) -> list[int]:
    return [len(one.prompt) + len(one.tokens) for one in rows]


@pytest.mark.parametrize("processes", [1, 2, 4, 8])
@pytest.mark.parametrize("count", [1, 3, 50, 150])
def test_each_row_is_in_one_pass_and_each_process_in_every_pass(processes: int, count: int) -> None:
    rng = np.random.default_rng(count)
    rows = [row(number, int(length)) for number, length in enumerate(rng.integers(2, 100, count))]
    found = passes(rows, processes, max_rows=7, max_tokens=300, nothing=NOTHING)
    assert {len(one) for one in found} == {processes}
    own = [one for every in found for part in every for one in part]
    assert sorted(one.prompt for one in own if one is not NOTHING) == [(number,) for number in range(count)]
    assert own.count(NOTHING) == -count % processes  # of the last pass, one each at most
    for every in found:
        assert len({len(part) for part in every}) == 1
        assert all(len(part) <= 7 and len(part) * max(lengths(part)) <= 300 for part in every)
    longest = [max(lengths([one for part in every for one in part])) for every in found]
    assert longest == sorted(longest, reverse=True)


def test_a_row_longer_than_a_pass_has_one_of_its_own() -> None:
    found = passes([row(0, 10), row(1, 500), row(2, 10)], 1, max_rows=7, max_tokens=300, nothing=NOTHING)
    assert [lengths(part) for [part] in found] == [[500], [10, 10]]


def test_minibatches_are_the_rows_in_an_order_of_the_streams() -> None:
    rows = [row(number, 3) for number in range(11)]

    def drawn(seed: int, count: int) -> list[list[Row]]:
        return minibatches(rows, count, np.random.default_rng(seed))

    assert sorted(map(len, drawn(0, 3))) == [3, 4, 4]
    assert sorted(one.prompt for part in drawn(0, 3) for one in part) == [one.prompt for one in rows]
    assert drawn(0, 3) == drawn(0, 3) != drawn(1, 3)
    assert len(drawn(0, 20)) == 11  # none is empty
    assert drawn(0, 1) == [rows]


def test_a_token_of_no_weight_is_in_no_mean() -> None:
    masked = Row(prompt=(1,), tokens=(2, 3), learned=(True, False), reward=1.0, advantage=1.0, logprobs=(-1.0, 0.0))
    rows = [masked, row(0, 4)]  # of 1 and of 3 learned tokens
    weights = {
        loss: [token_weight(loss, rows, 5.0)(one) for one in rows] for loss in ("dr_grpo", "grpo", "bnpo", "dapo")
    }
    assert weights == {"dr_grpo": [1 / 2, 1 / 2], "grpo": [1 / 2, 1 / 6], "bnpo": [1 / 4, 1 / 4], "dapo": [0.2, 0.2]}
