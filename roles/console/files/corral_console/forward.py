# Copyright (c) corral.virt contributors
# GNU General Public License v3.0+ (see COPYING or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""Requests that the policy process answers: passed on with the credentials as they came.

Where a request is about guests, what the live state says of them goes with it. The policy process decides by that, and
the job compares it with what the hosts say.
"""

from __future__ import annotations

import asyncio
import fnmatch
import json
import typing as t
import urllib.parse

from starlette.requests import Request
from starlette.responses import Response
from starlette.routing import Route

from ansible_collections.corral.virt.plugins.module_utils._errors import BadInput

from . import answers, policy
from .policy_client import Answer, Unavailable
from .site import Identity, Site, address_of, credentials, with_identity

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
        **credentials(request),
        "content-type": "application/json",
        "user-agent": request.headers.get("user-agent", "")[:256],
        "x-corral-address": address_of(request),
    }
    try:
        given = await site.policy.ask(request.method, f"{urllib.parse.quote(request.url.path)}{query}", headers, body)
    except Unavailable as problem:
        return answers.error(503, str(problem))
    if request.method == "POST":
        site.forget()
    return _passed(given)


async def plain(request: Request) -> Response:
    """As it is."""
    try:
        return await _forward(request, await asyncio.wait_for(request.body(), answers.BODY_S))
    except TimeoutError:
        return answers.error(408, "the request takes too long")


@with_identity
async def about_guests(site: Site, request: Request, _identity: Identity) -> Response:
    """With what the live state says of the guests."""
    given = await answers.body(request)
    uuids, arguments = given.get("guests"), given.get("arguments")
    if number := request.path_params.get("id"):
        job = site.store.get(f"job/{number}")
        uuids = [guest["uuid"] for guest in job["guests"]] if job else []
    elif "uuid" in given:
        uuids = [given["uuid"]]
    try:
        seen = _seen(site, uuids, arguments if isinstance(arguments, dict) else {})
    except BadInput as problem:
        return answers.answer({"error": str(problem), "errors": {"guest": str(problem)}}, 400)
    return await _forward(request, json.dumps({"request": given, "seen": seen}).encode())


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
    return [{**{part: one[part] for part in _PARTS}, "tags": list(one.get("tags") or ())} for one in found]


def _route(path: str, *methods: str, guests: bool = False) -> Route:
    return Route(path, about_guests if guests else plain, methods=list(methods))


ROUTES = [
    _route("/api/login", "POST"),
    _route("/api/logout", "POST"),
    _route("/api/me", "GET"),
    _route("/api/sessions", "GET"),
    _route("/api/sessions/end", "POST"),
    _route("/api/tokens", "GET", "POST"),
    _route("/api/tokens/end", "POST"),
    _route("/api/users", "GET"),
    _route("/api/audit", "GET"),
    _route("/api/openapi.json", "GET"),
    _route("/api/actions", "GET"),
    _route("/api/tickets", "POST", guests=True),
    _route("/api/jobs", "POST", guests=True),
    _route("/api/jobs", "GET"),
    _route("/api/jobs/{id}", "GET"),
    _route("/api/jobs/{id}/log", "GET"),
    _route("/api/jobs/{id}/cancel", "POST"),
    _route("/api/jobs/{id}/again", "POST", guests=True),
]
