"""A user's search server, queried over HTTP with the protocol of the public recipes' retrieval servers."""

import asyncio
from collections.abc import Sequence
from dataclasses import dataclass

import msgspec

from evorun.errors import ToolError
from evorun.models.server.http import MALFORMED, Answer, Failure, HttpTransport
from evorun.models.server.retry import RetryPolicy, parse_retry_after
from evorun.tasks.search_qa.retrieval.base import Passage, split_title

CONNECT_SECONDS = 10.0
"""Time for a connection to be made (ours)."""


class _Hit(msgspec.Struct):
    document: "_Hit | None" = None
    id: str | int = ""
    title: str = ""
    text: str = ""
    contents: str = ""


class _Found(msgspec.Struct):
    result: list[list[_Hit]]


@dataclass(frozen=True)
class Http:
    """Asks a server: POST {"queries": [...], "topk": 3, "return_scores": true} -> {"result": [[{"document": ...}]]}.

    A document has `title` and `text`, or `contents`. Failed requests are repeated; after the last
    attempt the run ends, and records nothing of the search.
    """

    url: str
    timeout: float
    """Seconds per request."""
    retries: int

    async def find(self, queries: Sequence[str], count: int) -> list[list[Passage]]:
        body = msgspec.json.encode({"queries": list(queries), "topk": count, "return_scores": True})
        # Waits between attempts: ours, much like the server engine's.
        policy = RetryPolicy(self.retries, backoff_base=0.5, backoff_cap=30.0, max_retry_after=60.0)
        # One session per call: tasks have no end at which to close it, and search servers are near.
        transport = HttpTransport(total=self.timeout, connect=min(CONNECT_SECONDS, self.timeout), key=None)
        try:
            attempt = 0
            while True:
                answer = await transport.post(self.url, body)
                found = self._read(answer, transport, len(queries)) if isinstance(answer, Answer) else answer
                if not isinstance(found, Failure):
                    return [passages[:count] for passages in found]
                if found.hopeless or attempt == self.retries:
                    raise ToolError(
                        f"task.retriever_url={self.url}: no search result, attempt {attempt + 1} ended with: "
                        f"{found.cause}; check that the server works and resume, or raise task.retriever_timeout or "
                        "task.retriever_retries"
                    )
                wait = min(found.retry_after or 0.0, policy.max_retry_after)
                await asyncio.sleep(max(wait, policy.backoff(attempt)))
                attempt += 1
        finally:
            await transport.close()

    def _read(self, answer: Answer, transport: HttpTransport, queries: int) -> list[list[Passage]] | Failure:
        if answer.status != 200:
            # Repeating a client's error changes nothing, except for "too many requests" and time-outs.
            hopeless = 400 <= answer.status < 500 and answer.status not in (408, 425, 429)
            cause = f"HTTP {answer.status} {transport.message(answer)}".strip()
            after = parse_retry_after(answer.headers)
            return Failure(kind=f"http_{answer.status}", cause=cause, retry_after=after, hopeless=hopeless)
        try:
            result = msgspec.json.decode(answer.content, type=_Found).result
            found = [[_passage(hit) for hit in hits] for hits in result]
        except (msgspec.DecodeError, UnicodeError, RecursionError) as error:
            return Failure(kind=MALFORMED, cause=f"malformed answer: {error}")
        if len(found) != queries:
            return Failure(kind=MALFORMED, cause=f"expected {queries} lists of documents, got {len(found)}")
        return found


def _passage(hit: _Hit) -> Passage:
    """Return a document, bare or beside its score, as a passage."""
    document = hit.document or hit
    title, text = (document.title, document.text) if document.text else split_title(document.contents)
    return Passage(str(document.id), title, text)
