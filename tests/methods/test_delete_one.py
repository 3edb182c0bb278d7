"""Delete-one on scores that are known: a principle that helps, one that does nothing, one that harms."""

import numpy as np
import pytest

from evorun.methods.espl.system_prompts import SystemPrompt
from evorun.runner.prompt_studies import effects, without_each

PROMPT = SystemPrompt("Solve it.", ("helps", "idle", "harms"))


def test_each_prompt_lacks_one_principle():
    assert [one.principles for one in without_each(PROMPT)] == [
        ("idle", "harms"),
        ("helps", "harms"),
        ("helps", "idle"),
    ]
    assert {one.preamble for one in without_each(PROMPT)} == {"Solve it."}
    assert without_each(SystemPrompt("Solve it.")) == []


def test_effects_are_those_of_pairs():
    rng = np.random.default_rng(0)
    difficulty = rng.random(200)  # far more spread than the effects: unpaired they would drown in it

    def scores(shift: float) -> dict[str, float]:
        return {f"p{index}": float(one) for index, one in enumerate(difficulty + shift + rng.normal(0, 0.02, 200))}

    helps, idle, harms = effects(PROMPT, scores(0.0), [scores(-0.05), scores(0.0), scores(0.02)])
    assert [one.principle for one in (helps, idle, harms)] == list(PROMPT.principles)
    assert [one.effect for one in (helps, idle, harms)] == pytest.approx([0.05, 0.0, -0.02], abs=0.01)
    assert 0 < helps.low < 0.05 < helps.high < 0.06
    assert idle.low < 0 < idle.high
    assert harms.high < 0
    assert helps.n == 200


def test_problems_without_a_score_under_both_count_for_nothing():
    found = effects(SystemPrompt("", ("x",)), {"a": 1.0, "b": 0.0, "c": 1.0}, [{"a": 0.5, "b": 0.5}])
    assert (found[0].effect, found[0].n) == (0.0, 2)
    alike = effects(SystemPrompt("", ("x",)), {"a": 1.0}, [{"a": 0.5}])[0]
    assert (alike.effect, alike.low, alike.high) == (0.5, None, None)
    with pytest.raises(ValueError, match="zip"):
        effects(PROMPT, {}, [])
