"""Chat messages as a model's own template takes them; shared by the engines that tokenize in this process."""

import asyncio
import sys
from collections.abc import Sequence
from concurrent.futures import ThreadPoolExecutor
from typing import Any

from jinja2 import TemplateError

from evorun.errors import EngineError, first_line
from evorun.models.base import Message, Request
from evorun.models.config import ModelConfig
from evorun.models.embedded import resolve


def adapt_roles(messages: Sequence[Message], model: ModelConfig) -> list[Message]:
    """Return the messages as the model's template accepts them (`ModelConfig.tool_role` and `system_role`).

    With `tool_role` user, tools' answers become user messages, between the tags that Qwen's template has for them. With
    `system_role` merge, the texts of all system messages, in order, go in front of the first user message, separated by
    blank lines; without a user message they become one at the front.
    """
    if model.tool_role == "user":
        told = "<tool_response>\n{}\n</tool_response>"
        messages = [
            Message(role="user", content=told.format(m["content"])) if m["role"] == "tool" else m for m in messages
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
    """Load a model's tokenizer. Raises EngineError when it cannot be loaded, or has no plain chat template."""
    folder = resolve(model)
    try:
        from transformers import AutoTokenizer

        # The length is the engine's to check: the tokenizer would print a warning for each prompt that is too long.
        tokenizer = AutoTokenizer.from_pretrained(folder, model_max_length=sys.maxsize)
    except (ImportError, OSError, ValueError) as error:
        raise EngineError(
            f"model '{model.id}': cannot load its tokenizer from {folder}: {first_line(error)}; check the id, the "
            "network and the hub's access token (HF_TOKEN)"
        ) from error
    require_plain_template(tokenizer, model)
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
        return await asyncio.get_running_loop().run_in_executor(
            self._thread, prompt_token_ids, self._tokenizer, request.messages, self._model, request.seen
        )

    def close(self) -> None:
        """End the thread; idempotent."""
        self._thread.shutdown(wait=False)


def require_plain_template(tokenizer: Any, model: ModelConfig) -> None:
    """Check that a tokenizer of `transformers` has a chat template, and one whose completions are plain answers.

    Raises EngineError when it has not.
    """
    template = str(getattr(tokenizer, "chat_template", None) or "")
    if not template:
        raise EngineError(
            f"model '{model.id}': its tokenizer has no chat template; use an instruction-tuned variant of the model"
        )
    # gpt-oss (the "harmony" format) mixes reasoning and answer in one completion; only vLLM's server separates them.
    if "<|channel|>" in template:
        raise EngineError(
            f"model '{model.id}' answers in channels, which only vLLM's server takes apart: run "
            f"`vllm serve {model.id}` and use engine=server"
        )


def prompt_token_ids(
    tokenizer: Any, messages: Sequence[Message], model: ModelConfig, seen: Sequence[int] | None = None
) -> list[int]:
    """Return the prompt's token ids: roles adapted, chat template applied, generation prompt appended.

    seen: ids of the conversation up to and with the assistant's last turn, from which the prompt continues. Raises
    ValueError when the template does not support messages of the role tool, jinja2's TemplateError when it fails.
    """
    adapted = adapt_roles(messages, model)
    options: dict[str, Any] = {"add_generation_prompt": True, **model.chat_template_kwargs}
    answers = [message["content"].strip() for message in adapted if message["role"] == "tool"]
    if answers:
        try:
            text = tokenizer.apply_chat_template(adapted, tokenize=False, **options)
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
        return list(tokenizer.apply_chat_template(adapted, tokenize=True, return_dict=False, **options))
    # The text of a sampled turn, tokenized again, may give other tokens than were sampled, and these would be learned
    # from. So its ids are kept, and only the text that follows it is tokenized: found behind a placeholder.
    last = max(index for index, message in enumerate(adapted) if message["role"] == "assistant")
    adapted[last] = Message(role="assistant", content=_PLACEHOLDER)
    _, _, after = tokenizer.apply_chat_template(adapted, tokenize=False, **options).rpartition(_PLACEHOLDER)
    ids = tokenizer(after, add_special_tokens=False)["input_ids"]
    # The template ends the assistant's turn with a token that the model has already sampled where it stopped by itself.
    return [*seen, *(ids[1:] if seen[-1] == ids[0] else ids)]


_PLACEHOLDER = "(what the assistant said)"
