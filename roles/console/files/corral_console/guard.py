# Copyright (c) corral.virt contributors
# GNU General Public License v3.0+ (see COPYING or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""What holds for every request: by which names the server is called, where requests come from, how large they are."""

from __future__ import annotations

import typing as t

from starlette.datastructures import Headers, MutableHeaders
from starlette.responses import Response
from starlette.types import ASGIApp, Message, Receive, Scope, Send

from . import answers

__all__ = ["HEADERS", "LARGEST", "Guard"]

LARGEST = 64 * 1024  # of a request; the largest ones have documents for cloud-init
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
_UNUSED = (
    "accelerometer",
    "bluetooth",
    "camera",
    "display-capture",
    "geolocation",
    "gyroscope",
    "hid",
    "magnetometer",
    "microphone",
    "midi",
    "payment",
    "screen-wake-lock",
    "serial",
    "usb",
    "xr-spatial-tracking",
)
HEADERS = {
    "content-security-policy": "; ".join(f"{kind} {source}" for kind, source in _POLICY.items()),
    "cross-origin-opener-policy": "same-origin",
    "cross-origin-resource-policy": "same-origin",
    "permissions-policy": ", ".join(f"{name}=()" for name in _UNUSED),
    "referrer-policy": "no-referrer",
    "strict-transport-security": "max-age=31536000",
    "x-content-type-options": "nosniff",
}


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
            await self._app(scope, receive, _with_headers(send) if scope["type"] == "http" else send)
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
        if not length.isdecimal() or int(length[:9]) > LARGEST:
            return 413, "the request is too large"
        return 0, ""

    def _refuse(self, status: int, problem: str) -> Response:
        return answers.error(status, problem)


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
