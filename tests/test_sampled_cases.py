"""Of a test's cases a sample runs under `make test`, and all run under `make test-all` (`conftest.py`)."""

import pytest


@pytest.mark.sample(3)
@pytest.mark.parametrize("place", range(8))
def test_the_sample_stands_evenly_apart_and_the_others_are_nightly(place: int, request: pytest.FixtureRequest) -> None:
    assert (request.node.get_closest_marker("nightly") is None) == (place in (0, 4, 7))


@pytest.mark.sample(3)
@pytest.mark.parametrize("place", range(2))
def test_fewer_cases_than_the_sample_are_all_in_it(place: int, request: pytest.FixtureRequest) -> None:
    assert request.node.get_closest_marker("nightly") is None


@pytest.mark.sample(1)
@pytest.mark.parametrize("place", [pytest.param(0, marks=pytest.mark.nightly), 1, 2])
def test_what_is_nightly_anyway_is_in_no_sample(place: int, request: pytest.FixtureRequest) -> None:
    assert (request.node.get_closest_marker("nightly") is None) == (place == 1)
