"""Calls per second of the server engine beside a bare aiohttp loop, against a trivial server in its own process.

Both send 2 kB prompts, 64 or 512 at once, over kept connections on loopback, encode and decode with msgspec, and take
turns,
so that each pair's ratio hardly depends on what else the machine is doing; CPU time depends on it even less. The server
is a bare asyncio protocol with a constant answer, so that the client is what is measured.
"""

import asyncio
import subprocess
import sys
import time
from collections.abc import Awaitable, Callable, Sequence
from statistics import median
from typing import IO, Any, NamedTuple, cast

import msgspec

from evorun.models import Message, Request, Sampling
from evorun.models.config import ModelConfig
from evorun.models.server.engine import ServerConfig
from evorun_bench import Row

AT_ONCE = {64: 0.6, 512: 0.8}
"""Calls in flight, and the share of the bare loop's pace that is aimed at."""
TINY = {"calls": 64, "rounds": 1}
SECONDS_ALLOWED = 120
PROMPT = "Which of these two solutions is right? " * 52

ANSWER = msgspec.json.encode(
    {
        "id": "chatcmpl-0",
        "object": "chat.completion",
        "created": 0,
        "model": "trivial",
        "choices": [{"index": 0, "message": {"role": "assistant", "content": "A. " * 20}, "finish_reason": "stop"}],
        "usage": {"prompt_tokens": 500, "completion_tokens": 60, "total_tokens": 560},
    }
)
RESPONSE = b"HTTP/1.1 200 OK\r\nContent-Type: application/json\r\nContent-Length: %d\r\n\r\n%b" % (len(ANSWER), ANSWER)


class TrivialServer(asyncio.Protocol):
    """Answers every complete HTTP request with the same completion."""

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        """Start with nothing received."""
        self.transport: Any = transport
        self.received = b""

    def data_received(self, data: bytes) -> None:
        """Answer once the headers and the body that they announce are there."""
        self.received += data
        head, blank, rest = self.received.partition(b"\r\n\r\n")
        if not blank:
            return
        length = head.lower().partition(b"content-length:")[2].partition(b"\r\n")[0]
        if len(rest) >= int(length or 0):
            self.received = b""
            self.transport.write(RESPONSE)


async def serve() -> None:
    """Serve on a free port, which is printed, until stdin closes."""
    loop = asyncio.get_running_loop()
    server = await loop.create_server(TrivialServer, "127.0.0.1", 0)
    print(server.sockets[0].getsockname()[1], flush=True)
    await loop.run_in_executor(None, sys.stdin.read)


class Speed(NamedTuple):
    """One turn: calls per wall second, and this process's CPU seconds per call."""

    rate: float
    cpu: float


async def speed(calls: int, at_once: int, call: Callable[[], Awaitable[object]]) -> Speed:
    """Measure so many calls by so many workers."""
    left = iter(range(calls))

    async def work() -> None:
        for _ in left:
            await call()

    started, cpu_started = time.perf_counter(), time.process_time()
    await asyncio.gather(*(work() for _ in range(at_once)))
    return Speed(calls / (time.perf_counter() - started), (time.process_time() - cpu_started) / calls)


async def compare(url: str, calls: int, at_once: int, rounds: int) -> list[tuple[Speed, Speed]]:
    """Return (engine, bare) speeds, one pair a round, after a round to warm up; who goes first changes every round."""
    import aiohttp

    messages = (Message(role="user", content=PROMPT),)
    request = Request(messages=messages, sampling=Sampling(max_tokens=64))
    body = {"model": "trivial", "messages": messages, "temperature": 1.0, "top_p": 1.0, "max_tokens": 64, "seed": 0}
    engine = await ServerConfig(base_urls=[url], concurrency=at_once).open(ModelConfig(name="trivial", id="trivial"))

    async with aiohttp.ClientSession(connector=aiohttp.TCPConnector(limit=at_once)) as session:

        async def ask_engine() -> object:
            return await engine.complete(request)

        async def ask_bare() -> object:
            data = msgspec.json.encode(body)
            headers = {"Content-Type": "application/json"}
            async with session.post(f"{url}/chat/completions", data=data, headers=headers) as response:
                return msgspec.json.decode(await response.read())["choices"][0]["message"]["content"]

        pairs = []
        for turn in range(rounds + 1):
            if turn % 2:
                bare, ours = await speed(calls, at_once, ask_bare), await speed(calls, at_once, ask_engine)
            else:
                ours, bare = await speed(calls, at_once, ask_engine), await speed(calls, at_once, ask_bare)
            pairs.append((ours, bare))
    await engine.close()
    return pairs[1:]


def measure(calls: int = 3_000, rounds: int = 6) -> list[Row]:
    """Run the comparison and return its rows: medians over the rounds, each of so many calls either way."""
    command = [sys.executable, __file__, "serve"]
    with subprocess.Popen(command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True) as server:
        stdin, stdout = cast(IO[str], server.stdin), cast(IO[str], server.stdout)
        url = f"http://127.0.0.1:{int(stdout.readline())}/v1"
        try:
            rows: list[Row] = []
            for at_once, target in AT_ONCE.items():
                compared = compare(url, calls, at_once, rounds)
                rows += _rows(asyncio.run(asyncio.wait_for(compared, SECONDS_ALLOWED)), at_once, target)
            return rows
        finally:
            stdin.close()


def _rows(pairs: Sequence[tuple[Speed, Speed]], at_once: int, target: float) -> list[Row]:
    ratio = median(ours.rate / bare.rate for ours, bare in pairs)
    overhead = median(ours.cpu - bare.cpu for ours, bare in pairs)
    return [
        Row(f"server engine, {at_once} at once", median(ours.rate for ours, _ in pairs), "calls/s", "", None),
        Row(f"... bare aiohttp loop, {at_once} at once", median(bare.rate for _, bare in pairs), "calls/s", "", None),
        Row(f"... over bare aiohttp, {at_once} at once", ratio, "x", f">= {target}", ratio >= target),
        Row(f"... CPU above bare aiohttp, {at_once} at once", overhead * 1e6, "us/call", "", None),
    ]


if __name__ == "__main__" and sys.argv[1:] == ["serve"]:
    asyncio.run(serve())
