# Copyright (c) corral.virt contributors
# GNU General Public License v3.0+ (see COPYING or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""Requests about who asks: login, sessions, tokens, users, the audit."""

from __future__ import annotations

import asyncio
import re
import typing as t

from starlette.requests import Request
from starlette.responses import Response
from starlette.routing import Route

from . import devices, policy
from .accounts import BadUser
from .answers import COOKIE, DEVICE, answer, body, error, number
from .desk import Caller, Desk, address, may, with_caller
from .sessions import Sessions
from .throttle import Attempt, network_of
from .tokens import Tokens

__all__ = ["ROUTES", "proxied_login"]

_DIGEST = re.compile("[0-9a-f]{64}")


async def login(request: Request) -> Response:
    """Begin a session; who has one already gets a new one."""
    desk: Desk = request.app.state.desk
    given, where = await body(request), address(request)
    name, password, code = (str(given.get(key, "")) for key in ("user", "password", "code"))
    attempt = _attempt(request, name[:64], where)
    familiar = network_of(where) in set(map(network_of, desk.sessions.addresses(name[:64])))
    if wait_s := desk.attempts.wait_s(attempt, familiar=familiar):
        if times := desk.refused.count(where):
            more = {"reason": "too many attempts", "times": times}
            desk.audit.write("login", user=name[:64], address=where, allowed=False, **more)
        return error(429, f"too many attempts; try again in {wait_s} s", **{"retry-after": str(wait_s)})
    desk.attempts.count(attempt, familiar=familiar)
    loop = asyncio.get_running_loop()
    user = await loop.run_in_executor(desk.hashing, desk.accounts.check, name, password, code)
    desk.audit.write("login", user=name[:64], address=where, allowed=user is not None)
    if user is None:
        return error(403, "user, password or code is wrong")
    desk.attempts.succeeded(attempt, familiar=familiar)
    response = _begun(desk, request, user, answer({}))
    made = desk.devices.made(user.name, attempt.stamp, attempt.device)
    _set_cookie(response, DEVICE, made, max_age=devices.LIFETIME_S)
    return response


def _attempt(request: Request, name: str, where: str) -> Attempt:
    """Who tries it, as far as that is known before the password is judged."""
    desk: Desk = request.app.state.desk
    stamp = desk.accounts.stamp(name)
    device = desk.devices.known(request.cookies.get(DEVICE, ""), name, stamp) if stamp else ""
    return Attempt(name, where, device, stamp)


def _set_cookie(response: Response, name: str, value: str, **more: t.Any) -> None:
    response.set_cookie(name, value, path="/", secure=True, httponly=True, samesite="strict", **more)


def _begun(desk: Desk, request: Request, user: t.Any, response: Response) -> Response:
    old = desk.caller(request)
    if old and old.by_session:
        desk.sessions.end_any(old.digest)
    value = desk.sessions.begin(user, address=address(request), agent=request.headers.get("user-agent", ""))
    _set_cookie(response, COOKIE, value)
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
    """Who is logged in, and what they may do; empty when nobody is. Asked by POST, it says that somebody is there."""
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
            "token_days": desk.tokens.most_days,
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
    """Revoke a session, or all of a user: of one's own, or with the right `users` of anybody."""
    return await _end(desk, request, caller, desk.sessions, "session")


def _end_all(desk: Desk, request: Request, caller: Caller, noun: str, name: str) -> Response:
    """Not the session that asks for it."""
    if name != caller.who.name and (refused := may(desk, request, caller, "users")):
        return refused
    ended = desk.tokens.end_all(name) if noun == "token" else desk.sessions.end_all(name, but=caller.digest)
    more = {"user": caller.who.name, "address": address(request), "of": name[:64]}
    desk.audit.write(f"end all {noun}s", allowed=True, **more)
    return answer({"ended": ended})


async def _end(desk: Desk, request: Request, caller: Caller, kept: Sessions | Tokens, noun: str) -> Response:
    given = await body(request)
    if "user" in given:
        return _end_all(desk, request, caller, noun, str(given["user"]))
    others = not policy.refusal(desk.rules, caller.who, policy.Request("users"))
    digest = str(given.get("id", ""))
    if not _DIGEST.fullmatch(digest):
        return error(404, f"there is no such {noun}")
    of = kept.end_any(digest) if others else caller.user.name if kept.end(caller.user, digest) else ""
    if not of:
        return error(404, f"there is no such {noun}")
    more = {"user": caller.who.name, "address": address(request), noun: digest[:8], "of": of}
    desk.audit.write(f"end {noun}", allowed=True, **more)
    return answer({})


@with_caller
async def tokens(desk: Desk, request: Request, caller: Caller) -> Response:
    """The user's tokens, or a new one; a token makes no tokens."""
    if request.method == "GET":
        return answer(desk.tokens.of(caller.user))
    given = await body(request)
    most = desk.tokens.most_days
    name, days = given.get("name"), given.get("days", most)
    if not isinstance(name, str) or not name.strip():
        return answer({"errors": {"name": "name what the token is for"}}, 400)
    if not isinstance(days, int) or isinstance(days, bool) or not 1 <= days <= most:
        return answer({"errors": {"days": f"must be 1 to {most}"}}, 400)
    value = desk.tokens.make(caller.user, name, days) if caller.by_session else ""
    more = {"user": caller.who.name, "address": address(request), "name": name[:64]}
    desk.audit.write("make token", allowed=bool(value), **more)
    if not value:
        return error(403, "log in to make a token; a user can have 100")
    return answer({"token": value}, 201)


@with_caller
async def end_token(desk: Desk, request: Request, caller: Caller) -> Response:
    """Revoke a token, or all of a user: of one's own, or with the right `users` of anybody."""
    return await _end(desk, request, caller, desk.tokens, "token")


@with_caller
async def users(desk: Desk, request: Request, caller: Caller) -> Response:
    """All users with their sessions and tokens."""
    if refused := may(desk, request, caller, "users"):
        return refused
    found = [
        {
            "name": user.name,
            "groups": user.groups,
            "sessions": _sessions(desk, user, caller.digest),
            "tokens": desk.tokens.of(user),
        }
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
    Route("/api/me", me, methods=["GET", "POST"]),
    Route("/api/sessions", sessions),
    Route("/api/sessions/end", end_session, methods=["POST"]),
    Route("/api/tokens", tokens, methods=["GET", "POST"]),
    Route("/api/tokens/end", end_token, methods=["POST"]),
    Route("/api/users", users),
    Route("/api/audit", audit),
]
