"""PopArt: no state's value changes with the scale, which is that of the returns."""

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

pytest.importorskip("torch")
import torch

from evorun.training.value_head import ValueHead

WIDTH = 5
magnitudes = st.integers(-3, 4).map(lambda power: 10.0**power)
batches = st.lists(st.tuples(magnitudes, st.floats(-50, 50)), min_size=1, max_size=6)


def head_of(rng: np.random.Generator, popart: float) -> ValueHead:
    """Return a head with weights, in float64 so that only the formula can fail."""
    head = ValueHead(WIDTH, popart).double()
    with torch.no_grad():
        head.weight.copy_(torch.tensor(rng.normal(size=(1, WIDTH))))
        head.bias.copy_(torch.tensor(rng.normal(size=1)))
    return head


@given(batches, st.floats(0.01, 1), st.integers(0, 2**32 - 1))
def test_values_stay_and_the_scale_is_that_of_weighted_returns(
    drawn: list[tuple[float, float]], popart: float, seed: int
) -> None:
    rng = np.random.default_rng(seed)
    head = head_of(rng, popart)
    states = torch.tensor(rng.normal(size=(7, WIDTH)))
    seen: list[np.ndarray] = []
    for spread, centre in drawn:
        before = head.values(head(states)).detach()
        seen.append(rng.normal(centre * spread, spread, rng.integers(2, 30)))
        head.adapt(seen[-1])
        after = head.values(head(states))
        assert torch.allclose(after, before, rtol=1e-9, atol=1e-7 * max(1.0, float(before.abs().max())))
        # An average with weights that fall with a batch's age.
        weights = (1 - popart) ** np.arange(len(seen))[::-1]
        mean, square = (
            np.average([f(one) for one in seen], weights=weights) for f in (np.mean, lambda x: np.mean(x**2))
        )
        assert float(head.mean) == pytest.approx(mean, rel=1e-9, abs=1e-9)
        # A difference of squares is known to the rounding of the largest of them.
        rounding = 1e-13 * max(np.mean(one**2) for one in seen)
        assert head.scale**2 == pytest.approx(square - mean**2, rel=1e-5, abs=rounding)
        normalised = head.outputs(seen[-1])
        assert head.values(normalised) == pytest.approx(seen[-1], rel=1e-9, abs=1e-9)


def test_in_float32_values_stay_to_rounding_when_points_become_many() -> None:
    head, rng = ValueHead(WIDTH, 1.0), np.random.default_rng(0)
    states = torch.tensor(rng.normal(size=(50, WIDTH)), dtype=torch.float32)
    torch.nn.init.normal_(head.weight)
    for total in (5, 24, 5, 200, 1):
        before = head.values(head(states)).detach()
        head.adapt(total * rng.random(64))
        assert torch.allclose(head.values(head(states)), before, rtol=1e-4, atol=1e-4 * float(before.abs().max()))


def test_equal_returns_have_the_smallest_scale_and_a_reset_forgets_them() -> None:
    head = head_of(np.random.default_rng(0), 0.5)
    head.adapt(np.full(3, 7.0))
    assert (head.scale, float(head.mean)) == (1e-4, 7.0)
    head.reset()
    assert (head.scale, float(head.mean), float(head.weight.abs().sum()), float(head.bias)) == (1.0, 0.0, 0.0, 0.0)


def test_without_popart_an_output_is_the_value_and_returns_change_nothing() -> None:
    head = ValueHead(WIDTH, None)
    assert head.bias is None
    head.adapt(np.array([1.0, 100.0]))
    assert head.values(np.array([0.1, -3.0])).tolist() == head.outputs(np.array([0.1, -3.0])).tolist() == [0.1, -3.0]
