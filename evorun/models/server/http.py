"""HTTP of the `server` engine: one session with kept connections, failures as values, no API key in any message."""

from collections.abc import Mapping
from typing import TYPE_CHECKING
from urllib.parse import urlsplit
from urllib.request import getproxies, proxy_bypass

import msgspec

from evorun.models.server.messages import Redactor, error_text
from evorun.models.server.wire import BYTES_PER_TOKEN

if TYPE_CHECKING:
    import aiohttp

LARGEST_BODY = 32 * 2**20
"""Most bytes of an answer; a longer one counts as broken and is not read further. `ours`."""
# Uvicorn, hence vLLM, closes idle connections after 5 s: the client must be first, or requests are sent over
# connections that are just being closed.
KEEP_ALIVE = 4.0
"""Seconds that an idle connection is kept."""

NO_CONNECTION = "no_connection"
TIMED_OUT = "timed_out"
CUT_OFF = "cut_off"
MALFORMED = "malformed"
"""Kinds of failures beside the statuses (`http_500`)."""

ENVIRONMENT = "environment"
"""Setting of a proxy as HTTP_PROXY, HTTPS_PROXY and NO_PROXY say."""


class Answer(msgspec.Struct, frozen=True):
    """A whole HTTP answer, whatever its status."""

    status: int
    headers: Mapping[str, str]
    content: bytes


class Failure(msgspec.Struct, frozen=True, kw_only=True):
    """A failed attempt that may succeed when repeated."""

    kind: str
    """The name under which results count it."""
    cause: str
    limited: bool = False
    """True where the server works and wants fewer requests."""
    retry_after: float | None = None
    """Seconds of the server's Retry-After, if it sent one."""
    tokens: int = 0
    """Tokens that a server may have spent on it anyway, mostly an estimate."""
    advice: str = "check that the server works"
    hopeless: bool = False
    """True for an answer that every request would get, as far as is known before any has been answered."""


class HttpTransport:
    """A session that returns failures as values and keeps the API key to itself."""

    def __init__(self, *, total: float, connect: float, key: str | None, proxy: str | None = None) -> None:
        """total, connect: seconds. proxy: a URL, ENVIRONMENT, or None for none."""
        import aiohttp

        headers = {"Content-Type": "application/json", "Accept": "application/json", "User-Agent": "evorun"}
        if key:
            headers["Authorization"] = f"Bearer {key}"
        self._proxy = proxy
        known = [proxy_for(proxy, f"{scheme}://host") for scheme in ("http", "https")]
        self.redactor = Redactor(key, *(urlsplit(url).password for url in known if url))
        """Removes the key from foreign texts."""
        self._limits = aiohttp.ClientTimeout(total=total, sock_connect=connect)
        self._session = aiohttp.ClientSession(
            # No limit here: the engine's slots bound the requests in flight.
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

        return await self._exchange("GET", url, b"", aiohttp.ClientTimeout(total=seconds))

    async def post(self, url: str, body: bytes) -> Answer | Failure:
        """POST a JSON `body` to `url`."""
        return await self._exchange("POST", url, body, self._limits)

    def message(self, answer: Answer) -> str:
        """Return an error answer's message on one line and without the API key."""
        return self.redactor.message(error_text(answer.content))

    async def _exchange(self, method: str, url: str, body: bytes, limits: "aiohttp.ClientTimeout") -> Answer | Failure:
        """Send one request and read its whole answer."""
        import aiohttp

        content = bytearray()

        def broken(kind: str, cause: str) -> Failure:
            tokens = (len(body) + len(content)) // BYTES_PER_TOKEN
            return Failure(kind=kind, cause=cause, tokens=0 if kind == NO_CONNECTION else tokens)

        proxy = proxy_for(self._proxy, url)
        try:
            # Redirects are not followed: the API key would be sent along to another host.
            async with self._session.request(
                method, url, data=body or None, allow_redirects=False, timeout=limits, proxy=proxy
            ) as response:
                while chunk := await response.content.readany():
                    content += chunk
                    if len(content) > LARGEST_BODY:
                        return broken(MALFORMED, f"malformed body (more than {LARGEST_BODY >> 20} MiB)")
        # No aiohttp exception leaves here, not even as a cause: the repr of some shows the request's headers.
        except aiohttp.ConnectionTimeoutError:
            return broken(NO_CONNECTION, f"no connection within {limits.sock_connect:g} s")
        except TimeoutError:
            return broken(TIMED_OUT, f"no complete answer within {limits.total:g} s")
        except (aiohttp.ClientError, OSError) as exc:
            kind = NO_CONNECTION if isinstance(exc, aiohttp.ClientConnectorError) else CUT_OFF
            return broken(kind, self.redactor.message(f"{type(exc).__name__}: {exc}"))
        return Answer(response.status, response.headers, bytes(content))


def proxy_for(setting: str | None, url: str) -> str | None:
    """Return the proxy through which to reach `url`, or None."""
    if setting != ENVIRONMENT:
        return setting
    # Not aiohttp's trust_env, which would also send passwords from ~/.netrc.
    target = urlsplit(url)
    proxy = getproxies().get(target.scheme)
    if not proxy or proxy_bypass(target.hostname or ""):
        return None
    return proxy if "://" in proxy else f"http://{proxy}"
