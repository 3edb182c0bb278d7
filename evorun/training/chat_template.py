"""Finds the tokens of a conversation to learn: those that the model itself would have written.

An answer begins where its prompt ends: the earlier messages, tools' answers among them, with the template's generation
prompt. It ends with the first token that would have ended its generation, which is learned too. The template therefore
needs no marks (TRL's `{% generation %}`). It must only write earlier messages the same way, whatever follows them.
"""

from collections.abc import Collection, Sequence
from itertools import pairwise
from typing import Any, NamedTuple

from jinja2 import TemplateError

from evorun.errors import TrainingError
from evorun.models.base import Message
from evorun.models.chat import TOOL_ROLE_HELP, adapt_roles, find_left_out
from evorun.models.chat_templates import apply_chat_template
from evorun.models.config import ModelConfig

NOT_LEARNED = -100
"""Label of a token without loss (transformers' convention)."""


class TokenizedExample(NamedTuple):
    """A conversation as a trainer's input."""

    tokens: list[int]
    labels: list[int]
    """The token itself if it is learned, else NOT_LEARNED."""


def tokenize_example(
    tokenizer: Any, messages: Sequence[Message], model: ModelConfig, ends: Collection[int]
) -> TokenizedExample:
    """Return a conversation's tokens, with labels for those of the assistant.

    tokenizer: a fast tokenizer of transformers. ends: the tokens that end a completion. Raises TrainingError if the
    chat template does not show where answers begin and end; the caller puts the conversation's name before its message.
    """
    messages = adapt_roles(messages, model)
    text = _render(tokenizer, messages, model)
    if find_left_out(messages, text):
        raise TrainingError(f"the chat template of model '{model.id}' leaves out what tools answer; {TOOL_ROLE_HELP}")
    indices = [index for index, message in enumerate(messages) if message["role"] == "assistant"]
    begins = [_begin(tokenizer, messages[:index], model, text) for index in indices]
    tokens, token_ends = _tokenise(tokenizer, text, begins)
    labels = [NOT_LEARNED] * len(tokens)
    for index, begin in zip(indices, begins, strict=True):
        answer = [i for i, end in enumerate(token_ends) if end > begin]
        # The end token is learned too: a model that never saw it would not stop. Some templates put text after it
        # (a line break), which the model never writes and therefore does not learn.
        length = next((n for n, i in enumerate(answer, start=1) if tokens[i] in ends), None)
        limit = len(_render(tokenizer, messages[: index + 1], model))
        if length is None or token_ends[answer[length - 1]] > limit:
            raise TrainingError(
                "the chat template ends an answer without a token that ends a completion, so the model would never "
                "stop; expected one of the model's eos_token_id (generation_config.json)"
            )
        for i in answer[:length]:
            labels[i] = tokens[i]
    return TokenizedExample(tokens, labels)


class _Tokens(NamedTuple):
    tokens: list[int]
    ends: list[int]
    """End position of each token in the text, in characters."""


def _tokenise(tokenizer: Any, text: str, begins: Sequence[int]) -> _Tokens:
    """Return the text's tokens. If they do not begin with each prompt's tokens, tokenise its parts separately."""
    # A text may have other tokens than its parts. Two line breaks, for example, are one token at a prompt's end, and
    # two before a word. If that happens where an answer begins, prompt and answer are tokenised separately, as during
    # generation.
    whole = _encode(tokenizer, text)
    prompts = (_encode(tokenizer, text[:begin]).tokens for begin in begins)
    if all(whole.tokens[: len(prompt)] == prompt for prompt in prompts):
        return whole
    parts = _Tokens([], [])
    for begin, end in pairwise([0, *begins, len(text)]):
        part = _encode(tokenizer, text[begin:end])
        parts.tokens.extend(part.tokens)
        parts.ends.extend(begin + at for at in part.ends)
    return parts


def _encode(tokenizer: Any, text: str) -> _Tokens:
    encoded = tokenizer(text, add_special_tokens=False, return_offsets_mapping=True)
    return _Tokens(list(encoded["input_ids"]), [end for _, end in encoded["offset_mapping"]])


def _begin(tokenizer: Any, earlier: Sequence[Message], model: ModelConfig, text: str) -> int:
    """Return the position in the whole text at which the answer to the earlier messages begins."""
    prompt = _render(tokenizer, earlier, model, add_generation_prompt=True)
    # Some templates rewrite earlier messages: those of reasoning models drop the reasoning of earlier answers.
    if not text.startswith(prompt):
        answer = 1 + sum(message["role"] == "assistant" for message in earlier)
        raise TrainingError(
            f"the chat template of model '{model.id}' changes the messages before answer {answer} when it adds the "
            "answer, so prompts would differ from training; use conversations with one answer, or set "
            "model.chat_template_kwargs"
        )
    return len(prompt)


def _render(
    tokenizer: Any, messages: Sequence[Message], model: ModelConfig, *, add_generation_prompt: bool = False
) -> str:
    try:
        text: str = apply_chat_template(
            tokenizer,
            messages,
            tokenize=False,
            add_generation_prompt=add_generation_prompt,
            **model.chat_template_kwargs,
        )
    except TemplateError as error:
        raise TrainingError(f"the chat template of model '{model.id}' refuses it: {error}") from error
    return text
