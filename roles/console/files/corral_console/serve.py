# Copyright (c) corral.virt contributors
# GNU General Public License v3.0+ (see COPYING or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""A server that ends when it is asked to, and that a flood of connections costs little."""

from __future__ import annotations

import collections
import contextlib
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
from .throttle import network_of

__all__ = ["Connections", "Listening", "Prompt", "Server", "listening", "serve"]

_REQUEST_S = 20.0
# Beside pages and consoles, for requests; each connection takes some 300 KiB for TLS.
_REQUESTS = 200
_HERE = network_of("::1")
_NO_SUCH_FAMILY = (errno.EAFNOSUPPORT, errno.EADDRNOTAVAIL)
_LOG = logging.getLogger(__name__)


class Connections:
    """Those that are open: so many in all. Where they are too many, the network with the most gives its oldest one up.

    So nobody can keep others out alone. What comes from this machine, as all does behind a proxy, gives up none.
    """

    def __init__(self, most: int) -> None:
        self._most = most
        self._open: weakref.WeakKeyDictionary[socket.socket, str] = weakref.WeakKeyDictionary()  # the oldest first

    def admit(self, connection: socket.socket, address: str) -> bool:
        """Whether there is room for one more; room is made, unless its network has as many as the others."""
        network = network_of(address)
        open_ = [(each, of) for each, of in self._open.items() if each.fileno() >= 0]  # some are not collected yet
        if len(open_) >= self._most:
            held = collections.Counter(of for _each, of in open_)
            most = max((of for of in held if not _is_here(of)), key=held.__getitem__, default=network)
            if held[most] <= held[network] + 1:
                return False
            self._end(next(each for each, of in open_ if of == most))
        self._open[connection] = network
        return True

    def _end(self, connection: socket.socket) -> None:
        """Its transport notices, and closes it."""
        del self._open[connection]
        with contextlib.suppress(OSError):  # it has ended
            connection.shutdown(socket.SHUT_RDWR)


def _is_here(network: str) -> bool:
    return network.startswith("127.") or network == _HERE


class Listening(socket.socket):
    """Ends connections that are too many before their TLS handshake."""

    def __init__(self, other: socket.socket, connections: Connections) -> None:
        super().__init__(fileno=other.detach())
        self._connections = connections

    def accept(self) -> tuple[socket.socket, t.Any]:
        """The next connection. Raises ConnectionAbortedError when there are too many."""
        connection, address = super().accept()
        if not self._connections.admit(connection, address[0]):
            connection.close()
            raise ConnectionAbortedError(errno.ECONNABORTED, "too many connections are open")
        return connection, address


def listening(address: str, port: int, most: int) -> list[Listening]:
    """On the address, or on all of IPv4 and IPv6. Raises OSError."""
    connections = Connections(most)
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
            found.append(Listening(made, connections))
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
