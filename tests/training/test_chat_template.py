"""The tokens of a conversation that are learned, against texts put together by hand and against TRL's masks."""

from collections.abc import Iterator
from functools import cache
from pathlib import Path
from typing import Any
from unittest import mock

import pytest
import trl
from hypothesis import given
from hypothesis import strategies as st
from transformers import AutoTokenizer

from evorun.errors import EngineError, TrainingError
from evorun.models.base import Message
from evorun.models.channels import find_channels
from evorun.models.chat import adapt_roles, prompt_token_ids, require_tool_turn
from evorun.models.config import ModelConfig
from evorun.models.embedded import ensure
from evorun.training.chat_template import NOT_LEARNED, tokenize_example
from tiny_llama import write_short_tokenizer

TEMPLATES = Path(trl.__file__).parent / "chat_templates"
MODEL = ModelConfig(name="a", id="a")

SPECIAL = {
    "smollm2": ["<|im_end|>"],
    "qwen2_5": ["<|im_end|>"],
    "qwen3": ["<|im_end|>"],
    "llama3": ["<|begin_of_text|>", "<|start_header_id|>", "<|end_header_id|>", "<|eot_id|>"],
    "gemma": ["<bos>", "<start_of_turn>", "<end_of_turn>"],
    "phi3": ["<|user|>", "<|assistant|>", "<|end|>"],
    "gptoss": ["<|start|>", "<|channel|>", "<|constrain|>", "<|message|>", "<|end|>", "<|call|>", "<|return|>"],
}
"""Tokens of each template; the last one ends a turn."""


def chat(*texts: str, system: str | None = None) -> list[Message]:
    turns = [Message(role="assistant" if i % 2 else "user", content=text) for i, text in enumerate(texts)]
    return turns if system is None else [Message(role="system", content=system), *turns]


CHAT = chat("What is 2+3?", "It is 5.\n\nYes: 5", "And 10 more?", "15!", system="Be brief.")


@pytest.fixture(autouse=True, scope="module")
def _short_tokenizer(tmp_path_factory: pytest.TempPathFactory) -> Iterator[None]:
    """Have a tokenizer of few tokens loaded: that of all takes ten times as long."""
    folder = tmp_path_factory.mktemp("tokenizer")
    write_short_tokenizer(folder)
    with mock.patch(f"{__name__}.ensure", return_value=folder):
        yield


@cache
def tokenizer(name: str) -> Any:
    made = AutoTokenizer.from_pretrained(ensure())
    made.add_special_tokens({"additional_special_tokens": SPECIAL[name]})
    if name != "smollm2":
        made.chat_template = (TEMPLATES / f"{name}.jinja").read_text()
        made.bos_token = SPECIAL[name][0]
        made.eos_token = "<|endoftext|>" if name == "phi3" else SPECIAL[name][-1]
    return made


def ends(name: str) -> set[int]:
    return {tokenizer(name).convert_tokens_to_ids(SPECIAL[name][-1])}


def learned_text(name: str, messages: list[Message]) -> str:
    """Return what is learned, stretches divided by |."""
    one = tokenize_example(tokenizer(name), messages, MODEL, ends(name))
    stretches: list[list[int]] = [[]]
    for label in one.labels:
        if label != NOT_LEARNED:
            stretches[-1].append(label)
        elif stretches[-1]:
            stretches.append([])
    return "|".join(tokenizer(name).decode(stretch) for stretch in stretches if stretch)


def by_hand(name: str, pieces: list[tuple[str, bool]]) -> tuple[list[int], list[int]]:
    """Tokenise each piece by itself; those that say so are learned."""
    tokens: list[int] = []
    labels: list[int] = []
    for text, learned in pieces:
        ids = tokenizer(name)(text, add_special_tokens=False)["input_ids"]
        tokens += ids
        labels += ids if learned else [NOT_LEARNED] * len(ids)
    return tokens, labels


def test_the_embedded_models_template() -> None:
    expected = by_hand(
        "smollm2",
        [
            ("<|im_start|>system\nBe brief.<|im_end|>\n<|im_start|>user\nWhat is 2+3?<|im_end|>\n", False),
            ("<|im_start|>assistant\n", False),
            ("It is 5.\n\nYes: 5<|im_end|>", True),
            ("\n<|im_start|>user\nAnd 10 more?<|im_end|>\n<|im_start|>assistant\n", False),
            ("15!<|im_end|>", True),
            ("\n", False),
        ],
    )
    assert tokenize_example(tokenizer("smollm2"), CHAT, MODEL, ends("smollm2")) == expected


def test_llama_3s_template() -> None:
    head = "<|start_header_id|>{}<|end_header_id|>\n\n".format
    expected = by_hand(
        "llama3",
        [
            (
                "<|begin_of_text|>" + head("system") + "Be brief.<|eot_id|>" + head("user") + "What is 2+3?<|eot_id|>",
                False,
            ),
            (head("assistant"), False),
            ("It is 5.\n\nYes: 5<|eot_id|>", True),
            (head("user") + "And 10 more?<|eot_id|>" + head("assistant"), False),
            ("15!<|eot_id|>", True),
        ],
    )
    assert tokenize_example(tokenizer("llama3"), CHAT, MODEL, ends("llama3")) == expected


@pytest.mark.parametrize("name", ["smollm2", "qwen2_5", "llama3", "gemma", "phi3"])
def test_answers_with_their_end_of_turn_are_learned_and_nothing_else(name: str) -> None:
    end = SPECIAL[name][-1]
    assert learned_text(name, CHAT[1:]) == f"It is 5.\n\nYes: 5{end}|15!{end}"


@pytest.mark.parametrize("name", ["qwen2_5", "llama3", "gemma", "phi3"])
def test_trls_own_training_templates_mask_the_same(name: str) -> None:
    template = (TEMPLATES / f"{name}_training.jinja").read_text()
    marked = tokenizer(name).apply_chat_template(
        CHAT[1:], chat_template=template, tokenize=True, return_dict=True, return_assistant_tokens_mask=True
    )
    ours = tokenize_example(tokenizer(name), CHAT[1:], MODEL, ends(name))
    theirs = [token for token, mask in zip(marked["input_ids"], marked["assistant_masks"], strict=True) if mask]
    trained = [label for label in ours.labels if label != NOT_LEARNED]
    # TRL also marks line breaks around an answer, and with Phi-3 what follows all turns: the model never writes them.
    marked_text = tokenizer(name).decode(theirs).replace("\n", "").removesuffix("<|endoftext|>")
    assert marked_text == tokenizer(name).decode(trained).replace("\n", "")


WORDS = st.text(st.sampled_from("ab 1\n.é<|"), min_size=1, max_size=12).filter(lambda text: text.strip())


@given(st.lists(st.tuples(WORDS, WORDS), min_size=1, max_size=3))
def test_the_prompt_is_what_the_model_is_asked_and_the_answer_what_it_said(turns: list[tuple[str, str]]) -> None:
    messages = chat(*(text for turn in turns for text in turn))
    one = tokenize_example(tokenizer("smollm2"), messages, MODEL, ends("smollm2"))
    assert tokenizer("smollm2").decode(one.tokens) == tokenizer("smollm2").apply_chat_template(messages, tokenize=False)
    prompt = prompt_token_ids(tokenizer("smollm2"), messages[:1], MODEL)
    assert one.tokens[: len(prompt)] == prompt
    assert learned_text("smollm2", messages) == "|".join(f"{answer}<|im_end|>" for _, answer in turns)


def test_a_system_message_is_merged_where_the_template_takes_none() -> None:
    merging = ModelConfig(name="a", id="a", system_role="merge")
    one = tokenize_example(tokenizer("gemma"), chat("Hi", "Ho", system="Be brief."), merging, ends("gemma"))
    assert tokenizer("gemma").decode(one.tokens) == (
        "<bos><start_of_turn>user\nBe brief.\n\nHi<end_of_turn>\n<start_of_turn>model\nHo<end_of_turn>\n"
    )
    with pytest.raises(TrainingError, match="chat template of model 'a' refuses it: System role not supported"):
        tokenize_example(tokenizer("gemma"), chat("Hi", "Ho", system="Be brief."), MODEL, ends("gemma"))


def test_settings_of_the_template_count() -> None:
    quiet = ModelConfig(name="a", id="a", chat_template_kwargs={"enable_thinking": False})
    asked = prompt_token_ids(tokenizer("qwen3"), chat("Hi"), quiet)
    one = tokenize_example(tokenizer("qwen3"), chat("Hi", "Ho"), quiet, ends("qwen3"))
    assert one.tokens[: len(asked)] == asked
    assert tokenizer("qwen3").decode([label for label in one.labels if label != NOT_LEARNED]) == "Ho<|im_end|>"


def test_a_template_that_rewrites_earlier_answers_is_refused() -> None:
    quiet = ModelConfig(name="a", id="qwen", chat_template_kwargs={"enable_thinking": False})
    with pytest.raises(TrainingError, match=r"changes the messages before answer 1 .* one answer"):
        tokenize_example(tokenizer("qwen3"), chat("Hi", "Ho", "And?", "Ha"), quiet, ends("qwen3"))


@pytest.mark.parametrize("messages", [chat("Hi", "Ho"), chat("Hi", "Ho", "And?", "Ha")])
def test_a_template_without_an_end_of_turn_is_refused(messages: list[Message]) -> None:
    plain = AutoTokenizer.from_pretrained(ensure())
    plain.chat_template = (
        "{% for m in messages %}{{ m.role }}: {{ m.content }}\n"
        "{% if m.role == 'user' and not loop.first %}<|im_end|>{% endif %}{% endfor %}"
        "{% if add_generation_prompt %}assistant: {% endif %}"
    )
    with pytest.raises(TrainingError, match="would never stop"):
        tokenize_example(plain, messages, MODEL, ends("smollm2"))


def test_an_end_of_turn_that_belongs_to_the_next_message_is_none_of_the_answer() -> None:
    plain = AutoTokenizer.from_pretrained(ensure())
    plain.chat_template = (
        "{% for m in messages %}{{ m.role }}: {{ m.content }}\n{% if loop.index > 2 %}<|im_end|>{% endif %}{% endfor %}"
        "{% if add_generation_prompt %}assistant: {% endif %}"
    )
    with pytest.raises(TrainingError, match="would never stop"):
        tokenize_example(plain, chat("Hi", "Ho", "And?", "Ha"), MODEL, ends("smollm2"))


ASKED = chat("What is 17+25?", system="Use the calculator.")
CALLED, ANSWERED = Message(role="assistant", content="calc: 17+25"), Message(role="tool", content="42")


@pytest.mark.parametrize("name", ["smollm2", "qwen2_5", "qwen3", "llama3", "gemma", "phi3"])
def test_a_next_turn_goes_on_from_the_tokens_that_the_model_drew(name: str) -> None:
    """The pieces are the model's own, as no tokenizer would divide the text; a turn that was cut is closed for it."""
    one = tokenizer(name)
    roles = {"tool_role": "user", "system_role": "merge"} if name in ("gemma", "phi3") else {}
    model = ModelConfig(name="a", id="a", **roles)
    turns = adapt_roles([*ASKED, CALLED, ANSWERED], model)
    whole = one.apply_chat_template(turns, add_generation_prompt=True, tokenize=False)
    assert "42" in whole
    drawn = [one.encode(letter, add_special_tokens=False)[0] for letter in CALLED["content"]]
    for end in (list(ends(name)), []):
        seen = [*prompt_token_ids(one, ASKED, model), *drawn, *end]
        ids = prompt_token_ids(one, [*ASKED, CALLED, ANSWERED], model, seen)
        assert ids[: len(seen)] == seen
        told = one.decode(ids)
        assert told == whole or name == "qwen3"  # whose template opens the turn with an empty thought
        assert told.endswith(whole[whole.index(CALLED["content"]) :])


@pytest.mark.parametrize(("name", "reason"), [("gemma", "Conversation roles must alternate"), ("phi3", "leaves them")])
def test_a_template_without_a_tools_turn_is_refused(name: str, reason: str) -> None:
    asked = [message for message in ASKED if message["role"] != "system"]
    with pytest.raises(ValueError, match=rf"model 'a': its chat template takes no messages of the role tool.*{reason}"):
        prompt_token_ids(tokenizer(name), [*asked, CALLED, ANSWERED], MODEL)


@pytest.mark.parametrize("name", ["smollm2", "qwen2_5", "qwen3", "llama3", "gptoss"])
def test_a_tool_turn_is_rendered_before_the_start(name: str) -> None:
    require_tool_turn(tokenizer(name), MODEL)


@pytest.mark.parametrize("name", ["smollm2", "qwen2_5", "llama3"])
def test_what_a_tool_answers_is_not_learned(name: str) -> None:
    end = SPECIAL[name][-1]
    turns = [*ASKED, CALLED, ANSWERED, Message(role="assistant", content="It is so.")]
    assert learned_text(name, turns) == f"calc: 17+25{end}|It is so.{end}"


@pytest.mark.parametrize(("name", "reason"), [("gemma", "must alternate"), ("phi3", "leaves out what tools answer")])
def test_a_template_without_a_tools_turn_is_not_learned_from(name: str, reason: str) -> None:
    with pytest.raises(TrainingError, match=f"the chat template of model 'a' .*{reason}"):
        learned_text(name, [*ASKED[1:], CALLED, ANSWERED, CALLED])


@pytest.mark.parametrize(("name", "reason"), [("gemma", "Conversation roles must alternate"), ("phi3", "leaves them")])
def test_where_the_template_has_none_nothing_starts(name: str, reason: str) -> None:
    with pytest.raises(EngineError, match=rf"^model 'a': its chat template takes no .* role tool.*{reason}"):
        require_tool_turn(tokenizer(name), MODEL)
    require_tool_turn(tokenizer(name), ModelConfig(name="a", id="a", tool_role="user"))


def test_a_tools_answer_stands_where_the_template_of_gpt_oss_writes_it() -> None:
    """The template is asked for what harmony's channels are read from and written to by their tokens alone."""
    one = tokenizer("gptoss")
    call = {"name": "calc", "arguments": {"sum": "17+25"}}
    turns = [{"role": "assistant", "thinking": "A sum.", "tool_calls": [call]}, {"role": "tool", "content": 42}]
    whole = one.apply_chat_template([*ASKED, *turns], add_generation_prompt=True, tokenize=False)
    asked = one.apply_chat_template(ASKED, add_generation_prompt=True, tokenize=False)
    said = whole[len(asked) : whole.index("<|call|>") + len("<|call|>")]
    drawn = one.encode(said, add_special_tokens=False)
    seen = [*prompt_token_ids(one, ASKED, MODEL), *drawn]
    assert one.decode(prompt_token_ids(one, [*ASKED, CALLED, ANSWERED], MODEL, seen)) == whole
    channels = find_channels(one)
    assert channels is not None
    assert channels.text(drawn) == '<tool_call>{"name": "calc", "arguments": {"sum": "17+25"}}</tool_call>'


def test_an_answer_is_taught_on_the_final_channel() -> None:
    assert learned_text("gptoss", chat("Hi", "Ho")) == "<|channel|>final<|message|>Ho<|return|>"
