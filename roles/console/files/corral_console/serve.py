# Copyright (c) corral.virt contributors
# GNU General Public License v3.0+ (see COPYING or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""A server that ends when it is asked to, and that a flood of connections costs little."""

from __future__ import annotations

import errno
import logging
import socket
import types
import typing as t
import weakref

import h11
import uvicorn
from uvicorn.protocols.http.h11_impl import H11Protocol

from .config import Config

__all__ = ["Listening", "Prompt", "Server", "listening", "serve"]

_REQUEST_S = 20.0
# Beside pages and consoles, for requests; each connection takes some 300 KiB for TLS.
_REQUESTS = 200
_NO_SUCH_FAMILY = (errno.EAFNOSUPPORT, errno.EADDRNOTAVAIL)
_LOG = logging.getLogger(__name__)


class Listening(socket.socket):
    """Ends connections beyond `most` before their TLS handshake; `known` has those that are open."""

    def __init__(self, other: socket.socket, most: int, known: weakref.WeakSet[socket.socket]) -> None:
        super().__init__(fileno=other.detach())
        self._most, self._known = most, known

    def accept(self) -> tuple[socket.socket, t.Any]:
        """The next connection. Raises ConnectionAbortedError when there are too many."""
        connection, address = super().accept()
        if sum(each.fileno() >= 0 for each in self._known) >= self._most:  # some are closed and not collected yet
            connection.close()
            raise ConnectionAbortedError(errno.ECONNABORTED, "too many connections are open")
        self._known.add(connection)
        return connection, address


def listening(address: str, port: int, most: int) -> list[Listening]:
    """On the address, or on all of IPv4 and IPv6. Raises OSError."""
    known: weakref.WeakSet[socket.socket] = weakref.WeakSet()
    places = socket.getaddrinfo(address or None, port, type=socket.SOCK_STREAM, flags=socket.AI_PASSIVE)
    found, refused = [], None
    for family, _kind, _protocol, _name, place in places:
        try:
            made = socket.create_server(place[:2], family=family, backlog=2048)
        except OSError as error:
            if error.errno not in _NO_SUCH_FAMILY:
                raise
            refused = error  # a machine without IPv6
        else:
            found.append(Listening(made, most, known))
    if not found and refused:
        raise refused
    return found


class Prompt(H11Protocol):
    """Ends a connection on which no request is complete in time: uvicorn would wait for its headers without end."""

    def connection_made(self, transport: t.Any) -> None:
        """From now on, it looks again and again."""
        super().connection_made(transport)
        self._look(self)

    def _look(self, before: object) -> None:
        """Whether it has waited for the same request since it looked before."""
        if self.transport.is_closing() or self.transport.get_protocol() is not self:  # a WebSocket has one of its own
            return
        present: object = self.cycle if self.conn.our_state is h11.IDLE else self
        if present is before and before is not self:
            self.transport.close()
            return
        self.loop.call_later(_REQUEST_S, self._look, present)


class Server(uvicorn.Server):
    """Streams never end by themselves, and uvicorn waits for them."""

    def __init__(self, config: uvicorn.Config, end_streams: t.Callable[[], None]) -> None:
        super().__init__(config)
        self._end_streams = end_streams

    def handle_exit(self, sig: int, frame: types.FrameType | None) -> None:
        """End them first."""
        self._end_streams()
        super().handle_exit(sig, frame)


def serve(config: Config) -> int:
    """Run until a signal; the exit code."""
    from .web import application  # the policy process needs no libvirt

    app = application(config)
    settings = uvicorn.Config(
        app,
        http=Prompt,
        ssl_certfile=str(config.certificate),
        ssl_keyfile=str(config.key),
        proxy_headers=False,  # else anybody could say where a request comes from
        ws_max_size=1024 * 1024,
        timeout_keep_alive=30,
        server_header=False,
        access_log=False,
        log_level="warning",
        lifespan="on",
    )
    server = Server(settings, app.state.site.close)
    try:
        sockets = listening(config.listen, config.port, config.streams + config.consoles + _REQUESTS)
    except OSError as error:
        _LOG.error("cannot listen on %s port %s: %s", config.listen or "all addresses,", config.port, error)
        return 1
    server.run(sockets=t.cast(list[socket.socket], sockets))
    return 0 if server.started else 1
