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
import struct
import typing as t

import uvicorn
from starlette.applications import Starlette
from starlette.middleware import Middleware
from starlette.requests import Request
from starlette.responses import Response, StreamingResponse
from starlette.routing import Route
from starlette.types import ASGIApp, Message, Receive, Scope, Send
from uvicorn.protocols.http.h11_impl import H11Protocol

from . import people, work
from .answers import answer
from .config import PolicyConfig
from .desk import Desk
from .openapi import document
from .serve import Server
from .stream import Feed

__all__ = ["application", "proxy_application", "serve", "server"]

_LOOK_S = 0.3
_LOG = logging.getLogger(__name__)
_SYSTEMD = 3  # the first socket that it passes


async def _always() -> bool:
    return True


async def feed(request: Request) -> Response:
    """Summaries of jobs, live, for the web process, which shows each user those that they may see."""
    desk: Desk = request.app.state.desk
    return StreamingResponse(t.cast(Feed, desk.feed).read(None, None, _always), media_type="text/event-stream")


async def openapi(_request: Request) -> Response:
    """The description of the interface."""
    return answer(document())


class Whole:
    """Read a request to its end before it is answered: else the answer may be lost when the connection is closed."""

    def __init__(self, app: ASGIApp) -> None:
        self._app = app

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        """The web process limits what is to be read."""
        messages: list[Message] = []
        while scope["type"] == "http":
            messages.append(await receive())
            if not messages[-1].get("more_body"):
                break

        async def replay() -> Message:
            return messages.pop(0) if messages else await receive()

        await self._app(scope, replay, send)


def application(desk: Desk) -> Starlette:
    """What the web process asks."""

    @contextlib.asynccontextmanager
    async def lifespan(_app: Starlette) -> t.AsyncIterator[None]:
        desk.feed = Feed(desk.store)
        looking = asyncio.create_task(_look(desk))
        yield
        desk.feed.close()
        looking.cancel()

    routes = [*people.ROUTES, *work.ROUTES, Route("/api/openapi.json", openapi), Route("/jobs", feed)]
    app = Starlette(routes=routes, lifespan=lifespan, middleware=[Middleware(Whole)])
    app.state.desk = desk
    return app


def proxy_application(desk: Desk) -> Starlette:
    """What a proxy asks that identifies users."""
    app = Starlette(routes=[Route("/api/login/proxy", people.proxied_login)])
    app.state.desk = desk
    return app


async def _look(desk: Desk) -> None:
    while True:
        try:
            await asyncio.to_thread(desk.jobs.look)
        except OSError as error:  # a full disk: it may have room later
            _LOG.error("cannot look after jobs: %s", error)
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
