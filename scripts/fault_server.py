"""A chat-completions server that fails as real ones do, and the same way each time; a run against it loses nothing.

    python scripts/fault_server.py [--port 8000] [--clean | --fault KIND=SHARE ...] [--always 256]
        [--rate CALLS_PER_SECOND [--burst SECONDS]] [--latency SECONDS]
    evorun model=api model.id=faulty engine=server engine.base_urls=[http://127.0.0.1:8000/v1] engine.timeout=2

Answers are a function of the request, so that every run draws the same completions. So are faults, of the request and
of how often it has come: `FAULTS` says how many there are of each, or --fault does (`'429, seconds=0.015'`). One
request in `--always` is never answered: always HTTP 500, or with `--clean`, where nothing else fails, refused at once
(HTTP 400), which methods take in the same way. With --rate, a token bucket answers 429 to what comes faster, and
nothing else fails. At its first request it prints a line, and at its end (Ctrl-C, or when its standard input closes) it
prints what it has done.
"""

import argparse
import asyncio
import contextlib
import json
import os
import random
import sys
import time
from collections import Counter
from collections.abc import Callable, Mapping
from email.utils import formatdate
from hashlib import blake2b
from typing import Any, Self

from aiohttp import web

FAULTS = {
    "500": 0.05,
    "429, seconds": 0.015,
    "429, date": 0.015,
    "hang": 0.02,
    "malformed": 0.03,
    "cut": 0.02,
    "empty": 0.01,
}
"""Shares of the requests that fail in each way; what is repeated may fail again."""

_GOOD = '{"choices": [{"message": {"content": "fine"}}], "usage": {"prompt_tokens": %s, "completion_tokens": 1}%s}'
MALFORMED = (
    "<html>502 Bad Gateway</html>",
    '{"object": "chat.completion"}',
    _GOOD % ("-1", ""),
    _GOOD % ("9" * 4_000, ""),
    _GOOD % ("NaN", ""),
    _GOOD % ("1", ', "extra": ' + "[" * 100_000 + "]" * 100_000),
)
"""Answers with status 200 that cannot be used."""


class TokenBucket:
    """Admits `rate` calls per second in the long run, and those of `burst` seconds at once."""

    def __init__(self, rate: float, clock: Callable[[], float] = time.monotonic, burst: float = 1.0) -> None:
        self.size = rate * burst
        self._rate = rate
        self._clock = clock
        self._tokens = self.size
        self._filled = clock()

    def admits(self) -> bool:
        """Take a token if there is one."""
        now = self._clock()
        self._tokens = min(self.size, self._tokens + (now - self._filled) * self._rate)
        self._filled = now
        if self._tokens < 1:
            return False
        self._tokens -= 1
        return True


class FaultServer:
    """Use as `async with FaultServer() as server`; `server.url` is the base URL."""

    def __init__(
        self,
        *,
        clean: bool = False,
        fault: Mapping[str, float] | None = None,
        always: int = 256,
        rate: float | None = None,
        burst: float = 1.0,
        latency: float = 0.0,
        salt: str = "",
        port: int = 0,
        on_first: Callable[[], None] | None = None,
    ) -> None:
        """Serve nothing yet.

        on_first: called at the first request. fault: shares in place of `FAULTS`. always: one request in so many is
        never answered; 0 for none. salt: other faults for each.
        """
        self.done: Counter[str] = Counter()
        self._clean = clean or rate is not None
        self._faults = FAULTS if fault is None else fault
        self._always = always
        self._bucket = None if rate is None else TokenBucket(rate, burst=burst)
        self._latency = latency
        self._salt = salt.encode()
        self._attempts: Counter[bytes] = Counter()
        self._port = port
        self._on_first = on_first

    async def __aenter__(self) -> Self:
        app = web.Application(client_max_size=64 * 2**20)
        app.router.add_post("/v1/chat/completions", self._chat)
        app.router.add_get("/v1/models", self._models)
        # Cancelled with its client, so that hanging answers do not pile up.
        self._runner = web.AppRunner(app, handler_cancellation=True, shutdown_timeout=0.1)
        await self._runner.setup()
        await web.TCPSite(self._runner, "127.0.0.1", self._port).start()
        self._port = self._runner.addresses[0][1]
        return self

    async def __aexit__(self, *exc_info: object) -> None:
        await self._runner.cleanup()

    @property
    def url(self) -> str:
        """The base URL."""
        return f"http://127.0.0.1:{self._port}/v1"

    async def _models(self, request: web.Request) -> web.Response:
        return web.json_response({"object": "list", "data": [{"id": "faulty", "object": "model"}]})

    async def _chat(self, request: web.Request) -> web.StreamResponse:
        body = await request.read()
        digest = blake2b(body, digest_size=16).digest()
        self._attempts[digest] += 1
        if self._on_first is not None and len(self._attempts) == 1:
            self._on_first()
            self._on_first = None
        fault = self._fault(digest)
        if fault is None:
            try:
                await asyncio.sleep(self._latency)
            except asyncio.CancelledError:  # the client has gone, or the server goes
                self.done["abandoned"] += 1
                raise
            self.done["answered"] += 1
            return web.json_response(answer(json.loads(body), digest))
        self.done[fault] += 1
        return await self._fail(fault, request, digest)

    def _fault(self, digest: bytes) -> str | None:
        """Return the way in which a request fails this time; None when it is answered."""
        if self._always and int.from_bytes(digest) % self._always == 0:
            return "refused" if self._clean else "always 500"
        if self._bucket is not None and not self._bucket.admits():
            return "429, seconds"
        if self._clean:
            return None
        left = random.Random(digest + b"%d" % self._attempts[digest] + self._salt).random()
        for fault, share in self._faults.items():
            left -= share
            if left < 0:
                return fault
        return None

    async def _fail(self, fault: str, request: web.Request, digest: bytes) -> web.StreamResponse:
        """Answer in one of the ways of `FAULTS`."""
        if fault == "refused":
            return web.json_response({"error": {"message": "made to be refused"}}, status=400)
        if fault.startswith("429"):
            now = time.time()
            wait = "1" if fault == "429, seconds" else formatdate(now + 1, usegmt=True)
            return web.Response(status=429, headers={"Retry-After": wait, "Date": formatdate(now, usegmt=True)})
        if fault == "hang":
            await asyncio.Event().wait()
        if fault == "malformed":
            return web.Response(text=MALFORMED[digest[-1] % len(MALFORMED)], content_type="application/json")
        if fault == "cut":
            head = b"HTTP/1.1 200 OK\r\nContent-Type: application/json\r\nContent-Length: 1000\r\n\r\n"
            transport: Any = request.transport
            transport.write(head + b'{"choices": [{"message": {"content": "half of')
            transport.close()
        if fault == "empty":
            return web.Response(body=b"", content_type="application/json")
        return web.json_response({"error": {"message": "made to fail"}}, status=500)


def answer(body: dict[str, Any], digest: bytes) -> dict[str, Any]:
    """Return the answer to a request: the letter A to D, in the form of the schema where there is one."""
    rng = random.Random(digest)
    schema = body.get("response_format", {}).get("json_schema", {}).get("schema")
    texts = [json.dumps(example(schema, rng)) if schema else rng.choice("ABCD") for _ in range(body.get("n", 1))]
    prompt = sum(len(message["content"].split()) for message in body["messages"])
    return {
        "choices": [
            {"index": index, "message": {"role": "assistant", "content": text}, "finish_reason": "stop"}
            for index, text in enumerate(texts)
        ],
        "usage": {"prompt_tokens": prompt, "completion_tokens": sum(len(text) // 4 + 1 for text in texts)},
    }


def example(schema: dict[str, Any], rng: random.Random) -> Any:
    """Return a value of a schema made of objects, enumerations and strings."""
    if "enum" in schema:
        return rng.choice(schema["enum"])
    if schema["type"] == "object":
        return {name: example(part, rng) for name, part in schema["properties"].items()}
    return rng.choice("ABCD")


async def serve(server: FaultServer) -> None:
    """Serve until the standard input closes, and say what was done."""
    loop = asyncio.get_running_loop()
    ended = asyncio.Event()
    async with server:
        print(server.url, flush=True)
        if sys.stdin.isatty():
            print("answering" if server._clean else f"failing: {server._faults}", file=sys.stderr)
        loop.add_reader(0, lambda: None if os.read(0, 1) else ended.set())
        with contextlib.suppress(asyncio.CancelledError):
            await ended.wait()
    print(json.dumps(dict(sorted(server.done.items()))), flush=True)


if __name__ == "__main__":
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--port", type=int, default=0, help="0: any free one, which is printed")
    parser.add_argument("--clean", action="store_true", help="nothing fails, but what never gets an answer is refused")
    parser.add_argument("--fault", action="append", metavar="KIND=SHARE", help=f"in place of {FAULTS}")
    parser.add_argument("--always", type=int, default=256, help="one request in so many never gets an answer; 0: none")
    parser.add_argument("--rate", type=float, default=None, help="a token bucket of so many calls a second")
    parser.add_argument("--burst", type=float, default=1.0, help="seconds of that rate that come at once at most")
    parser.add_argument("--salt", default="", help="any text; servers with other ones fail at other requests")
    parser.add_argument("--latency", type=float, default=0.0, help="seconds that an answer takes")
    arguments = vars(parser.parse_args())
    if arguments["fault"] is not None:
        shares = (text.rpartition("=") for text in arguments["fault"])
        arguments["fault"] = {kind: float(share) for kind, _, share in shares}
        if not arguments["fault"].keys() <= FAULTS.keys():
            parser.error(f"--fault: expected KIND=SHARE with KIND one of {', '.join(FAULTS)}")
    with contextlib.suppress(KeyboardInterrupt):
        asyncio.run(serve(FaultServer(**arguments, on_first=lambda: print("asked", flush=True))))
