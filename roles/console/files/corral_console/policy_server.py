# Copyright (c) corral.virt contributors
# GNU General Public License v3.0+ (see COPYING or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""The policy process: it knows users and keys, decides, and starts jobs. It listens on Unix sockets only.

The web process talks to it over one of them. A proxy that identifies users has another one, so that the web process
cannot say who somebody is.
"""

from __future__ import annotations

import asyncio
import contextlib
import logging
import pwd
import socket
import sqlite3
import struct
import typing as t

import uvicorn
from starlette.applications import Starlette
from starlette.middleware import Middleware
from starlette.requests import Request
from starlette.responses import Response, StreamingResponse
from starlette.routing import Route
from uvicorn.protocols.http.h11_impl import H11Protocol

from . import people, room, work
from .answers import answer, error
from .config import PolicyConfig
from .desk import Caller, Desk, with_caller
from .entry import Entry
from .jobs import ROOM_MIB
from .openapi import document
from .serve import Server
from .stream import Feed

__all__ = ["application", "proxy_application", "serve", "server"]

_LOOK_S, _AGAIN_S = 0.3, 5.0
_LARGEST = 16 * 1024 * 1024  # of a request: with what the live state says of thousands of guests
_LOG = logging.getLogger(__name__)
_SYSTEMD = 3  # the first socket that it passes


async def _always() -> bool:
    return True


async def feed(request: Request) -> Response:
    """Summaries of jobs, live, for the web process, which shows each user those that they may see."""
    desk: Desk = request.app.state.desk
    return StreamingResponse(t.cast(Feed, desk.feed).read(None, None, _always), media_type="text/event-stream")


async def unwritable(request: Request, problem: Exception) -> Response:
    """What is to be read or written cannot be now: that nobody can tell is not that somebody may not."""
    desk: Desk = request.app.state.desk
    full = room.problem(desk.config.directory, ROOM_MIB)
    _LOG.error("%s %s: %s", request.method, request.url.path, problem)
    text = full or "see journalctl -u corral-console-jobs"
    status = 503 if request.method == "GET" or not full else 507
    return error(status, f"the server cannot use its state now ({problem}): {text}")


_UNWRITABLE: t.Mapping[t.Any, t.Any] = {sqlite3.Error: unwritable, OSError: unwritable}


@with_caller
async def openapi(_desk: Desk, _request: Request, _caller: Caller) -> Response:
    """The description of the interface."""
    return answer(document())


def _entry(most: int) -> list[Middleware]:
    return [Middleware(Entry, most=most, foreign=("seen",))]


def application(desk: Desk) -> Starlette:
    """What the web process asks."""

    @contextlib.asynccontextmanager
    async def lifespan(_app: Starlette) -> t.AsyncIterator[None]:
        desk.feed = Feed(desk.store)
        looking = asyncio.create_task(_look(desk))
        yield
        desk.feed.close()
        looking.cancel()
        await asyncio.to_thread(desk.copies.close)

    routes = [*people.ROUTES, *work.ROUTES, Route("/api/openapi.json", openapi), Route("/jobs", feed)]
    app = Starlette(routes=routes, lifespan=lifespan, middleware=_entry(_LARGEST), exception_handlers=_UNWRITABLE)
    app.state.desk = desk
    return app


def proxy_application(desk: Desk) -> Starlette:
    """What a proxy asks that identifies users."""
    routes = [Route("/api/login/proxy", people.proxied_login)]
    app = Starlette(routes=routes, middleware=_entry(0), exception_handlers=_UNWRITABLE)
    app.state.desk = desk
    return app


async def _look(desk: Desk) -> None:
    while True:
        desk.apply_policy()
        try:
            await asyncio.to_thread(desk.look)
        except Exception:  # noqa: BLE001 (else no job would begin or end any more)
            _LOG.exception("cannot look after jobs")
            await asyncio.sleep(_AGAIN_S)
        await asyncio.sleep(_LOOK_S)


def server(desk: Desk, apps: t.Mapping[int, Starlette]) -> Server:
    """Each user of this machine (by number) gets one application; connections of others end before a byte is read."""

    class Known(H11Protocol):
        def connection_made(self, transport: t.Any) -> None:
            super().connection_made(transport)
            credentials = transport.get_extra_info("socket").getsockopt(socket.SOL_SOCKET, socket.SO_PEERCRED, 12)
            _pid, user, _group = struct.unpack("3i", credentials)
            if user in apps:
                self.app = t.cast(t.Any, apps[user])
            else:
                transport.abort()

    settings = uvicorn.Config(
        next(iter(apps.values())),
        http=Known,
        ws="none",
        loop="asyncio",
        proxy_headers=False,
        limit_concurrency=1000,
        server_header=False,
        access_log=False,
        log_level="warning",
        lifespan="on",
    )
    return Server(settings, lambda: t.cast(Feed, desk.feed).close())


def serve(config: PolicyConfig) -> int:
    """Run until a signal, on the sockets that systemd has opened: the web process's, and a proxy's."""
    desk = Desk(config)
    apps = {pwd.getpwnam(config.web_user).pw_uid: application(desk)}
    if config.proxy:
        apps[pwd.getpwnam(config.proxy["user"]).pw_uid] = proxy_application(desk)
    numbers = range(_SYSTEMD, _SYSTEMD + len(apps))
    running = server(desk, apps)
    running.run(sockets=[socket.socket(fileno=number) for number in numbers])
    return 0 if running.started else 1
