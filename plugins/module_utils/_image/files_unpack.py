# Copyright (c) corral.virt contributors
# SPDX-License-Identifier: GPL-3.0-or-later
"""Unpack a disk: from a compressed file, or a tar archive.

No name in an archive becomes a path on this host: its disk is written beside it, all else is only listed.
"""

from __future__ import annotations

import bz2
import contextlib
import gzip
import io
import lzma
import os
import subprocess
import tarfile
import typing as t
import zlib

from ansible_collections.corral.virt.plugins.module_utils._core.errors import Failed, Unsupported
from ansible_collections.corral.virt.plugins.module_utils._image.files_fetch import Part
from ansible_collections.corral.virt.plugins.module_utils._image.files_image import CHUNK
from ansible_collections.corral.virt.plugins.module_utils._storage.model_header import Member
from ansible_collections.corral.virt.plugins.module_utils._system.durable import remove
from ansible_collections.corral.virt.plugins.module_utils._system.model_free_space import Bounds
from ansible_collections.corral.virt.plugins.module_utils._system.progress import Tell

_PACKED = "the file is damaged, or packed in another way than its name says; use another source"
_DECOMPRESS: dict[str, t.Callable[..., t.Any]] = {"gz": gzip.open, "xz": lzma.open, "bz2": bz2.open}
# What the readers of Python raise of bytes that are not what they expect; tarfile reads numbers with int().
_DAMAGE = (OSError, EOFError, lzma.LZMAError, zlib.error, tarfile.TarError, ValueError)
# tarfile keeps headers and the map of a sparse file in memory, whatever size the archive gives them.
_HEADER_BYTES, _MOST_MEMBERS = 4 * 1024**2, 1000
_KINDS = {
    tarfile.DIRTYPE: "directory",
    tarfile.SYMTYPE: "symbolic link",
    tarfile.LNKTYPE: "hard link",
}


def decompress(path: str, compression: str, tell: Tell, bounds: Bounds) -> str:
    """Unpack beside the packed file; returns the new path."""
    with (
        open(path, "rb") as packed,
        _beside(path, compression) as unpacked,
        _stream(packed, path, compression) as stream,
        Part(unpacked, bounds=bounds) as out,
    ):
        _copy(stream, out, lambda: _told(packed, tell))
        out.finish()
    return unpacked


def extract(
    path: str, compression: str, tell: Tell, bounds: Bounds, is_disk: t.Callable[[Member], bool]
) -> tuple[str, list[Member]]:
    """Write the first disk in an archive beside it; returns its path, and all members of the archive.

    An empty `compression` is none. The whole archive is read, so that its end is checked, too.
    """
    members: list[Member] = []
    with (
        open(path, "rb") as packed,
        _beside(path, f"tar.{compression}".rstrip(".")) as unpacked,
        _stream(packed, path, compression) as plain,
        _Opened(plain, bounds) as archive,
    ):
        for member in archive.members():
            wanted = is_disk(member) and not any(map(is_disk, members))
            members.append(member)
            if wanted:
                with Part(unpacked, bounds=bounds) as out:
                    out.expect(member.size_bytes, 0)  # zeros take no room: what it needs is seen while it is written
                    _copy(archive.content(), out, lambda: _told(packed, tell))
                    out.finish()
    return unpacked, members


class _Opened:
    """A tar archive that is read once, from beginning to end, within limits."""

    def __init__(self, stream: t.Any, bounds: Bounds) -> None:
        self._stream, self._bounds, self._left = stream, bounds, _HEADER_BYTES
        of_itself: t.Any = self
        self._archive = tarfile.open(  # noqa: SIM115  closed by __exit__
            fileobj=of_itself, mode="r|", bufsize=CHUNK, encoding="utf-8", errors="replace"
        )
        self._member: t.IO[bytes] | None = None

    def __enter__(self) -> _Opened:
        return self

    def __exit__(self, *_ignored: object) -> None:
        self._archive.close()

    def read(self, size: int) -> bytes:
        """The next bytes of the archive, for tarfile."""
        chunk = t.cast(bytes, self._stream.read(size))
        self._left -= len(chunk)
        if self._left < 0:
            raise ValueError("its headers, or its end, are longer than those of an archive")
        return chunk

    def members(self) -> t.Iterator[Member]:
        """All members; raises Refused if they exceed the bounds. Unread content is skipped."""
        total = 0
        for count in range(_MOST_MEMBERS + 1):
            self._left = _HEADER_BYTES
            found = self._archive.next()
            if found is None:
                break
            if count == _MOST_MEMBERS:
                raise ValueError(f"it contains more than {_MOST_MEMBERS} files")
            total += max(0, found.size)
            self._bounds.check(total)
            # tarfile reads ahead
            self._left = max(0, found.size) + 2 * CHUNK
            self._member = self._archive.extractfile(found) if found.isreg() else None
            yield Member(found.name, "file" if found.isreg() else _KINDS.get(found.type, "special file"), found.size)
            while self.content().read(CHUNK):
                pass
        self._left = _HEADER_BYTES
        while self.read(CHUNK):  # the checksum of what is compressed is at its end
            pass

    def content(self) -> t.Any:
        """A stream of the newest member's bytes; empty if it is no file."""
        return self._member or io.BytesIO()


def _copy(stream: t.Any, out: Part, told: t.Callable[[], None]) -> None:
    for chunk in iter(lambda: stream.read(CHUNK), b""):
        out.write(chunk)
        told()


def _told(packed: t.BinaryIO, tell: Tell) -> None:
    tell("unpacking", os.lseek(packed.fileno(), 0, os.SEEK_CUR), os.fstat(packed.fileno()).st_size)


@contextlib.contextmanager
def _beside(path: str, kind: str) -> t.Iterator[str]:
    """The path of the unpacked file; it is removed after an error."""
    unpacked = f"{path}.unpacked"
    remove(unpacked)
    try:
        yield unpacked
    except _DAMAGE as error:
        remove(unpacked)
        raise Failed(f"cannot unpack {path} as {kind}: {error}; {_PACKED}") from error
    except BaseException:
        remove(unpacked)
        raise


@contextlib.contextmanager
def _stream(packed: t.BinaryIO, path: str, compression: str) -> t.Iterator[t.Any]:
    if compression != "zst":  # Python's own library has it from 3.14 on
        with _DECOMPRESS[compression](packed, "rb") if compression else contextlib.nullcontext(packed) as stream:
            yield stream
        return
    try:
        process = subprocess.Popen(["zstd", "-dcq"], stdin=packed, stdout=subprocess.PIPE, stderr=subprocess.PIPE)
    except FileNotFoundError as error:
        raise Unsupported(f"cannot unpack {path}: zstd is not installed; install zstd on this host") from error
    with process:
        yield process.stdout
        stderr = process.stderr.read() if process.stderr else b""
    if process.returncode:
        reason = stderr.decode(errors="replace").strip() or process.returncode
        raise Failed(f"cannot unpack {path} as zst: {reason}; {_PACKED}")
