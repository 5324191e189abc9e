# Copyright (c) corral.virt contributors
# SPDX-License-Identifier: GPL-3.0-or-later
"""Spread one image over many hosts without one download from its source for each.

The source feeds one host at a time, and only while no host has the image; each holder feeds one other at a time. So
every round doubles the number of holders. Workers of one run share only a directory on the controller: a file for each
holder, locked while it feeds.
"""

from __future__ import annotations

import contextlib
import fcntl
import hashlib
import time
import typing as t
from pathlib import Path

_PAUSE_S = 0.1


class FanOut:
    """Coordinates the transfers of one image in one run."""

    def __init__(self, directory: Path, *image: str) -> None:
        self._place = directory / "corral-fan-out" / hashlib.sha256("\n".join(image).encode()).hexdigest()
        self._holders = self._place / "holders"
        self._holders.mkdir(parents=True, exist_ok=True)

    def holds(self, host: str) -> None:
        """Record that this host can feed others."""
        (self._holders / host).touch()

    def holders(self) -> list[str]:
        """Hosts that can feed others."""
        return sorted(path.name for path in self._holders.iterdir())

    @contextlib.contextmanager
    def turn(self) -> t.Iterator[str | None]:
        """Wait for a turn; yields the host that feeds this one, or None for the source."""
        while True:
            holders: list[str | None] = [*self.holders()]
            for name in holders or [None]:
                with (self._holders / name if name else self._place / "source").open("a") as lock:
                    if _taken(lock) and (name or not self.holders()):
                        yield name
                        return
            time.sleep(_PAUSE_S)

    @contextlib.contextmanager
    def source(self) -> t.Iterator[None]:
        """Wait for exclusive use of the source."""
        with (self._place / "source").open("a") as lock:
            fcntl.flock(lock, fcntl.LOCK_EX)
            yield


def _taken(lock: t.IO[str]) -> bool:
    try:
        fcntl.flock(lock, fcntl.LOCK_EX | fcntl.LOCK_NB)
    except BlockingIOError:
        return False
    return True
