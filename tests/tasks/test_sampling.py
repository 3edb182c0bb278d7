"""The stratified draw's refusals: what they say is true, and what they advise helps."""

import dataclasses
import re

import pytest

from evorun.errors import DataError
from evorun.runner import registry
from evorun.tasks.base import Task, TaskConfig
from evorun.tasks.stratified_benchmark import stratified_draw


def refusal(strata: dict[str, list[int]], *, per_stratum: int, held_out: int, allow_fewer: bool) -> str:
    with pytest.raises(DataError) as caught:
        stratified_draw(
            strata, per_stratum=per_stratum, held_out=held_out, seed=0, name="quiz", allow_fewer=allow_fewer
        )
    return str(caught.value)


@pytest.mark.parametrize("allow_fewer", [False, True])
def test_a_stratum_without_problems_is_not_a_matter_of_numbers(allow_fewer: bool) -> None:
    line = refusal({"easy": [], "hard": [1, 2, 3]}, per_stratum=2, held_out=1, allow_fewer=allow_fewer)
    assert line.startswith("quiz: stratum 'easy' holds no problems: ")
    assert "filters" in line
    assert "Lower" not in line


def test_a_stratum_that_is_too_small_names_both_numbers() -> None:
    line = refusal({"easy": [1, 2, 3]}, per_stratum=3, held_out=1, allow_fewer=False)
    assert "holds 3 problems; expected at least 3 to work on and 1 held out" in line
    assert line.endswith("Lower task.per_stratum or task.validation_per_stratum")


def test_where_fewer_will_do_one_is_asked_for() -> None:
    line = refusal({"easy": [1, 2, 3]}, per_stratum=33, held_out=3, allow_fewer=True)
    assert "holds 3 problems; expected at least 1 to work on and 3 held out" in line
    assert line.endswith("Lower task.validation_per_stratum")
    draw = stratified_draw({"easy": [1, 2, 3]}, per_stratum=33, held_out=2, seed=0, name="quiz", allow_fewer=True)
    assert (len(draw.selected), len(draw.held_out)) == (1, 2)


def test_with_nothing_held_out_only_the_selection_can_be_lowered() -> None:
    line = refusal({"easy": [1]}, per_stratum=2, held_out=0, allow_fewer=False)
    assert line.endswith("Lower task.per_stratum")


def test_all_of_unequal_strata_can_be_drawn() -> None:
    strata = {"easy": list(range(7)), "hard": [10, 11]}
    draw = stratified_draw(strata, per_stratum=None, held_out=1, seed=0, name="quiz")
    assert (len(draw.selected), len(draw.held_out)) == (7, 2)
    assert sorted([*draw.selected, *draw.held_out]) == [0, 1, 2, 3, 4, 5, 6, 10, 11]


@pytest.mark.parametrize("config", [*registry.task_configs().values()], ids=lambda config: config.task_class.name)
def test_advice_names_keys_that_the_task_has(config: type[TaskConfig]) -> None:
    """A plug-in's task has none but its own, so the advice that it inherits names none but the base's."""
    for advice, names in ((config.task_class.draw_help, config), (Task.draw_help, TaskConfig)):
        keys = re.findall(r"task\.(\w+)", " ".join(advice))
        assert {*keys} <= {field.name for field in dataclasses.fields(names)}
