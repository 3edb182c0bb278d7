"""ACE: a playbook with counters grows by reflection and a curator, and all problems are answered under it."""

import json
import re
from collections import Counter
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from building import make_budget, make_method, simulated_run
from evorun.methods.ace.ace import Ace
from evorun.methods.ace.playbook import SECTIONS, Entry, Limits, Playbook, read_tags, similarity
from method_fixture import SEED_INSTRUCTION, Ask, Driven, Script, drive

LIMITS = Limits(additions=3, entry_chars=40, playbook_chars=10_000)


def ace(**changes: Any) -> Ace:
    return make_method("ace", **{"problems": 4, "eval_every": 2, "remeasure": True, **changes})


def says(right: Script) -> Script:
    """Return a model that answers as `right` says, reviews, and adds an entry for each problem."""

    def said(ask: Ask) -> Any:
        if ask.role == "reflect":
            tags = [{"id": found, "tag": "helpful"} for found in re.findall(r"\[(B\d+)\] helpful", ask.shown["text"])]
            return json.dumps({"analysis": f"review {ask.step}.{ask.index}", "tags": tags})
        if ask.role == "curate":
            return json.dumps({"analysis": "", "additions": [{"section": "code", "text": f"advice {ask.step}"}]})
        return right(ask)

    return said


async def learn(tmp_path: Path, right: Script, **changes: Any) -> Driven:
    return await drive(ace(**changes), tmp_path, says(right), problems=2, validation=6)


def calls(driven: Driven, step: int) -> list[tuple[str, int]]:
    """Return role and index of the calls of a step that learn."""
    return [(ask.role, ask.index) for ask in driven.model.asked if ask.step == step and ask.role != "evaluate"]


async def test_a_right_answer_takes_four_calls_and_a_wrong_one_up_to_nine(tmp_path: Path) -> None:
    def right(ask: Ask) -> str:
        """Be right at once at step 1, after two reflections at step 2, and never at step 3."""
        first_right = {1: 0, 2: 2, 3: 9}.get(ask.step, 0)
        return "right" if ask.index >= first_right else "wrong"

    driven = await learn(tmp_path, right)
    measured = ("generate", 4)
    assert calls(driven, 1) == [("generate", 0), ("reflect", 0), ("curate", 0), measured]
    assert calls(driven, 2) == [
        *(("generate", 0), ("reflect", 0), ("generate", 1), ("reflect", 1), ("generate", 2)),
        *(("curate", 0), measured),
    ]
    assert calls(driven, 3) == [
        *(("generate", 0), ("reflect", 0), ("generate", 1), ("reflect", 1), ("generate", 2)),
        *(("reflect", 2), ("generate", 3), ("curate", 0), measured),
    ]
    assert len(calls(driven, 3)) == ace().max_calls_of_a_problem(turns=1) == 9
    # Another attempt sees the last review, and its successor only the next one.
    again = [ask for ask in driven.model.asked if ask.role == "generate" and ask.step == 3 and 0 < ask.index < 4]
    assert [re.findall(r"review [\d.]+", ask.shown["text"]) for ask in again] == [
        ["review 3.0"], ["review 3.1"], ["review 3.2"]
    ]  # fmt: skip
    figures = {record["step"]: record["figures"] for record in driven.records("training")}
    assert [figures[step]["first_attempt"] for step in (1, 2, 3)] == [1, 0, 0]
    assert [figures[step]["last_attempt"] for step in (1, 2, 3)] == [1, 1, 0]


async def test_problems_are_answered_under_the_playbook_so_far(tmp_path: Path) -> None:
    driven = await learn(tmp_path, lambda ask: "right")
    evaluated = {step: ask.instruction or "" for ask in driven.model.of("evaluate") if (step := ask.step) is not None}
    assert list(evaluated) == [0, 2, 4]
    assert evaluated[0] == SEED_INSTRUCTION
    for step in (2, 4):
        assert evaluated[step].startswith(SEED_INSTRUCTION)
        assert re.findall(r"advice \d", evaluated[step]) == [f"advice {number}" for number in range(1, step + 1)]
    # The entry of step 1 is shown, and tagged, at steps 2, 3 and 4; each version's parent is the one before.
    assert "[B1] helpful=3 harmful=0 :: advice 1" in evaluated[4]
    shared = [record for record in driven.records("candidates") if record["problem"] == "*"]
    assert [record["parents"] for record in shared] == [[], *([record["id"]] for record in shared[:-1])]


async def test_an_attempt_that_names_entries_has_only_these_judged(tmp_path: Path) -> None:
    driven = await learn(tmp_path, lambda ask: "right because of [B1], not of [B77]")
    last = next(ask for ask in driven.model.of("reflect") if ask.step == 4)
    assert re.findall(r"\[(B\d+)\] helpful", last.shown["text"].partition("# Entries")[2]) == ["B1"]


async def test_without_labels_reflections_lack_the_right_answer(tmp_path: Path) -> None:
    told = [
        (await learn(tmp_path / str(labels), lambda ask: "wrong", labels=labels)).model.of("reflect")[0].shown["text"]
        for labels in (True, False)
    ]
    assert ["known: right" in text for text in told] == [True, False]
    assert all("The attempt was wrong" in text for text in told)


@pytest.fixture(scope="module", name="own_retry")
def _own_retry(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Return a folder with a folder `own` of prompts."""
    folder = tmp_path_factory.mktemp("prompts")
    (folder / "own").mkdir()
    (folder / "own" / "retry.md").write_text("{{ question }} Again: {{ reflection }}")
    return folder


CHANGES: dict[str, Any] = {
    **{"epochs": 2, "problems": 3, "rounds": 1, "curator_every": 2, "labels": False, "remeasure": False},
    **{"additions": 1, "entry_chars": 5, "playbook_chars": 30, "merge_from": 0.4, "shown_chars": 10, "eval_every": 3},
    **{"eval_samples": 2, "eval_max_tokens": 9, "temperature": 0.3, "top_p": 0.7, "max_tokens": 77},
    **{"reflection_temperature": 0.4, "reflection_max_tokens": 55, "operator_prompts": "own"},
}


@pytest.mark.parametrize("field", [*CHANGES, "eval_temperature", "eval_top_p"])
async def test_every_field_changes_what_is_asked(
    tmp_path: Path, own_retry: Path, field: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(own_retry)
    two = [{"section": "code", "text": f"{word} advice"} for word in ("first", "second")]

    def said(ask: Ask) -> Any:
        return json.dumps({"additions": two}) if ask.role == "curate" else "wrong" if ask.step % 2 else "right"

    base = {"problems": None if field == "epochs" else 5, "eval_samples": 1 if field.startswith("eval_t") else 0}
    changes = {"eval_temperature": 0.2, "eval_top_p": 0.6, **CHANGES}
    asked = [
        (await drive(ace(**{**base, **change}), tmp_path / str(len(change)), said, problems=2, validation=5)).model
        for change in ({}, {field: changes[field]})
    ]
    first, second = (
        [(ask.step, ask.role, ask.index, ask.request.messages, ask.request.sampling) for ask in model.asked]
        for model in asked
    )
    assert Counter(map(repr, first)) != Counter(map(repr, second))


async def test_a_budget_keeps_the_last_evaluation_affordable(tmp_path: Path) -> None:
    # Two answers at first; then a problem may take nine calls, and is learned from where two more answers are left.
    driven = await drive(ace(eval_every=None), tmp_path, says(lambda ask: "right"), problems=2, validation=6,
                         budget=make_budget(calls=19))  # fmt: skip
    assert {ask.step for ask in driven.model.of("curate")} == {1, 2}
    assert [ask.step for ask in driven.model.of("evaluate")] == [0, 0, 2, 2]
    assert len(driven.model.asked) == 2 + 4 + 4 + 2 <= 19


# --- the playbook ---


def test_additions_are_cleaned_counted_and_refused_with_a_reason() -> None:
    written = [{"section": "code", "text": "use  a\ntable [B7]"}, {"section": "poems", "text": "<think>rest</think>"}]
    playbook, refused = Playbook().add([*written, {"section": "code", "text": "use a table"}, {}], LIMITS)
    assert playbook.entries == (Entry(1, "code", "use a table"), Entry(2, "others", "< think>rest< /think>"))
    assert refused == {"duplicate": 1, "too_many": 1}
    faults = [{"text": " "}, {"text": "x" * 41}, "no object"]
    assert playbook.add(faults, LIMITS)[1] == {"empty_text": 2, "too_long": 1}
    assert playbook.add(written[:1], LIMITS)[1] == {"duplicate": 1}
    assert playbook.add([{"text": "more"}], LIMITS._replace(playbook_chars=20))[1] == {"full": 1}


@given(st.lists(st.tuples(st.integers(1, 6), st.sampled_from(["helpful", "harmful", "neutral", "great"])), max_size=20))
def test_counters_are_sums_of_tags_of_shown_entries(tagged: list[tuple[int, str]]) -> None:
    playbook = Playbook(tuple(Entry(number, SECTIONS[0], f"text {number}") for number in range(1, 5)), 5)
    expected = Counter[tuple[int, str]]()
    for number, tag in tagged:
        playbook = playbook.tag(read_tags([{"id": f"[B{number}]", "tag": tag}], playbook.entries[:3]))
        expected[number, tag] += number < 4
    for entry in playbook.entries:
        assert entry.helpful == expected[entry.number, "helpful"]
        assert entry.harmful == expected[entry.number, "harmful"]


def test_similarity_is_the_cosine_of_word_counts() -> None:
    first, second = "check every sum, check twice", "check a sum"
    words = ("check", "every", "sum", "twice", "a")
    vectors = np.array([[2, 1, 1, 1, 0], [1, 0, 1, 0, 1]])
    assert len(words) == vectors.shape[1]
    cosine = vectors[0] @ vectors[1] / np.prod(np.linalg.norm(vectors, axis=1))
    assert similarity(first, second) == pytest.approx(cosine)
    assert similarity(first, "") == 0
    entries = (Entry(1, "code", first, 2, 1), Entry(2, "code", first.upper(), 1, 1), Entry(3, "others", first, 1, 0))
    merged = Playbook(entries, 4).merge_similar(0.99)
    assert merged.entries == (Entry(1, "code", first, 3, 2), entries[2])


# --- on simulated models ---


@pytest.mark.sample(1)
@pytest.mark.parametrize(("world", "gains"), [((0.8, 0.0, 1.0), True), ((0.0, 0.8, 0.0), False)])
def test_it_gains_where_principles_help_and_loses_where_they_harm(
    tmp_path: Path, world: tuple[float, float, float], gains: bool
) -> None:
    helpful, harmful, reflection_skill = world
    run = simulated_run(
        tmp_path / "run",
        *("method=ace", "task=arithmetic", "task.limit=40", "method.problems=25", "method.eval_every=null"),
        *("engine.skill=0.45", "engine.spread=0", "engine.principle_gain=0.04", "engine.mean_tokens=1"),
        *(f"engine.helpful_principles={helpful}", f"engine.harmful_principles={harmful}", "method.rounds=1"),
        f"engine.reflection_skill={reflection_skill}",
    )
    accuracy = {point["step"]: point["value"] for point in run.records("metrics") if point["name"] == "accuracy"}
    gain = accuracy[max(accuracy)] - accuracy[0]
    assert gain > 0.15 if gains else gain < -0.15
