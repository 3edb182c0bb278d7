"""Chat messages as a model's own template takes them; shared by the engines that tokenize in this process."""

from collections.abc import Mapping, Sequence
from typing import Any

from jinja2 import TemplateError

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


def prompt_token_ids(
    tokenizer: Any, messages: Sequence[Message], model: ModelConfig, seen: Sequence[int] | None = None
) -> list[int]:
    """Return the prompt's token ids: roles adapted, chat template applied, generation prompt appended.

    seen: ids of the conversation up to the assistant's last turn, which they go on from; its text decides nothing then.
    Raises ValueError for a tool's turn where the template has none, and jinja2's TemplateError as the template says it.
    """
    adapted = adapt_roles(messages, model.system_role)
    options: dict[str, Any] = {"add_generation_prompt": True, **model.chat_template_kwargs}
    _require_tool_turns(tokenizer, adapted, model, options)
    if seen is None:
        return list(tokenizer.apply_chat_template(adapted, tokenize=True, return_dict=False, **options))
    last = max(index for index, message in enumerate(adapted) if message["role"] == "assistant")
    adapted[last] = Message(role="assistant", content=_SAID)
    _, _, after = tokenizer.apply_chat_template(adapted, tokenize=False, **options).rpartition(_SAID)
    ids = tokenizer(after, add_special_tokens=False)["input_ids"]
    # the template closes the assistant's turn, and so has the model where it came to an end by itself
    return [*seen, *(ids[1:] if seen[-1] == ids[0] else ids)]


_SAID = "(what the assistant said)"


def _require_tool_turns(
    tokenizer: Any, messages: Sequence[Message], model: ModelConfig, options: Mapping[str, Any]
) -> None:
    """Raise ValueError when the chat template refuses tools' turns, or leaves them out without a word."""
    answers = [message["content"].strip() for message in messages if message["role"] == "tool"]
    if not answers:
        return
    try:
        text = tokenizer.apply_chat_template(list(messages), tokenize=False, **options)
    except TemplateError as error:
        reason = str(error)
    else:
        reason = "" if all(answer in text for answer in answers) else "it leaves them out"
    if reason:
        raise ValueError(
            f"model '{model.id}': its chat template takes no messages of the role tool ({reason}); use a model that "
            "was tuned to use tools"
        )
