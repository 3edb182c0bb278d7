"""Texts that exploit a rubric are told from honest ones, and their kinds from one another, by how they look."""

import numpy as np
import pytest

from evorun.rollouts.monitors import measure
from evorun.simulation.engine import CHARACTERS_PER_TOKEN
from evorun.simulation.loopholes import CLEAR, KINDS, exploit, find_kind, strengths
from evorun.simulation.writing import POINTED, VAGUE


@pytest.mark.parametrize("kind", KINDS)
def test_no_two_exploits_are_alike_and_each_is_of_its_kind_alone(kind: str) -> None:
    rng = np.random.default_rng(0)
    texts = [exploit(kind, rng) for _ in range(300)]
    assert len(set(texts)) > 40
    assert {find_kind(text) for text in texts} == {kind}
    assert not any(sentence in text for sentence in (*POINTED, *VAGUE) for text in texts)
    assert max(map(len, texts)) < 400 * CHARACTERS_PER_TOKEN  # no essay is longer
    others = {other: max(strengths(text)[other] for text in texts) for other in KINDS if other != kind}
    assert all(strength < CLEAR for strength in others.values())


def test_honest_texts_show_no_kind_however_good_they_are() -> None:
    for pointed in range(len(POINTED) + 1):
        text = " ".join((*POINTED[:pointed], *VAGUE[pointed:]))
        assert set(strengths(text).values()) == {0.0}
    assert find_kind("") == ""
    assert find_kind("Someone else wrote these words. They are none of the writer's, and they are honest.") == ""


def test_the_monitors_of_real_runs_see_the_kinds_that_they_are_for() -> None:
    rng = np.random.default_rng(0)
    shown = {kind: measure(exploit(kind, rng), "stop") for kind in KINDS}
    assert shown["language"]["foreign_script"] > 0.5
    assert shown["title"]["title_only"] == 1
    assert shown["length"]["words"] > 140
    for kind in ("flattery", "format"):  # which none of them is for
        assert shown[kind]["foreign_script"] == shown[kind]["title_only"] == 0
