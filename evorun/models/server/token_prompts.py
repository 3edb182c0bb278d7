"""Prompts of completions to learn from: token ids, made here, for a server whose tokenizer agrees with them.

A server that is given messages renders and tokenizes them itself, the text of earlier turns too, which may then have
other tokens than those that were drawn. So a prompt goes out as ids, with the model's own tokenizer and chat template,
as training has them; before the first, evorun checks that the server's own ids are the same.
"""

import asyncio
from itertools import takewhile

import msgspec

from evorun.errors import EngineError
from evorun.models.base import Request, Sampling
from evorun.models.channels import Channels, find_channels
from evorun.models.chat import PromptTokenizer, load_tokenizer, prompt_token_ids
from evorun.models.config import ModelConfig
from evorun.models.server.dispatcher import Dispatcher, Refusal
from evorun.models.server.wire import (
    CHAT,
    INSTEAD,
    TOKENS,
    WITHOUT_IDS,
    WITHOUT_LOGPROBS,
    ChatResponse,
    RequestEncoder,
)

PROBED = Sampling(max_tokens=4)
"""Sampling of the two requests that check the server (ours): a few tokens, without truncation."""


class TokenPrompts:
    """The prompts of one model's requests, as token ids."""

    def __init__(self, model: ModelConfig, dispatcher: Dispatcher) -> None:
        self._model = model
        self._dispatcher = dispatcher
        self._opening = asyncio.Lock()
        self._tokenizer: PromptTokenizer | None = None
        self.channels: Channels | None = None
        """The model's, once the first prompt has been made; None: its completions are plain texts."""
        self._processed = False
        """True where log-probabilities are those after temperature and top_p."""

    async def token_ids(self, request: Request, encoder: RequestEncoder) -> list[int]:
        """Return a prompt's token ids.

        Raises EngineError where nothing can be learned from the server's completions, and as `prompt_token_ids` does.
        """
        async with self._opening:
            if self._tokenizer is None:
                tokenizer = await asyncio.to_thread(load_tokenizer, self._model)
                start = tuple(takewhile(lambda message: message["role"] != "assistant", request.messages))
                prompt = prompt_token_ids(tokenizer, start, self._model)
                self.channels = find_channels(tokenizer)
                text = None if self.channels is None else str(tokenizer.decode(prompt))
                await self._check(Request(messages=start, sampling=PROBED, token_ids=True), prompt, text, encoder)
                self._tokenizer = PromptTokenizer(tokenizer, self._model)
        sampling = request.sampling
        changed = sampling.temperature not in (0, 1) or sampling.top_p < 1 or request.json_schema is not None
        if request.logprobs and changed and not self._processed:
            raise EngineError(
                "the server's log-probabilities are those before temperature, top_p and schema, under which these "
                "completions are drawn: start it with --logprobs-mode processed_logprobs, or sample with temperature 1 "
                "and top_p 1"
            )
        return await self._tokenizer.token_ids(request)

    def close(self) -> None:
        """Release the tokenizer; idempotent."""
        if self._tokenizer is not None:
            self._tokenizer.close()

    async def _check(self, probe: Request, prompt: list[int], text: str | None, encoder: RequestEncoder) -> None:
        """Ask for a few tokens after the messages, and after their token ids. Raises EngineError as `token_ids`.

        text: of the prompt, to ask after in the place of the messages, which servers render without the chat template
        where a model has channels (vLLM has openai-harmony for it).
        """
        if text is None:
            rendered = (await self._probe(encoder.encode(probe, n=1, drawn=0), CHAT)).prompt_token_ids
        else:
            asked = encoder.encode(probe, n=1, drawn=0, prompt=text, add_special_tokens=False)
            rendered = (await self._probe(asked, TOKENS)).choices[0].prompt_token_ids
        if rendered is None:
            raise EngineError(WITHOUT_IDS)
        if rendered != tuple(prompt):
            raise EngineError(
                f"the server makes other tokens of a prompt ({len(rendered)}) than the tokenizer and chat template of "
                f"model.id={self._model.id} ({len(prompt)}), with which training works: let it serve that model, with "
                "its own chat template"
            )
        probe = msgspec.structs.replace(probe, logprobs=True)
        # Of the likeliest token alone, so its probability is 1 after all that sampling does, and below before.
        answer = await self._probe(encoder.encode(probe, n=1, drawn=0, prompt=prompt, top_k=1), TOKENS)
        choice = answer.choices[0]
        if choice.token_ids is None:
            raise EngineError(WITHOUT_IDS)
        if choice.logprobs is None or choice.logprobs.token_logprobs is None:
            raise EngineError(WITHOUT_LOGPROBS)
        self._processed = not any(choice.logprobs.token_logprobs)

    async def _probe(self, body: bytes, endpoint: str) -> ChatResponse:
        call = self._dispatcher.new_call(lambda number: body, PROBED.max_tokens, endpoint)
        answer = await self._dispatcher.send(body, call)
        if isinstance(answer, Refusal):
            raise EngineError(f"the server gives no completions to learn from ({answer.reason}): {INSTEAD}")
        return answer
