"""Chat messages as a model's own template takes them; shared by the engines that tokenize in this process."""

from collections.abc import Sequence
from typing import Any

from evorun.errors import EngineError
from evorun.models.base import Message
from evorun.models.config import ModelConfig


def adapt_roles(messages: Sequence[Message], system_role: str) -> list[Message]:
    """Return the messages as a template with this `ModelConfig.system_role` accepts them.

    `native`: unchanged. `merge`: the texts of all system messages, in order, go in front of the first user message,
    separated by blank lines; without a user message they become one at the front.
    """
    system = [m["content"] for m in messages if m["role"] == "system"]
    if system_role == "native" or not system:
        return list(messages)
    others = [m for m in messages if m["role"] != "system"]
    position = next((i for i, m in enumerate(others) if m["role"] == "user"), None)
    if position is None:
        return [Message(role="user", content="\n\n".join(system)), *others]
    merged = Message(role="user", content="\n\n".join([*system, others[position]["content"]]))
    return [*others[:position], merged, *others[position + 1 :]]


def require_plain_template(tokenizer: Any, model: ModelConfig) -> None:
    """Check, as a model is loaded, that chat messages become a prompt and its completion is the answer.

    Raises EngineError when the tokenizer (of `transformers`) has no chat template, or one whose answers need taking
    apart.
    """
    template = str(getattr(tokenizer, "chat_template", None) or "")
    if not template:
        raise EngineError(
            f"model '{model.id}': its tokenizer has no chat template; use an instruction-tuned variant of the model"
        )
    if "<|channel|>" in template:
        raise EngineError(
            f"model '{model.id}' answers in channels, which only vLLM's server takes apart: run "
            f"`vllm serve {model.id}` and use engine=server"
        )


def prompt_token_ids(tokenizer: Any, messages: Sequence[Message], model: ModelConfig) -> list[int]:
    """Return the prompt's token ids: roles adapted, chat template applied, generation prompt appended."""
    ids = tokenizer.apply_chat_template(
        adapt_roles(messages, model.system_role),
        add_generation_prompt=True,
        tokenize=True,
        return_dict=False,
        **model.chat_template_kwargs,
    )
    return list(ids)
