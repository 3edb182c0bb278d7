"""A chat-completions endpoint that answers everything alike after a fixed time, and counts what it has answered.

    python scripts/race/endpoint.py [--latency .05]

It prints its address and serves until its standard input closes. GET /count gives the number of completions sent.
"""

import argparse
import asyncio
import itertools
import sys

from aiohttp import web

PROGRAM = "```python\ndef answer():\n    return {number}\n```"
"""A whole program: what a method that evolves code takes from a reply. Others read the number in the box."""


async def main() -> None:
    """Serve on a free port of the loopback interface."""
    parser = argparse.ArgumentParser()
    parser.add_argument("--latency", type=float, default=0.05, help="seconds until an answer")
    latency = parser.parse_args().latency
    numbers = itertools.count()
    answered = 0

    async def complete(request: web.Request) -> web.Response:
        nonlocal answered
        body = await request.json()
        number = next(numbers)
        await asyncio.sleep(latency)
        answered += 1
        return web.json_response(
            {
                "id": f"chatcmpl-{number}",
                "object": "chat.completion",
                "created": 0,
                "model": body["model"],
                "choices": [
                    {
                        "index": 0,
                        "finish_reason": "stop",
                        "message": {
                            "role": "assistant",
                            "content": f"The answer is \\boxed{{{number % 40}}}.\n\n{PROGRAM.format(number=number)}",
                        },
                    }
                ],
                "usage": {"prompt_tokens": 100, "completion_tokens": 40, "total_tokens": 140},
            }
        )

    async def count(request: web.Request) -> web.Response:
        return web.json_response(answered)

    async def models(request: web.Request) -> web.Response:
        return web.json_response({"object": "list", "data": [{"id": "race", "object": "model"}]})

    app = web.Application()
    app.router.add_post("/v1/chat/completions", complete)
    app.router.add_get("/v1/models", models)
    app.router.add_get("/count", count)
    runner = web.AppRunner(app, access_log=None)
    await runner.setup()
    site = web.TCPSite(runner, "127.0.0.1", 0)
    await site.start()
    print(f"http://127.0.0.1:{runner.addresses[0][1]}", flush=True)
    await asyncio.get_running_loop().run_in_executor(None, sys.stdin.read)
    await runner.cleanup()


if __name__ == "__main__":
    asyncio.run(main())
