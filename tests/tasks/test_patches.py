"""Changes to programs: blocks that are found and replaced, and what is no change."""

import random

import pytest

from evorun.tasks.patches import MAX_BLOCKS, apply_patch, write_patch

PROGRAM = "a = 1\nb = 2  \n\ndef f():\n    return a\n\ndef g():\n    return a"


def block(search: str, replacement: str) -> str:
    return f"<<<<<<< SEARCH\n{search}\n=======\n{replacement}\n>>>>>>> REPLACE"


def test_blocks_apply_in_order_at_the_first_place() -> None:
    text = f"First:\n{block('    return a', '    return b')}\nThen\n{block('b = 2', 'b = 3')}\n"
    assert apply_patch(PROGRAM, text) == "a = 1\nb = 3\n\ndef f():\n    return b\n\ndef g():\n    return a"
    twice = block("a = 1", "c = 1") + "\n" + block("c = 1", "")
    assert apply_patch("a = 1\nb = 2", twice) == "\nb = 2"
    assert apply_patch("a = 1\nb = 2", block("a = 1", "a = 0").replace("\n", "\r\n")) == "a = 0\nb = 2"


@pytest.mark.parametrize(
    ("text", "kind"),
    [
        ("I would change a.", "no_patch"),
        ("<<<<<<< SEARCH\na = 1\n=======\na = 2", "no_patch"),
        ((block("a = 1", "a = 2") + "\n") * (MAX_BLOCKS + 1), "no_patch: expected at most"),
        (block("a = 4", "a = 2"), "no_match: the lines of block 1"),
        (block("a = 1", "a = 2") + "\n" + block("a = 1", "a = 3"), "no_match: the lines of block 2"),
        (block("return a", "return b"), "no_match"),  # without its indentation
        ("<<<<<<< SEARCH\n=======\na = 2\n>>>>>>> REPLACE", "no_match"),
        (block("a = 1", "a = 1"), "no_change"),
    ],
)
def test_what_is_no_change_is_an_error_with_its_kind(text: str, kind: str) -> None:
    with pytest.raises(ValueError, match=f"^{kind}"):
        apply_patch(PROGRAM, text)


def test_a_written_patch_leads_from_one_program_to_the_other() -> None:
    rng = random.Random(0)
    for _ in range(300):
        old, new = ("\n".join(rng.choices("abcd", k=rng.randint(1, 6))) for _ in range(2))
        if old != new:
            assert apply_patch(old, write_patch(old, new)) == new, (old, new)
    with pytest.raises(ValueError, match="no_change"):
        apply_patch("a\nb", write_patch("a\nb", "a\nb"))
