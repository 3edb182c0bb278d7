"""A chat-completions server on loopback that can be faithful or hostile, over real sockets.

Faithful: it obeys max_tokens, stop, n, seed and JSON schemas with made-up texts in which a word is a token, and loads
adapters as vLLM does (under an adapter it says other things); `token_server` has answers with token ids. Hostile:
`faults` (one for each coming request) or `fault` (for all of them) take the place of the faithful answer.
Run as a program, it prints its port and serves until it is killed.
"""

import asyncio
import hashlib
import itertools
import json
import random
import sys
import time
from collections import deque
from collections.abc import Awaitable, Callable
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, Self

from aiohttp import web

TEXT = "the sea is wide and grey while small boats drift along quiet harbours under slow turning gulls"
WORDS = TEXT.split()
CONTEXT_LENGTH = 8192
EOS = ""

Fault = Callable[["ChatServer", web.Request], Awaitable[web.StreamResponse]]


@dataclass
class Seen:
    """One request for completions as the server saw it."""

    time: float
    body: dict[str, Any]
    headers: dict[str, str]
    client: tuple[str, int]
    """Address of the client's socket."""


@dataclass
class ChatServer:
    """Use as `async with ChatServer() as server`; `server.url` is the base URL."""

    answer: Callable[[dict[str, Any]], web.Response] = field(default_factory=lambda: faithful)
    """Gives the faithful answer to a request's body."""
    name: str = "fake"
    """Of the model."""
    fault: Fault | None = None
    faults: deque[Fault | None] = field(default_factory=deque)
    has_models: bool = True
    adapter_fault: Fault | None = None
    """Takes the place of what loading or unloading an adapter does."""
    sglang: bool = False
    """True: adapters are loaded beside `/v1`, and requests name them after a colon."""
    adapter_requests: int = 0
    adapters: dict[str, str] = field(default_factory=dict)
    """Folders of loaded adapters by name."""
    delay: float = 0.0
    """Seconds that a faithful answer takes."""
    seen: list[Seen] = field(default_factory=list)
    aborted: int = 0
    """Requests whose client went away before the answer."""
    running: int = 0
    most_running: int = 0
    port: int = 0

    async def __aenter__(self) -> Self:
        app = web.Application(client_max_size=16 * 2**20)
        app.router.add_post("/v1/{endpoint:(chat/)?completions}", self._chat)
        app.router.add_post(("" if self.sglang else "/v1") + "/{action:(un)?load_lora_adapter}", self._adapter)
        if self.has_models:
            app.router.add_get("/v1/models", self._models)
        self._runner = web.AppRunner(app, handler_cancellation=True, shutdown_timeout=0.1)
        await self._runner.setup()
        site = web.TCPSite(self._runner, "127.0.0.1", self.port)
        await site.start()
        self.port = self._runner.addresses[0][1]
        return self

    async def __aexit__(self, *exc_info: object) -> None:
        await self._runner.cleanup()

    @property
    def url(self) -> str:
        return f"http://127.0.0.1:{self.port}/v1"

    @property
    def sockets(self) -> int:
        """Connections that requests came in on."""
        return len({s.client for s in self.seen})

    async def _models(self, request: web.Request) -> web.Response:
        names = [self.name, *self.adapters]
        return web.json_response({"object": "list", "data": [{"id": name, "object": "model"} for name in names]})

    async def _adapter(self, request: web.Request) -> web.StreamResponse:
        self.adapter_requests += 1
        if self.adapter_fault is not None:
            return await self.adapter_fault(self, request)
        body = await request.json()
        loads = request.match_info["action"] == "load_lora_adapter"
        stacked = bool(body.get("is_3d_lora_weight"))
        answer = self._load(body["lora_name"], body["lora_path"], stacked) if loads else self._unload(body["lora_name"])
        return self._as_sglang(answer) if self.sglang else answer

    def _as_sglang(self, answer: web.Response) -> web.Response:
        """Say what SGLang 0.5 says (sglang/srt/entrypoints/http_server.py, managers/io_struct.py)."""
        failed = answer.status >= 300
        result = {
            "success": not failed,
            "error_message": answer.text if failed else "",
            "loaded_adapters": self.adapters,
        }
        return web.json_response(result, status=400 if failed else 200)

    def _load(self, name: str, folder: str, stacked: bool) -> web.Response:
        """Answer as vLLM 0.32 does (vllm/entrypoints/openai/models/serving.py)."""
        if name in self.adapters:
            return error(400, f"The lora adapter '{name}' has already been loaded.")
        if not Path(folder, "adapter_config.json").is_file():
            return error(404, f"Loading lora {name} failed: No adapter found for {folder}")
        if not stacked and "gate_up_proj" in Path(folder, "adapter_config.json").read_text():
            return error(400, "LoRA adapter 1 contains fused 3D MoE weights, but the model uses a 2D MoE LoRA wrapper.")
        self.adapters[name] = folder
        return web.Response(text=f"Success: LoRA adapter '{name}' added successfully.")

    def _unload(self, name: str) -> web.Response:
        if name not in self.adapters:
            return error(404, f"The lora adapter '{name}' cannot be found.")
        del self.adapters[name]
        return web.Response(text=f"Success: LoRA adapter '{name}' removed successfully.")

    async def _chat(self, request: web.Request) -> web.StreamResponse:
        assert request.transport is not None
        body = await request.json()
        client = request.transport.get_extra_info("peername")
        self.seen.append(Seen(time.monotonic(), body, dict(request.headers), client))
        self.running += 1
        self.most_running = max(self.running, self.most_running)
        try:
            fault = self.faults.popleft() if self.faults else self.fault
            if fault is not None:
                return await fault(self, request)
            await asyncio.sleep(self.delay)
            if self.sglang:  # takes any model's name for its own
                adapter = body["model"].partition(":")[2]
                if adapter and adapter not in self.adapters:
                    return error(400, f"The following requested LoRA adapters are not loaded: {adapter}")
            elif body["model"] not in (self.name, *self.adapters):
                return error(404, f"The model `{body['model']}` does not exist.")
            return self.answer(body)
        except asyncio.CancelledError:
            self.aborted += 1
            raise
        finally:
            self.running -= 1


def error(code: int, message: str) -> web.Response:
    return web.json_response({"error": {"message": message, "code": code}}, status=code)


def faithful(body: dict[str, Any]) -> web.Response:
    """Answer as a well-behaved server would."""
    prompt = " ".join(m["content"] for m in body["messages"])
    prompt_tokens = len(prompt.split())
    max_tokens = body.get("max_tokens") or body.get("max_completion_tokens")
    if prompt_tokens + max_tokens > CONTEXT_LENGTH:
        return error(400, f"The maximum context length is {CONTEXT_LENGTH} tokens, the prompt has {prompt_tokens}.")
    drawn = [complete(body, prompt, max_tokens, index) for index in range(body.get("n", 1))]
    choices = [
        {"index": i, "message": {"role": "assistant", "content": text}, "finish_reason": reason}
        for i, (text, reason, pieces) in enumerate(drawn)
    ]
    usage = {"prompt_tokens": prompt_tokens, "completion_tokens": sum(len(pieces) for *_, pieces in drawn)}
    return web.json_response({"object": "chat.completion", "choices": choices, "usage": usage})


def complete(body: dict[str, Any], prompt: str, max_tokens: int, index: int) -> tuple[str, str, list[str]]:
    """Return (text, finish reason, sampled pieces) of one completion."""
    key = [body["model"], prompt] if body["temperature"] == 0 else [body["model"], prompt, body.get("seed"), index]
    rng = random.Random(hashlib.sha256(repr(key).encode()).digest())
    if "response_format" in body:
        text = json.dumps(example(body["response_format"]["json_schema"]["schema"], rng))
        pieces = [text[i : i + 8] for i in range(0, len(text), 8)]
    else:
        pieces = [" " * (i > 0) + rng.choice(WORDS) for i in range(rng.randint(30, 60))]
    pieces = [*pieces, EOS][:max_tokens]
    text = "".join(pieces)
    cuts = [(at, at + len(stop)) for stop in body.get("stop", ()) if (at := text.find(stop)) >= 0]
    if cuts:
        start, end = min(cuts)
        tokens = next(i for i in itertools.count(1) if len("".join(pieces[:i])) >= end)
        return text[:start], "stop", pieces[:tokens]
    return text, "stop" if pieces[-1] == EOS else "length", pieces


def example(schema: dict[str, Any], rng: random.Random) -> Any:
    """Return a value of a schema made of objects, enumerations and strings."""
    if "enum" in schema:
        return rng.choice(schema["enum"])
    if schema["type"] == "object":
        return {name: example(part, rng) for name, part in schema["properties"].items()}
    return rng.choice(WORDS)


def status(code: int, text: str = '{"error": {"message": "made to fail"}}', **headers: str) -> Fault:
    """Answer with an HTTP status; `Retry_After="1"` becomes the header Retry-After."""

    async def fault(server: ChatServer, request: web.Request) -> web.StreamResponse:
        named = {name.replace("_", "-"): value for name, value in headers.items()}
        return web.Response(status=code, text=text, headers=named)

    return fault


def body(content: bytes, content_type: str = "application/json") -> Fault:
    """Answer 200 with this body."""

    async def fault(server: ChatServer, request: web.Request) -> web.StreamResponse:
        return web.Response(body=content, content_type=content_type)

    return fault


def completion(**fields: Any) -> Fault:
    """Answer 200 with a chat completion of this text, finish_reason, message fields and usage."""
    message = {"role": "assistant", "content": fields.get("text", "fine"), **fields.get("message", {})}
    choice = {"index": 0, "message": message, "finish_reason": fields.get("finish_reason", "stop")}
    answer: dict[str, Any] = {"choices": [choice] * fields.get("copies", 1)}
    if usage := fields.get("usage", {"prompt_tokens": 3, "completion_tokens": 2}):
        answer["usage"] = usage
    return body(json.dumps(answer).encode())


async def hang(server: ChatServer, request: web.Request) -> web.StreamResponse:
    """Never answer."""
    await asyncio.Event().wait()
    raise AssertionError("unreachable")


async def cut_before_answer(server: ChatServer, request: web.Request) -> web.StreamResponse:
    """Reset the connection instead of answering."""
    return await raw(b"")(server, request)


async def cut_mid_body(server: ChatServer, request: web.Request) -> web.StreamResponse:
    """Promise 1,000 bytes, send 20, and reset."""
    head = b"HTTP/1.1 200 OK\r\nContent-Type: application/json\r\nContent-Length: 1000\r\n\r\n"
    return await raw(head + b'{"choices": [{"messa')(server, request)


def raw(data: bytes) -> Fault:
    """Write bytes to the socket and close it."""

    async def fault(server: ChatServer, request: web.Request) -> web.StreamResponse:
        assert request.transport is not None
        request.transport.write(data)
        request.transport.close()
        return web.Response()

    return fault


async def drip(server: ChatServer, request: web.Request) -> web.StreamResponse:
    """Send one space every 20 ms, for ever."""
    response = web.StreamResponse(headers={"Content-Type": "application/json"})
    await response.prepare(request)
    while True:
        await response.write(b" ")
        await asyncio.sleep(0.02)


async def huge(server: ChatServer, request: web.Request) -> web.StreamResponse:
    """Send spaces without end, as fast as they are taken."""
    response = web.StreamResponse(headers={"Content-Type": "application/json"})
    await response.prepare(request)
    while True:
        await response.write(b" " * 2**20)


async def echo_headers(server: ChatServer, request: web.Request) -> web.StreamResponse:
    """Refuse, and show the client's own headers in the message."""
    message = "bad key in " + json.dumps(dict(request.headers))
    return web.json_response({"error": {"message": message}}, status=401)


async def announce_and_hang(server: ChatServer, request: web.Request) -> web.StreamResponse:
    """Print that a request is here, then never answer it."""
    print("request", flush=True)
    return await hang(server, request)


async def main() -> None:
    """Serve until killed; `hang` as an argument makes every chat request hang."""
    async with ChatServer(fault=announce_and_hang if "hang" in sys.argv else None) as server:
        print(server.port, flush=True)
        await asyncio.Event().wait()


if __name__ == "__main__":
    asyncio.run(main())
