# Copyright (c) corral.virt contributors
# GNU General Public License v3.0+ (see COPYING or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""A server that ends when it is asked to."""

from __future__ import annotations

import types
import typing as t

import h11
import uvicorn
from uvicorn.protocols.http.h11_impl import H11Protocol

from .config import Config

__all__ = ["Prompt", "Server", "serve"]

_REQUEST_S = 20.0


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
        host=config.listen,
        port=config.port,
        ssl_certfile=str(config.certificate),
        ssl_keyfile=str(config.key),
        proxy_headers=False,  # else anybody could say where a request comes from
        ws_max_size=1024 * 1024,
        limit_concurrency=config.streams + config.consoles + 200,
        timeout_keep_alive=30,
        server_header=False,
        access_log=False,
        log_level="warning",
        lifespan="on",
    )
    server = Server(settings, app.state.site.close)
    server.run()
    return 0 if server.started else 1
