# Copyright (c) corral.virt contributors
# GNU General Public License v3.0+ (see COPYING or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""The server process."""

from __future__ import annotations

import types

import uvicorn

from .config import Config
from .web import Site, application

__all__ = ["serve"]


class _Server(uvicorn.Server):
    """Streams never end by themselves, and uvicorn waits for them."""

    def __init__(self, config: uvicorn.Config, site: Site) -> None:
        super().__init__(config)
        self._site = site

    def handle_exit(self, sig: int, frame: types.FrameType | None) -> None:
        """End them first."""
        self._site.close()
        super().handle_exit(sig, frame)


def serve(config: Config) -> int:
    """Run until a signal; the exit code."""
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
    server = _Server(settings, app.state.site)
    server.run()
    return 0 if server.started else 1
