"""The `server` engine's HTTP: one connection-keeping session, whole answers as values, and no key in any message."""

import os
import re
from collections.abc import Mapping
from typing import TYPE_CHECKING
from urllib.parse import urlsplit

import msgspec

from evorun.errors import ConfigError, EngineError
from evorun.models.server.wire import one_line

if TYPE_CHECKING:
    import aiohttp

LARGEST_BODY = 32 * 2**20
"""Bytes of an answer beyond which it is taken for broken and no longer read. `ours`."""
KEEP_ALIVE = 4.0
"""Seconds that an idle connection is kept. Uvicorn, hence vLLM, closes after 5: the client must be first, or requests
run into connections that are just being closed."""


class Answer(msgspec.Struct, frozen=True):
    """A whole HTTP answer, whatever its status."""

    status: int
    headers: Mapping[str, str]
    content: bytes


class Failure(msgspec.Struct, frozen=True):
    """An attempt that may go better next time."""

    cause: str
    retry_after: float | None = None
    """Seconds, where the server named them."""


class HttpTransport:
    """Sends requests over kept connections and returns failures as values.

    The API key lives here alone. `safe` and `redact` take it out of what comes from outside on its way into a message;
    and no aiohttp exception leaves `_exchange`, not even as a cause, because the repr of some shows the request's
    headers.
    """

    def __init__(self, *, total: float, connect: float, key: str | None) -> None:
        import aiohttp

        headers = {"Content-Type": "application/json", "Accept": "application/json", "User-Agent": "evorun"}
        if key:
            headers["Authorization"] = f"Bearer {key}"
        self._key = key
        self._limits = aiohttp.ClientTimeout(total=total, sock_connect=connect)
        self._session = aiohttp.ClientSession(
            connector=aiohttp.TCPConnector(limit=0, keepalive_timeout=KEEP_ALIVE),
            timeout=self._limits,
            headers=headers,
            cookie_jar=aiohttp.DummyCookieJar(),
        )

    @property
    def closed(self) -> bool:
        """Whether `close` has been called."""
        return self._session.closed

    async def close(self) -> None:
        """Close all connections; idempotent."""
        await self._session.close()

    async def get(self, url: str, seconds: float) -> Answer | Failure:
        """GET `url` within `seconds`."""
        import aiohttp

        return await self._exchange("GET", url, None, aiohttp.ClientTimeout(total=seconds))

    async def post(self, url: str, body: bytes) -> Answer | Failure:
        """POST a JSON `body` to `url`."""
        return await self._exchange("POST", url, body, self._limits)

    def safe(self, text: str) -> str:
        """Return `text` in one line and without the API key."""
        return one_line(text.replace(self._key, "***") if self._key else text)

    def redact(self, content: bytes) -> bytes:
        """Return `content` without the API key; to be done before it is cut anywhere."""
        return content.replace(self._key.encode(), b"***") if self._key else content

    async def _exchange(
        self, method: str, url: str, body: bytes | None, limits: "aiohttp.ClientTimeout"
    ) -> Answer | Failure:
        """Send one request and read its whole answer; redirects are not followed, since the key would go along."""
        import aiohttp

        try:
            async with self._session.request(method, url, data=body, allow_redirects=False, timeout=limits) as response:
                content = await _read_bounded(response)
        except aiohttp.ConnectionTimeoutError:
            return Failure(f"no connection within {limits.sock_connect:g} s")
        except TimeoutError:
            return Failure(f"no complete answer within {limits.total:g} s")
        except (aiohttp.ClientError, OSError) as exc:
            return Failure(self.safe(f"{type(exc).__name__}: {exc}"))
        if content is None:
            return Failure(f"malformed body (more than {LARGEST_BODY >> 20} MiB)")
        return Answer(response.status, response.headers, content)


async def _read_bounded(response: "aiohttp.ClientResponse") -> bytes | None:
    """Return the body, or None when it is larger than `LARGEST_BODY`."""
    chunks: list[bytes] = []
    size = 0
    while chunk := await response.content.readany():
        chunks.append(chunk)
        size += len(chunk)
        if size > LARGEST_BODY:
            return None
    return b"".join(chunks)


def read_key(variable: str | None) -> str | None:
    """Return the API key that the environment variable holds, or None when no variable is named.

    Raises EngineError when the variable is not set or cannot be a key.
    """
    if variable is None:
        return None
    key = os.environ.get(variable, "").strip()
    if not key:
        raise EngineError(
            f"engine.api_key_env: expected the API key in the environment variable {variable}, which is not set; "
            f"export {variable}=..., or set engine.api_key_env=null for a server without keys"
        )
    if not (key.isascii() and key.isprintable()):
        raise EngineError(f"engine.api_key_env: the value of {variable} holds characters that no HTTP header can carry")
    return key


def checked_url(text: str) -> str:
    """Return a base URL without a slash at its end.

    Raises ConfigError for what is not a plain http(s) URL; credentials in it would end up in run directories.
    """
    try:
        url = urlsplit(text)
        valid = url.scheme in ("http", "https") and bool(url.hostname) and url.port != 0
    except ValueError:
        valid = False
    if not valid:
        raise ConfigError(f"engine.base_urls: expected http(s)://host[:port]/path, got '{without_credentials(text)}'")
    if url.username is not None or url.password is not None or url.query or url.fragment:
        raise ConfigError(
            "engine.base_urls: expected a URL without user, password, query or fragment, got one for host "
            f"'{url.hostname}' that has them; keys come from the variable that engine.api_key_env names"
        )
    return text.rstrip("/")


def without_credentials(url: str) -> str:
    """Return a URL fit for messages: user, password, query and fragment left out."""
    return re.sub(r"//[^/]*@", "//", re.split(r"[?#]", url)[0])
