"""LAFT's method is Lyria in the sizes of section 5.2, by a student."""

from pathlib import Path
from typing import Any

import pytest
from hydra.errors import HydraException
from test_every_hyperparameter import BreedingQuiz, varied

from building import composed, make_method
from evorun.cli.explain import explain
from evorun.errors import ConfigError
from evorun.runner.settings import check
from method_fixture import drive


async def asked(method: Any, folder: Path) -> list[tuple[Any, ...]]:
    return (await drive(method, folder, varied, task=BreedingQuiz(), problems=1)).model.everything()


@pytest.mark.nightly
async def test_it_asks_what_lyria_asks(tmp_path: Path) -> None:
    laft = await asked(make_method("laft"), tmp_path / "laft")
    assert laft == await asked(make_method("lyria", population=20, generations=20), tmp_path / "lyria")


def test_it_brings_its_student_and_takes_another() -> None:
    assert composed("method=laft", "task=tsp")["student"]["name"] == "laft"
    other = composed("method=laft", "task=tsp", "student=dpft", "teacher=qwen2_5_72b", "teacher_engine=simulated")
    assert (other["student"]["name"], other["teacher"]["name"]) == ("dpft", "qwen2_5_72b")
    assert other["teacher_engine"]["name"] == "simulated"


def test_it_needs_one() -> None:
    with pytest.raises(ConfigError, match="method=laft is for a model that is fine-tuned first; set student=laft"):
        check(composed("method=laft", "task=tsp", "student=none"))


@pytest.mark.sample(2)
@pytest.mark.parametrize(
    ("method", "student"),
    [("zero_shot", "laft"), ("best_of_n", "dpft"), ("duel_evolve", "dpft_full"), ("zero_shot", "dpft_top")],
)
def test_any_method_goes_with_any_student(method: str, student: str) -> None:
    config = check(composed(f"method={method}", f"student={student}", "task=sudoku", "model=llama3_2_3b"))
    assert config.model.name == f"llama3_2_3b-{student}"


@pytest.mark.parametrize("method", ["grpo", "mpo", "sft"])
def test_a_method_that_trains_weights_takes_no_student(method: str) -> None:
    """Each has another default of `training`, or the student's own."""
    with pytest.raises(HydraException) as caught:
        composed(f"method={method}", "student=laft", "task=sudoku")
    assert explain(caught.value).startswith("student: expected none with a method that trains weights itself")
