# Copyright (c) corral.virt contributors
# GNU General Public License v3.0+ (see COPYING or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""The web process: the page, live state and consoles. What needs a right beyond looking, the policy process answers."""

from __future__ import annotations

import asyncio
import contextlib
import functools
import json
import typing as t

from starlette.applications import Starlette
from starlette.concurrency import run_in_threadpool
from starlette.middleware import Middleware
from starlette.requests import Request
from starlette.responses import Response, StreamingResponse
from starlette.routing import Route, WebSocketRoute

from ansible_collections.corral.virt.plugins.module_utils._core.errors import NotFound, VirtError

from . import forward, live
from .answers import answer, error
from .config import Config
from .console_socket import console
from .entry import Entry
from .guard import LARGEST, Guard
from .shares import Full, Share
from .site import Identity, Site, credentials, with_identity
from .store import Store
from .stream import Feed
from .view import View

__all__ = ["application"]

_ASK_S = 15.0
_GAVE_WAY = "too many pages are open; this one, which was open for the longest time, is not live any more"


_NO_PAGE = """<!doctype html>
<html lang="en">
<head><meta charset="utf-8"><title>No such page: corral.virt</title>
<link rel="stylesheet" href="/static/style.css"></head>
<body><main class="login"><div class="panel"><h1>No such page</h1>
<p>There is no page at this address. Addresses of the console's pages begin with <code>/#/</code>.</p>
<p><a href="/">All hosts and guests</a></p></div></main></body>
</html>
"""


def no_page() -> Response:
    """For people, wherever a link has led them. What was asked for is not repeated."""
    return Response(_NO_PAGE, 404, media_type="text/html", headers={"cache-control": "no-store"})


async def no_route(request: Request, problem: Exception) -> Response:
    """Of a path that nothing answers, or not by this method."""
    status, headers = problem.status_code, problem.headers or {}  # type: ignore[attr-defined]
    if not request.url.path.startswith("/api/"):
        return no_page() if status == 404 else error(status, "this page can only be read", **headers)
    allowed = headers.get("Allow", "")
    text = f"use {allowed} here" if allowed else "there is no such request; /api/openapi.json describes all"
    return error(status, text, **headers)


async def asset(request: Request) -> Response:
    """A file of the page."""
    site: Site = request.app.state.site
    found = site.assets.get(request.path_params.get("path") or "index.html")
    if found is None:
        return no_page()
    headers = {"etag": found.etag, "cache-control": "no-cache"}
    if request.headers.get("if-none-match") == found.etag:
        return Response(status_code=304, headers=headers)
    return Response(found.content, media_type=found.media_type, headers=headers)


@with_identity
async def events(site: Site, request: Request, identity: Identity) -> Response:
    """State, live, from the mark that the browser has."""
    feed = t.cast(Feed, site.feed)
    try:
        share = site.streams.take(identity.who.name, anew=True)
    except Full as problem:
        return error(503, f"too many pages are open: {problem}")
    feed.wake()  # one of another page may have ended
    mark, given = request.headers.get("last-event-id") or request.query_params.get("since"), credentials(request)

    async def alive() -> bool:
        now = None if share.given_up else await site.still(given, identity)
        return now is not None and now.view.key == identity.view.key  # with another view the browser begins anew

    return StreamingResponse(
        _shared(site, share, feed.read(mark, identity.view, alive)),
        media_type="text/event-stream",
        headers={"cache-control": "no-store", "x-accel-buffering": "no"},
    )


async def _shared(site: Site, share: Share, messages: t.AsyncIterator[str]) -> t.AsyncIterator[str]:
    """With a last word to a page that gives way, which would come again at once."""
    try:
        async for message in messages:
            yield message
        if share.given_up:
            yield f"event: ended\ndata: {json.dumps(_GAVE_WAY)}\n\n"
    finally:
        site.streams.leave(share)


async def _asked(site: Site, identity: Identity, ask: t.Callable[[], t.Any]) -> Response:
    """The answer of a host."""
    try:
        share = site.asking.take(identity.who.name)
    except Full as problem:
        return error(429, f"too many requests wait for hosts: {problem}")
    try:
        return answer(await asyncio.wait_for(run_in_threadpool(ask), _ASK_S))
    except NotFound as problem:
        return error(404, str(problem))
    except VirtError as problem:
        return error(503, str(problem))
    except TimeoutError:
        return error(503, "the host does not answer")
    finally:
        site.asking.leave(share)


@with_identity
async def host(site: Site, request: Request, identity: Identity) -> Response:
    """All about a host."""
    name = request.path_params["host"]
    if name not in site.watchers or not identity.view.host(name):
        return error(404, "there is no such host")
    return await _asked(site, identity, site.watchers[name].host)


@with_identity
async def guest(site: Site, request: Request, identity: Identity) -> Response:
    """All about a guest."""
    name, uuid = request.path_params["host"], request.path_params["uuid"]
    found = site.store.get(f"guest/{name}/{uuid}")
    if found is None or name not in site.watchers or not identity.view.guest(found):
        return error(404, "there is no such guest")
    return await _asked(site, identity, functools.partial(site.watchers[name].guest, uuid))


def _live(ask: t.Callable[[Site, View, Request], t.Any]) -> t.Callable[[Request], t.Awaitable[Response]]:
    @with_identity
    async def handle(site: Site, request: Request, identity: Identity) -> Response:
        return await _asked(site, identity, functools.partial(ask, site, identity.view, request))

    return handle


def application(config: Config) -> Starlette:
    """The ASGI application."""
    site = Site(config, Store())

    @contextlib.asynccontextmanager
    async def lifespan(_app: Starlette) -> t.AsyncIterator[None]:
        site.feed = Feed(site.store)
        for watcher in site.watchers.values():
            watcher.start()
        followers = [asyncio.create_task(each) for each in (site.follow_jobs(), site.follow_room())]
        yield
        for each in followers:
            each.cancel()
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
        exception_handlers={404: no_route, 405: no_route},
        middleware=[Middleware(Guard, names=config.names), Middleware(Entry, most=LARGEST)],
        lifespan=lifespan,
    )
    app.state.site = site
    return app
