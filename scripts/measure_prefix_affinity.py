"""Measures how many prompt tokens the replicas of a model compute, with and without prefix affinity.

    python scripts/measure_prefix_affinity.py simulated [METHOD ...] [--replicas N] [--concurrency N] [--cache TOKENS]
    python scripts/measure_prefix_affinity.py served METHOD URL URL [...]

Both carry out runs on the simulated engine, whose calls go to the replicas too. So the requests, and which of them wait
for which, are those of real runs. Each run is repeated with several ways to choose the replica.

`simulated` replicas take time for what they compute and generate. Each has a cache like vLLM's: blocks of 16 tokens,
the least recently used dropped first. Tokens are characters by four.

`served` replicas are vLLM servers that serve a model as `measured`, started with VLLM_SERVER_DEV_MODE=1, by which the
script empties their caches. They count the prompt tokens that they found in their caches. Each call asks for a few
tokens; the run goes on with the simulator's.
"""

import argparse
import asyncio
import itertools
import sys
import tempfile
from collections import OrderedDict
from pathlib import Path
from typing import Any
from unittest.mock import patch
from urllib.request import Request as HttpRequest
from urllib.request import urlopen

import msgspec

sys.path.append(str(Path(__file__).parent / "bench"))

from dry_run import run
from evorun.models.base import LanguageModel, Reply, Request
from evorun.models.config import ModelConfig
from evorun.models.server.engine import ServerConfig
from evorun.models.server.pool import EndpointPool
from evorun.models.server.wire import RequestEncoder
from evorun.simulation.engine import SimulatedModel

BLOCK = 16
"""Tokens of a block of vLLM's cache."""
CHARACTERS_PER_TOKEN = 4
PREFILL, DECODE = 2e-6, 2e-4
"""Seconds per token, a hundredth of a GPU's for a model of some 7B: the choice depends on how they compare."""

COMMON = {"evorun.progress": "off"}
RUNS: dict[str, dict[str, Any]] = {
    "duel_evolve": {"method": "duel_evolve", "task": "mathbench", "task.source": "sample", "method.generations": 3},
    "best_of_n": {
        **{"method": "best_of_n", "task": "mathbench", "task.source": "sample"},
        **{"method.samples": 36, "method.rounds": 3},
    },
    "espl": {
        **{"method": "espl", "task": "arithmetic", "task.test_problems": 8, "method.problems_per_step": 16},
        **{"method.group": 8, "method.steps": 10, "method.eval_samples": 1, "engine.mean_tokens": 100},
    },
}
SMALL: dict[str, dict[str, Any]] = {
    "duel_evolve": {"task.limit": 16, "method.generations": 2},
    "best_of_n": {"task.limit": 6, "method.samples": 24, "method.rounds": 2},
    "espl": {"method.problems_per_step": 8, "method.steps": 4},
}
"""Settings that are smaller on servers, which are slow on a CPU."""
IN_TURN, LOAD, AFFINITY, ALONE = "in turn", "least loaded", "affinity", "one for all"
SERVED_TOKENS = 4
"""Most tokens of a served completion."""


class Cache:
    """The prefix cache of one replica."""

    def __init__(self, tokens: int) -> None:
        self._room = tokens // BLOCK
        self._blocks: OrderedDict[int, None] = OrderedDict()

    def compute(self, text: str) -> int:
        """Return the tokens of a prompt that are not in the cache, and put it there."""
        size = BLOCK * CHARACTERS_PER_TOKEN
        blocks: list[int] = []
        found = before = 0
        for start in range(0, len(text) - size + 1, size):
            before = hash((before, text[start : start + size]))
            if found == len(blocks) and before in self._blocks:
                found += 1
            blocks.append(before)
        for block in reversed(blocks):
            self._blocks[block] = None
            self._blocks.move_to_end(block)
        while len(self._blocks) > self._room:
            self._blocks.popitem(last=False)
        return len(text) // CHARACTERS_PER_TOKEN - found * BLOCK


class Replicas:
    """Serves the calls of one run."""

    def __init__(self, choice: str, replicas: int, concurrency: int, cache: int) -> None:
        """choice: of the replica. concurrency: most requests in flight per replica. cache: tokens of a replica's."""
        self.asked = self.computed = 0
        """Tokens of all prompts, and those that were not in a cache."""
        self._choice = choice
        self._caches = [Cache(cache) for _ in range(replicas)]
        self._concurrency = concurrency
        self._numbers = itertools.count()
        self._pool: EndpointPool | None = None
        model = ModelConfig(name="m", id="m")
        self._encoder = RequestEncoder(
            model,
            served_name="m",
            max_tokens_field="max_tokens",
            structured_outputs="json_schema",
            send_seed=True,
            extra_body={},
        )

    def _open(self) -> EndpointPool:
        if self._pool is None:
            self._pool = EndpointPool([f"http://{i}" for i in range(len(self._caches))], self._concurrency, 60, 60)
            for endpoint in self._pool.endpoints:
                endpoint.down_since = None
        return self._pool

    async def serve(self, request: Request, reply: Reply) -> None:
        """Take the time that one of the replicas needs for a request."""
        pool, number = self._open(), next(self._numbers)
        body = self._encoder.encode(request, n=1, drawn=0)
        loop = asyncio.get_running_loop()
        if self._choice == IN_TURN:
            endpoint = pool.endpoints[number % len(pool.endpoints)]
            endpoint.in_flight += 1
        else:
            endpoint = await pool.acquire(number, None, body if self._choice == AFFINITY else b"")
        started, load = loop.time(), endpoint.in_flight
        text = "".join(message["role"] + message["content"] for message in request.messages)
        computed = self._caches[pool.endpoints.index(endpoint)].compute(text)
        self.asked += len(text) // CHARACTERS_PER_TOKEN
        self.computed += computed
        await asyncio.sleep(PREFILL * computed + DECODE * max(completion.tokens for completion in reply.completions))
        if self._choice != IN_TURN:
            pool.record_answer(endpoint, load, loop.time() - started)
        pool.release(endpoint)


class Servers:
    """Serves the calls of one run by the server engine."""

    def __init__(self, urls: list[str]) -> None:
        self._config = ServerConfig(base_urls=urls, max_outage="60")
        self._engine: LanguageModel | None = None
        self._opening = asyncio.Lock()

    async def serve(self, request: Request, reply: Reply) -> None:
        """Ask a server for a few tokens after a request's prompt."""
        async with self._opening:
            if self._engine is None:
                self._engine = await self._config.open(ModelConfig(name="measured", id="measured"))
        sampling = msgspec.structs.replace(request.sampling, n=1, max_tokens=SERVED_TOKENS)
        plain = {"json_schema": None, "token_ids": False, "logprobs": False, "seen": None}
        answer = await self._engine.complete(msgspec.structs.replace(request, sampling=sampling, **plain))
        if answer.error is not None:
            raise RuntimeError(answer.error)

    async def close(self) -> None:
        """Close the connections; idempotent."""
        if self._engine is not None:
            await self._engine.close()


def carry_out(settings: dict[str, Any], replicas: Replicas | Servers) -> None:
    """Carry out a run whose calls replicas serve, too."""
    answer = SimulatedModel.complete

    async def complete(model: SimulatedModel, request: Request) -> Reply:
        reply = await answer(model, request)
        await replicas.serve(request, reply)
        return reply

    async def close(model: SimulatedModel) -> None:
        if isinstance(replicas, Servers):
            await replicas.close()

    as_served = patch.multiple(SimulatedModel, complete=complete, close=close)
    with tempfile.TemporaryDirectory() as folder, as_served:
        run(Path(folder) / "run", {**COMMON, **settings})


def simulate(options: argparse.Namespace) -> None:
    """Print a line for each run and choice; the last is of a single replica with the caches of all."""
    for method in options.methods:
        for choice in (IN_TURN, LOAD, AFFINITY):
            served = Replicas(choice, options.replicas, options.concurrency, options.cache)
            carry_out(RUNS[method], served)
            show(method, choice, served.asked, served.computed)
        whole = Replicas(LOAD, 1, options.replicas * options.concurrency, options.replicas * options.cache)
        carry_out(RUNS[method], whole)
        show(method, ALONE, whole.asked, whole.computed)


def serve(options: argparse.Namespace) -> None:
    """Print a line for the run without affinity, one for it with affinity, and one for it on the first server alone."""
    acquire = EndpointPool.acquire

    async def without(pool: EndpointPool, number: int, last: Any = None, body: bytes = b"") -> Any:
        return await acquire(pool, number, last)

    for choice, way, urls in (
        (LOAD, without, options.urls),
        (AFFINITY, acquire, options.urls),
        (ALONE, acquire, options.urls[:1]),
    ):
        for url in urls:
            reset = HttpRequest(f"{url.removesuffix('/v1')}/reset_prefix_cache", method="POST")  # noqa: S310 - the user's
            urlopen(reset).close()  # noqa: S310
        before = [count_tokens(url) for url in urls]
        with patch.object(EndpointPool, "acquire", way):
            carry_out({**RUNS[options.method], **SMALL[options.method]}, Servers(urls))
        asked = computed = 0
        for (asked_before, found_before), url in zip(before, urls, strict=True):
            asked_after, found_after = count_tokens(url)
            new = asked_after - asked_before
            asked, computed = asked + new, computed + new - (found_after - found_before)
        show(options.method, choice, asked, computed)


def count_tokens(url: str) -> tuple[int, int]:
    """Return how many prompt tokens a server has looked for in its cache so far, and how many it found."""
    with urlopen(f"{url.removesuffix('/v1')}/metrics") as answer:  # noqa: S310 - the user's
        lines = answer.read().decode().splitlines()
    names = ("vllm:prefix_cache_queries_total", "vllm:prefix_cache_hits_total")
    counts = (sum(float(line.split()[-1]) for line in lines if line.startswith(name)) for name in names)
    asked, found = map(int, counts)
    return asked, found


def show(method: str, choice: str, asked: int, computed: int) -> None:
    """Print a line."""
    print(f"{method:12} {choice:13} {asked:>12,} tokens asked {computed / asked:6.1%} computed", flush=True)


def main() -> None:
    """Do what the command line asks for."""
    parser = argparse.ArgumentParser(description="Measure the prompt tokens that the replicas of a model compute.")
    commands = parser.add_subparsers(required=True)
    simulated = commands.add_parser("simulated", help="replicas with simulated caches")
    simulated.add_argument("methods", nargs="*", default=[*RUNS], metavar="METHOD", help=", ".join(RUNS))
    simulated.add_argument("--replicas", type=int, default=2)
    simulated.add_argument("--concurrency", type=int, default=64, help="most requests in flight per replica")
    simulated.add_argument("--cache", type=int, default=100_000, help="tokens that a replica's cache holds")
    simulated.set_defaults(command=simulate)
    served = commands.add_parser("served", help="vLLM servers that are running")
    served.add_argument("method", choices=[*RUNS])
    served.add_argument("urls", nargs="+", metavar="URL", help="http://HOST:PORT/v1")
    served.set_defaults(command=serve)
    options = parser.parse_args()
    options.command(options)


if __name__ == "__main__":
    main()
