# Copyright (c) corral.virt contributors
# GNU General Public License v3.0+ (see COPYING or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""What the requests of the web process share: live state, and who asks, as the policy process says."""

from __future__ import annotations

import asyncio
import dataclasses
import functools
import hashlib
import json
import logging
import time
import typing as t

from starlette.requests import HTTPConnection, Request
from starlette.responses import Response

from . import answers, assets, policy
from .config import Config
from .history import History
from .policy_client import PolicyClient, Unavailable
from .store import Store
from .stream import Feed
from .tickets import Tickets
from .view import View
from .watch import Watcher

__all__ = ["Identity", "Site", "address_of", "credentials", "with_identity"]

_CHECK_S = 5.0
_AGAIN_S = 2.0
_MOST_KNOWN = 10_000
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
        self.streams: dict[str, int] = {}
        self.consoles = 0
        self.feed: Feed | None = None
        self._known: dict[str, tuple[float, Identity | None]] = {}

    def close(self) -> None:
        """End all streams, so that the server can stop."""
        if self.feed:
            self.feed.close()

    async def identity(self, given: t.Mapping[str, str]) -> Identity | None:
        """Of credentials; None when they are not valid. Asked anew after seconds. Raises Unavailable."""
        if not given:
            return None
        key = hashlib.sha256(repr(sorted(given.items())).encode()).hexdigest()
        asked, found = self._known.get(key, (-_CHECK_S, None))
        if time.monotonic() - asked < _CHECK_S:
            return found
        if len(self._known) >= _MOST_KNOWN:
            self._known.clear()
        answer = await self.policy.ask("GET", "/api/me", given)
        found = _identity(json.loads(answer.content)) if answer.status == 200 else None
        self._known[key] = time.monotonic(), found
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

    async def follow_jobs(self) -> None:
        """Keep the jobs in the store as the policy process has them."""
        while True:
            try:
                async for line in self.policy.lines("/jobs"):
                    if line.startswith("data: "):
                        self._mirror(json.loads(line.removeprefix("data: ")))
            except Unavailable as error:
                _LOG.warning("%s", error)
            await asyncio.sleep(_AGAIN_S)

    def _mirror(self, delta: t.Mapping[str, t.Any]) -> None:
        gone = self.store.below("job/").keys() - delta["values"].keys() if delta["reset"] else delta["gone"]
        self.store.update({**dict.fromkeys(gone), **delta["values"]})
        for job in delta["values"].values():
            if job["ended"] and not delta["reset"]:
                for name in self.watchers.keys() & set(job["hosts"]):
                    self.watchers[name].look_at_mark()


def _identity(me: t.Mapping[str, t.Any]) -> Identity | None:
    if not me:
        return None
    return Identity(policy.Who(me["user"], tuple(me["groups"])), me["session"], tuple(policy.parsed(me["rules"])))


def credentials(connection: HTTPConnection) -> dict[str, str]:
    """What identifies who asks, as headers: a cookie, or else a token."""
    if value := connection.cookies.get(answers.COOKIE):
        return {"cookie": f"{answers.COOKIE}={value}"} if value.isascii() and value.isprintable() else {}
    given = connection.headers.get("authorization", "")
    return {"authorization": given} if given.isascii() and given.isprintable() and given else {}


def address_of(connection: HTTPConnection) -> str:
    """Of the browser."""
    return connection.client.host if connection.client and connection.client.host else "local"


def with_identity(handler: Handler) -> t.Callable[[Request], t.Awaitable[Response]]:
    """Only for those who are logged in."""

    @functools.wraps(handler)
    async def handle(request: Request) -> Response:
        site: Site = request.app.state.site
        try:
            identity = await site.identity(credentials(request))
        except Unavailable as error:
            return answers.error(503, str(error))
        if identity is None:
            return answers.error(401, "log in first")
        return await handler(site, request, identity)

    return handle
