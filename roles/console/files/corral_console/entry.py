# Copyright (c) corral.virt contributors
# GNU General Public License v3.0+ (see COPYING or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""The one entry for all that requests bring, in both processes: body, path, query and headers, read whole and checked.

What is refused here is not stored, and so does not have to be shown. The policy process checks too: it does not believe
the web process.
"""

from __future__ import annotations

import asyncio
import re
import typing as t
import urllib.parse

from starlette.types import ASGIApp, Message, Receive, Scope, Send

from . import answers, strict

__all__ = ["Entry"]

_LONGEST_TARGET, _LONGEST_HEADER = 8 * 1024, 16 * 1024
_CONTROL = re.compile(r"[\x00-\x1f\x7f-\x9f\ud800-\udfff]")
_CONTROL_BYTES = re.compile(rb"[\x00-\x08\x0a-\x1f\x7f]")  # the rest may be UTF-8, which proxies pass on
_READS = ("GET", "HEAD")


class Entry:
    """ASGI middleware. Names in `foreign` are keys of documents whose texts come from hosts."""

    def __init__(self, app: ASGIApp, *, most: int, foreign: t.Collection[str] = ()) -> None:
        self._app, self._most, self._foreign = app, most, foreign

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        """Pass on what may pass."""
        if scope["type"] == "lifespan":
            await self._app(scope, receive, send)
        elif reason := _problem_of_target(scope) or _problem_of_headers(scope):
            await _refuse(400, reason, scope, receive, send)
        elif scope["type"] == "websocket":
            await self._app(scope, receive, send)
        else:
            await self._http(scope, receive, send)

    async def _http(self, scope: Scope, receive: Receive, send: Send) -> None:
        """Read the request to its end before it is answered: else the answer may be lost with the connection."""
        try:
            content = await asyncio.wait_for(_body(receive, self._most), answers.BODY_S)
            scope[answers.DOCUMENT] = {} if scope["method"] in _READS else self._document(content)
        except TimeoutError:
            await _refuse(408, "the request takes too long", scope, receive, send)
        except _TooLarge:
            await _refuse(413, "the request is too large", scope, receive, send)
        except strict.BadDocument as problem:
            await _refuse(400, f"cannot take the request: {problem}", scope, receive, send)
        else:
            await self._app(scope, _replayed(content, receive), send)

    def _document(self, content: bytes) -> dict[str, t.Any]:
        found = strict.parsed(content, foreign=self._foreign) if content else {}
        if not isinstance(found, dict):
            raise strict.BadDocument("it is not an object")
        return found


class _TooLarge(Exception):
    pass


async def _body(receive: Receive, most: int) -> bytes:
    parts, size = list[bytes](), 0
    while True:
        message = await receive()
        parts.append(message.get("body", b""))
        size += len(parts[-1])
        if size > most:
            raise _TooLarge
        if not message.get("more_body"):
            return b"".join(parts)


def _replayed(content: bytes, receive: Receive) -> Receive:
    """The body once more, and then what comes after it."""
    messages: list[Message] = [{"type": "http.request", "body": content, "more_body": False}]

    async def replay() -> Message:
        return messages.pop() if messages else await receive()

    return replay


def _problem_of_target(scope: Scope) -> str:
    query = scope.get("query_string", b"")
    if len(scope["path"]) + len(query) > _LONGEST_TARGET:
        return "the address of the request is too long"
    try:
        plain = urllib.parse.unquote(query.decode("ascii"), errors="strict")
    except UnicodeError:
        return "the query of the request is not UTF-8"
    return "the query of the request has control characters" if _CONTROL.search(plain) else ""


def _problem_of_headers(scope: Scope) -> str:
    for name, value in scope["headers"]:
        if len(value) > _LONGEST_HEADER or _CONTROL_BYTES.search(value):
            return f"the header {name.decode('latin-1')[:64]!a} is too long or has control characters"
    return ""


async def _refuse(status: int, reason: str, scope: Scope, receive: Receive, send: Send) -> None:
    if scope["type"] == "websocket":
        await send({"type": "websocket.close", "code": 4403, "reason": reason})
    else:
        await answers.error(status, reason)(scope, receive, send)
