"""Zero-shot: one response, kept whatever it is worth."""

import pytest

from building import make_meter, make_method
from method_fixture import Scripted, solve


async def test_one_call_and_its_answer() -> None:
    model = Scripted(lambda ask: "blue")
    (step,) = await solve(make_method("zero_shot"), model)
    assert step.best is not None
    assert step.best.answer == "blue"
    assert step.best.survivor
    assert [(ask.shown["ask"], ask.step, ask.index) for ask in model.asked] == [("generate", 0, 0)]


@pytest.mark.parametrize(("retries", "calls"), [(0, 1), (1, 2), (3, 3)])
async def test_a_text_that_does_not_parse_is_asked_for_again(retries: int, calls: int) -> None:
    model = Scripted(lambda ask: "late" if ask.attempt == 2 else "?")
    (step,) = await solve(make_method("zero_shot", retries=retries), model)
    assert len(model.asked) == calls
    assert (step.best is not None) is (retries == 3)
    assert [rated.attempts for rated in step.candidates] == [calls]


async def test_a_refused_request_is_not_repeated() -> None:
    model = Scripted(lambda ask: None)
    (step,) = await solve(make_method("zero_shot", retries=3), model)
    assert len(model.asked) == 1
    assert step.best is None
    assert step.extra["rejected_requests"] == 1


async def test_without_budget_there_is_a_step_without_an_answer() -> None:
    (step,) = await solve(make_method("zero_shot"), Scripted(lambda ask: "x"), meter=make_meter(0))
    assert step.best is None
    assert step.candidates == []
