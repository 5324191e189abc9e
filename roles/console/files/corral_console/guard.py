# Copyright (c) corral.virt contributors
# GNU General Public License v3.0+ (see COPYING or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""What holds for every request: by which names the server is called, where requests come from, how large they are."""

from __future__ import annotations

import typing as t

from starlette.datastructures import Headers, MutableHeaders
from starlette.responses import JSONResponse
from starlette.types import ASGIApp, Message, Receive, Scope, Send

__all__ = ["HEADERS", "Guard"]

_LARGEST = 64 * 1024  # of a request; the largest ones have documents for cloud-init
_POLICY = {
    "default-src": "'none'",
    "script-src": "'self'",
    "style-src": "'self'",
    "img-src": "'self' data:",  # noVNC draws the guest's mouse cursor as one
    "connect-src": "'self'",
    "form-action": "'self'",
    "base-uri": "'none'",
    "frame-ancestors": "'none'",
}
HEADERS = {
    "content-security-policy": "; ".join(f"{kind} {source}" for kind, source in _POLICY.items()),
    "cross-origin-opener-policy": "same-origin",
    "cross-origin-resource-policy": "same-origin",
    "referrer-policy": "no-referrer",
    "x-content-type-options": "nosniff",
}


class _TooLarge(Exception):
    pass


class Guard:
    """ASGI middleware."""

    def __init__(self, app: ASGIApp, names: t.Collection[str]) -> None:
        self._app = app
        self._names = {name.lower() for name in names}

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        """Pass on what may pass."""
        if scope["type"] == "lifespan":
            await self._app(scope, receive, send)
            return
        status, problem = self._problem(scope, Headers(scope=scope))
        if not problem:
            await self._pass(scope, receive, send)
        elif scope["type"] == "websocket":
            await send({"type": "websocket.close", "code": 4403, "reason": problem})
        else:
            await self._refuse(status, problem)(scope, receive, _with_headers(send))

    def _problem(self, scope: Scope, headers: Headers) -> tuple[int, str]:
        host = headers.get("host", "").lower()
        if host not in self._names:
            return 421, "this server has another name; add the name to console_names"
        if scope["type"] == "http" and scope["method"] in ("GET", "HEAD"):
            return 0, ""
        if not _is_program(headers) and headers.get("origin", "").lower() != f"https://{host}":
            return 403, "the request comes from another site"
        if scope["type"] == "http" and not headers.get("content-type", "").startswith("application/json"):
            return 415, "the request must be JSON"
        length = headers.get("content-length", "0")
        if not length.isdecimal() or int(length[:9]) > _LARGEST:
            return 413, "the request is too large"
        return 0, ""

    async def _pass(self, scope: Scope, receive: Receive, send: Send) -> None:
        received = 0

        async def limited() -> Message:
            nonlocal received
            message = await receive()
            if message["type"] == "http.request":
                received += len(message.get("body", b""))
                if received > _LARGEST:
                    raise _TooLarge
            return message

        try:
            await self._app(scope, limited, _with_headers(send) if scope["type"] == "http" else send)
        except _TooLarge:
            await self._refuse(413, "the request is too large")(scope, receive, _with_headers(send))

    def _refuse(self, status: int, problem: str) -> JSONResponse:
        return JSONResponse({"error": problem}, status)


def _is_program(headers: Headers) -> bool:
    """With a token, which no browser adds to a request by itself; a page of another site cannot set that header."""
    return headers.get("authorization", "")[:7].lower() == "bearer " and not any(
        each in headers for each in ("origin", "cookie")
    )


def _with_headers(send: Send) -> Send:
    async def sending(message: Message) -> None:
        if message["type"] == "http.response.start":
            MutableHeaders(scope=message).update(HEADERS)
        await send(message)

    return sending
