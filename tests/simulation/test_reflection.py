"""Simulated reflections write edits that apply, in known faulty forms now and then, and know what they are given."""

from collections import Counter
from collections.abc import Sequence
from functools import partial
from typing import Any

import numpy as np
import pytest

from evorun.errors import ConfigError
from evorun.methods.espl.system_prompts import Limits, Patched, SystemPrompt, patch
from evorun.models import Message, Request
from evorun.models.base import Completion, Reply
from evorun.simulation.principles import CATALOGUE, find_principles, merit
from evorun.simulation.reflection import reflect
from evorun.simulation.settings import World
from evorun.simulation.skill import Skill

LIMITS = Limits(principles=50, principle_chars=600, edits=10)
HELD = (CATALOGUE[3], f"{CATALOGUE[4]} {CATALOGUE[5]}", CATALOGUE[20], "Something of the user's own.")


def written(
    role: str,
    principles: Sequence[str],
    rng: np.random.Generator,
    sources: Sequence[Any] = (),
    malformed: float = 0.0,
    **settings: float,
) -> Patched:
    """Return what comes of the edits that a simulated reflection writes."""
    hints = {"role": role, "principles": principles, "max_edits": LIMITS.edits, "sources": sources}
    text = reflect(World(malformed=malformed, **settings), Request(messages=(), hints=hints), rng)
    said = Completion(text=text, finish_reason="stop", tokens=1)
    return patch(principles, Reply(completions=(said,), prompt_tokens=1, seconds=0.0), LIMITS)


def test_edits_apply_and_are_of_every_kind() -> None:
    rng = np.random.default_rng(0)
    applied: Counter[str] = Counter()
    for _ in range(100):
        patched = written("critique", HELD, rng)
        assert not patched.refused
        applied.update(edit.op for edit in patched.edits)
        proposals = [edit._asdict() for edit in (*patched.edits, *written("critique", HELD, rng).edits)]
        assert not written("aggregation", HELD, rng, proposals).refused
    assert set(applied) == {"add", "modify", "merge", "remove"}
    assert {edit.op for edit in written("critique", (), rng, reflection_skill=0).edits} == {"add"}
    nothing_to_do = written("critique", CATALOGUE, rng, reflection_skill=1, harmful_principles=0)
    assert dict(nothing_to_do.refused) == {"no_edits": 1}


def test_an_aggregation_takes_from_the_proposals_and_a_crossover_adds_from_the_others() -> None:
    rng = np.random.default_rng(0)
    proposals = [{"op": "add", "ids": (), "text": CATALOGUE[9]}, {"op": "remove", "ids": (1,), "text": ""}]
    for _ in range(50):
        taken = [edit._asdict() for edit in written("aggregation", HELD, rng, proposals).edits]
        assert taken
        assert all(one in proposals for one in taken)
        crossed = written("crossover", HELD, rng, [CATALOGUE[9], CATALOGUE[3]])
        assert {edit.text for edit in crossed.edits if edit.op == "add"} <= {CATALOGUE[9]}


def test_malformed_replies_are_refused_for_many_reasons() -> None:
    rng = np.random.default_rng(0)
    reasons: Counter[str] = Counter()
    for _ in range(300):
        patched = written("critique", HELD, rng, malformed=1)
        assert patched.principles is None
        reasons.update(patched.refused)
    assert {"not_json", "unknown_op", "unknown_id", "empty_text", "merge_of_one", "conflict"} <= set(reasons)


def merit_after(steps: int, rng: np.random.Generator, **settings: float) -> float:
    principles: tuple[str, ...] = ()
    for _ in range(steps):
        principles = written("critique", principles, rng, **settings).principles or principles
    return merit(World(**{**settings, "principle_gain": 1.0}), SystemPrompt("", principles).text)


def test_reflections_that_know_raise_merit_and_blind_ones_do_not() -> None:
    rng = np.random.default_rng(0)
    alike = {"helpful_principles": 0.4, "harmful_principles": 0.4}
    means = {
        skill: np.mean([merit_after(20, rng, reflection_skill=skill, **alike) for _ in range(12)])
        for skill in (0.0, 0.5, 1.0)
    }
    sizes = World(principle_gain=1.0, helpful_principles=0.4, harmful_principles=0)
    assert means[1.0] == pytest.approx(merit(sizes, " ".join(CATALOGUE)))  # all that help, and none that harm
    assert abs(means[0.0]) < 1
    assert means[0.5] > means[0.0] + 1


def test_a_reply_is_right_as_often_as_skill_principles_and_training_say() -> None:
    skill = Skill(skill=0.3, principle_gain=0.05, principle_seed=3)

    def chance(*principles: str, **hints: Any) -> float:
        system = Message(role="system", content=SystemPrompt("Solve it.", principles).text)
        return skill.answer_chance(Request(messages=(system,), hints={"problem": "p", **hints}), ())

    assert chance(instruction="") == pytest.approx(0.3)
    assert chance(learned=0.2) == pytest.approx(0.5)
    worth = {one: chance(one, instruction="digest") - 0.3 for one in CATALOGUE}
    helping, harming = [m for m in worth.values() if m > 1e-9], [m for m in worth.values() if m < -1e-9]
    assert (len(helping), len(harming)) == (10, 7)  # 40 % and 30 % of 24
    assert np.mean(helping) == pytest.approx(0.05, abs=0.02)
    assert np.mean(harming) == pytest.approx(-0.05, abs=0.02)
    several = list(CATALOGUE[:5])
    assert chance(*several) == pytest.approx(0.3 + sum(worth[one] for one in several))
    assert chance(*several, " ".join(several)) == pytest.approx(chance(*several))  # said twice counts once
    assert merit(World(principle_seed=3, principle_gain=0), several[0]) == 0
    assert merit(World(principle_seed=4), " ".join(several)) != merit(skill, " ".join(several))


@pytest.mark.parametrize(
    ("interaction", "worth"),  # of one principle, before training, halfway and after it
    [(0.0, (1, 1, 1)), (1.0, (0, 0.5, 1)), (0.5, (0.5, 0.75, 1)), (-1.0, (1, 0.5, 0)), (-2.0, (1, 0, -1))],
)
def test_prompt_and_weights_interact_with_either_sign(interaction: float, worth: tuple[float, ...]) -> None:
    skill = Skill(skill=0.3, principle_gain=0.05, principle_seed=3, training_gain=0.4, interaction=interaction)
    helping = max(CATALOGUE, key=partial(merit, skill))
    for learned, share in zip((0.0, 0.2, 0.4), worth, strict=True):
        for earlier in (0.0, learned):  # updates of this run, or of an earlier one
            trained = Skill(**{**vars(skill), "learned": earlier})
            system = Message(role="system", content=SystemPrompt("Solve it.", (helping,)).text)
            request = Request(messages=(system,), hints={"problem": "p", "learned": learned - earlier})
            assert trained.answer_chance(request, ()) == pytest.approx(0.3 + learned + share * merit(skill, helping))


def test_a_principle_is_known_wherever_it_stands_and_no_other_text_is_one() -> None:
    rng = np.random.default_rng(0)
    whole = [reflect(World(malformed=0.0), Request(messages=(), hints={"role": "reflect"}), rng) for _ in range(30)]
    assert not any(find_principles(text) for text in whole)  # GEPA's prompts are worth `instruction_gain`
    assert all(find_principles(f"[G3] {one} And check it.") == (one,) for one in CATALOGUE)


def test_shares_of_more_than_all_principles_are_one_line() -> None:
    with pytest.raises(ConfigError, match=r"^engine\.helpful_principles \+ engine\.harmful_principles"):
        World(helpful_principles=0.7, harmful_principles=0.4)
