"""Chat messages as a model's own template takes them; shared by the engines that tokenize in this process."""

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
    """Return the messages as the model's template accepts them (`ModelConfig.tool_role` and `system_role`).

    With `tool_role` user, tools' answers become user messages (`TOOL_RESPONSE`). With `system_role` merge, the texts of
    all system messages, in order, go in front of the first user message, separated by blank lines; without a user
    message they become one at the front.
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
    """Load a model's tokenizer. Raises EngineError when it cannot be loaded, or as `require_chat_template` does."""
    folder = resolve(model)
    try:
        from transformers import AutoTokenizer

        # The length is the engine's to check: the tokenizer would print a warning for each prompt that is too long.
        # Without the last argument a terminal is asked whether to run code that a folder brings.
        tokenizer = AutoTokenizer.from_pretrained(folder, model_max_length=sys.maxsize, trust_remote_code=False)
    except (ImportError, OSError, ValueError) as error:
        raise EngineError(
            f"model '{model.id}': cannot load its tokenizer from {folder}: {first_line(error)}; check the id, the "
            "network and the hub's access token (HF_TOKEN)"
        ) from error
    require_chat_template(tokenizer, model)
    return tokenizer


class PromptTokenizer:
    """Turns requests into the token ids of their prompts, in a thread of its own."""

    def __init__(self, tokenizer: Any, model: ModelConfig) -> None:
        self._tokenizer = tokenizer
        self._model = model
        # One thread: tokenizing long prompts must not hold up the event loop, and tokenizers are not thread-safe.
        self._thread = ThreadPoolExecutor(max_workers=1, thread_name_prefix="tokenize")

    async def token_ids(self, request: Request) -> list[int]:
        """Return the prompt's token ids. Raises as `prompt_token_ids` does."""
        render = partial(prompt_token_ids, in_final=request.json_schema is not None)
        return await asyncio.get_running_loop().run_in_executor(
            self._thread, render, self._tokenizer, request.messages, self._model, request.seen
        )

    def close(self) -> None:
        """End the thread; idempotent."""
        self._thread.shutdown(wait=False)


def require_chat_template(tokenizer: Any, model: ModelConfig) -> None:
    """Check that a tokenizer of `transformers` has a chat template, and the tokens of its channels where it has some.

    Raises EngineError when it has not.
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
    """Check that a model's prompts can go on behind a tool's answer, by rendering one.

    Raises EngineError with the chat template's own reason.
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
    in_final: bool = False,
) -> list[int]:
    """Return the prompt's token ids: roles adapted, chat template applied, generation prompt appended.

    seen: ids of the conversation up to and with the assistant's last turn, from which the prompt continues. in_final:
    open the final channel too, where the model has channels: the completion is held to a schema, as an answer is and a
    thought is not. Raises ValueError when the template does not support messages of the role tool, jinja2's
    TemplateError when it fails.
    """
    adapted = adapt_roles(messages, model)
    options: dict[str, Any] = {"add_generation_prompt": True, **model.chat_template_kwargs}
    channels = find_channels(tokenizer)
    opening = channels.final if channels is not None and in_final else []
    if channels is not None and seen is not None:
        last = max(index for index, message in enumerate(adapted) if message["role"] == "assistant")
        return [*seen, *channels.next_turn(seen, adapted[last + 1 :]), *opening]
    answers = [message["content"].strip() for message in adapted if message["role"] == "tool"]
    if answers:
        try:
            text = apply_chat_template(tokenizer, adapted, tokenize=False, **options)
        except TemplateError as error:
            reason = str(error)
        else:
            # Many templates print the roles they know and skip others without an error.
            reason = "" if all(answer in text for answer in answers) else "it leaves them out"
        if reason:
            raise ValueError(
                f"model '{model.id}': its chat template takes no messages of the role tool ({reason}); set "
                "model.tool_role=user, or use a model that was tuned to use tools"
            )
    if seen is None:
        return [*apply_chat_template(tokenizer, adapted, tokenize=True, return_dict=False, **options), *opening]
    # The text of a sampled turn, tokenized again, may give other tokens than were sampled, and these would be learned
    # from. So its ids are kept, and only the text that follows it is tokenized: found behind a placeholder.
    last = max(index for index, message in enumerate(adapted) if message["role"] == "assistant")
    adapted[last] = Message(role="assistant", content=_PLACEHOLDER)
    _, _, after = apply_chat_template(tokenizer, adapted, tokenize=False, **options).rpartition(_PLACEHOLDER)
    ids = tokenizer(after, add_special_tokens=False)["input_ids"]
    # The template ends the assistant's turn with a token that the model has already sampled where it stopped by itself.
    return [*seen, *(ids[1:] if seen[-1] == ids[0] else ids)]


_PLACEHOLDER = "(what the assistant said)"
