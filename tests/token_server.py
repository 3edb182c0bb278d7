"""Answers with token ids and log-probabilities, as `vllm serve` gives them, for a `ChatServer`.

Of made-up texts in which a token is a byte, or of a real model, which is asked for one token after the other.
"""

import hashlib
import json
import random
from collections.abc import Sequence
from pathlib import Path
from typing import Any

from aiohttp import web

from hostile_server import CONTEXT_LENGTH, WORDS, error, example

Draw = tuple[list[int], list[float]]
"""Token ids and their log-probabilities."""

HARMONY = {
    "tokens": ["<|return|>", "<|start|>", "<|channel|>", "<|constrain|>", "<|message|>", "<|end|>", "<|call|>"],
    "template": (
        "<|start|>system<|message|># Valid channels: analysis, commentary, final.<|end|>"
        "{% for m in messages %}{% if m.role == 'system' %}<|start|>developer<|message|># Instructions\n\n"
        "{{ m.content }}\n\n<|end|>{% elif m.role == 'user' %}<|start|>user<|message|>{{ m.content }}<|end|>"
        "{% elif m.role == 'tool' %}{{ raise_exception('no call before a tool') }}"
        "{% else %}<|start|>assistant<|channel|>final<|message|>{{ m.content }}<|end|>{% endif %}{% endfor %}"
        "{% if add_generation_prompt %}<|start|>assistant{% endif %}"
    ),
}
"""Special tokens and a chat template of the form that gpt-oss has them; the first token ends a turn."""

TEMPLATE = (
    "{% for m in messages %}<|im_start|>{{ m.role }}\n{{ m.content }}<|im_end|>\n{% endfor %}"
    "{% if add_generation_prompt %}<|im_start|>assistant\n{% endif %}"
)


def write_byte_tokenizer(
    folder: Path, *, tokens: Sequence[str] = ("<|im_end|>", "<|im_start|>"), template: str = TEMPLATE
) -> Path:
    """Write a tokenizer whose tokens are bytes into a folder, as of a model, and return the folder.

    tokens: special ones, the one that ends a turn first.
    """
    from tokenizers import Tokenizer, decoders, models, pre_tokenizers
    from transformers import PreTrainedTokenizerFast

    marks = list(tokens)
    letters = [*marks, *sorted(pre_tokenizers.ByteLevel.alphabet())]
    plain = Tokenizer(models.BPE(vocab={letter: i for i, letter in enumerate(letters)}, merges=[]))
    plain.pre_tokenizer = pre_tokenizers.ByteLevel(add_prefix_space=False)
    plain.decoder = decoders.ByteLevel()
    tokenizer = PreTrainedTokenizerFast(
        tokenizer_object=plain, eos_token=marks[0], additional_special_tokens=marks, chat_template=template
    )
    tokenizer.save_pretrained(folder)
    return folder


class MadeUp:
    """Answers `/chat/completions` and `/completions` alike: they say the same after the same tokens."""

    def __init__(
        self, folder: Path, *, gives: Sequence[str] = ("token_ids", "logprobs"), processed: bool = True
    ) -> None:
        """folder: of the tokenizer. gives: what it gives of a completion. processed: see vLLM's --logprobs-mode."""
        from transformers import AutoTokenizer

        self.tokenizer: Any = AutoTokenizer.from_pretrained(folder)
        self.gives = gives
        self.processed = processed
        self.prompts: list[list[int]] = []
        """Of the completions asked for by token ids."""
        self.drawn: list[list[int]] = []

    def __call__(self, body: dict[str, Any]) -> web.Response:
        by_ids = "prompt" in body
        prompt: list[int] = body["prompt"] if by_ids else self.rendered(body["messages"])
        if isinstance(prompt, str):
            prompt = self.tokenizer.encode(prompt, add_special_tokens=body["add_special_tokens"])
        if len(prompt) + body["max_tokens"] > CONTEXT_LENGTH:
            return error(400, f"The maximum context length is {CONTEXT_LENGTH} tokens, the prompt has {len(prompt)}.")
        draws = [self._ended(body, *self.draw(body, prompt, index)) for index in range(body.get("n", 1))]
        choices = []
        for index, (text, reason, ids, logprobs) in enumerate(draws):
            said = {"text": text} if by_ids else {"message": {"role": "assistant", "content": text}}
            choice = {"index": index, "finish_reason": reason, **said}
            if body.get("return_token_ids") and "token_ids" in self.gives:
                choice |= {"token_ids": ids, **({"prompt_token_ids": prompt} if by_ids else {})}
            if by_ids and body.get("logprobs") is not None and "logprobs" in self.gives:
                choice |= {"logprobs": {"token_logprobs": logprobs, "tokens": [""] * len(ids)}}
            choices.append(choice)
        if by_ids:
            self.prompts.append(prompt)
            self.drawn += [ids for *_, ids, _ in draws]
        usage = {"prompt_tokens": len(prompt), "completion_tokens": sum(len(ids) for *_, ids, _ in draws)}
        seen = {"prompt_token_ids": prompt} if not by_ids and body.get("return_token_ids") else {}
        return web.json_response({"choices": choices, "usage": usage, **(seen if "token_ids" in self.gives else {})})

    def rendered(self, messages: list[dict[str, str]]) -> list[int]:
        """Return the token ids of messages."""
        ids = self.tokenizer.apply_chat_template(messages, add_generation_prompt=True, return_dict=False)
        return list(ids)

    def draw(self, body: dict[str, Any], prompt: list[int], index: int) -> Draw:
        """Return what is drawn after a prompt, without a regard to stop strings."""
        seeds = () if body["temperature"] == 0 else (body["seed"], index)
        rng = random.Random(hashlib.sha256(repr((body["model"], prompt, seeds)).encode()).digest())
        if "response_format" in body:
            text = json.dumps(example(body["response_format"]["json_schema"]["schema"], rng))
        else:
            text = " ".join(rng.choice(WORDS) for _ in range(rng.randint(6, 14)))
        ids = [*self.tokenizer.encode(text, add_special_tokens=False), self.tokenizer.eos_token_id]
        ids = ids[: body["max_tokens"]]
        likeliest = body.get("top_k") == 1 and self.processed
        return ids, [0.0 if likeliest else -rng.random() - 0.1 for _ in ids]

    def _ended(self, body: dict[str, Any], ids: list[int], logprobs: list[float]) -> tuple[str, str, list[int], Any]:
        """Return text, finish reason, ids and log-probabilities up to the first stop string."""
        text = self.tokenizer.decode(ids, skip_special_tokens=True)
        for stop in body.get("stop", ()):
            if stop in text:
                count = next(k for k in range(len(ids)) if stop in self.tokenizer.decode(ids[:k]))
                return text[: text.index(stop)], "stop", ids[:count], logprobs[:count]
        ends = {self.tokenizer.eos_token_id, *body.get("stop_token_ids", ())}
        return text, "stop" if ids[-1] in ends else "length", ids, logprobs


class OfModel(MadeUp):
    """Answers with a real model, by a forward pass over the whole sequence for each token."""

    def __init__(self, folder: Path) -> None:
        from transformers import AutoModelForCausalLM

        super().__init__(folder)
        self.model: Any = AutoModelForCausalLM.from_pretrained(folder)

    def draw(self, body: dict[str, Any], prompt: list[int], index: int) -> Draw:
        import torch

        generator = torch.Generator().manual_seed(body["seed"] + index)
        ids: list[int] = []
        logprobs: list[float] = []
        while len(ids) < body["max_tokens"] and self.tokenizer.eos_token_id not in ids:
            with torch.no_grad():
                logits = self.model(torch.tensor([[*prompt, *ids]])).logits[0, -1].double()
            if body["top_k"] == 1:
                logits = torch.where(logits == logits.max(), logits, -torch.inf)
            probabilities = torch.softmax(logits / body["temperature"], dim=-1)
            ids.append(int(torch.multinomial(probabilities, 1, generator=generator)))
            logprobs.append(float(probabilities[ids[-1]].log()))
        return ids, logprobs
