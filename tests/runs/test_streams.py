from hypothesis import given, settings
from hypothesis import strategies as st

from evorun.runs.streams import call_seed, stream

names = st.lists(st.one_of(st.text(max_size=6), st.integers(0, 99)), max_size=4)


@given(seed=st.integers(0, 2**40), names=names)
@settings(max_examples=30)
def test_the_same_names_give_the_same_numbers(seed: int, names: list[str | int]) -> None:
    assert stream(seed, *names).random() == stream(seed, *names).random()
    assert 0 <= call_seed(seed, *names) < 2**31


def test_other_names_give_other_numbers() -> None:
    keys = [(0, "a", 1), (0, "a", "1"), (0, "a1"), (1, "a", 1), (0, "a", 1, 0), (0, "a\x1f1")]
    assert len({stream(*key).random() for key in keys}) == len(keys)


def test_streams_do_not_depend_on_each_other() -> None:
    alone = stream(3, "parents", 2).random(4).tolist()
    other = stream(3, "parents", 1)
    other.random(1000)
    assert stream(3, "parents", 2).random(4).tolist() == alone
