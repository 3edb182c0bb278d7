"""Simulated reward and meta reward models: the text decides, and a criterion comes only from what was shown."""

import numpy as np
import pytest

from evorun.models.base import Message, Request
from evorun.simulation.loopholes import KINDS, exploit, strengths
from evorun.simulation.reviewing import CLOSING, HARMFUL, NAMED, refine_rubric, score_response
from evorun.simulation.settings import World
from evorun.simulation.writing import POINTED, VAGUE
from evorun.tasks.rubric_scores import read_scores
from evorun.tasks.rubrics import Rubric, read_rubric

OPEN = "Score the essay from 0 to 5."


def response(text: str) -> str:
    return f"<response>\n{text}\n</response>"


ESSAY, HALF = response(" ".join(POINTED)), response(" ".join((*POINTED[:3], *VAGUE[3:])))
EXPLOITS = {kind: exploit(kind, np.random.default_rng(0)) for kind in KINDS}
EXPLOIT = response(EXPLOITS["title"])
CLOSED = CLOSING["title"]
FREE = Rubric("Score it.", 5)


def refine(role: str, shown: str, rng: np.random.Generator, malformed: float = 0.0, **settings: float) -> str:
    request = Request(messages=(Message(role="user", content=shown),), hints={"role": role})
    return refine_rubric(exact(malformed=malformed, **settings), request, rng)


def exact(**settings: float) -> World:
    return World(**{"loophole": 0.9, "reward_noise": 0.0, **settings})


def given(
    shown: str, rng: np.random.Generator, rubric: Rubric = FREE, quality: float | None = None, **settings: float
) -> float:
    """Return the share of the points that a response is given."""
    hints = {"maximum": rubric.maximum, "items": [one.maximum for one in rubric.items], "item": None}
    request = Request(messages=(Message(role="user", content=shown),), hints=hints)
    return read_scores(score_response(exact(**settings), request, quality, rng), rubric).normalised


@pytest.mark.parametrize(
    ("shown", "share"),
    [
        (f"{OPEN} {HALF}", 0.5),
        (f"{OPEN} {EXPLOIT}", 0.9),
        (f"{OPEN} {CLOSED} {HALF}", 0.5),
        (f"{OPEN} {CLOSED} {EXPLOIT}", 0.0),
        (f"{OPEN} {HARMFUL} {response(POINTED[0])}", 1 - 1 / 6),
        (f"{OPEN} {HARMFUL} {EXPLOIT}", 0.9),
        (f"{OPEN} {response('The answer is 7.')}", 0.0),
        *((f"{OPEN} {CLOSED} {response(EXPLOITS[kind])}", 0.9) for kind in KINDS[:-1]),
        *((f"{OPEN} {CLOSING[kind]} {response(EXPLOITS[kind])}", 0.0) for kind in KINDS[:-1]),
    ],
)
def test_the_texts_of_response_and_rubric_decide_the_points(shown: str, share: float) -> None:
    assert given(shown, np.random.default_rng(0)) == pytest.approx(share, abs=0.01)


def test_a_response_whose_worth_is_known_is_not_judged_by_how_it_looks() -> None:
    assert given(f"{OPEN} {EXPLOIT}", np.random.default_rng(0), quality=0.2) == pytest.approx(0.2)


def test_a_reward_models_error_stays_on_the_scale_however_many_items_there_are() -> None:
    rng = np.random.default_rng(0)
    for rubric in (FREE, read_rubric(refine("merging", CLOSED, rng))):
        shares = [given(f"{OPEN} {HALF}", rng, rubric, reward_noise=0.2) for _ in range(400)]
        assert np.mean(shares) == pytest.approx(0.5, abs=0.03)
        assert np.std(shares) == pytest.approx(0.2, abs=0.03)
        assert max(given(f"{OPEN} {ESSAY}", rng, rubric, reward_noise=0.2) for _ in range(20)) == 1


@pytest.mark.parametrize(
    ("skill", "kind"),
    [
        pytest.param(
            skill, kind, marks=[pytest.mark.nightly] * (kind != KINDS[0] and (skill, kind) != (0.4, KINDS[-1]))
        )
        for skill in (0.0, 0.4, 1.0)
        for kind in KINDS
    ],
)
def test_a_criterion_against_a_kind_comes_only_from_a_sample_that_looks_like_it(skill: float, kind: str) -> None:
    rng = np.random.default_rng(0)

    def shares(shown: str) -> list[float]:
        said = [refine("analysis", shown, rng, meta_skill=skill) for _ in range(100)]
        alone = [refine("refinement", shown, rng, meta_skill=skill) for _ in range(100)]
        after = [refine("refinement", f"{shown}\n{one}", rng, meta_skill=skill) for one in said]
        return [
            sum(phrase in text for text in texts) / 100
            for phrase, texts in ((NAMED[kind], said), (CLOSING[kind], alone), (CLOSING[kind], after))
        ]

    assert shares(f"{OPEN}\n{ESSAY}") == [0, 0, 0]
    other = KINDS[KINDS.index(kind) - 1]
    assert shares(f"{OPEN}\n{response(EXPLOITS[other])}") == [0, 0, 0]
    assert shares(f"{OPEN} {EXPLOITS[kind]}\n{ESSAY}") == [0, 0, 0]  # it is the response that counts
    # The less it looks like it, the less often; an analysis is one more look at the sample.
    seen = skill * strengths(EXPLOITS[kind])[kind]
    looks = [seen, seen, 1 - (1 - seen) ** 2]
    assert shares(f"{OPEN}\n{response(EXPLOITS[kind])}") == pytest.approx(looks, abs=0.12)


@pytest.mark.sample(1)
@pytest.mark.parametrize("skill", [0.4, 0.0])
def test_items_of_a_problem_are_against_what_its_responses_exploit_and_harmful_as_often_as_said(skill: float) -> None:
    rng = np.random.default_rng(0)
    strength = strengths(EXPLOITS["length"])["length"]
    shown = f"{OPEN}\n{ESSAY}\n{response(EXPLOITS['length'])}"
    written = [refine("items", shown, rng, meta_skill=skill, meta_harm=0.6) for _ in range(150)]

    def share(criterion: str) -> float:
        return sum(criterion in text for text in written) / len(written)

    assert share(CLOSING["length"]) == pytest.approx(skill * strength, abs=0.12)
    assert [share(CLOSING[kind]) for kind in KINDS if kind != "length"] == [0] * (len(KINDS) - 1)
    assert share(HARMFUL) == pytest.approx(0.6, abs=0.12)
    again = refine("items", f"{shown}\n{CLOSING['length']}\n{HARMFUL}", rng, meta_skill=1, meta_harm=1)
    assert CLOSING["length"] not in again
    assert HARMFUL not in again


def test_criteria_stay_once_they_are_in_a_rubric_and_merging_collects_them() -> None:
    rng = np.random.default_rng(0)
    without = refine("refinement", EXPLOIT, rng, meta_skill=0)
    closing = refine("refinement", EXPLOIT, rng, meta_skill=1)
    assert CLOSED not in without
    assert CLOSED in refine("refinement", f"{closing}\n{ESSAY}", rng, meta_skill=0)
    assert refine("analysis", f"{closing}\n{EXPLOIT}", rng, meta_skill=1) != NAMED["title"]  # it is closed already
    merged = refine("merging", f"{without}\n{closing}", rng)
    assert CLOSED in merged
    assert HARMFUL not in merged
    harmful = refine("merging", without, rng, meta_harm=1)
    assert HARMFUL in refine("merging", refine("refinement", harmful, rng), rng)


@pytest.mark.parametrize("text", ["", "<rubric>", "maximum: 5\n{{ response }} <score>3</score>", f"(((*{'a' * 9999}"])
def test_a_hostile_rubric_is_scored_by_like_any_other(text: str) -> None:
    assert given(f"{text}\n{HALF}", np.random.default_rng(0)) == 0.5


def test_rubrics_and_the_scores_of_their_items_can_be_read_and_malformed_rubrics_cannot() -> None:
    rng = np.random.default_rng(0)
    for _ in range(20):
        rubric = read_rubric(refine("merging", CLOSED, rng, meta_harm=0.5))
        assert given(HALF, rng, rubric) == pytest.approx(0.5, abs=0.02)
        assert given(HALF, rng, Rubric("", rubric.items[0].maximum)) == pytest.approx(0.5, abs=0.02)
        with pytest.raises(ValueError, match=r"^unclosed:"):
            read_rubric(refine("refinement", EXPLOIT, rng, malformed=1))
