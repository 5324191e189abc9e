# Copyright (c) corral.virt contributors
# GNU General Public License v3.0+ (see COPYING or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""Requests about who asks: login, sessions, tokens, users, the audit."""

from __future__ import annotations

import contextlib
import ipaddress
import re
import typing as t

from starlette.concurrency import run_in_threadpool
from starlette.requests import Request
from starlette.responses import Response
from starlette.routing import Route

from . import policy
from .accounts import BadUser
from .answers import COOKIE, answer, body, error, number
from .desk import Caller, Desk, address, may, with_caller

__all__ = ["ROUTES", "proxied_login"]

_DIGEST = re.compile("[0-9a-f]{64}")
_MOST_DAYS = 3650


def _network(found: str) -> str:
    """IPv6 users have 2**64 addresses."""
    with contextlib.suppress(ValueError):
        parsed = ipaddress.ip_address(found.partition("%")[0])
        if isinstance(parsed, ipaddress.IPv6Address) and not parsed.ipv4_mapped:
            return str(ipaddress.ip_network((parsed, 64), strict=False))
    return found


async def login(request: Request) -> Response:
    """Begin a session; who has one already gets a new one."""
    desk: Desk = request.app.state.desk
    given, where = await body(request), address(request)
    name, password, code = (str(given.get(key, "")) for key in ("user", "password", "code"))
    limits = ((desk.by_address, _network(where)), (desk.by_name, name[:64]))
    wait_s = max(limit.wait_s(key) for limit, key in limits)
    if wait_s:
        desk.audit.write("login", user=name[:64], address=where, allowed=False, reason="too many attempts")
        return error(429, f"too many attempts; try again in {wait_s} s", **{"retry-after": str(wait_s)})
    for limit, key in limits:
        limit.count(key)
    user = await run_in_threadpool(desk.accounts.check, name, password, code)
    desk.audit.write("login", user=name[:64], address=where, allowed=user is not None)
    if user is None:
        return error(403, "user, password or code is wrong")
    desk.by_name.forget(name[:64])
    desk.by_address.uncount(_network(where))  # many users may come from one address; what failed there goes on counting
    return _begun(desk, request, user, answer({}))


def _begun(desk: Desk, request: Request, user: t.Any, response: Response) -> Response:
    old = desk.caller(request)
    if old and old.by_session:
        desk.sessions.end_any(old.digest)
    value = desk.sessions.begin(user, address=address(request), agent=request.headers.get("user-agent", ""))
    response.set_cookie(COOKIE, value, path="/", secure=True, httponly=True, samesite="strict")
    return response


async def proxied_login(request: Request) -> Response:
    """Begin a session for whom the proxy has identified; only the proxy reaches this socket."""
    desk: Desk = request.app.state.desk
    proxy = desk.config.proxy
    name = request.headers.get(proxy["user_header"], "") if proxy else ""
    groups = request.headers.get(proxy.get("groups_header") or "-", "") if proxy else ""
    try:
        user = desk.accounts.admit(name, [each.strip() for each in groups.split(",") if each.strip()])
    except BadUser as problem:
        desk.audit.write("proxied login", user=name[:64], address="proxy", allowed=False, reason=str(problem))
        return error(403, f"the proxy told no user: {problem}")
    desk.audit.write("proxied login", user=user.name, address="proxy", allowed=True)
    return _begun(desk, request, user, Response(status_code=303, headers={"location": "/"}))


@with_caller
async def logout(desk: Desk, request: Request, caller: Caller) -> Response:
    """End the session."""
    if caller.by_session:
        desk.sessions.end_any(caller.digest)
    desk.audit.write("logout", user=caller.who.name, address=address(request), allowed=True)
    response = answer({})
    response.delete_cookie(COOKIE, path="/", secure=True, httponly=True, samesite="strict")
    return response


async def me(request: Request) -> Response:
    """Who is logged in, and what they may do; empty when nobody is."""
    desk: Desk = request.app.state.desk
    caller = desk.caller(request)
    if caller is None:
        return answer({})
    rules = policy.rules_of(desk.rules, caller.who)
    return answer(
        {
            "user": caller.who.name,
            "groups": caller.who.groups,
            "session": caller.digest,
            "may": desk.may(caller),
            "rules": [rule.written() for rule in rules],
        }
    )


@with_caller
async def sessions(desk: Desk, _request: Request, caller: Caller) -> Response:
    """The user's sessions."""
    return answer(_sessions(desk, caller.user, caller.digest))


def _sessions(desk: Desk, user: t.Any, current: str) -> list[dict[str, t.Any]]:
    return [
        {
            "id": each.digest,
            "created": each.created,
            "seen": each.seen,
            "address": each.address,
            "agent": each.agent,
            "current": each.digest == current,
        }
        for each in desk.sessions.of(user)
    ]


@with_caller
async def end_session(desk: Desk, request: Request, caller: Caller) -> Response:
    """Revoke a session: one of the user's own, or anybody's with the right `users`."""
    digest = str((await body(request)).get("id", ""))
    others = not policy.refusal(desk.rules, caller.who, policy.Request("users"))
    ended = _DIGEST.fullmatch(digest) and (
        desk.sessions.end_any(digest) if others else desk.sessions.end(caller.user, digest)
    )
    if not ended:
        return error(404, "there is no such session")
    more = {"user": caller.who.name, "address": address(request), "session": digest[:8]}
    desk.audit.write("end session", allowed=True, **more)
    return answer({})


@with_caller
async def tokens(desk: Desk, request: Request, caller: Caller) -> Response:
    """The user's tokens, or a new one; a token makes no tokens."""
    if request.method == "GET":
        return answer(desk.tokens.of(caller.user))
    given = await body(request)
    name, days = given.get("name"), given.get("days", 90)
    if not isinstance(name, str) or not name.strip():
        return answer({"errors": {"name": "name what the token is for"}}, 400)
    if not isinstance(days, int) or isinstance(days, bool) or not 1 <= days <= _MOST_DAYS:
        return answer({"errors": {"days": f"must be 1 to {_MOST_DAYS}"}}, 400)
    value = desk.tokens.make(caller.user, name, days) if caller.by_session else ""
    more = {"user": caller.who.name, "address": address(request), "name": name[:64]}
    desk.audit.write("make token", allowed=bool(value), **more)
    if not value:
        return error(403, "log in to make a token; a user can have 100")
    return answer({"token": value}, 201)


@with_caller
async def end_token(desk: Desk, request: Request, caller: Caller) -> Response:
    """Revoke one of the user's tokens."""
    digest = str((await body(request)).get("id", ""))
    if not desk.tokens.end(caller.user, digest):
        return error(404, "there is no such token")
    more = {"user": caller.who.name, "address": address(request), "token": digest[:8]}
    desk.audit.write("end token", allowed=True, **more)
    return answer({})


@with_caller
async def users(desk: Desk, request: Request, caller: Caller) -> Response:
    """All users with their sessions."""
    if refused := may(desk, request, caller, "users"):
        return refused
    found = [
        {"name": user.name, "groups": user.groups, "sessions": _sessions(desk, user, caller.digest)}
        for user in desk.accounts.all()
    ]
    return answer(found)


@with_caller
async def audit(desk: Desk, request: Request, caller: Caller) -> Response:
    """The audit, the newest first."""
    if refused := may(desk, request, caller, "audit"):
        return refused
    before, limit = request.query_params.get("before"), number(request.query_params.get("limit"), 100, 1000)
    return answer(desk.audit.read(number(before, 2**62, 2**62), limit))


ROUTES = [
    Route("/api/login", login, methods=["POST"]),
    Route("/api/logout", logout, methods=["POST"]),
    Route("/api/me", me),
    Route("/api/sessions", sessions),
    Route("/api/sessions/end", end_session, methods=["POST"]),
    Route("/api/tokens", tokens, methods=["GET", "POST"]),
    Route("/api/tokens/end", end_token, methods=["POST"]),
    Route("/api/users", users),
    Route("/api/audit", audit),
]
