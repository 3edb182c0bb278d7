"""Messages as a template takes them: roles adapted by hand-made cases, tokens against the tokenizer itself."""

from collections.abc import Sequence
from typing import Any

import pytest

from evorun.errors import EngineError
from evorun.models import embedded
from evorun.models.base import Message, Role
from evorun.models.chat import adapt_roles, prompt_token_ids, require_chat_template
from evorun.models.config import ModelConfig


def messages(*turns: tuple[Role, str]) -> list[Message]:
    return [Message(role=role, content=content) for role, content in turns]


CASES = {
    "no system message": (
        messages(("user", "u"), ("assistant", "a"), ("user", "v")),
        messages(("user", "u"), ("assistant", "a"), ("user", "v")),
    ),
    "one in front": (messages(("system", "s"), ("user", "u")), messages(("user", "s\n\nu"))),
    "several, kept in order, wherever they are": (
        messages(("system", "s"), ("user", "u"), ("system", "t"), ("assistant", "a"), ("user", "v"), ("system", "w")),
        messages(("user", "s\n\nt\n\nw\n\nu"), ("assistant", "a"), ("user", "v")),
    ),
    "into the first user message, not the first message": (
        messages(("system", "s"), ("assistant", "a"), ("user", "u")),
        messages(("assistant", "a"), ("user", "s\n\nu")),
    ),
    "no user message": (
        messages(("system", "s"), ("assistant", "a"), ("system", "t")),
        messages(("user", "s\n\nt"), ("assistant", "a")),
    ),
    "system messages alone": (messages(("system", "s"), ("system", "t")), messages(("user", "s\n\nt"))),
    "none at all": ([], []),
}


@pytest.mark.parametrize(("given", "merged"), CASES.values(), ids=CASES.keys())
def test_roles_are_adapted(given: Sequence[Message], merged: Sequence[Message]) -> None:
    before = [Message(**message) for message in given]
    assert adapt_roles(given, ModelConfig(name="m", id="m", system_role="merge")) == merged
    assert adapt_roles(given, ModelConfig(name="m", id="m")) == before
    assert given == before


def test_a_tool_s_answer_is_the_user_s_where_the_template_has_none() -> None:
    given = messages(("user", "u"), ("assistant", "a"), ("tool", "42"))
    told = messages(("user", "u"), ("assistant", "a"), ("user", "<tool_response>\n42\n</tool_response>"))
    assert adapt_roles(given, ModelConfig(name="m", id="m", tool_role="user")) == told
    assert adapt_roles(given, ModelConfig(name="m", id="m")) == given


class WithoutTemplate:
    chat_template = None


def test_a_base_model_is_refused() -> None:
    with pytest.raises(EngineError, match="'some/base': its tokenizer has no chat template"):
        require_chat_template(WithoutTemplate(), ModelConfig(name="m", id="some/base"))


def test_channels_take_their_special_tokens() -> None:
    class Harmony:
        chat_template = "<|start|>assistant<|channel|>analysis<|message|>"

        def get_added_vocab(self) -> dict[str, int]:
            return {"<|start|>": 1, "<|channel|>": 2, "<|message|>": 3, "<|end|>": 4, "<|return|>": 5}

    with pytest.raises(EngineError, match=r"has channels, its tokenizer has no token <\|constrain\|>, <\|call\|>;"):
        require_chat_template(Harmony(), ModelConfig(name="oss", id="openai/gpt-oss-120b"))


@pytest.fixture(name="tokenizer", scope="module")
def _tokenizer() -> Any:
    transformers = pytest.importorskip("transformers")
    try:
        folder = embedded.ensure()
    except EngineError as error:
        pytest.skip(str(error))
    return transformers.AutoTokenizer.from_pretrained(folder)


GIVEN = messages(("system", "Be brief."), ("user", "Name a colour."), ("assistant", "Red."), ("user", "Another."))


@pytest.mark.embedded
def test_merged_roles_give_the_tokens_of_a_merged_message(tokenizer: Any) -> None:
    by_hand = [
        {"role": "user", "content": "Be brief.\n\nName a colour."},
        {"role": "assistant", "content": "Red."},
        {"role": "user", "content": "Another."},
    ]
    text = tokenizer.apply_chat_template(by_hand, add_generation_prompt=True, tokenize=False)
    assert text.endswith("<|im_start|>assistant\n")
    ids = prompt_token_ids(tokenizer, GIVEN, ModelConfig(name="m", id="m", system_role="merge"))
    assert ids == tokenizer.encode(text, add_special_tokens=False)


@pytest.mark.embedded
def test_native_roles_keep_the_system_message_apart(tokenizer: Any) -> None:
    ids = prompt_token_ids(tokenizer, GIVEN, ModelConfig(name="m", id="m", system_role="native"))
    turns = "".join(f"<|im_start|>{m['role']}\n{m['content']}<|im_end|>\n" for m in GIVEN)
    assert tokenizer.decode(ids) == f"{turns}<|im_start|>assistant\n"
