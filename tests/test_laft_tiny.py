"""`experiment=laft/tiny` shows LAFT at work: teacher and student breed, and what the student learns is of all kinds."""

from collections import Counter
from dataclasses import replace
from pathlib import Path

import msgspec
import pytest

from building import composed, make_config
from evorun.runner.settings import check
from evorun.runner.student import teacher_composition
from evorun.testing.runs import Run, carry_out
from evorun.traces import collect
from evorun.traces.selection import Example

TINY = ("experiment=laft/tiny", "evorun.progress=off")


def operators(run: Run) -> Counter[str]:
    return Counter(one["operator"] for one in run.records("candidates"))


@pytest.mark.sample(1)
@pytest.mark.parametrize("seed", [0, 1])
def test_the_teacher_breeds_and_shows_every_kind_of_step(tmp_path: Path, seed: int) -> None:
    config = composed(*TINY, f"seed={seed}")
    teacher = carry_out(check(teacher_composition(config)), tmp_path / "teacher")
    found = operators(teacher)
    assert min(found[name] for name in ("crossover", "mutation", "external_crossover", "external_mutation")) >= 3
    lines = collect([teacher.path], check(config).student.traces).examples  # type: ignore[union-attr]
    learned = [msgspec.json.decode(line, type=Example) for line in lines[: config["student"]["tuning"]["limit"]]]
    kinds = Counter(one.operator for one in learned)
    assert set(kinds) == {"init", "crossover", "mutation"}
    assert min(kinds.values()) >= 2


@pytest.mark.sample(1)
@pytest.mark.parametrize("seed", [0, 1])
def test_a_student_that_solves_nothing_breeds(tmp_path: Path, seed: int) -> None:
    config = check(composed(*TINY, f"seed={seed}"))
    novice = make_config("engine", "simulated", skill=0.05, improvement=0.0)
    run = carry_out(replace(config, student=None, engine=novice), tmp_path / "run")
    found = operators(run)
    assert set(found) == {"init", "crossover", "mutation", "external_crossover", "external_mutation"}
    generations = config.method.config.generations
    assert generations >= 2
    last = {one["problem"]: one["step"] for one in run.records("steps")}
    assert set(last.values()) == {generations}
