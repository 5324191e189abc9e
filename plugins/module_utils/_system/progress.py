# Copyright (c) corral.virt contributors
# SPDX-License-Identifier: GPL-3.0-or-later
"""Report the progress of long work in a file: one JSON object, replaced atomically."""

from __future__ import annotations

import contextlib
import json
import os
import time
import typing as t

from ansible_collections.corral.virt.plugins.module_utils._system import private

_INTERVAL_S = 0.5

Tell = t.Callable[[str, int, int], None]  # what is done now, how much of it is done, of how much (0: nobody knows)


class Progress:
    """A `Tell` that writes to a file, at most twice a second; the file is removed at the end."""

    def __init__(self, path: str, detail: str = "") -> None:
        self._path, self._detail = path, detail
        self._phase, self._since, self._from, self._written = "", 0.0, 0, 0.0

    def __call__(self, phase: str, done: int, total: int, detail: str = "") -> None:
        """Write the progress, with the rate since this phase began; `detail` is for people."""
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
                told = {"phase": phase, "done": done, "total": total, "rate": round(rate)}
                json.dump({**told, "detail": detail or self._detail}, out)
            os.rename(f"{self._path}.new", self._path)

    def __enter__(self) -> Progress:
        return self

    def __exit__(self, *_ignored: object) -> None:
        for path in (self._path, f"{self._path}.new"):
            with contextlib.suppress(OSError):
                os.unlink(path)


class ProgressNote:
    """A file by which another process signals this run; one from before its start is ignored."""

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
        """True if the file was created since the run began."""
        return self._identity() not in (None, self._earlier)

    def remove(self) -> None:
        """Remove the file after the signal was handled."""
        with contextlib.suppress(OSError):
            os.unlink(self._path)


class ProgressWatch:
    """The progress file and abort signal of a run on one guest.

    Only the holder of the guest's lock may enter it, as it removes both files.
    """

    def __init__(self, name: str) -> None:
        path = os.path.join(private.place(), name)
        self.tell, self.interrupted = Progress(f"{path}.progress"), ProgressNote(f"{path}.abort")

    def __enter__(self) -> ProgressWatch:
        return self

    def __exit__(self, *_ignored: object) -> None:
        self.tell.__exit__()
        self.interrupted.remove()
