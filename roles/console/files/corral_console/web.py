# Copyright (c) corral.virt contributors
# GNU General Public License v3.0+ (see COPYING or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""The web process: the page, live state and consoles. What needs a right beyond looking, the policy process answers."""

from __future__ import annotations

import asyncio
import contextlib
import functools
import typing as t

from starlette.applications import Starlette
from starlette.concurrency import run_in_threadpool
from starlette.middleware import Middleware
from starlette.requests import Request
from starlette.responses import Response, StreamingResponse
from starlette.routing import Route, WebSocketRoute

from ansible_collections.corral.virt.plugins.module_utils._errors import NotFound, VirtError

from . import forward, live
from .answers import answer, error
from .config import Config
from .console_socket import console
from .guard import Guard
from .site import Identity, Site, credentials, with_identity
from .store import Store
from .stream import Feed
from .view import View

__all__ = ["application"]

_ASK_S = 15.0
_STREAMS_OF_A_SESSION = 20


async def asset(request: Request) -> Response:
    """A file of the page."""
    site: Site = request.app.state.site
    found = site.assets.get(request.path_params.get("path") or "index.html")
    if found is None:
        return error(404, "there is no such page")
    headers = {"etag": found.etag, "cache-control": "no-cache"}
    if request.headers.get("if-none-match") == found.etag:
        return Response(status_code=304, headers=headers)
    return Response(found.content, media_type=found.media_type, headers=headers)


@with_identity
async def events(site: Site, request: Request, identity: Identity) -> Response:
    """State, live, from the mark that the browser has."""
    feed = t.cast(Feed, site.feed)
    if sum(site.streams.values()) >= site.config.streams:
        return error(503, "too many pages are open")
    if site.streams.get(identity.digest, 0) >= _STREAMS_OF_A_SESSION:
        return error(429, "too many pages are open in this session")
    mark, given = request.headers.get("last-event-id") or request.query_params.get("since"), credentials(request)

    async def alive() -> bool:
        now = await site.still(given, identity)
        return now is not None and now.view.key == identity.view.key  # with another view the browser begins anew

    return StreamingResponse(
        _counted(site, identity.digest, feed.read(mark, identity.view, alive)),
        media_type="text/event-stream",
        headers={"cache-control": "no-store", "x-accel-buffering": "no"},
    )


async def _counted(site: Site, digest: str, messages: t.AsyncIterator[str]) -> t.AsyncIterator[str]:
    site.streams[digest] = site.streams.get(digest, 0) + 1
    try:
        async for message in messages:
            yield message
    finally:
        site.streams[digest] -= 1
        if not site.streams[digest]:
            del site.streams[digest]


async def _asked(ask: t.Callable[[], t.Any]) -> Response:
    """The answer of a host."""
    try:
        return answer(await asyncio.wait_for(run_in_threadpool(ask), _ASK_S))
    except NotFound as problem:
        return error(404, str(problem))
    except VirtError as problem:
        return error(503, str(problem))
    except TimeoutError:
        return error(503, "the host does not answer")


@with_identity
async def host(site: Site, request: Request, identity: Identity) -> Response:
    """All about a host."""
    name = request.path_params["host"]
    if name not in site.watchers or not identity.view.host(name):
        return error(404, "there is no such host")
    return await _asked(site.watchers[name].host)


@with_identity
async def guest(site: Site, request: Request, identity: Identity) -> Response:
    """All about a guest."""
    name, uuid = request.path_params["host"], request.path_params["uuid"]
    found = site.store.get(f"guest/{name}/{uuid}")
    if found is None or name not in site.watchers or not identity.view.guest(found):
        return error(404, "there is no such guest")
    return await _asked(functools.partial(site.watchers[name].guest, uuid))


def _live(ask: t.Callable[[Site, View, Request], t.Any]) -> t.Callable[[Request], t.Awaitable[Response]]:
    @with_identity
    async def handle(site: Site, request: Request, identity: Identity) -> Response:
        return await _asked(functools.partial(ask, site, identity.view, request))

    return handle


def application(config: Config) -> Starlette:
    """The ASGI application."""
    site = Site(config, Store())

    @contextlib.asynccontextmanager
    async def lifespan(_app: Starlette) -> t.AsyncIterator[None]:
        site.feed = Feed(site.store)
        for watcher in site.watchers.values():
            watcher.start()
        jobs = asyncio.create_task(site.follow_jobs())
        yield
        jobs.cancel()
        site.close()
        await asyncio.gather(*(run_in_threadpool(watcher.stop) for watcher in site.watchers.values()))

    app = Starlette(
        routes=[
            Route("/", asset),
            Route("/static/{path:path}", asset),
            Route("/api/events", events),
            Route("/api/hosts/{host}", host),
            Route("/api/hosts/{host}/guests/{uuid}", guest),
            *(Route(path, _live(ask)) for path, ask in live.ROUTES.items()),
            WebSocketRoute("/api/console", console),
            *forward.ROUTES,
        ],
        middleware=[Middleware(Guard, names=config.names)],
        lifespan=lifespan,
    )
    app.state.site = site
    return app
