# Copyright (c) corral.virt contributors
# GNU General Public License v3.0+ (see COPYING or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""What the requests of the web process share: live state, and who asks, as the policy process says."""

from __future__ import annotations

import asyncio
import contextlib
import dataclasses
import functools
import hashlib
import ipaddress
import logging
import time
import typing as t

from starlette.requests import HTTPConnection, Request
from starlette.responses import Response

from . import answers, assets, policy, room, strict
from .config import Config
from .history import History
from .policy_client import Answer, PolicyClient, Unavailable
from .shares import Shares
from .store import Store
from .stream import Feed
from .tickets import Tickets
from .view import View
from .watch import Watcher

__all__ = ["Identity", "Site", "address_of", "credentials", "is_use", "login_credentials", "with_identity"]

_CHECK_S = 5.0
_AGAIN_S = 2.0
_ROOM_S, _ROOM_MIB = 2.0, 2
_MOST_KNOWN = 10_000
_ASKED_AGAIN = ("/api/me", "/api/events")  # and again, by pages that are open
_ASKED_AT_ONCE, _ASKED_BY_ONE = 1000, 16  # requests that wait for a host, each in a thread
_UNCLEAR = "the policy process does not tell who is logged in; see journalctl -u corral-console-jobs"
_LOG = logging.getLogger(__name__)


@dataclasses.dataclass(frozen=True)
class Identity:
    """Who asks: a user, by a session or a token (`digest`)."""

    who: policy.Who
    digest: str
    rules: tuple[policy.Rule, ...]

    @functools.cached_property
    def view(self) -> View:
        """What they see."""
        return View(self.who, self.rules)

    def refusal(self, request: policy.Request) -> str:
        """Why they may not; empty when they may."""
        return policy.refusal(self.rules, self.who, request)


Handler = t.Callable[["Site", Request, Identity], t.Awaitable[Response]]


class Site:
    """Live."""

    def __init__(self, config: Config, store: Store) -> None:
        self.config, self.store = config, store
        self.policy = PolicyClient(config.policy_socket)
        self.tickets = Tickets()
        self.history = History(config.state / "history.db")
        self.watchers = {
            name: Watcher(name, host.uri, store, history=self.history, relay=host.relay)
            for name, host in config.hosts.items()
        }
        self.assets = assets.load(config.libraries)
        self.streams = Shares(most=config.streams, of_one=config.streams_of_a_user)
        self.consoles = Shares(most=config.consoles, of_one=config.consoles_of_a_user)
        self.asking = Shares(most=_ASKED_AT_ONCE, of_one=_ASKED_BY_ONE)
        self.feed: Feed | None = None
        self._known: dict[str, tuple[float, Identity | None]] = {}
        self._used: dict[str, float] = {}  # when the policy process was told last that a session is in use

    def close(self) -> None:
        """End all streams, so that the server can stop."""
        if self.feed:
            self.feed.close()

    async def identity(self, given: t.Mapping[str, str], *, used: bool = False) -> Identity | None:
        """Of credentials; None when they are not valid. Asked anew after seconds. Raises Unavailable.

        `used`: by what a person does, which keeps the session from ending.
        """
        if not given:
            return None
        key = hashlib.sha256(repr(sorted(given.items())).encode()).hexdigest()
        asked, found = self._known.get(key, (-_CHECK_S, None))
        tells = used and time.monotonic() - self._used.get(key, -_CHECK_S) >= _CHECK_S
        if time.monotonic() - asked < _CHECK_S and not tells:
            return found
        for known in (self._known, self._used):
            if len(known) >= _MOST_KNOWN:
                known.clear()
        answer = await self.policy.ask("GET", "/api/me", {**given, "x-corral-used": "yes" if used else "no"})
        found = _identity(answer)
        self._known[key] = time.monotonic(), found
        if used:
            self._used[key] = time.monotonic()
        return found

    async def still(self, given: t.Mapping[str, str], before: Identity) -> Identity | None:
        """The identity as it is now; None when it has ended. While the policy process starts again, what it said."""
        if self.feed and self.feed.closed:
            return None
        try:
            return await self.identity(given)
        except Unavailable:
            return before

    def forget(self) -> None:
        """Sessions may have ended: streams and consoles notice at once."""
        self._known.clear()
        if self.feed:
            self.feed.wake()

    async def follow_room(self) -> None:
        """Tell what is wrong with this process, and with hosts that hang: it shows the present in any case."""
        while True:
            for watcher in self.watchers.values():
                watcher.look()
            full = room.problem(self.config.state, _ROOM_MIB)
            problem = f"{full}: what guests used is not recorded" if full else self.history.problem
            self.store.update({"server/web": {"problems": [problem]} if problem else None})
            await asyncio.sleep(_ROOM_S)

    async def follow_jobs(self) -> None:
        """Keep the jobs in the store as the policy process has them."""
        while True:
            try:
                async for line in self.policy.lines("/jobs"):
                    if line.startswith("data: "):
                        self._mirror(strict.read(line.removeprefix("data: ")))
                    self.store.update({"server/policy": None})
            except Unavailable as error:
                _LOG.warning("%s", error)
                self.store.update({"server/policy": {"problems": [str(error)]}})
            except (KeyError, TypeError, AttributeError):  # else the jobs would stay as they are for ever
                _LOG.exception("cannot read what the policy process says of jobs")
            await asyncio.sleep(_AGAIN_S)

    def _mirror(self, delta: t.Mapping[str, t.Any]) -> None:
        known = self.store.below("job/").keys() | {"server/jobs"}
        gone = known - delta["values"].keys() if delta["reset"] else delta["gone"]
        self.store.update({**dict.fromkeys(gone), **delta["values"]})
        for key, job in delta["values"].items():
            if key.startswith("job/") and job.get("ended") and not delta["reset"]:
                for name in self.watchers.keys() & set(job["hosts"]):
                    self.watchers[name].look_at_mark()


def _identity(answer: Answer) -> Identity | None:
    """None: nobody is logged in. That the policy process cannot tell is something else: raises Unavailable."""
    me = strict.read(answer.content)
    if answer.status != 200:
        raise Unavailable(str(me.get("error") if isinstance(me, dict) else "") or _UNCLEAR)
    try:
        if not me:
            return None
        return Identity(policy.Who(me["user"], tuple(me["groups"])), me["session"], tuple(policy.parsed(me["rules"])))
    except (TypeError, KeyError, policy.BadPolicy) as error:
        raise Unavailable(_UNCLEAR) from error


def credentials(connection: HTTPConnection) -> dict[str, str]:
    """What identifies who asks, as headers: a cookie, or else a token."""
    if value := connection.cookies.get(answers.COOKIE):
        return {"cookie": f"{answers.COOKIE}={value}"} if value.isascii() and value.isprintable() else {}
    given = connection.headers.get("authorization", "")
    return {"authorization": given} if given.isascii() and given.isprintable() and given else {}


def is_use(request: Request) -> bool:
    """Whether somebody does something, as opposed to a page that is open: it says so of what it asks by itself."""
    if request.headers.get("x-corral-background"):
        return False
    path = request.url.path
    return request.method != "GET" or not (path in _ASKED_AGAIN or path.endswith("/log"))


def login_credentials(connection: HTTPConnection) -> dict[str, str]:
    """The cookies that a login looks at."""
    given = [(name, connection.cookies.get(name, "")) for name in (answers.COOKIE, answers.DEVICE)]
    known = [f"{name}={value}" for name, value in given if value and value.isascii() and value.isprintable()]
    return {"cookie": "; ".join(known)} if known else {}


def address_of(connection: HTTPConnection) -> str:
    """Of the browser. Only a proxy on this machine is believed what it says of it."""
    peer = connection.client.host if connection.client and connection.client.host else "local"
    site: Site = connection.app.state.site
    if not site.config.address_header or not (found := _ip(peer)) or not found.is_loopback:
        return peer
    told = connection.headers.get(site.config.address_header, "").rpartition(",")[2].strip()
    return told if _ip(told) else peer


def _ip(text: str) -> ipaddress.IPv4Address | ipaddress.IPv6Address | None:
    with contextlib.suppress(ValueError):
        return ipaddress.ip_address(text)
    return None


def with_identity(handler: Handler) -> t.Callable[[Request], t.Awaitable[Response]]:
    """Only for those who are logged in."""

    @functools.wraps(handler)
    async def handle(request: Request) -> Response:
        site: Site = request.app.state.site
        try:
            identity = await site.identity(credentials(request), used=is_use(request))
        except Unavailable as error:
            return answers.error(503, str(error))
        if identity is None:
            return answers.error(401, "log in first")
        return await handler(site, request, identity)

    return handle
