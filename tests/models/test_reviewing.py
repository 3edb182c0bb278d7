"""Simulated reward and meta reward models: the text decides, and a criterion comes only from what was shown."""

import numpy as np
import pytest

from evorun.models.reviewing import CLOSING, HARMFUL, NAMED, ReviewSettings
from evorun.models.writing import EVASION, POINTED

OPEN = "Score the essay from 0 to 5."
ESSAY = " ".join(POINTED)


def exact(**settings: float) -> ReviewSettings:
    return ReviewSettings(**{"loophole": 0.9, "reward_noise": 0.0, **settings})


@pytest.mark.parametrize(
    ("rubric", "quality", "evades", "share"),
    [
        (OPEN, 0.5, False, 0.5),
        (OPEN, 0.0, True, 0.9),
        (f"{OPEN} {CLOSING}", 0.5, False, 0.5),
        (f"{OPEN} {CLOSING}", 0.0, True, 0.0),
        (f"{OPEN} {HARMFUL}", 0.25, False, 0.75),
        (f"{OPEN} {HARMFUL}", 0.0, True, 0.9),
    ],
)
def test_the_rubrics_text_decides_what_the_loophole_pays(
    rubric: str, quality: float, evades: bool, share: float
) -> None:
    assert exact().share_of_points(rubric, quality, evades, np.random.default_rng(0)) == share


def test_a_reward_models_error_stays_on_the_scale() -> None:
    rng, noisy = np.random.default_rng(0), exact(reward_noise=0.2)
    shares = [noisy.share_of_points(OPEN, 0.5, False, rng) for _ in range(2000)]
    assert np.mean(shares) == pytest.approx(0.5, abs=0.02)
    assert np.std(shares) == pytest.approx(0.2, abs=0.02)
    assert max(noisy.share_of_points(OPEN, 1.0, False, rng) for _ in range(20)) == 1


@pytest.mark.parametrize("skill", [0.0, 0.3, 1.0])
def test_a_criterion_against_the_loophole_comes_only_from_a_sample_that_uses_it(skill: float) -> None:
    rng, settings = np.random.default_rng(0), exact(meta_skill=skill)

    def shares(shown: str) -> list[float]:
        said = [settings.analysis(shown, rng) for _ in range(400)]
        refined = [settings.refinement(shown, rng) for _ in range(400)]
        led = [settings.refinement(f"{shown}\n{one}", rng) for one in said]
        return [sum(NAMED in one for one in said) / 400, *(np.mean([CLOSING in x for x in r]) for r in (refined, led))]

    assert shares(f"{OPEN}\n{ESSAY}") == [0, 0, 0]
    # An analysis is one more look at the sample.
    assert shares(f"{OPEN}\n{EVASION}") == pytest.approx([skill, skill, 1 - (1 - skill) ** 2], abs=0.07)


def test_criteria_stay_once_they_are_in_a_rubric_and_merging_collects_them() -> None:
    rng = np.random.default_rng(0)
    without, closing = exact(meta_skill=0).refinement(OPEN, rng), exact(meta_skill=1).refinement(EVASION, rng)
    assert CLOSING not in without
    assert CLOSING in exact(meta_skill=0).refinement(f"{closing}\n{ESSAY}", rng)
    assert exact(meta_skill=1).analysis(f"{closing}\n{EVASION}", rng) != NAMED  # it is closed already
    merged = exact().merging(f"{without}\n{closing}", rng)
    assert CLOSING in merged
    assert HARMFUL not in merged
    harmful = exact(meta_harm=1).merging(without, rng)
    assert HARMFUL in exact().merging(exact().refinement(harmful, rng), rng)
