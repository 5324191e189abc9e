# Copyright (c) corral.virt contributors
# GNU General Public License v3.0+ (see COPYING or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""The store as server-sent events. Readers at the same version share one text."""

from __future__ import annotations

import asyncio
import contextlib
import json
import typing as t

from .store import Delta, Store

__all__ = ["Feed"]

_GATHER_S = 0.1  # what happens within it is one message
KEEPALIVE_S = 10.0


class Feed:
    """Wakes all readers when the store changes."""

    def __init__(self, store: Store) -> None:
        self._store = store
        self._changed = asyncio.Event()
        self._messages: dict[str | None, tuple[str, str]] = {}
        self._loop = asyncio.get_running_loop()
        self.closed = False
        store.subscribe(self.wake)

    def wake(self) -> None:
        """Let all readers look; from any thread."""
        with contextlib.suppress(RuntimeError):  # the loop has ended
            self._loop.call_soon_threadsafe(self._next)

    def _next(self) -> None:
        """Readers wait for the event that was there when they began, so that none misses it."""
        changed, self._changed = self._changed, asyncio.Event()
        self._messages.clear()
        changed.set()

    def close(self) -> None:
        """End all streams."""
        self.closed = True
        self.wake()

    async def read(self, mark: str | None, alive: t.Callable[[], bool]) -> t.AsyncIterator[str]:
        """Messages until the feed is closed or the reader's session is not `alive` any more."""
        yield "retry: 2000\n\n"
        while not self.closed and alive():
            changed = self._changed
            mark, text = self._message(mark)
            yield text
            try:
                await asyncio.wait_for(changed.wait(), KEEPALIVE_S)
                await asyncio.sleep(_GATHER_S)
            except TimeoutError:
                continue

    def _message(self, mark: str | None) -> tuple[str, str]:
        """The mark after it, and a message; a comment where there is no news, which keeps proxies from hanging up."""
        known = self._messages.get(mark)
        if known is None:
            delta = self._store.since(mark)
            known = self._messages[mark] = delta.mark, _text(delta) if delta else ":\n\n"
        return known


def _text(delta: Delta) -> str:
    body = {"reset": delta.reset, "values": delta.values, "gone": delta.gone}
    return f"id: {delta.mark}\nevent: state\ndata: {json.dumps(body, separators=(',', ':'))}\n\n"
