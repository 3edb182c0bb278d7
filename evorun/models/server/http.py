"""HTTP of the `server` engine: one session with kept connections, failures as values, no API key in any message."""

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
"""Bytes of an answer beyond which it counts as broken and is no longer read. `ours`."""
# Uvicorn, hence vLLM, closes idle connections after 5 s: the client must be first, or requests are sent over
# connections that are just being closed.
KEEP_ALIVE = 4.0
"""Seconds that an idle connection is kept."""


class Answer(msgspec.Struct, frozen=True):
    """A whole HTTP answer, whatever its status."""

    status: int
    headers: Mapping[str, str]
    content: bytes


class Failure(msgspec.Struct, frozen=True):
    """A failed attempt that may succeed when repeated."""

    cause: str
    retry_after: float | None = None
    """Seconds of the server's Retry-After, if it sent one."""


class HttpTransport:
    """A session that returns failures as values and keeps the API key to itself.

    `safe` and `redact` remove the key from foreign text on its way into a message.
    """

    def __init__(self, *, total: float, connect: float, key: str | None) -> None:
        import aiohttp

        headers = {"Content-Type": "application/json", "Accept": "application/json", "User-Agent": "evorun"}
        if key:
            headers["Authorization"] = f"Bearer {key}"
        self._key = key
        self._limits = aiohttp.ClientTimeout(total=total, sock_connect=connect)
        self._session = aiohttp.ClientSession(
            # No limit of its own: the engine's semaphore bounds the requests in flight.
            connector=aiohttp.TCPConnector(limit=0, keepalive_timeout=KEEP_ALIVE),
            timeout=self._limits,
            headers=headers,
            cookie_jar=aiohttp.DummyCookieJar(),
        )

    @property
    def closed(self) -> bool:
        """True after `close`."""
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
        """Return `text` on one line and without the API key."""
        return one_line(text.replace(self._key, "***") if self._key else text)

    def redact(self, content: bytes) -> bytes:
        """Return `content` without the API key."""
        # Before the text is cut for a message: half a key would not be recognised.
        return content.replace(self._key.encode(), b"***") if self._key else content

    async def _exchange(
        self, method: str, url: str, body: bytes | None, limits: "aiohttp.ClientTimeout"
    ) -> Answer | Failure:
        """Send one request and read its whole answer."""
        import aiohttp

        content = bytearray()
        try:
            # Redirects are not followed: the API key would be sent along to another host.
            async with self._session.request(method, url, data=body, allow_redirects=False, timeout=limits) as response:
                while chunk := await response.content.readany():
                    content += chunk
                    if len(content) > LARGEST_BODY:
                        return Failure(f"malformed body (more than {LARGEST_BODY >> 20} MiB)")
        # No aiohttp exception leaves here, not even as a cause: the repr of some shows the request's headers.
        except aiohttp.ConnectionTimeoutError:
            return Failure(f"no connection within {limits.sock_connect:g} s")
        except TimeoutError:
            return Failure(f"no complete answer within {limits.total:g} s")
        except (aiohttp.ClientError, OSError) as exc:
            return Failure(self.safe(f"{type(exc).__name__}: {exc}"))
        return Answer(response.status, response.headers, bytes(content))


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
    """Return a base URL without a slash at its end. Raises ConfigError when it is not a plain http(s) URL."""
    try:
        url = urlsplit(text)
        valid = url.scheme in ("http", "https") and bool(url.hostname) and url.port != 0
    except ValueError:
        valid = False
    if not valid:
        raise ConfigError(f"engine.base_urls: expected http(s)://host[:port]/path, got '{without_credentials(text)}'")
    # The config is copied into every run directory, and credentials would be with it.
    if url.username is not None or url.password is not None or url.query or url.fragment:
        raise ConfigError(
            "engine.base_urls: expected a URL without user, password, query or fragment, got one for host "
            f"'{url.hostname}' that has them; keys come from the variable that engine.api_key_env names"
        )
    return text.rstrip("/")


def without_credentials(url: str) -> str:
    """Return a URL for messages: user, password, query and fragment left out."""
    return re.sub(r"//[^/]*@", "//", re.split(r"[?#]", url)[0])
