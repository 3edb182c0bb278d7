"""Files of conversations: what is wrong in them, and what is held out of them."""

import json
import random
from pathlib import Path
from typing import Any

import pytest

from evorun.errors import DataError
from evorun.training.conversations import Split, read_split

ASKED = {"role": "user", "content": "Why?"}
SAID = {"role": "assistant", "content": "So."}


def write(file: Path, *lines: Any) -> Path:
    file.write_text("".join((line if isinstance(line, str) else json.dumps(line)) + "\n" for line in lines))
    return file


def chat(asked: str = "Why?", **more: Any) -> dict[str, Any]:
    return {"messages": [{"role": "user", "content": asked}, SAID], **more}


def lines_of(split: Split) -> tuple[list[int], list[int]]:
    return [one.line for one in split.train], [one.line for one in split.held_out]


@pytest.mark.parametrize(
    ("lines", "reason"),
    [
        ([], r"expected conversations, one per line, found none$"),
        ([chat(), "{"], r", line 2: expected .*truncated$"),
        (["", chat(), [1]], r", line 3: expected \{\"messages\".*array"),
        ([{"text": "Why? So."}], r", line 1: expected .*missing required field `messages`"),
        ([{"messages": [{"role": "user", "content": None}]}], r", line 1: expected .*content"),
        ([{"messages": []}], r", line 1: expected an answer of the assistant, got none$"),
        ([{"messages": [ASKED]}], r", line 1: expected an answer of the assistant, got none$"),
        ([{"messages": [SAID]}], r", line 1: expected a prompt of the user before the first answer, got none$"),
        ([chat(" \n")], r", line 1: message 1 \(user\) is empty$"),
        ([{"messages": [{"role": "system", "content": ""}, ASKED, SAID]}], r", line 1: message 1 \(system\) is empty$"),
        (
            [{"messages": [ASKED, SAID, {"role": "function", "content": "5"}]}],
            r", line 1: message 3: expected a role of system, user, assistant, tool, got 'function'$",
        ),
        (
            [{"messages": [ASKED, {"role": "assistant", "content": ""}]}],
            r"expected conversations, one per line, found none but 1 with an empty answer$",
        ),
    ],
)
def test_what_cannot_be_learned_from_is_named_with_its_line(tmp_path: Path, lines: list[Any], reason: str) -> None:
    file = write(tmp_path / "chats.jsonl", *lines)
    with pytest.raises(DataError, match=rf"chats\.jsonl.*(?:{reason})") as caught:
        read_split(file, limit=None, held_out=0)
    assert "\n" not in str(caught.value)


def test_a_file_that_is_not_there_or_no_file_is_named(tmp_path: Path) -> None:
    for file in (tmp_path / "none.jsonl", tmp_path):
        with pytest.raises(DataError, match=r"^method.data: cannot read .*; expected a JSONL file$"):
            read_split(file, limit=None, held_out=0)


def test_text_that_is_no_utf_8_is_named(tmp_path: Path) -> None:
    file = tmp_path / "latin.jsonl"
    file.write_bytes(json.dumps(chat("Wie schön?"), ensure_ascii=False).encode("latin-1"))
    with pytest.raises(DataError, match=r"latin.jsonl, line 1: expected "):
        read_split(file, limit=None, held_out=0)


def test_conversations_with_an_empty_answer_are_counted_and_left_out(tmp_path: Path) -> None:
    mute = {"messages": [ASKED, {"role": "assistant", "content": "\n"}, ASKED, SAID]}
    split = read_split(write(tmp_path / "a", chat("1"), mute, chat("2")), limit=None, held_out=0)
    assert lines_of(split) == ([1, 3], [])
    assert split.empty == 1


def test_roles_and_texts_are_kept_and_the_rest_is_not(tmp_path: Path) -> None:
    told = {"role": "tool", "content": "5"}
    messages = [{"role": "system", "content": " Be brief. "}, {**ASKED, "name": "Ada"}, SAID, told, SAID]
    split = read_split(write(tmp_path / "a", {"messages": messages, "source": 3}), limit=None, held_out=0)
    assert [dict(m) for m in split.train[0].messages] == [messages[0], ASKED, SAID, told, SAID]


@pytest.mark.parametrize("share", [0.1, 0.25, 0.5])
def test_the_share_that_is_held_out(tmp_path: Path, share: float) -> None:
    file = write(tmp_path / "a", *(chat(f"Why {i}?") for i in range(40)))
    train, held_out = lines_of(read_split(file, limit=None, held_out=share))
    assert len(held_out) == 40 * share
    assert sorted(train + held_out) == list(range(1, 41))
    assert train == sorted(train)
    assert held_out != list(range(held_out[0], held_out[0] + len(held_out)))  # not one stretch of the file


def test_no_problem_is_in_both_parts(tmp_path: Path) -> None:
    rows = [chat(f"Ask {i}", problem=f"p{i % 7}", task="ab"[i % 2]) for i in range(60)]
    split = read_split(write(tmp_path / "a", *rows), limit=None, held_out=0.3)
    problems = [{(rows[n - 1]["problem"], rows[n - 1]["task"]) for n in part} for part in lines_of(split)]
    assert not problems[0] & problems[1]
    assert 0.15 < len(split.held_out) / 60 <= 0.3


def test_no_prompt_is_in_both_parts_where_no_problem_is_named(tmp_path: Path) -> None:
    rows = [chat(f"Why {i % 5}?", problem=None) for i in range(20)]
    _, held_out = lines_of(read_split(write(tmp_path / "a", *rows), limit=None, held_out=0.2))
    assert len(held_out) == 4
    assert len({n % 5 for n in held_out}) == 1


def test_prompts_are_told_apart_by_what_was_asked_and_not_by_the_answer(tmp_path: Path) -> None:
    rows = [
        {"messages": [{"role": "user", "content": f"Why {i % 8}?"}, {**SAID, "content": f"So {i}."}]} for i in range(16)
    ]
    train, held_out = lines_of(read_split(write(tmp_path / "a", *rows), limit=None, held_out=0.5))
    assert len(train) == len(held_out) == 8
    assert not {n % 8 for n in train} & {n % 8 for n in held_out}


def test_problems_of_one_name_in_two_tasks_are_two(tmp_path: Path) -> None:
    file = write(tmp_path / "a", chat("1", problem="p", task="a"), chat("2", problem="p", task="b"))
    split = read_split(file, limit=None, held_out=0.5)
    assert (len(split.train), len(split.held_out)) == (1, 1)


def test_neither_the_files_order_nor_what_is_added_changes_what_is_held_out(tmp_path: Path) -> None:
    rows = [chat(f"Why {i}?") for i in range(30)]

    def asked(rows: list[Any]) -> set[str]:
        split = read_split(write(tmp_path / "a", *rows), limit=None, held_out=0.2)
        return {one.messages[0]["content"] for one in split.held_out}

    assert asked(random.Random(1).sample(rows, 30)) == asked(rows)
    assert len(asked([*rows, *(chat(f"How {i}?") for i in range(30))]) & asked(rows)) >= 2


def test_one_problem_alone_cannot_be_held_out(tmp_path: Path) -> None:
    file = write(tmp_path / "a", *(chat(f"Why {i}?", problem=3) for i in range(4)))
    with pytest.raises(DataError, match=r"got 4 about one; set method.held_out=0$"):
        read_split(file, limit=None, held_out=0.5)
    both = write(tmp_path / "b", chat("Why?"), chat("How?"), chat("How?"))
    assert lines_of(read_split(both, limit=None, held_out=0.1)) == ([2, 3], [1])


def test_a_limit_takes_the_first_ones(tmp_path: Path) -> None:
    file = write(tmp_path / "a", chat("1"), "", chat("2"), "{")
    assert lines_of(read_split(file, limit=2, held_out=0)) == ([1, 3], [])
