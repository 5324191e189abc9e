# Copyright (c) corral.virt contributors
# GNU General Public License v3.0+ (see COPYING or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""Requests that the policy process answers: passed on with the credentials as they came.

Where a request is about guests, what the live state says of them goes with it. The policy process decides by that, and
the job compares it with what the hosts say.
"""

from __future__ import annotations

import contextlib
import fnmatch
import typing as t
import urllib.parse

from starlette.concurrency import run_in_threadpool
from starlette.requests import Request
from starlette.responses import Response
from starlette.routing import Route

from ansible_collections.corral.virt.plugins.module_utils._core.errors import BadInput

from . import answers, policy, strict
from .policy_client import Answer, Unavailable
from .shares import Full
from .site import Identity, Site, address_of, credentials, is_use, login_credentials, with_identity

__all__ = ["ROUTES"]

_PASSED_BACK = ("content-type", "set-cookie", "cache-control", "retry-after")
_MOST_PATTERNS = 20
_PARTS = ("uuid", "name", "host", "state")


def _passed(given: Answer) -> Response:
    response = Response(given.content, given.status)
    for name, value in given.headers:
        if name in _PASSED_BACK:
            response.headers.append(name, value)
    return response


async def _forward(request: Request, body: bytes) -> Response:
    site: Site = request.app.state.site
    query = f"?{request.url.query}" if request.url.query else ""
    headers = {
        **(credentials(request) if request.url.path != "/api/login" else login_credentials(request)),
        "content-type": "application/json",
        "user-agent": request.headers.get("user-agent", "")[:256].encode("ascii", "replace").decode(),
        "x-corral-address": address_of(request),
        "x-corral-used": "yes" if is_use(request) else "no",
    }
    try:
        given = await site.policy.ask(request.method, f"{urllib.parse.quote(request.url.path)}{query}", headers, body)
    except Unavailable as problem:
        return answers.error(503, str(problem))
    if request.method == "POST" and request.url.path != "/api/me":
        site.forget()
    return _passed(given)


async def plain(request: Request) -> Response:
    """As it is."""
    return await _forward(request, await request.body())


@with_identity
async def about_guests(site: Site, request: Request, _identity: Identity) -> Response:
    """With what the live state says of the guests."""
    given = await answers.body(request)
    uuids, arguments = given.get("guests"), given.get("arguments")
    if "id" in request.path_params:  # the same as a job
        job = await _job(site, request)
        uuids, arguments = [guest["uuid"] for guest in job.get("guests", ())] or None, job.get("arguments")
    elif "uuid" in given:
        uuids = [given["uuid"]]
    try:
        seen = _seen(site, uuids, arguments if isinstance(arguments, dict) else {})
    except BadInput as problem:
        return answers.answer({"error": str(problem), "errors": {"guest": str(problem)}}, 400)
    named = _named(site, arguments if isinstance(arguments, dict) else {})
    return await _forward(request, strict.written({"request": given, "seen": seen, "named": named}))


async def _job(site: Site, request: Request) -> dict[str, t.Any]:
    """All about the job of a request, if they see it; else nothing."""
    path = f"/api/jobs/{urllib.parse.quote(request.path_params['id'])}"
    with contextlib.suppress(Unavailable):
        given = await site.policy.ask("GET", path, credentials(request))
        return t.cast("dict[str, t.Any]", strict.read(given.content)) if given.status == 200 else {}
    return {}


@with_identity
async def about_jobs(site: Site, request: Request, identity: Identity) -> Response:
    """What jobs tell, without what the user may not view."""
    found = await _forward(request, b"")
    if identity.view.whole or found.status_code != 200:
        return found
    value = strict.read(bytes(found.body))
    job = await _job(site, request) if request.url.path.endswith("/log") else {}
    several = value if isinstance(value, list) else [value]
    try:
        share = site.asking.take(identity.who.name)
    except Full as problem:
        return answers.error(429, f"too many requests wait: {problem}")
    try:  # of a long log it takes a while, in which others are served
        cleaned = await run_in_threadpool(lambda: [identity.view.cleaned(each, site.store, job) for each in several])
    finally:
        site.asking.leave(share)
    return answers.answer(cleaned if isinstance(value, list) else cleaned[0])


def _seen(site: Site, uuids: t.Any, arguments: t.Mapping[str, t.Any]) -> list[dict[str, t.Any]]:
    """All guests of these UUIDs, or else those that the arguments name. Raises BadInput."""
    known = site.store.below("guest/").values()
    if isinstance(uuids, list):
        wanted = {uuid for uuid in uuids if isinstance(uuid, str)}
        found = [one for one in known if one["uuid"] in wanted]
    else:
        names, tag = arguments.get("guest"), arguments.get("tag")
        exact = {name for name in (names if isinstance(names, list) else [names]) if isinstance(name, str)}
        patterns = {name for name in exact if policy.is_pattern(name)}
        if len(patterns) > _MOST_PATTERNS:  # each is compared with each guest, and meanwhile nobody else is served
            raise BadInput(f"guest: at most {_MOST_PATTERNS} patterns; name the guests instead")
        found = [
            one
            for one in known
            if one["name"] in exact
            or any(fnmatch.fnmatchcase(one["name"], each) for each in patterns)
            or tag in (one.get("tags") or ())
        ]
    return list(map(_reported, found))


def _named(site: Site, arguments: t.Mapping[str, t.Any]) -> list[dict[str, t.Any]]:
    """Guests that a request may name beside those that it acts on: the original of a copy, and who has a new name."""
    places = [arguments, *(arguments[name] for name in ("domain", "options") if isinstance(arguments.get(name), dict))]
    names = {place.get("clone_of") for place in places if isinstance(place.get("clone_of"), str)}
    names |= {arguments[name] for name in ("guest", "to") if isinstance(arguments.get(name), str)}
    return [_reported(one) for one in site.store.below("guest/").values() if one["name"] in names]


def _reported(one: t.Mapping[str, t.Any]) -> dict[str, t.Any]:
    return {**{part: one[part] for part in _PARTS}, "tags": list(one.get("tags") or ())}


def _route(path: str, *methods: str, by: t.Callable[[Request], t.Awaitable[Response]] = plain) -> Route:
    return Route(path, by, methods=list(methods))


ROUTES = [
    _route("/api/login", "POST"),
    _route("/api/logout", "POST"),
    _route("/api/me", "GET", "POST"),
    _route("/api/sessions", "GET"),
    _route("/api/sessions/end", "POST"),
    _route("/api/tokens", "GET", "POST"),
    _route("/api/tokens/end", "POST"),
    _route("/api/users", "GET"),
    _route("/api/audit", "GET"),
    _route("/api/openapi.json", "GET"),
    _route("/api/actions", "GET"),
    _route("/api/tickets", "POST", by=about_guests),
    _route("/api/jobs", "POST", by=about_guests),
    _route("/api/jobs", "GET", by=about_jobs),
    _route("/api/jobs/{id}", "GET", by=about_jobs),
    _route("/api/jobs/{id}/log", "GET", by=about_jobs),
    _route("/api/jobs/{id}/cancel", "POST"),
    _route("/api/jobs/{id}/again", "POST", by=about_guests),
]
