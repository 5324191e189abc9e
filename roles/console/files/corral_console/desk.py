# Copyright (c) corral.virt contributors
# GNU General Public License v3.0+ (see COPYING or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""What the requests of the policy process share: users, sessions, the policy, jobs; and who calls."""

from __future__ import annotations

import concurrent.futures
import dataclasses
import functools
import json
import logging
import sqlite3
import time
import typing as t
from pathlib import Path

from starlette.requests import Request
from starlette.responses import Response

from . import offers, policy, room
from .accounts import Accounts, User
from .answers import COOKIE, error
from .audit import Audit
from .clock import Clock
from .config import PolicyConfig
from .copies import Copies
from .database import Database
from .devices import Devices
from .durable import replace
from .jobs import ROOM_MIB, Job, Jobs
from .limits import gives_less
from .order import BadOrder, order
from .sessions import Sessions
from .shares import Shares
from .signing import Signer
from .store import Store
from .stream import Feed
from .throttle import Attempts, Refused
from .tokens import Tokens

__all__ = ["Caller", "Desk", "address", "may", "with_caller"]

_FORGET_S = 600.0  # whether a day is over
_JUDGES, _JUDGED_AT_ONCE, _JUDGED_OF_ONE = 2, 1000, 4
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
        database = self.database = Database(config.directory / "console.db")
        clock = self.clock = Clock(database)
        self.accounts = Accounts(database, clock=clock)
        lives = {"idle_s": config.session_idle_s, "longest_s": config.session_longest_s}
        self.sessions = Sessions(database, clock=clock, most=config.sessions_of_a_user, **lives)
        self.tokens = Tokens(database, most_days=config.token_days, clock=clock)
        self.copies = Copies(file=config.audit_file, syslog=config.audit_syslog)
        self.audit = Audit(database, days=config.kept_days, copies=self.copies)
        self.signer = Signer(config.directory / "ticket.key")
        self.store = Store()
        self.feed: Feed | None = None
        self.jobs = Jobs(config, self.store, may_begin=self._may_begin)
        self.attempts, self.refused = Attempts(), Refused()
        # Passwords are hashed one after the other: those of many attempts leave the threads to requests of users.
        self.hashing = concurrent.futures.ThreadPoolExecutor(1, "hash")
        # Neither keeps the requests of a user that take long to judge those of others waiting.
        self.judges = concurrent.futures.ThreadPoolExecutor(_JUDGES, "judge")
        self.judging = Shares(most=_JUDGED_AT_ONCE, of_one=_JUDGED_OF_ONE)
        self.devices = Devices(config.directory / "device.key")
        self._policy = _PolicyFile(config.policy)
        self._held = config.directory / "rights.json"  # the policy by which sessions and tokens are there
        self._applied: list[policy.Rule] | None = None  # the policy for which it was done
        self._problems: list[str] = []
        self._forget_at = 0.0

    def look(self) -> None:
        """Look after jobs and what is not written yet, and tell what is wrong with the server: in the log, and live."""
        problems = []
        try:
            self.jobs.look()
        except OSError as error:  # a full disk: it may have room later
            problems.append(f"cannot look after jobs: {error}")
        self.database.look()
        self._forget()
        problems = [*self.problems(), *problems]
        for problem in problems:
            if problem not in self._problems:
                _LOG.error("%s", problem)
        self._problems = problems
        self.store.update({"server/jobs": {"problems": problems} if problems else None})

    def problems(self) -> list[str]:
        """What keeps the server from working as it should, with remedies."""
        full = room.problem(self.config.directory, ROOM_MIB)
        consequence = "jobs are refused; sessions and the audit are kept in memory until there is room"
        state = f"{full}: {consequence}" if full else self.database.problem
        return [each for each in (state, self.clock.problem, *self.copies.problems()) if each]

    def _forget(self) -> None:
        """Remove what is old, once a day."""
        if time.monotonic() < self._forget_at or self.database.problem:
            return
        self._forget_at = time.monotonic() + _FORGET_S
        try:
            if self.clock.is_day_over():
                self.jobs.forget(self.clock())
                self.audit.forget(self.clock())
        except sqlite3.Error as error:
            self.database.fail(error)

    @property
    def rules(self) -> list[policy.Rule]:
        """The policy as its file has it."""
        return self._policy.rules()

    def apply_policy(self) -> None:
        """End sessions and tokens of users to whom another policy gives less. What fails is tried again."""
        rules = self.rules
        if rules is self._applied:
            return
        try:
            self._end_of_lowered(rules)
            replace(self._held, json.dumps([rule.written() for rule in rules]).encode())
            self._applied = rules
        except (OSError, sqlite3.Error) as error:  # a full disk: the policy holds all the same
            _LOG.error("cannot end the sessions of those who may do less now: %s", error)

    def _end_of_lowered(self, rules: t.Sequence[policy.Rule]) -> None:
        try:
            before = policy.parsed(json.loads(self._held.read_text()))
        except (FileNotFoundError, ValueError, policy.BadPolicy):
            return  # the first policy, or one of an earlier version
        for user in self.accounts.all():
            who = policy.Who(user.name, user.groups)
            if gives_less(policy.rules_of(before, who), policy.rules_of(rules, who)):
                self.accounts.end_access(user.name)
                self.audit.write("rights lowered", user=user.name, address="local", allowed=True)

    def caller(self, request: Request) -> Caller | None:
        """Who asks, by the cookie, or else by a token."""
        if value := request.cookies.get(COOKIE):
            session = self.sessions.find(value, used=request.headers.get("x-corral-used", "yes") == "yes")
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

    def _may_begin(self, job: Job) -> str | None:
        """Why a job that waited must not begin: meanwhile, its user may have lost the right. None: cannot tell."""
        try:
            user = self.accounts.find(job.request["user"])
            request = order(*job.asks(self.config.hosts)).request
        except BadOrder as problem:  # one of its hosts is none of the hypervisors any more
            return str(problem)
        except sqlite3.Error as error:
            _LOG.error("cannot tell whether job %s may begin: %s", job.id, error)
            return None
        if user is None:
            return f"there is no user {job.request['user']} any more"
        return policy.refusal(self.rules, policy.Who(user.name, user.groups), request)


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
        caller = desk.caller(request)  # what it raises is no answer to whether they are logged in
        if caller is None:
            return error(401, "log in first")
        return await handler(desk, request, caller)

    return handle
