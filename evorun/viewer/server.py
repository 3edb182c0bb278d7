"""The page's server: on this machine's loopback alone, for whoever has the token, and read only."""

import asyncio
import hmac
import secrets
import time
from collections import OrderedDict
from collections.abc import Awaitable, Callable, Sequence
from pathlib import Path
from urllib.parse import urlsplit

import msgspec
from aiohttp import web

from evorun.errors import ConfigError, EvorunError
from evorun.reports.page import content_hash, markup, own_file, render
from evorun.runs.job_search import display_as_text
from evorun.runs.job_states import ORDER
from evorun.viewer.index import Found, Index
from evorun.viewer.pages import PageError, Workers, draw_comparison, draw_run, draw_tournament, read_live

LOOPBACK = "127.0.0.1"
LOOPBACK_NAMES = ("127.0.0.1", "localhost", "::1")
"""Names of a request's host; of another one, a page elsewhere has had it resolved to this machine (DNS rebinding)."""
MIN_REST_S = 1.0
"""Seconds between two looks at the folders at least (ours)."""
REST_SHARE = 5
"""Rest after a look, in times of how long it took (ours): a slow disk is not looked at all the time."""
MAX_COMPARED = 400
"""Runs that are compared at most (ours): their ids fit an address."""
MAX_KEPT = 16
"""Pages that are kept for the next one who asks (ours)."""

_NOTHING = "default-src 'none'"
_ALWAYS = "; frame-ancestors 'none'"
_SANDBOX = "; sandbox allow-scripts allow-downloads allow-popups"
"""A page of a run has an origin of its own: even a script in it could ask this server for nothing."""
_HEADERS = {
    "Cache-Control": "no-store",
    "Cross-Origin-Resource-Policy": "same-origin",
    "Referrer-Policy": "no-referrer",
    "X-Content-Type-Options": "nosniff",
    "X-Frame-Options": "DENY",
}

_PACKAGE = "evorun.viewer"


class Viewer:
    """The answers to the requests of the page and its scripts."""

    def __init__(self, folders: Sequence[Path], token: str, workers: Workers) -> None:
        self.index = Index(folders)
        self._token = token
        self._workers = workers
        self._looking = asyncio.Lock()
        self._rested_at = 0.0
        self._pages: OrderedDict[object, asyncio.Task[bytes]] = OrderedDict()

    def make_app(self) -> web.Application:
        """Return the application; each of its addresses begins with the token."""
        app = web.Application(middlewares=[self._guard])
        prefix = f"/{self._token}"
        app.router.add_get(f"{prefix}/", self.show_index)
        app.router.add_get(f"{prefix}/runs.json", self.send_changes)
        app.router.add_get(f"{prefix}/run/{{id}}", self.show_run)
        app.router.add_get(f"{prefix}/live/{{id}}", self.send_live)
        app.router.add_get(f"{prefix}/compare", self.show_comparison)
        return app

    async def look(self) -> None:
        """Look at the folders again, unless that was done just now. Raises RunDirectoryError for one that is gone."""
        async with self._looking:
            started = time.monotonic()
            if started < self._rested_at:
                return
            await asyncio.to_thread(self.index.refresh)
            ended = time.monotonic()
            self._rested_at = ended + max(MIN_REST_S, REST_SHARE * (ended - started))

    async def show_index(self, _: web.Request) -> web.Response:
        """Send the page over all runs."""
        script = own_file("dom.js") + own_file("view.js", _PACKAGE)
        style = own_file("report.css") + own_file("view.css", _PACKAGE)
        script_hash, style_hash = content_hash(script), content_hash(style)
        context = {
            "states": ORDER,
            "title": "Runs in " + ", ".join(map(display_as_text, self.index.folders)),
            "script": markup(script),
            "style": markup(style),
            "script_hash": markup(script_hash),
            "style_hash": markup(style_hash),
        }
        return _send_page(render("view.html.j2", context, _PACKAGE))

    async def send_changes(self, request: web.Request) -> web.Response:
        """Send what has changed since a version, as JSON."""
        given = request.query.get("since", "0")
        since = int(given) if given.isascii() and given.isdecimal() and len(given) < 16 else 0
        # what is known goes out at once: a page that has just opened waits for no disk
        if since == self.index.version:
            await self.look()
        return _send_json(msgspec.json.encode(self.index.changes(since)))

    async def show_run(self, request: web.Request) -> web.Response:
        """Send the page of a run or a tournament."""
        found = self._find(request.match_info["id"])
        page = await self._draw(found, draw_tournament if found.is_tournament else draw_run, found.folder)
        return _send_page(page.decode(), _SANDBOX)

    async def show_comparison(self, request: web.Request) -> web.Response:
        """Send the page that compares several runs."""
        ids = list(dict.fromkeys(request.query.getall("run", [])))
        if not 2 <= len(ids) <= MAX_COMPARED:
            raise web.HTTPBadRequest(text=f"expected 2 to {MAX_COMPARED} runs to compare, got {len(ids)}")
        found = [self._find(each) for each in ids]
        links = {run.folder: f"run/{each}" for run, each in zip(found, ids, strict=True)}
        page = await self._draw(tuple(found), draw_comparison, links)
        return _send_page(page.decode(), _SANDBOX)

    async def send_live(self, request: web.Request) -> web.Response:
        """Send a run's curves and last texts, as JSON."""
        found = self._find(request.match_info["id"])
        return _send_json(await self._draw((found, "live"), read_live, found.folder))

    def _find(self, number: str) -> Found:
        found = self.index.find(number)
        if found is None:
            raise web.HTTPNotFound(text="no such run, or nothing of it can be opened")
        return found

    async def _draw(self, key: object, function: Callable[..., bytes], argument: object) -> bytes:
        """Return what a function of `pages` draws, once for each state of its runs."""
        task = self._pages.get(key)
        if task is None or (task.done() and task.exception() is not None):
            task = self._pages[key] = asyncio.create_task(self._workers.run(function, argument))
            task.add_done_callback(_note_error)
        self._pages.move_to_end(key)
        while len(self._pages) > MAX_KEPT:
            self._pages.popitem(last=False)
        try:
            return await asyncio.shield(task)
        except PageError as error:
            raise web.HTTPUnprocessableEntity(text=str(error)) from error

    @web.middleware
    async def _guard(
        self, request: web.Request, handler: Callable[[web.Request], Awaitable[web.StreamResponse]]
    ) -> web.StreamResponse:
        """Answer nobody without the token, under no other host's name, and nothing but what is only read."""
        given = request.rel_url.raw_path.lstrip("/").partition("/")[0]
        response: web.StreamResponse
        if not _is_loopback(request.headers.get("Host", "")):
            response = web.Response(status=403, text="expected a request to localhost or 127.0.0.1")
        elif not hmac.compare_digest(given.encode(), self._token.encode()):
            response = web.Response(status=403, text="expected the address that evorun view printed, with its token")
        else:
            try:
                response = await handler(request)
            except web.HTTPException as error:
                response = web.Response(status=error.status, text=error.text)
            except EvorunError as error:  # a folder is gone
                response = web.Response(status=503, text=str(error))
        response.headers.update(_HEADERS)
        response.headers.setdefault("Content-Security-Policy", _NOTHING + _ALWAYS)
        return response


def _note_error(task: asyncio.Task[bytes]) -> None:
    """Take notice of an error that nobody may wait for any more, of which asyncio would warn."""
    if not task.cancelled():
        task.exception()


def _is_loopback(host: str) -> bool:
    try:
        return urlsplit(f"//{host}").hostname in LOOPBACK_NAMES and "@" not in host
    except ValueError:
        return False


def _send_page(page: str, restrictions: str = "") -> web.Response:
    """Send a page of ours with the policy that it states itself, which then cannot be missing."""
    policy = page.partition('<meta http-equiv="Content-Security-Policy" content="')[2].partition('">')[0]
    if not policy.startswith(_NOTHING):
        raise ValueError(f"expected a page with a policy of its own, got {policy!r}")
    headers = {"Content-Security-Policy": policy + _ALWAYS + restrictions}
    return web.Response(text=page, content_type="text/html", headers=headers)


def _send_json(content: bytes) -> web.Response:
    return web.Response(body=content, content_type="application/json")


async def serve(folders: Sequence[Path], port: int, opened: Callable[[str, int], None]) -> None:
    """Serve the page over the runs in some folders until cancelled.

    port: 0 for any that is free. opened: told the page's address and how many runs there are. Raises
    RunDirectoryError for what is no folder, ConfigError for a port that is taken.
    """
    token = secrets.token_urlsafe(24)
    workers = Workers()
    viewer = Viewer(folders, token, workers)
    await viewer.look()
    await asyncio.to_thread(workers.warm_up)
    runner = web.AppRunner(viewer.make_app(), access_log=None, handle_signals=False, shutdown_timeout=0.0)
    await runner.setup()
    try:
        site = web.TCPSite(runner, LOOPBACK, port)
        try:
            await site.start()
        except OSError as error:
            raise ConfigError(f"--port: expected a free port, got {port}: {error.strerror}; leave it out") from error
        opened(f"http://{LOOPBACK}:{runner.addresses[0][1]}/{token}/", len(viewer.index))
        await asyncio.Event().wait()
    finally:
        workers.close()
        await runner.cleanup()
