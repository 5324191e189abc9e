# Copyright (c) corral.virt contributors
# GNU General Public License v3.0+ (see COPYING or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""HTTP to the policy process, over its Unix socket."""

from __future__ import annotations

import asyncio
import contextlib
import dataclasses
import typing as t
from pathlib import Path

import h11

__all__ = ["Answer", "PolicyClient", "Unavailable"]

_ANSWER_S = 30.0
_CHUNK = 64 * 1024
_LARGEST = 16 * 1024 * 1024


class Unavailable(Exception):
    """The policy process does not answer."""


@dataclasses.dataclass(frozen=True)
class Answer:
    """Of a request; names of headers are in lower case."""

    status: int
    headers: list[tuple[str, str]]
    content: bytes


class PolicyClient:
    """A connection for each request: they are few, and the socket is near."""

    def __init__(self, path: Path) -> None:
        self._path = path

    async def ask(
        self, method: str, target: str, headers: t.Mapping[str, str] | None = None, body: bytes = b""
    ) -> Answer:
        """The answer as a whole; raises Unavailable."""
        try:
            return await asyncio.wait_for(self._ask(method, target, headers or {}, body), _ANSWER_S)
        except (OSError, EOFError, TimeoutError, h11.ProtocolError) as error:
            raise Unavailable(f"the policy process does not answer: {error or type(error).__name__}") from error

    async def _ask(self, method: str, target: str, headers: t.Mapping[str, str], body: bytes) -> Answer:
        content, head = b"", None
        async with contextlib.aclosing(self._events(method, target, headers, body)) as events:
            async for event in events:
                if isinstance(event, h11.Response):
                    head = event
                elif isinstance(event, h11.Data):
                    content += event.data
                    if len(content) > _LARGEST:
                        raise EOFError("too much")
        if head is None:
            raise EOFError("nothing")
        texts = [(name.decode("latin-1").lower(), value.decode("latin-1")) for name, value in head.headers]
        return Answer(head.status_code, texts, content)

    async def lines(self, target: str) -> t.AsyncIterator[str]:
        """The lines of an answer that goes on; raises Unavailable when it breaks."""
        rest = b""
        try:
            async with contextlib.aclosing(self._events("GET", target, {}, b"")) as events:
                async for event in events:
                    if isinstance(event, h11.Data):
                        *lines, rest = (rest + event.data).split(b"\n")
                        for line in lines:
                            yield line.decode()
        except (OSError, EOFError, h11.ProtocolError, ValueError) as error:
            raise Unavailable(f"the policy process does not answer: {error or type(error).__name__}") from error

    async def _events(
        self, method: str, target: str, headers: t.Mapping[str, str], body: bytes
    ) -> t.AsyncGenerator[h11.Event, None]:
        reader, writer = await asyncio.open_unix_connection(str(self._path))
        try:
            connection = h11.Connection(our_role=h11.CLIENT, max_incomplete_event_size=_CHUNK)
            given = {"host": "policy", "connection": "close", **headers, "content-length": str(len(body))}
            request = h11.Request(method=method, target=target, headers=list(given.items()))
            events = (request, h11.Data(data=body), h11.EndOfMessage())
            writer.write(b"".join(connection.send(event) or b"" for event in events))
            await writer.drain()
            while True:
                found = connection.next_event()
                if found is h11.NEED_DATA:
                    connection.receive_data(await reader.read(_CHUNK))
                    continue
                yield t.cast(h11.Event, found)
                if isinstance(found, (h11.EndOfMessage, h11.ConnectionClosed)):
                    return
        finally:
            writer.close()
            with contextlib.suppress(OSError):
                await writer.wait_closed()
