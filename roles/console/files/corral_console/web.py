# Copyright (c) corral.virt contributors
# GNU General Public License v3.0+ (see COPYING or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""Requests: who asks, whether they may, and the answer. All but the page itself and the login needs a session."""

from __future__ import annotations

import asyncio
import contextlib
import functools
import ipaddress
import json
import logging
import re
import time
import typing as t

from starlette.applications import Starlette
from starlette.concurrency import run_in_threadpool
from starlette.middleware import Middleware
from starlette.requests import HTTPConnection, Request
from starlette.responses import JSONResponse, Response, StreamingResponse
from starlette.routing import Route, WebSocketRoute
from starlette.websockets import WebSocket

from ansible_collections.corral.virt.plugins.module_utils._errors import NotFound, VirtError

from . import assets, consoles, live, rights
from .accounts import Accounts, User
from .config import Config
from .database import Database
from .guard import Guard
from .history import History
from .sessions import Session, Sessions
from .store import Store
from .stream import Feed
from .throttle import Throttle
from .tickets import Ticket, Tickets
from .watch import Watcher

__all__ = ["COOKIE", "Site", "application"]

COOKIE = "__Host-corral"
_AUDIT = logging.getLogger("corral_console.audit")
_CHECK_S = 5.0
_BODY_S = 10.0
_ASK_S = 15.0
_STREAMS_OF_A_SESSION = 20
_SESSION_ID = re.compile("[0-9a-f]{64}")

_Handler = t.Callable[["Site", Request, Session], t.Awaitable[Response]]


class Site:
    """What the requests share."""

    def __init__(self, config: Config, store: Store) -> None:
        self.config, self.store = config, store
        database = Database(config.database)
        self.accounts = Accounts(database)
        self.sessions = Sessions(database, idle_s=config.session_idle_s, longest_s=config.session_longest_s)
        self.tickets = Tickets()
        self.history = History(config.database.with_name("history.db"))
        self.watchers = {
            name: Watcher(name, host.uri, store, history=self.history) for name, host in config.hosts.items()
        }
        self.assets = assets.load(config.libraries)
        self.by_address, self.by_name = Throttle(20, 300), Throttle(30, 300)
        self.streams: dict[str, int] = {}
        self.consoles = 0
        self.feed: Feed | None = None
        self._seen: dict[str, tuple[float, User]] = {}  # when a session was last read, and whose it is

    def close(self) -> None:
        """End all streams, so that the server can stop."""
        if self.feed:
            self.feed.close()

    def session(self, connection: HTTPConnection) -> Session | None:
        """Of the browser that asks."""
        value = connection.cookies.get(COOKIE)
        return self.sessions.find(value) if value else None

    def alive(self, digest: str) -> bool:
        """Whether a session still is; that it was ended by a command beside the server is noticed after seconds."""
        return self._user(digest) is not None and not (self.feed and self.feed.closed)

    def may_go_on(self, digest: str, action: str) -> bool:
        """The same, and the user still may do what was begun."""
        user = self._user(digest)
        return self.alive(digest) and user is not None and not rights.refusal(user, action)

    def _user(self, digest: str) -> User | None:
        read, user = self._seen.get(digest, (-_CHECK_S, None))
        if time.monotonic() - read < _CHECK_S:
            return user
        self._seen.pop(digest, None)
        session = self.sessions.again(digest)
        if session is None:
            return None
        self._seen[digest] = time.monotonic(), session.user
        return session.user

    def ended(self, digest: str) -> None:
        """A session was ended here: its streams and consoles notice at once."""
        self._seen.pop(digest, None)
        if self.feed:
            self.feed.wake()


def audit(connection: HTTPConnection, what: str, *, user: str, allowed: bool, **more: t.Any) -> None:
    """A line of JSON for each decision."""
    line = {"audit": what, "user": user, "allowed": allowed, "address": _address(connection), **more}
    _AUDIT.info(json.dumps(line))


def _address(connection: HTTPConnection) -> str:
    return connection.client.host if connection.client and connection.client.host else "local"


def _network(address: str) -> str:
    """IPv6 users have 2**64 addresses."""
    with contextlib.suppress(ValueError):
        found = ipaddress.ip_address(address.partition("%")[0])
        if isinstance(found, ipaddress.IPv6Address) and not found.ipv4_mapped:
            return str(ipaddress.ip_network((found, 64), strict=False))
    return address


def _answer(value: t.Any, status: int = 200, **headers: str) -> JSONResponse:
    return JSONResponse(value, status, headers={"cache-control": "no-store", **headers})


def _error(status: int, text: str, **headers: str) -> JSONResponse:
    return _answer({"error": text}, status, **headers)


async def _body(request: Request) -> dict[str, str | bool]:
    """The texts and booleans of a JSON object; anything else is left out."""
    try:
        given = json.loads(await asyncio.wait_for(request.body(), _BODY_S))
    except (TimeoutError, ValueError, RecursionError):
        return {}
    fields = given.items() if isinstance(given, dict) else ()
    return {key: value for key, value in fields if isinstance(value, (str, bool))}


def with_session(handler: _Handler) -> t.Callable[[Request], t.Awaitable[Response]]:
    """Only for those who are logged in."""

    @functools.wraps(handler)
    async def handle(request: Request) -> Response:
        site: Site = request.app.state.site
        session = site.session(request)
        if session is None:
            return _error(401, "log in first")
        return await handler(site, request, session)

    return handle


async def asset(request: Request) -> Response:
    """A file of the page."""
    site: Site = request.app.state.site
    found = site.assets.get(request.path_params.get("path") or "index.html")
    if found is None:
        return _error(404, "there is no such page")
    headers = {"etag": found.etag, "cache-control": "no-cache"}
    if request.headers.get("if-none-match") == found.etag:
        return Response(status_code=304, headers=headers)
    return Response(found.content, media_type=found.media_type, headers=headers)


async def login(request: Request) -> Response:
    """Begin a session; who has one already gets a new one."""
    site: Site = request.app.state.site
    given = await _body(request)
    name, password, code = (str(given.get(key, "")) for key in ("user", "password", "code"))
    limits = ((site.by_address, _network(_address(request))), (site.by_name, name[:64]))
    wait_s = max(limit.wait_s(key) for limit, key in limits)
    if wait_s:
        audit(request, "login", user=name[:64], allowed=False, reason="too many attempts")
        return _error(429, f"too many attempts; try again in {wait_s} s", **{"retry-after": str(wait_s)})
    for limit, key in limits:
        limit.count(key)
    user = await run_in_threadpool(site.accounts.check, name, password, code)
    audit(request, "login", user=name[:64], allowed=user is not None)
    if user is None:
        return _error(403, "user, password or code is wrong")
    site.by_name.forget(name[:64])
    old = site.session(request)
    if old:
        _end(site, old, old.digest)
    value = site.sessions.begin(user, address=_address(request), agent=request.headers.get("user-agent", ""))
    response = _answer({})
    response.set_cookie(COOKIE, value, path="/", secure=True, httponly=True, samesite="strict")
    return response


def _end(site: Site, session: Session, digest: str) -> bool:
    found = site.sessions.end(session.user, digest)
    site.ended(digest)
    return found


@with_session
async def logout(site: Site, request: Request, session: Session) -> Response:
    """End the session."""
    _end(site, session, session.digest)
    audit(request, "logout", user=session.user.name, allowed=True)
    response = _answer({})
    response.delete_cookie(COOKIE, path="/", secure=True, httponly=True, samesite="strict")
    return response


async def me(request: Request) -> Response:
    """Who is logged in, and what they may do; empty when nobody is."""
    session = request.app.state.site.session(request)
    if session is None:
        return _answer({})
    may = [action for action in rights.ACTIONS if not rights.refusal(session.user, action)]
    return _answer({"user": session.user.name, "may": may})


@with_session
async def own_sessions(site: Site, _request: Request, session: Session) -> Response:
    """The user's sessions."""
    return _answer(
        [
            {
                "id": each.digest,
                "created": each.created,
                "seen": each.seen,
                "address": each.address,
                "agent": each.agent,
                "current": each.digest == session.digest,
            }
            for each in site.sessions.of(session.user)
        ]
    )


@with_session
async def end_session(site: Site, request: Request, session: Session) -> Response:
    """Revoke one of them."""
    digest = str((await _body(request)).get("id", ""))
    if not _SESSION_ID.fullmatch(digest) or not _end(site, session, digest):
        return _error(404, "there is no such session")
    audit(request, "end session", user=session.user.name, allowed=True, session=digest[:8])
    return _answer({})


@with_session
async def events(site: Site, request: Request, session: Session) -> Response:
    """State, live, from the mark that the browser has."""
    feed = t.cast(Feed, site.feed)
    if sum(site.streams.values()) >= site.config.streams:
        return _error(503, "too many pages are open")
    if site.streams.get(session.digest, 0) >= _STREAMS_OF_A_SESSION:
        return _error(429, "too many pages are open in this session")
    mark = request.headers.get("last-event-id") or request.query_params.get("since")
    return StreamingResponse(
        _counted(site, session.digest, feed.read(mark, lambda: site.alive(session.digest))),
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
        return _answer(await asyncio.wait_for(run_in_threadpool(ask), _ASK_S))
    except NotFound as error:
        return _error(404, str(error))
    except VirtError as error:
        return _error(503, str(error))
    except TimeoutError:
        return _error(503, "the host does not answer")


@with_session
async def host(site: Site, request: Request, _session: Session) -> Response:
    """All about a host."""
    watcher = site.watchers.get(request.path_params["host"])
    return await _asked(watcher.host) if watcher else _error(404, "there is no such host")


@with_session
async def guest(site: Site, request: Request, _session: Session) -> Response:
    """All about a guest."""
    name, uuid = request.path_params["host"], request.path_params["uuid"]
    if site.store.get(f"guest/{name}/{uuid}") is None or name not in site.watchers:
        return _error(404, "there is no such guest")
    return await _asked(functools.partial(site.watchers[name].guest, uuid))


def _live(ask: t.Callable[[live.Live, Request], t.Any]) -> t.Callable[[Request], t.Awaitable[Response]]:
    @with_session
    async def handle(site: Site, request: Request, _session: Session) -> Response:
        return await _asked(functools.partial(ask, site, request))

    return handle


@with_session
async def ticket(site: Site, request: Request, session: Session) -> Response:
    """A ticket for a console, on the host where the guest runs now."""
    given = await _body(request)
    uuid, kind = str(given.get("uuid", "")), str(given.get("kind", ""))
    refusal = rights.refusal(session.user, "console")
    audit(request, "console", user=session.user.name, allowed=not refusal, guest=uuid[:36], kind=kind[:6])
    if refusal:
        return _error(403, refusal)
    if kind not in ("vnc", "serial"):
        return _error(400, "kind must be vnc or serial")
    found = [each for each in site.store.below("guest/").values() if each["uuid"] == uuid and _runs(each)]
    running = sorted(found, key=lambda each: str(each["state"]), reverse=True)  # of a migration: where it runs
    if not running:
        return _error(409, "the guest does not run")
    if not site.config.hosts[running[0]["host"]].relay:
        return _error(409, f"consoles are not set up on {running[0]['host']}")
    issued = Ticket(session.digest, running[0]["host"], uuid, kind, given.get("take_over") is True)
    return _answer({"ticket": site.tickets.issue(issued), "host": issued.host})


def _runs(found: t.Mapping[str, t.Any]) -> bool:
    return found["state"] in ("running", "paused")


async def console(socket: WebSocket) -> None:
    """A guest's console."""
    site: Site = socket.app.state.site
    session = site.session(socket)
    taken = site.tickets.take(socket.query_params.get("ticket", ""), session.digest if session else "")
    if session is None or taken is None or site.consoles >= site.config.consoles:
        await socket.close(consoles.REFUSED)
        return
    command = [*site.config.hosts[taken.host].relay, f"{taken.kind} {taken.guest}{' take-over' * taken.take_over}"]
    more = {"user": session.user.name, "guest": taken.guest, "host": taken.host, "kind": taken.kind}

    async def alive() -> bool:
        return site.may_go_on(session.digest, "console")

    site.consoles += 1
    try:
        await socket.accept()
        audit(socket, "console opened", allowed=True, **more)
        reason = await consoles.connect(socket, command, alive)
        audit(socket, "console closed", allowed=True, reason=reason, **more)
    finally:
        site.consoles -= 1


def application(config: Config) -> Starlette:
    """The ASGI application."""
    site = Site(config, Store())

    @contextlib.asynccontextmanager
    async def lifespan(_app: Starlette) -> t.AsyncIterator[None]:
        site.feed = Feed(site.store)
        for watcher in site.watchers.values():
            watcher.start()
        yield
        site.close()
        await asyncio.gather(*(run_in_threadpool(watcher.stop) for watcher in site.watchers.values()))

    app = Starlette(
        routes=[
            Route("/", asset),
            Route("/static/{path:path}", asset),
            Route("/api/login", login, methods=["POST"]),
            Route("/api/logout", logout, methods=["POST"]),
            Route("/api/me", me),
            Route("/api/sessions", own_sessions),
            Route("/api/sessions/end", end_session, methods=["POST"]),
            Route("/api/events", events),
            Route("/api/hosts/{host}", host),
            Route("/api/hosts/{host}/guests/{uuid}", guest),
            *(Route(path, _live(ask)) for path, ask in live.ROUTES.items()),
            Route("/api/tickets", ticket, methods=["POST"]),
            WebSocketRoute("/api/console", console),
        ],
        middleware=[Middleware(Guard, names=config.names)],
        lifespan=lifespan,
    )
    app.state.site = site
    return app
