"""Edits of system prompts: examples of each, what holds of any list of them, and replies that hold none."""

import json
from typing import Any

import jsonschema
import pytest
from hypothesis import given
from hypothesis import strategies as st

from evorun.methods.espl.system_prompts import (
    Edit,
    Limits,
    Patched,
    Refused,
    SystemPrompt,
    apply_edits,
    apply_proposals,
    patch,
    read_edits,
    reply_schema,
    without_id,
)
from evorun.models.base import Completion, Reply

LIMITS = Limits(principles=6, principle_chars=20, edits=5)
THREE = ("one", "two", "three")


def reply(edits: Any, finish_reason: Any = "stop", error: str | None = None) -> Reply:
    text = edits if isinstance(edits, str) else json.dumps({"analysis": "so", "edits": edits})
    completion = Completion(text=text, finish_reason=finish_reason, tokens=1)
    return Reply(completions=(completion,), prompt_tokens=1, seconds=0.0, error=error)


def patched(*edits: dict[str, Any], partial: bool = False) -> Patched:
    return patch(THREE, reply(list(edits)), LIMITS, partial=partial)


def test_ids_mean_the_list_as_it_was():
    found = patched(
        {"op": "merge", "ids": ["G1", "G3"], "text": "both"},
        {"op": "add", "text": "four"},
        {"op": "modify", "id": "G2", "text": "second"},
    )
    assert found.principles == ("both", "second", "four")
    assert found.figures == {"edits_merge": 1, "edits_add": 1, "edits_modify": 1}
    assert patched({"op": "remove", "id": "G1"}, {"op": "modify", "id": "G3", "text": "3"}).principles == ("two", "3")


@pytest.mark.parametrize("name", ["G2", "g2", 2, "2", "[G2]", " G2. "])
def test_an_id_may_be_written_in_several_ways(name: Any):
    assert patched({"op": "Modify", "id": name, "text": " new "}).principles == ("one", "new", "three")
    assert patched({"op": "remove", "ids": [name, name]}).principles == ("one", "three")


GOOD = {"op": "modify", "id": "G1", "text": "first"}


@pytest.mark.parametrize(
    ("edit", "reason"),
    [
        ({"op": "replace", "id": "G2", "text": "x"}, "unknown_op"),
        ("remove G2", "unknown_op"),
        ({"op": "modify", "id": "G4", "text": "x"}, "unknown_id"),
        ({"op": "modify", "id": "G0", "text": "x"}, "unknown_id"),
        ({"op": "remove", "id": True}, "unknown_id"),
        ({"op": "remove", "id": {"G": 2}}, "unknown_id"),
        ({"op": "remove", "id": "9" * 5_000}, "unknown_id"),
        ({"op": "remove"}, "unknown_id"),
        ({"op": "merge", "ids": ["G2", "G9"], "text": "x"}, "unknown_id"),
        ({"op": "remove", "ids": ["G2", "G3"]}, "several_ids"),
        ({"op": "merge", "ids": ["G2", "2"], "text": "x"}, "merge_of_one"),
        ({"op": "add", "text": "  "}, "empty_text"),
        ({"op": "modify", "id": "G2"}, "empty_text"),
        ({"op": "add", "text": ["x"]}, "empty_text"),
        ({"op": "add", "text": "x" * 21}, "too_long"),
        ({"op": "add", "text": "a\n\n[G2] b"}, "own_ids"),
        ({"op": "add", "text": "a\n**G2**: b"}, "own_ids"),
        ({"op": "add", "text": "a, see [ g12 ]"}, "own_ids"),
        ({"op": "add", "text": "two"}, "duplicate"),
        ({"op": "modify", "id": "G2", "text": "two"}, "duplicate"),
        ({"op": "merge", "ids": ["G2", "G3"], "text": "first"}, "duplicate"),
    ],
)
def test_a_bad_operation_refuses_its_list_or_is_left_out(edit: Any, reason: str):
    whole, partial = patched(GOOD, edit), patched(GOOD, edit, partial=True)
    assert whole.principles is None
    assert whole.figures == {f"edits_refused_{reason}": 1, "edits_refused_in_refused_list": 1}
    assert partial.principles == ("first", "two", "three")
    assert partial.figures == {"edits_modify": 1, f"edits_refused_{reason}": 1}


@pytest.mark.parametrize("partial", [False, True])
@pytest.mark.parametrize(
    "other",
    [
        {"op": "modify", "id": "G1", "text": "other"},
        {"op": "remove", "id": "G1"},
        {"op": "merge", "ids": ["G2", "G1"], "text": "x"},
    ],
)
def test_of_two_conflicting_operations_neither_is_applied(other: Any, partial: bool):
    for pair in ((GOOD, other), (other, GOOD)):
        assert patched(*pair, partial=partial)[:3] == (None, (), {"conflict": 2})
    third = patched(GOOD, {"op": "add", "text": "four"}, other, partial=True)
    assert third.principles == (*THREE, "four")
    # an operation that is bad by itself contradicts nothing, and the same one twice is no contradiction
    assert patched(GOOD, {**other, "op": "?"}, partial=True).principles == ("first", "two", "three")
    twice = patched(other, {"op": "add", "text": "x"}, other, partial=True)
    assert twice.edits[0].op == other["op"]
    assert twice.refused["duplicate"] >= 1


def test_of_reviewers_proposals_those_apply_that_agree_with_all_others():
    proposals = [Edit("modify", (1,), "a"), *(Edit("add", (), f"new {n}") for n in (1, 2, 2)), Edit("remove", (1,))]
    found = apply_proposals(THREE, [*proposals, Edit("remove", (3,)), Edit("remove", (9,))], LIMITS)
    assert found.principles == ("one", "two", "new 1", "new 2")
    assert found.refused == {"conflict": 2, "duplicate": 1, "unknown_id": 1}
    # the bound is on what applies, and a conflict with an operation beyond it is one
    bounded = apply_proposals(THREE, proposals, Limits(6, 20, 1))
    assert bounded[:3] == (
        (*THREE, "new 1"),
        (Edit("add", (), "new 1"),),
        {"conflict": 2, "duplicate": 1, "too_many": 1},
    )


@pytest.mark.parametrize(
    "written",
    [
        "[G3] Check.",
        "[G3] [G3]  Check.",
        "G3: Check.",
        "**[g3]** Check.",
        "- [G12]: Check.",
        "**G7.** Check.",
        "Check.",
    ],
)
def test_a_leading_id_is_no_part_of_a_text(written: str):
    found = patched({"op": "add", "text": written})
    assert found.principles == (*THREE, "Check.")
    # the numbers shown are the places in the list, and no others
    assert SystemPrompt("", found.principles).text.endswith("[G1] one\n\n[G2] two\n\n[G3] three\n\n[G4] Check.")


@pytest.mark.parametrize("text", ["G7 is a group.", "For G1 and G2 of order p", "a [1] b", "Goal: be right."])
def test_what_only_looks_like_an_id_stays(text: str):
    assert apply_edits((), [Edit("add", (), text)], Limits(6, 50, 5)).principles == (text,)
    assert without_id(text) == text


@pytest.mark.parametrize(
    "token",
    [
        "<|im_start|>",
        "<|im_end|>",
        "</s>",
        "[INST]",
        "<start_of_turn>",
        "<\uff5cUser\uff5c>",
        "[|user|]",
        "[gMASK]",
        "]~b]",
    ],
)
def test_a_chat_templates_tokens_are_broken_up(token: str):
    found = patch(THREE, reply([{"op": "add", "text": f"a {token} b"}]), Limits(6, 60, 5), preamble=f"not {token}")
    assert found.principles is not None
    assert token not in found.principles[-1]
    assert token not in patch((), reply(json.dumps({"analysis": f"so {token}", "edits": [GOOD]})), LIMITS).analysis


def test_a_tag_of_the_system_prompts_own_stays():
    edit = {"op": "add", "text": "Call <tool_call>{}</tool_call> once, not <think>."}
    kept = patch(THREE, reply([edit]), Limits(6, 60, 5), preamble="Use <tool_call>{...}</tool_call>.")
    assert kept.edits[0].text == "Call <tool_call>{}</tool_call> once, not < think>."
    assert patch(THREE, reply([edit]), Limits(6, 60, 5)).edits[0].text.startswith("Call < tool_call>{}< /tool_call>")


def test_the_preamble_is_edited_where_it_may_be():
    edits = [{"op": "modify", "id": "G0", "text": "A longer preamble than 20."}, {"op": "remove", "id": "G2"}]
    found = patch(THREE, reply(edits), LIMITS._replace(preamble_chars=30), preamble="Be right.")
    assert (found.preamble, found.principles) == ("A longer preamble than 20.", ("one", "three"))
    assert patch(THREE, reply(edits), LIMITS, preamble="Be right.").refused == {"unknown_id": 1, "in_refused_list": 1}
    # an edit of principles says nothing of it
    untouched = patch(THREE, reply(edits[1:]), LIMITS._replace(preamble_chars=30), preamble="Be right.")
    assert (untouched.preamble, untouched.principles) == (None, ("one", "three"))


@pytest.mark.parametrize(
    ("edit", "reason"),
    [
        ({"op": "modify", "id": "G0", "text": "x" * 31}, "too_long"),
        ({"op": "modify", "id": "G0", "text": "Be right."}, "duplicate"),
        ({"op": "modify", "id": "G0", "text": "a\n\n[G1] b"}, "own_ids"),
        ({"op": "modify", "id": "G0", "text": " "}, "empty_text"),
        ({"op": "remove", "id": "G0"}, "unknown_id"),
        ({"op": "merge", "ids": ["G0", "G1"], "text": "x"}, "unknown_id"),
        ({"op": "modify", "id": "?", "text": "x"}, "unknown_id"),
        ({"op": "modify", "id": -1, "text": "x"}, "unknown_id"),
    ],
)
def test_a_preamble_is_bounded_and_never_taken_out(edit: Any, reason: str):
    found = patch(THREE, reply([edit]), LIMITS._replace(preamble_chars=30), partial=True, preamble="Be right.")
    assert found[:3] == (None, (), {reason: 1})


def test_a_merge_may_keep_the_words_of_one_of_its_own():
    assert patched({"op": "merge", "ids": ["G1", "G2"], "text": "two"}).principles == ("two", "three")


def test_principles_and_operations_are_bounded():
    add = [{"op": "add", "text": f"new {number}"} for number in range(6)]
    assert patched(*add[:4]).refused == {"too_many": 1, "in_refused_list": 3}
    assert patched(*add[:4], partial=True).principles == (*THREE, "new 0", "new 1", "new 2")
    # room that another operation of the list makes counts
    assert patched(*add[:4], {"op": "remove", "id": "G1"}).principles == (
        "two",
        "three",
        *(one["text"] for one in add[:4]),
    )
    assert patched(*add, partial=True).refused == {"too_many": 3}  # the sixth operation, and two for want of room
    # a system prompt that holds more already may be edited
    assert apply_edits(THREE, [Edit("modify", (1,), "1")], Limits(2, 20, 5)).principles == ("1", "two", "three")


def test_braces_around_the_edits_do_not_hide_them() -> None:
    text = json.dumps({"analysis": "a", "edits": [{"op": "add", "text": "t"}]})
    said = reply(f"As $\\frac{{1}}{{2}}$ of {{98, 100}}:\n{text}\nwhere $x_{{1}}$ counts.")
    assert read_edits(said) == [Edit("add", (), "t")]
    assert patch(THREE, said, LIMITS).analysis == "a"


@pytest.mark.parametrize(
    ("given_reply", "reason"),
    [
        (reply([GOOD], "length"), "cut_off"),
        (reply([GOOD], "overlong"), "cut_off"),
        (reply("", error="too long"), "rejected"),
        (reply("I would add a principle."), "not_json"),
        (reply('{"edits": {"op": "remove"}}'), "not_json"),
        (reply("[" * 10_000), "not_json"),
        (reply([]), "no_edits"),
    ],
)
def test_a_reply_without_edits_is_refused(given_reply: Reply, reason: str):
    with pytest.raises(Refused, match=f"^{reason}$"):
        read_edits(given_reply)
    assert patch(THREE, given_reply, LIMITS, partial=True)[:3] == (None, (), {reason: 1})


def test_edits_are_found_behind_thinking_and_in_fences():
    text = '<think>{"edits": []}</think>Here they are:\n```json\n{"edits": [{"op": "remove", "id": "G1"},]}\n```'
    assert read_edits(reply(text)) == [Edit("remove", (1,))]
    assert read_edits(reply('{"edits": [{"op": "add", "text": "\\ud800x"}]}'))[0].text == "?x"


edits = st.builds(
    Edit,
    st.sampled_from(["add", "modify", "merge", "remove", "?"]),
    st.lists(st.integers(0, 5), unique=True, max_size=3).map(tuple),
    st.text("ab", max_size=3),
).map(lambda edit: edit._replace(ids=()) if edit.op == "add" else edit)
lists = st.lists(edits, max_size=6)
held = st.lists(st.text("ab", min_size=1, max_size=3), max_size=5, unique=True).map(tuple)


@given(held, lists, st.booleans())
def test_every_operation_is_applied_or_counted_by_its_reason(principles, given_edits, partial):
    found = apply_edits(principles, given_edits, LIMITS, partial=partial)
    assert len(found.edits) + sum(found.refused.values()) == len(given_edits)
    assert (found.principles is None) == (not found.edits)
    if not partial and found.refused:
        assert found.principles is None


@given(held, lists)
def test_what_partial_edits_leave_applies_whole(principles, given_edits):
    found = apply_edits(principles, given_edits, LIMITS, partial=True)
    assert apply_edits(principles, found.edits, LIMITS)[:2] == found[:2]


@given(held, lists)
def test_edits_do_what_they_say_and_nothing_else(principles, given_edits):
    found = apply_edits(principles, given_edits, LIMITS, partial=True)
    if found.principles is None:
        return
    named = [number for edit in found.edits for number in edit.ids]
    assert len(named) == len(set(named))
    untouched = [text for number, text in enumerate(principles, 1) if number not in named]
    written = [edit.text for edit in found.edits if edit.op != "remove"]
    assert sorted(found.principles) == sorted([*untouched, *written])
    assert [text for text in found.principles if text in untouched and text not in written] == [
        text for text in untouched if text not in written
    ]
    assert len(found.principles) <= max(LIMITS.principles, len(principles))


@given(held, lists, st.randoms(use_true_random=False))
def test_the_order_of_operations_means_nothing(principles, given_edits, random):
    found = apply_edits(principles, given_edits, LIMITS, partial=True)
    shuffled = sorted(found.edits, key=lambda edit: (edit.op == "add", random.random() if edit.op != "add" else 0))
    assert apply_edits(principles, shuffled, LIMITS).principles == found.principles


def test_a_system_prompt_shows_its_principles_by_number():
    assert SystemPrompt("Be careful.").text == "Be careful."
    text = SystemPrompt("Be careful.", ("check", "count")).text
    assert text.startswith("Be careful.\n\n")
    assert text.endswith(":\n\n[G1] check\n\n[G2] count")
    assert SystemPrompt("", ("check",)).text.endswith("[G1] check")
    assert not SystemPrompt("", ("check",)).text.startswith("\n")


@pytest.mark.parametrize("count", [0, 1, 3])
def test_a_schema_allows_the_operations_that_the_principles_do(count: int):
    schema = reply_schema(count, LIMITS)
    jsonschema.Draft202012Validator.check_schema(schema)
    validator = jsonschema.Draft202012Validator(schema)

    def allows(**edit: Any) -> bool:
        return validator.is_valid({"analysis": "so", "edits": [edit]})

    assert allows(op="add", text="x" * 20)
    assert not allows(op="add", text="x" * 21)
    assert not allows(op="add", text="")
    assert allows(op="modify", id="G1", text="x") == allows(op="remove", id="G1") == (count > 0)
    assert allows(op="merge", ids=["G1", "G3"], text="x") == (count > 1)
    assert not allows(op="remove", id=f"G{count + 1}")
    assert not allows(op="merge", ids=["G1"], text="x")
    assert not validator.is_valid({"analysis": "so", "edits": [{"op": "add", "text": "x"}] * 6})
    assert not allows(op="modify", id="G0", text="x")
    validator = jsonschema.Draft202012Validator(reply_schema(count, LIMITS._replace(preamble_chars=30)))
    assert allows(op="modify", id="G0", text="x" * 30)
    assert not allows(op="modify", id="G0", text="x" * 31)
    assert not allows(op="remove", id="G0")
