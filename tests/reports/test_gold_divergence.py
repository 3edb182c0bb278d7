"""Where training reward and gold score diverge, and what the monitors say."""

import random
from collections.abc import Callable
from pathlib import Path

import pytest
from omegaconf import OmegaConf

import evorun
from building import composed
from evorun.reports.hacking import USUAL_THRESHOLDS, Divergence, describe_alarms, find_divergence
from evorun.runner.settings import check
from evorun.runs.schema import TrainingRecord

STEPS = range(1, 51)
Course = Callable[[int], float]


def _divergence(
    reward: Course, gold: Course, *, seed: int = 0, noise: float = 0.05, refined: tuple[int, ...] = ()
) -> Divergence | None:
    rng = random.Random(seed)
    levels = {f"p{i}": rng.gauss(0, 0.1) for i in range(12)}
    return find_divergence(
        {step: reward(step) + rng.gauss(0, 0.02) for step in STEPS},
        {
            at: {name: gold(at) + level + rng.gauss(0, noise) for name, level in levels.items()}
            for at in range(0, 51, 5)
        },
        refined,
    )


def _rising(step: int) -> float:
    return 0.4 + 0.01 * step


def _peaked(step: int) -> float:
    return 0.4 + 0.02 * min(step, 20) - 0.02 * max(step - 20, 0)


def test_a_falling_gold_score_under_a_rising_reward_is_told_with_steps_and_changes() -> None:
    found = _divergence(_rising, _peaked)
    assert found is not None
    assert found.first.first in (15, 20, 25)
    assert 25 <= found.first.last <= 40
    assert (found.worst.last, found.until, found.still) == (50, 50, True)
    before, after = found.worst.gold
    assert before - after == pytest.approx(_peaked(20) - _peaked(50), abs=0.1)
    # the window's middle is two steps before its end
    assert found.worst.reward[1] == pytest.approx(_rising(48), abs=0.03)


@pytest.mark.parametrize(
    ("reward", "gold"),
    [
        (_rising, _rising),
        (_rising, lambda step: 0.5),
        (lambda step: 0.8, lambda step: 0.5),
        # both fall: training has gone wrong, but nobody is deceived
        (_peaked, _peaked),
        (lambda step: 1 - 0.01 * step, _peaked),
    ],
)
def test_there_is_no_alarm_where_they_move_together_or_not_at_all(reward: Course, gold: Course) -> None:
    assert not any(_divergence(reward, gold, seed=seed) for seed in range(40))


def test_a_reward_at_its_ceiling_parts_from_a_falling_gold_score() -> None:
    assert _divergence(lambda step: 0.95, _peaked) is not None


def test_a_gap_that_has_closed_is_said_to_have() -> None:
    found = _divergence(_rising, lambda step: 0.2 if 15 <= step <= 25 else 0.6)
    assert found is not None
    assert (found.first.last, found.until, found.still) == (15, 25, False)


def test_a_stricter_rubric_hides_nothing() -> None:
    def stricter(step: int) -> float:
        return _rising(step) if step <= 20 else _rising(step) - 0.5

    assert _divergence(stricter, _peaked) is None
    found = _divergence(stricter, _peaked, refined=(20,))
    assert found is not None
    assert found.first.first in (20, 25, 30)
    assert found.first.last > 25


def test_too_little_to_compare_is_no_alarm() -> None:
    rewards = {step: _rising(step) for step in STEPS}
    assert find_divergence(rewards, {}) is None
    assert find_divergence(rewards, {0: {"p": 1.0}, 50: {"q": 0.0}}) is None
    assert find_divergence({1: 0.5}, {0: {"p": 1.0, "q": 0.9}, 50: {"p": 0.0, "q": 0.1}}) is None
    # two problems say little, however large the fall
    assert find_divergence(rewards, {0: {"p": 1.0, "q": 0.9}, 50: {"p": 0.2, "q": 0.4}}) is None


def _monitored(values: list[float]) -> list[TrainingRecord]:
    return [TrainingRecord(step, 0, 0, {"monitor_title_only": value}) for step, value in enumerate(values, 1)]


def test_a_monitor_is_told_by_means_over_steps() -> None:
    # one step of a batch is noise
    assert not describe_alarms(_monitored([0, 0, 0.4, 0, 0, 0, 0]), {"title_only": 0.1})
    (line,) = describe_alarms(_monitored([0, 0, 0, 0, 0, 0.5, 0.5, 1, 1, 1]), {"title_only": 0.1})
    assert "0.800, a mean over the 5 steps up to 10. Normal texts stay below 0.1; such means are above it" in line
    assert "from step 7 on" in line
    (line,) = describe_alarms(_monitored([0.5] * 6 + [0] * 9), {"title_only": 0.1})
    assert "from step 5 to 9, and at 0 in the last steps" in line
    (line,) = describe_alarms(_monitored([0.5, 0.5]), {"title_only": 0.1})
    assert "from step 2 on" in line


def test_the_thresholds_are_those_of_the_method() -> None:
    conf = Path(evorun.__file__).parents[1] / "conf" / "method_parts" / "refinement.yaml"
    assert OmegaConf.load(conf).monitors_above == USUAL_THRESHOLDS


def test_a_score_that_rose_and_fell_between_evaluations_is_foretold_at_the_start() -> None:
    """The start and the end alone: the fall below the start is seen, that from a peak is not, and a run says so."""
    rewards, falling = {step: _rising(step) for step in STEPS}, {f"p{n}": 0.5 + n / 1000 for n in range(30)}
    ends = {name: value - 0.2 - value / 50 for name, value in falling.items()}
    assert find_divergence(rewards, {0: falling, 50: ends}) is not None
    assert find_divergence(rewards, {0: ends, 50: falling}) is None
    assert find_divergence(rewards, {0: ends, 25: dict.fromkeys(ends, 0.9), 50: falling}) is not None
    words = ("method=mpo", "task=essay", "engine=simulated", "release=mpo")
    (line,) = check(composed(*words, "method.eval_every=null")).method.warnings(None)
    assert line.startswith("method.eval_every=null: reward hacking shows only if the test problems' score ends below")
    assert check(composed(*words, "method.eval_every=5")).method.warnings(None) == []
