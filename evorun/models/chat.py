"""Prepares chat messages for a model's template; shared by the engines that tokenize in this process."""

import asyncio
import sys
from collections.abc import Sequence
from concurrent.futures import ThreadPoolExecutor
from functools import partial
from typing import Any

from jinja2 import TemplateError

from evorun.errors import EngineError, first_line
from evorun.models.base import Message, Request
from evorun.models.channels import TOOL_RESPONSE, find_channels
from evorun.models.chat_templates import apply_chat_template
from evorun.models.config import ModelConfig
from evorun.models.embedded import resolve


def adapt_roles(messages: Sequence[Message], model: ModelConfig) -> list[Message]:
    """Return the messages in a form that the model's template accepts (`ModelConfig.tool_role` and `system_role`).

    With `tool_role` user, tools' answers become user messages (`TOOL_RESPONSE`). With `system_role` merge, the texts of
    all system messages precede the first user message, in order, separated by blank lines. Without a user message they
    form one at the front.
    """
    if model.tool_role == "user":
        messages = [
            Message(role="user", content=TOOL_RESPONSE.format(m["content"])) if m["role"] == "tool" else m
            for m in messages
        ]
    system = [m["content"] for m in messages if m["role"] == "system"]
    if model.system_role == "native" or not system:
        return list(messages)
    others = [m for m in messages if m["role"] != "system"]
    position = next((i for i, m in enumerate(others) if m["role"] == "user"), None)
    if position is None:
        return [Message(role="user", content="\n\n".join(system)), *others]
    merged = Message(role="user", content="\n\n".join([*system, others[position]["content"]]))
    return [*others[:position], merged, *others[position + 1 :]]


def load_tokenizer(model: ModelConfig) -> Any:
    """Load a model's tokenizer. Raises EngineError if that fails or `require_chat_template` does."""
    folder = resolve(model)
    try:
        from transformers import AutoTokenizer

        # The engine checks the length; the tokenizer would print a warning for each prompt that is too long.
        # Without the last argument, transformers would ask on a terminal whether to run a folder's code.
        tokenizer = AutoTokenizer.from_pretrained(folder, model_max_length=sys.maxsize, trust_remote_code=False)
    except (ImportError, OSError, ValueError) as error:
        raise EngineError(
            f"model '{model.id}': cannot load its tokenizer from {folder}: {first_line(error)}; check the id, the "
            "network and the hub's access token (HF_TOKEN)"
        ) from error
    require_chat_template(tokenizer, model)
    return tokenizer


class PromptTokenizer:
    """Converts requests to the token ids of their prompts, in a separate thread."""

    def __init__(self, tokenizer: Any, model: ModelConfig) -> None:
        self._tokenizer = tokenizer
        self._model = model
        # One thread: tokenizing long prompts must not block the event loop, and tokenizers are not thread-safe.
        self._thread = ThreadPoolExecutor(max_workers=1, thread_name_prefix="tokenize")

    async def token_ids(self, request: Request) -> list[int]:
        """Return the prompt's token ids. Raises the same errors as `prompt_token_ids`."""
        render = partial(prompt_token_ids, open_final_channel=request.json_schema is not None)
        return await asyncio.get_running_loop().run_in_executor(
            self._thread, render, self._tokenizer, request.messages, self._model, request.seen
        )

    async def text(self, ids: Sequence[int]) -> str:
        """Return the text of a completion's token ids, without special tokens."""
        decode = partial(self._tokenizer.decode, skip_special_tokens=True)
        return str(await asyncio.get_running_loop().run_in_executor(self._thread, decode, list(ids)))

    def close(self) -> None:
        """End the thread; idempotent."""
        self._thread.shutdown(wait=False)


def require_chat_template(tokenizer: Any, model: ModelConfig) -> None:
    """Check that a tokenizer of `transformers` has a chat template and, if that has channels, their tokens.

    Raises EngineError otherwise.
    """
    if not getattr(tokenizer, "chat_template", None):
        raise EngineError(
            f"model '{model.id}': its tokenizer has no chat template; use an instruction-tuned variant of the model"
        )
    try:
        find_channels(tokenizer)
    except ValueError as error:
        raise EngineError(f"model '{model.id}': {error}; use the model's own tokenizer") from error


_ASKED = (Message(role="user", content="Which?"),)
_TOOL_TURN = (Message(role="assistant", content="I look it up."), Message(role="tool", content="This one."))


def require_tool_turn(tokenizer: Any, model: ModelConfig) -> None:
    """Check that a model's prompts can continue after a tool's answer, by rendering one.

    Raises EngineError with the chat template's reason.
    """
    try:
        prompt_token_ids(tokenizer, (*_ASKED, *_TOOL_TURN), model, prompt_token_ids(tokenizer, _ASKED, model))
    except ValueError as error:
        raise EngineError(str(error)) from error
    except TemplateError as error:
        raise EngineError(f"model '{model.id}': its chat template takes no conversation ({error})") from error


def prompt_token_ids(
    tokenizer: Any,
    messages: Sequence[Message],
    model: ModelConfig,
    seen: Sequence[int] | None = None,
    *,
    open_final_channel: bool = False,
) -> list[int]:
    """Return the prompt's token ids: roles adapted, chat template applied, generation prompt appended.

    seen: ids of the conversation up to and including the assistant's last turn; the prompt continues from these.
    open_final_channel: if the model has channels, also open the final one. Requests with a schema need that, since the
    schema applies to the answer, not to the analysis. Raises ValueError if the template does not support the role tool,
    jinja2's TemplateError if it fails.
    """
    adapted = adapt_roles(messages, model)
    options: dict[str, Any] = {"add_generation_prompt": True, **model.chat_template_kwargs}
    channels = find_channels(tokenizer)
    opening = channels.final if channels is not None and open_final_channel else []
    if channels is not None and seen is not None:
        last = max(index for index, message in enumerate(adapted) if message["role"] == "assistant")
        return [*seen, *channels.next_turn(seen, adapted[last + 1 :]), *opening]
    if any(message["role"] == "tool" for message in adapted):
        try:
            reason = find_left_out(adapted, apply_chat_template(tokenizer, adapted, tokenize=False, **options))
        except TemplateError as error:
            reason = str(error)
        if reason:
            raise ValueError(
                f"model '{model.id}': its chat template takes no messages of the role tool ({reason}); {TOOL_ROLE_HELP}"
            )
    if seen is None:
        return [*apply_chat_template(tokenizer, adapted, tokenize=True, **options), *opening]
    # Tokenizing the text of a sampled turn again may give other tokens, and training would learn from these. So keep
    # the sampled ids, and tokenize only the text after the turn, which a placeholder marks.
    last = max(index for index, message in enumerate(adapted) if message["role"] == "assistant")
    adapted[last] = Message(role="assistant", content=_PLACEHOLDER)
    _, _, after = apply_chat_template(tokenizer, adapted, tokenize=False, **options).rpartition(_PLACEHOLDER)
    ids = tokenizer(after, add_special_tokens=False)["input_ids"]
    # The template ends the assistant's turn with a token that the model may already have sampled.
    return [*seen, *(ids[1:] if seen[-1] == ids[0] else ids)]


_PLACEHOLDER = "(what the assistant said)"
TOOL_ROLE_HELP = "set model.tool_role=user, or use a model that was tuned to use tools"


def find_left_out(messages: Sequence[Message], text: str) -> str:
    """Return what a template's text lacks of tools' answers, or nothing; many templates skip roles silently."""
    answers = (message["content"].strip() for message in messages if message["role"] == "tool")
    return "" if all(answer in text for answer in answers) else "it leaves them out"
