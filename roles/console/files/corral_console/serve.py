# Copyright (c) corral.virt contributors
# GNU General Public License v3.0+ (see COPYING or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""A server that ends when it is asked to."""

from __future__ import annotations

import types
import typing as t

import uvicorn

from .config import Config

__all__ = ["Server", "serve"]


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
