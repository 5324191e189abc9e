# Copyright (c) corral.virt contributors
# SPDX-License-Identifier: GPL-3.0-or-later
"""An incomplete file: what an earlier run left of it, its size limits, and its digest."""

from __future__ import annotations

import concurrent.futures
import contextlib
import hashlib
import os
import typing as t

from ansible_collections.corral.virt.plugins.module_utils._core.errors import Failed
from ansible_collections.corral.virt.plugins.module_utils._core.units import bytes_text
from ansible_collections.corral.virt.plugins.module_utils._image.files_image import CHUNK
from ansible_collections.corral.virt.plugins.module_utils._system import free_space
from ansible_collections.corral.virt.plugins.module_utils._system.durable import remove
from ansible_collections.corral.virt.plugins.module_utils._system.model_free_space import Bounds
from ansible_collections.corral.virt.plugins.module_utils._system.os_errors import remedy

_BLOCK = 64 * 1024
_ZEROS = bytes(CHUNK)
_LOOK_BYTES = 16 * 1024**2  # between two looks at the room that is left


class Part:
    """An incomplete file. Its content is kept between runs; blocks of zeros become holes.

    The digest is computed while it is written.
    """

    def __init__(self, path: str, algorithm: str | None = None, bounds: Bounds | None = None) -> None:
        self.path, self.size = path, 0
        self._algorithm, self._bounds, self._unseen = algorithm, bounds, 0
        try:
            self._file = open(path, "r+b" if os.path.exists(path) else "w+b")  # noqa: SIM115  closed by __exit__
        except OSError as error:
            raise Failed(f"cannot write {path}: {error.strerror}; {remedy(error, path)}") from error
        self._worker = concurrent.futures.ThreadPoolExecutor(1)
        self._begin()
        for chunk in iter(lambda: self._file.read(CHUNK), b""):
            self._count(chunk)

    def __enter__(self) -> Part:
        return self

    def __exit__(self, *_ignored: object) -> None:
        self._worker.shutdown()
        with contextlib.suppress(OSError):  # said where it mattered: when it was written
            self._file.close()
        if not self.size:
            remove(self.path)

    def expect(self, size_bytes: int, needs_bytes: int | None = None) -> None:
        """Raises Refused if the file will be too large, or leave too little room.

        A sparse file `needs` less than its size.
        """
        if self._bounds:
            needs = size_bytes if needs_bytes is None else needs_bytes
            self._refuse(
                self._bounds.problem(size_bytes) or self._lacks(max(0, needs - free_space.allocated(self.path)))
            )

    def _lacks(self, needs_bytes: int) -> str:
        return (
            free_space.measure(os.path.dirname(self.path), self._bounds.reserve_bytes).problem(needs_bytes, "its pool")
            if self._bounds
            else ""
        )

    def _refuse(self, problem: str) -> None:
        """On a problem, delete the file and raise Refused."""
        if self._bounds and problem:
            self.size = 0
            remove(self.path)
            self._bounds.refuse(problem)

    def _grows(self, more: int) -> None:
        """Check the limits for so many more bytes: the announced size may be wrong or missing."""
        if self._bounds:
            self._refuse(self._bounds.problem(self.size + more))
            self._unseen += more
            if self._unseen >= _LOOK_BYTES:
                self._unseen = 0
                self._refuse(self._lacks(0))

    def write(self, chunk: bytes) -> None:
        """Append a piece; on an error such as a full disk, delete the file and raise Failed."""
        self._grows(len(chunk))
        with self._discarded_on_error():
            for start in range(0, len(chunk), _BLOCK):
                block = chunk[start : start + _BLOCK]
                if block == _ZEROS[: len(block)]:
                    self._file.seek(len(block), os.SEEK_CUR)
                else:
                    self._file.write(block)
        self._count(chunk)

    def skip(self, size: int) -> None:
        """Append a hole."""
        for start in range(0, size, CHUNK):
            self.write(_ZEROS[: min(CHUNK, size - start)])

    def restart(self) -> None:
        """Discard the content."""
        with self._discarded_on_error():
            self._file.seek(0)
            self._file.truncate()
        self._begin()

    def finish(self) -> str:
        """Flush the file to disk in its full length; returns the digest."""
        with self._discarded_on_error():
            self._file.truncate(self.size)
            self._file.flush()
            os.fsync(self._file.fileno())
        return self.digest()

    def digest(self) -> str:
        """The digest of the content so far; empty without an algorithm."""
        self._hashing.result()
        return self._digest.hexdigest() if self._digest else ""

    def _begin(self) -> None:
        self.size, self._digest = 0, hashlib.new(self._algorithm) if self._algorithm else None
        self._hashing: concurrent.futures.Future[t.Any] = self._worker.submit(bytes)

    def _count(self, chunk: bytes) -> None:
        self.size += len(chunk)
        if self._digest:
            self._hashing.result()
            self._hashing = self._worker.submit(self._digest.update, chunk)

    @contextlib.contextmanager
    def _discarded_on_error(self) -> t.Iterator[None]:
        try:
            yield
        except OSError as error:
            with contextlib.suppress(OSError):
                os.truncate(self.path, 0)
            remove(self.path)
            free = os.statvfs(os.path.dirname(self.path))
            raise Failed(
                f"cannot write {self.path}: {error.strerror} ({bytes_text(free.f_bavail * free.f_frsize)} are free "
                f"there without it); it was removed; {remedy(error, self.path)}, or use another pool"
            ) from error
