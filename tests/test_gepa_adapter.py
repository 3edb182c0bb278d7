"""An evorun task under gepa's own `optimize` and `optimize_anything`, simulated, and again from its journal."""

from pathlib import Path
from typing import Any

import gepa
import pytest
from gepa.optimize_anything import EngineConfig, GEPAConfig, ReflectionConfig, optimize_anything

from evorun.api.gepa_adapter import COMPONENT, GepaAdapter
from evorun.errors import ConfigError

ARITHMETIC = {
    "task": "arithmetic",
    "task.largest_operand": 50,
    "task.train_problems": 20,
    "task.test_problems": 8,
    "task.validation_problems": 12,
    "engine": "simulated",
    "engine.skill": 0.2,
}


def adapt(folder: Path, **settings: Any) -> GepaAdapter:
    return GepaAdapter(folder, {**ARITHMETIC, **settings})


def optimise(folder: Path) -> Any:
    with adapt(folder) as adapter:
        return gepa.optimize(
            seed_candidate=adapter.seed_candidate,
            trainset=adapter.train,
            valset=adapter.validation,
            adapter=adapter,
            reflection_lm=adapter.reflect,
            reflection_minibatch_size=3,
            max_metric_calls=100,
            display_progress_bar=False,
        )


def test_gepa_evolves_a_tasks_system_prompt_and_repeats_it_from_the_journal(tmp_path: Path) -> None:
    first = optimise(tmp_path)
    assert len(first.candidates) > 1
    size = (tmp_path / "journal.sqlite").stat().st_size
    again = optimise(tmp_path)
    assert again.candidates == first.candidates
    assert again.val_aggregate_scores == first.val_aggregate_scores
    assert (tmp_path / "journal.sqlite").stat().st_size == size  # nothing was asked again
    with adapt(tmp_path) as adapter:
        batch = adapter.evaluate(adapter.validation, first.candidates[0])
        assert sum(batch.scores) / len(batch.scores) == first.val_aggregate_scores[0]
        assert batch.trajectories is None


def test_reflection_sees_answers_of_held_out_problems_alone(tmp_path: Path) -> None:
    with adapt(tmp_path, **{"engine.skill": 0.0}) as adapter:
        traced = adapter.evaluate(
            [adapter.train[0], adapter.validation[0]], adapter.seed_candidate, capture_traces=True
        )
        [shown, hidden] = adapter.make_reflective_dataset(adapter.seed_candidate, traced, [COMPONENT])[COMPONENT]
        assert traced.scores == [0.0, 0.0]
        assert adapter.train[0].answer in shown["Feedback"]
        assert "right answer" not in hidden["Feedback"].lower()


def test_optimize_anything_takes_its_evaluator(tmp_path: Path) -> None:
    with adapt(tmp_path) as adapter:
        result = optimize_anything(
            seed_candidate=adapter.seed_candidate[COMPONENT],
            evaluator=adapter.evaluator,
            dataset=adapter.train,
            valset=adapter.validation,
            config=GEPAConfig(
                engine=EngineConfig(max_metric_calls=40, parallel=False),
                reflection=ReflectionConfig(reflection_lm=adapter.reflect),
            ),
        )
        values = [adapter.evaluator(adapter.seed_candidate[COMPONENT], problem)[0] for problem in adapter.validation]
    assert result.val_aggregate_scores[0] == pytest.approx(sum(values) / len(values))


@pytest.mark.bridges
def test_a_grader_finds_its_packages_in_the_sandbox(tmp_path: Path) -> None:
    pytest.importorskip("reasoning_gym.factory")
    task = {"task": "reasoning_gym", "task.dataset": "leg_counting", "task.train_problems": 1, "sandbox.slots": 1}
    task |= {"task.test_problems": 2, "task.validation_problems": 1, "engine": "simulated", "engine.skill": 1.0}
    with GepaAdapter(tmp_path, task) as adapter:
        batch = adapter.evaluate(adapter.validation, adapter.seed_candidate)
    assert batch.scores == [1.0, 1.0]


@pytest.mark.parametrize("settings", [{"task": "essay", "task.source": "sample"}, {"task": "search_qa"}])
def test_a_task_of_another_kind_is_refused(settings: dict[str, Any], tmp_path: Path) -> None:
    with pytest.raises(ConfigError, match="expected a task of one turn with system prompts and ground truth"):
        GepaAdapter(tmp_path, settings)
