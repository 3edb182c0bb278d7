"""Model calls through the journal: a call that was recorded is answered from there, any other is made and recorded."""

from dataclasses import dataclass

import msgspec

from evorun.models.base import LanguageModel, Reply, Request
from evorun.models.encoding import encode_request, request_digest
from evorun.runs.journal import Effect, Journal

_REPLY = msgspec.json.Decoder(Reply)


@dataclass
class Traffic:
    """Calls and tokens since the start of this process, for the progress display."""

    calls: int = 0
    completion_tokens: int = 0
    replayed: int = 0


class JournaledModel:
    """A language model behind a journal."""

    def __init__(self, model: LanguageModel, journal: Journal, traffic: Traffic) -> None:
        self.model = model
        self._journal = journal
        self._traffic = traffic

    async def complete(self, key: str, request: Request) -> Reply:
        """Answer the request that belongs to `key`. Raises EngineError, JournalError or RunDirectoryError."""
        body = encode_request(self.model.name, request)
        digest = request_digest(body)
        recorded = self._journal.get(key, digest)
        if recorded is not None:
            self._traffic.replayed += 1
            return _REPLY.decode(recorded)
        reply = await self.model.complete(request)
        usage = f'{{"prompt_tokens":{reply.prompt_tokens},"completion_tokens":{reply.completion_tokens}}}'
        await self._journal.put(Effect(key, digest, body, msgspec.json.encode(reply), usage, reply.seconds))
        self._traffic.calls += 1
        self._traffic.completion_tokens += reply.completion_tokens
        return reply
