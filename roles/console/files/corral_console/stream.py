# Copyright (c) corral.virt contributors
# GNU General Public License v3.0+ (see COPYING or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""The store as server-sent events. Readers at the same version share one text."""

from __future__ import annotations

import asyncio
import contextlib
import typing as t

from . import strict
from .store import Delta, Store, Value
from .view import View

__all__ = ["Feed"]

_GATHER_S = 0.1  # what happens within it is one message
KEEPALIVE_S = 10.0
_MOST_SHOWN = 50_000  # then what the store has forgotten is forgotten here, too


class Feed:
    """Wakes all readers when the store changes."""

    def __init__(self, store: Store) -> None:
        self._store = store
        self._changed = asyncio.Event()
        self._messages: dict[tuple[str | None, str], tuple[str, str]] = {}
        self._shown: dict[str, set[str]] = {}  # keys that were sent to readers of a view
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

    async def read(
        self, mark: str | None, view: View | None, alive: t.Callable[[], t.Awaitable[bool]]
    ) -> t.AsyncIterator[str]:
        """Messages until the feed is closed or the reader is not `alive` any more."""
        yield "retry: 2000\n\n"
        while not self.closed and await alive():
            changed = self._changed
            mark, text = self._message(mark, view)
            yield text
            try:
                await asyncio.wait_for(changed.wait(), KEEPALIVE_S)
                await asyncio.sleep(_GATHER_S)
            except TimeoutError:
                continue

    def _message(self, mark: str | None, view: View | None) -> tuple[str, str]:
        """The mark after it, and a message; a comment where there is no news, which keeps proxies from hanging up.

        A mark names the view: who may see something else begins anew.
        """
        key = view.key if view else ""
        known = self._messages.get((mark, key))
        if known is None:
            version, _dash, seen = (mark or "").partition("-")
            delta = self._store.since(version if seen == key else None)
            after = f"{delta.mark}-{key}"
            text = _text(after, self._seen(delta, view)) if delta else ":\n\n"
            known = self._messages[mark, key] = after, text
        return known

    def _seen(self, delta: Delta, view: View | None) -> Delta:
        """What of it a view has. What was sent, and is not to be seen any more, is gone; other keys are not told."""
        if view is None or view.whole:
            return delta
        seen = {key: view.of(key, value, self._store) for key, value in delta.values.items()}
        values: dict[str, Value] = {key: value for key, value in seen.items() if value is not None}
        hidden = [] if delta.reset else [key for key, value in seen.items() if value is None]
        shown = self._shown.setdefault(view.key, set())
        if len(shown) > _MOST_SHOWN:
            shown.intersection_update(self._store.keys())
        shown.update(values)
        return Delta(delta.mark, delta.reset, values, [key for key in (*delta.gone, *hidden) if key in shown])


def _text(mark: str, delta: Delta) -> str:
    body = {"reset": delta.reset, "values": delta.values, "gone": delta.gone}
    return f"id: {mark}\nevent: state\ndata: {strict.written(body).decode()}\n\n"
