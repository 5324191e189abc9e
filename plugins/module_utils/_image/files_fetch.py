# Copyright (c) corral.virt contributors
# SPDX-License-Identifier: GPL-3.0-or-later
"""Copy a file to this host in pieces: from a web server, or from a local path.

An interrupted transfer is resumed.
"""

from __future__ import annotations

import concurrent.futures
import contextlib
import errno
import hashlib
import http.client
import os
import re
import ssl
import stat
import time
import typing as t
import urllib.error

from ansible_collections.corral.virt.plugins.module_utils._core.errors import Failed
from ansible_collections.corral.virt.plugins.module_utils._core.output import without_secrets
from ansible_collections.corral.virt.plugins.module_utils._core.units import bytes_text
from ansible_collections.corral.virt.plugins.module_utils._image.files_image import CHUNK
from ansible_collections.corral.virt.plugins.module_utils._system import free_space
from ansible_collections.corral.virt.plugins.module_utils._system.durable import remove
from ansible_collections.corral.virt.plugins.module_utils._system.model_free_space import Bounds
from ansible_collections.corral.virt.plugins.module_utils._system.os_errors import explained, remedy
from ansible_collections.corral.virt.plugins.module_utils._system.progress import Tell

_PLAIN = {"Accept-Encoding": "identity"}
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
        with explained(f"write {path}", path):
            self._file = open(path, "r+b" if os.path.exists(path) else "w+b")  # noqa: SIM115  closed by __exit__
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


Opener = t.Callable[[str, t.Mapping[str, str]], t.Any]  # URL, headers -> an answer: headers, status, read(), read1()

_LONGEST_PAUSE_S = 30
_SMALL_BYTES = 4 * 1024**2
_WORTH_ANOTHER_TRY = (408, 425, 429)  # and all from 500 on


class _TryAgain(Exception):
    """A temporary failure of the server or the connection, with the reason."""


def read_bytes(opener: Opener, location: str, *, retries: int) -> tuple[bytes, str]:
    """The content of a small file, such as a list of checksums, and its final address after redirects."""
    return _tried(lambda: _read(opener, location), location, retries)


def download(opener: Opener, location: str, part: Part, *, retries: int, tell: Tell, trusted: bool) -> None:
    """Download the missing rest of `part` from a web server; raises Failed if that fails.

    A part of an earlier run is resumed only if the server confirms that its file is unchanged, or if `trusted`: the
    result is verified. Source: RFC 9110, sections 13.1.5 (If-Range), 14.2 (Range) and 14.4 (Content-Range).
    """
    validator = f"{part.path}.validator"

    def receive() -> None:
        with contextlib.suppress(FileNotFoundError):
            with open(validator) as lines:
                _receive(opener, location, part, validator, lines.read(), tell)
                return
        if part.size and not trusted:
            part.restart()
        _receive(opener, location, part, validator, "", tell)

    _tried(
        receive,
        location,
        retries,
        lambda: f"; the {part.size} bytes received are kept for the next run" if part.size else "",
    )


def check(path: str) -> None:
    """Raises Failed if a local file cannot be read."""
    with explained(f"read {path}", path), _reading(path):
        pass


def _reading(path: str) -> t.BinaryIO:
    """The opened file; opening a pipe without a writer does not block."""
    opened = os.open(path, os.O_RDONLY | os.O_CLOEXEC | os.O_NONBLOCK)
    try:
        if not (stat.S_ISREG(os.fstat(opened).st_mode) or stat.S_ISBLK(os.fstat(opened).st_mode)):
            raise OSError(errno.EINVAL, "it is neither a file nor a block device")
        return open(opened, "rb")
    except OSError:
        os.close(opened)
        raise


def copy(path: str, part: Part, tell: Tell) -> None:
    """Copy a local file into the part, from the beginning."""
    part.restart()
    with explained(f"read {path}", path), _reading(path) as stream:
        status = os.fstat(stream.fileno())
        total = status.st_size
        part.expect(total, status.st_blocks * 512)
        for chunk in iter(lambda: stream.read(CHUNK), b""):
            part.write(chunk)
            tell("copying", part.size, total)


def _receive(opener: Opener, location: str, part: Part, validator: str, known: str, tell: Tell) -> None:
    same = {"If-Range": known} if known else {}
    asked = {"Range": f"bytes={part.size}-", **same} if part.size else {}
    try:
        with opener(location, _PLAIN | asked) as answer:
            # from the beginning: the server knows no ranges, or has another file now
            if answer.status != http.client.PARTIAL_CONTENT:
                part.restart()
                _remember(validator, answer.headers)
            elif _range_start(answer.headers) != part.size:
                part.restart()
                raise _TryAgain("it sent a different range than requested")
            _pour(answer, part, tell)
    except urllib.error.HTTPError as error:
        if error.code != http.client.REQUESTED_RANGE_NOT_SATISFIABLE or not part.size:
            raise
        if not re.fullmatch(rf"bytes \*/{part.size}", error.headers.get("Content-Range") or ""):
            part.restart()
            raise _TryAgain("it does not have the missing range") from error
        # All of it was here already.


def _pour(answer: t.Any, part: Part, tell: Tell) -> None:
    length = answer.headers.get("Content-Length")
    total = part.size + int(length) if length else 0
    part.expect(total)
    while True:
        chunk = answer.read1(CHUNK)  # what has come, so that a stall loses nothing of it
        if not chunk:
            break
        part.write(chunk)
        tell("downloading", part.size, total)
    if total and part.size != total:
        raise _TryAgain(f"it stopped after {part.size} of {total} bytes")


def _remember(validator: str, headers: t.Mapping[str, str]) -> None:
    """Store the validator (strong ETag, or Last-Modified) that tells the server which file a part belongs to."""
    known = headers.get("ETag") or ""
    known = known if known.startswith('"') else headers.get("Last-Modified") or ""
    remove(validator)
    if known:
        with open(validator, "w") as out:
            out.write(known)


def _range_start(headers: t.Mapping[str, str]) -> int | None:
    match = re.match(r"bytes (\d+)-", headers.get("Content-Range") or "")
    return int(match.group(1)) if match else None


def _read(opener: Opener, location: str) -> tuple[bytes, str]:
    with opener(location, _PLAIN) as answer:
        content, origin = t.cast(bytes, answer.read(_SMALL_BYTES + 1)), str(answer.geturl())
    if len(content) > _SMALL_BYTES:
        raise Failed(
            f"refusing {without_secrets(location)}: it is larger than {_SMALL_BYTES} bytes; is it the list of "
            "checksums?"
        )
    return content, origin


T = t.TypeVar("T")


def _tried(receive: t.Callable[[], T], location: str, retries: int, kept: t.Callable[[], str] = str) -> T:
    """Retry with growing pauses until `receive` succeeds; raises Failed, at once if retrying is of no use."""
    shown = without_secrets(location)
    for attempt in range(retries + 1):
        if attempt:
            time.sleep(min(2 ** (attempt - 1), _LONGEST_PAUSE_S))
        try:
            return receive()
        except _TryAgain as error:
            reason = str(error)
        except urllib.error.HTTPError as error:
            if error.code < 500 and error.code not in _WORTH_ANOTHER_TRY:
                raise Failed(f"cannot fetch {shown}: HTTP {error.code} {error.reason}; is the URL correct?") from error
            reason = f"HTTP {error.code} {error.reason}"
        except http.client.InvalidURL as error:  # its text may come from a redirect, with what is secret there
            raise Failed(
                f"cannot fetch {shown}: its URL, or the one it redirects to, contains spaces or control characters; "
                "write %20 for a space, or ask the server's owner to mend the redirect"
            ) from error
        except (OSError, http.client.HTTPException) as error:  # URLError is one, and a timeout
            cause = getattr(error, "reason", None) or error
            if isinstance(cause, ssl.SSLCertVerificationError):
                raise Failed(
                    f"cannot fetch {shown}: {cause.verify_message}; set ca_path to the authority that signed its "
                    "certificate"
                ) from error
            reason = str(cause) or type(cause).__name__
    raise Failed(
        f"cannot fetch {shown}: {reason} (tried {retries + 1} times){kept()}; is the URL correct, and can this host "
        "reach it?"
    )
