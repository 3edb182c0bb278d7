"""Connects to a server that speaks Tinker's API, and says in one line what went wrong there.

The protocol is that of Thinking Machines' service; SkyRL has a server of its own.
"""

import asyncio
import contextlib
import logging
import os
from collections.abc import Callable
from typing import Any

from evorun.errors import ConfigError, EngineError, EvorunError, first_line
from evorun.models.keys import read_key
from evorun.models.requirements import find_missing_packages

KEY = "TINKER_API_KEY"
"""The environment variable of the API key, as in Tinker's package."""
PREFIX = "tml-"
"""Beginning of every key; the package refuses others."""
CONNECTING_S = 15
"""Seconds for a server to answer at all. `ours`."""
CLOSING_S = 10
"""Seconds for the server to note the end of a session. `ours`."""


def require_service() -> None:
    """Raise EngineError if Tinker's package is not installed or its key is not set. Connects to nothing."""
    if find_missing_packages(["tinker"]):
        raise EngineError("Tinker's API needs the package tinker, which is not installed: pip install 'evorun[tinker]'")
    if not os.environ.get(KEY, "").strip().startswith(PREFIX):
        raise EngineError(
            f"Tinker's API: expected a key that begins with {PREFIX} in the environment variable {KEY}, found none; "
            f"export {KEY}={PREFIX}... (for a server without keys, any such text)"
        )


async def connect(base_url: str | None, model: str) -> Any:
    """Return Tinker's ServiceClient, after a check that the server has the model.

    base_url: None: that of TINKER_BASE_URL, else Thinking Machines' own. Raises EngineError when the server does not
    answer, ConfigError when it lacks the model.
    """
    require_service()
    if (address := base_url or os.environ.get("TINKER_BASE_URL")) is not None:
        await _require_answer(address)
    # Its reports of errors hold requests' headers, and go to whoever runs the server.
    os.environ.setdefault("TINKER_TELEMETRY", "0")
    logging.getLogger("tinker.lib.api_future_impl").setLevel(logging.ERROR)  # warns of each poll without a result
    try:
        return await asyncio.to_thread(_open, base_url, model)
    except EvorunError:
        raise
    except Exception as error:
        raise EngineError(explain("cannot connect", error)) from error


async def _require_answer(address: str) -> None:
    """Raise EngineError if no server answers at an address; Tinker's package would try again for five minutes."""
    import aiohttp

    try:
        async with (
            aiohttp.ClientSession(trust_env=True, timeout=aiohttp.ClientTimeout(total=CONNECTING_S)) as session,
            session.get(f"{address.rstrip('/')}/api/v1/healthz"),
        ):
            pass  # any status is an answer
    except (aiohttp.ClientError, TimeoutError) as error:
        raise EngineError(
            f"Tinker's API: no server answers at {address} ({first_line(error)}); start it, or correct "
            "training.base_url, engine.base_url or TINKER_BASE_URL"
        ) from error


def _open(base_url: str | None, model: str) -> Any:
    import tinker

    key = read_key(KEY)
    found = tinker.RestClient(base_url=base_url, api_key=key).get_server_capabilities().result()
    served = sorted(offered.model_name for offered in found.supported_models if offered.model_name)
    if served and model not in served:
        raise ConfigError(f"model.id: Tinker's server has no model '{model}'; it has {', '.join(served)}")
    return tinker.ServiceClient(base_url=base_url, api_key=key, user_metadata={"client": "evorun"})


async def create(make: Callable[..., Any], *arguments: Any, **settings: Any) -> Any:
    """Return the client that a method of a ServiceClient creates; the first one opens the session, which blocks."""
    return await (await asyncio.to_thread(make, *arguments, **settings))


async def close(service: Any, status: str = "success") -> None:
    """End the session; a server that does not answer ends it later by itself."""
    with contextlib.suppress(Exception):
        await asyncio.wait_for(service.close(status).result_async(), CLOSING_S)


def explain(what: str, error: BaseException) -> str:
    """Return an error of Tinker's package in one line, without the key."""
    text = " ".join(str(error).split()) or type(error).__name__
    if isinstance(error, TimeoutError):
        text = "the server has not answered in time"
    key = os.environ.get(KEY, "").strip()
    text = text.replace(key, "***") if key else text
    if getattr(error, "status_code", None) in (401, 403):
        text += f"; check the key in {KEY}"
    return f"Tinker's API: {what}: {text[:400]}"
