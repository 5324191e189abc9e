# Copyright (c) corral.virt contributors
# GNU General Public License v3.0+ (see COPYING or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""What the requests of the policy process share: users, sessions, the policy, jobs; and who calls."""

from __future__ import annotations

import dataclasses
import functools
import json
import logging
import typing as t
from pathlib import Path

from starlette.requests import Request
from starlette.responses import Response

from . import offers, policy
from .accounts import Accounts, User
from .answers import COOKIE, error
from .audit import Audit
from .config import PolicyConfig
from .database import Database
from .jobs import Jobs
from .sessions import Sessions
from .signing import Signer
from .store import Store
from .stream import Feed
from .throttle import Throttle
from .tokens import Tokens

__all__ = ["Caller", "Desk", "address", "may", "with_caller"]

_LOG = logging.getLogger(__name__)


@dataclasses.dataclass(frozen=True)
class Caller:
    """A user, by a session or a token (`digest`)."""

    user: User
    digest: str
    by_session: bool

    @property
    def who(self) -> policy.Who:
        """As the policy knows them."""
        return policy.Who(self.user.name, self.user.groups)


Handler = t.Callable[["Desk", Request, Caller], t.Awaitable[Response]]


class Desk:
    """Lives as long as the policy process."""

    def __init__(self, config: PolicyConfig) -> None:
        self.config = config
        database = Database(config.directory / "console.db")
        self.accounts = Accounts(database)
        self.sessions = Sessions(database, idle_s=config.session_idle_s, longest_s=config.session_longest_s)
        self.tokens = Tokens(database)
        self.audit = Audit(database, days=config.kept_days)
        self.signer = Signer(config.directory / "ticket.key")
        self.store = Store()
        self.feed: Feed | None = None
        self.jobs = Jobs(config, self.store)
        self.by_address, self.by_name = Throttle(20, 300), Throttle(30, 300)
        self._policy = _PolicyFile(config.policy)

    @property
    def rules(self) -> list[policy.Rule]:
        """The policy as its file has it."""
        return self._policy.rules()

    def caller(self, request: Request) -> Caller | None:
        """Who asks, by the cookie, or else by a token."""
        if value := request.cookies.get(COOKIE):
            session = self.sessions.find(value)
            return Caller(session.user, session.digest, by_session=True) if session else None
        kind, _space, token = request.headers.get("authorization", "").partition(" ")
        found = self.tokens.find(token.strip()) if kind.lower() == "bearer" else None
        return Caller(found[1], found[0], by_session=False) if found else None

    def may(self, caller: Caller) -> list[str]:
        """Names of actions that a rule gives them, on whatever."""
        given = {name for rule in policy.rules_of(self.rules, caller.who) for name in rule.may}
        names = [*policy.RIGHTS, *offers.names()]
        return [
            name for name in names if "*" in given or name in given or (name == "view" and given - {"audit", "users"})
        ]


class _PolicyFile:
    """Read again when it changes; while it is wrong, what it said before holds."""

    def __init__(self, path: Path) -> None:
        self._path = path
        self._stamp: tuple[int, int] | None = None
        self._rules: list[policy.Rule] = []
        self.rules()

    def rules(self) -> list[policy.Rule]:
        try:
            status = self._path.stat()
            stamp = (status.st_mtime_ns, status.st_ino)
            if stamp != self._stamp:
                self._stamp = stamp
                self._rules = policy.parsed(json.loads(self._path.read_text()), offers.names())
        except (OSError, ValueError, policy.BadPolicy) as problem:
            _LOG.error("cannot use the policy %s; the one before it stays: %s", self._path, problem)
        return self._rules


def address(request: Request) -> str:
    """Of the browser, as the web process says."""
    return request.headers.get("x-corral-address", "local")[:64]


def may(desk: Desk, request: Request, caller: Caller, right: str) -> Response | None:
    """Why they may not, as an answer, with a line in the audit; None when they may."""
    reason = policy.refusal(desk.rules, caller.who, policy.Request(right))
    if not reason:
        return None
    desk.audit.write(right, user=caller.who.name, address=address(request), allowed=False, reason=reason)
    return error(403, reason)


def with_caller(handler: Handler) -> t.Callable[[Request], t.Awaitable[Response]]:
    """Only for those who are logged in."""

    @functools.wraps(handler)
    async def handle(request: Request) -> Response:
        desk: Desk = request.app.state.desk
        caller = desk.caller(request)
        if caller is None:
            return error(401, "log in first")
        return await handler(desk, request, caller)

    return handle
