# Copyright (c) corral.virt contributors
# GNU General Public License v3.0+ (see COPYING or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
# This file is private to the collection and may change at any time.
"""Tell how far long work is, in a file for whoever looks: one JSON object, never half."""

from __future__ import annotations

import contextlib
import json
import os
import time
import typing as t

from ansible_collections.corral.virt.plugins.module_utils._system import private

__all__ = ["Progress", "ProgressNote", "ProgressWatch", "Tell"]

_INTERVAL_S = 0.5

Tell = t.Callable[[str, int, int], None]  # what is done now, how much of it is done, of how much (0: nobody knows)


class Progress:
    """A `Tell` that writes to a file, at most twice a second; the file goes at the end."""

    def __init__(self, path: str) -> None:
        self._path = path
        self._phase, self._since, self._from, self._written = "", 0.0, 0, 0.0

    def __call__(self, phase: str, done: int, total: int, detail: str = "") -> None:
        """Note it, with the rate since this phase began; `detail` is for people."""
        now = time.monotonic()
        if phase != self._phase:
            self._phase, self._since, self._from, self._written = phase, now, done, 0.0
        if now - self._written < _INTERVAL_S:
            return
        self._written = now
        rate = (done - self._from) / (now - self._since) if now > self._since else 0.0
        # Nobody's run fails because it could not be watched.
        with contextlib.suppress(OSError):
            with open(f"{self._path}.new", "w") as out:
                json.dump({"phase": phase, "done": done, "total": total, "rate": round(rate), "detail": detail}, out)
            os.rename(f"{self._path}.new", self._path)

    def __enter__(self) -> Progress:
        return self

    def __exit__(self, *_ignored: object) -> None:
        for path in (self._path, f"{self._path}.new"):
            with contextlib.suppress(OSError):
                os.unlink(path)


class ProgressNote:
    """Whether somebody left a file to tell this run something since it began.

    An older one was left to an earlier run.
    """

    def __init__(self, path: str) -> None:
        self._path = path
        self._earlier = self._identity()

    def _identity(self) -> tuple[int, int] | None:
        try:
            status = os.lstat(self._path)
        except (OSError, ValueError):  # not there, or no name of a file
            return None
        return status.st_ino, status.st_mtime_ns

    def __call__(self) -> bool:
        """Whether it is there."""
        return self._identity() not in (None, self._earlier)

    def remove(self) -> None:
        """It was heard."""
        with contextlib.suppress(OSError):
            os.unlink(self._path)


class ProgressWatch:
    """What a run on one guest tells, and hears.

    Entered by who holds the guest's lock: what another run tells and hears is not removed.
    """

    def __init__(self, name: str) -> None:
        path = os.path.join(private.place(), name)
        self.tell, self.interrupted = Progress(f"{path}.progress"), ProgressNote(f"{path}.abort")

    def __enter__(self) -> ProgressWatch:
        return self

    def __exit__(self, *_ignored: object) -> None:
        self.tell.__exit__()
        self.interrupted.remove()
