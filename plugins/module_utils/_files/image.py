# Copyright (c) corral.virt contributors
# GNU General Public License v3.0+ (see COPYING or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
# This file is private to the collection and may change at any time.
"""Images as files of a pool's directory: fetch, verify, publish, point. A power cut leaves the old state or the new one."""

from __future__ import annotations

import bz2
import contextlib
import fcntl
import gzip
import hashlib
import lzma
import os
import shutil
import typing as t

from ansible_collections.corral.virt.plugins.module_utils._errors import Failed
from ansible_collections.corral.virt.plugins.module_utils._model.image import Image, Present

__all__ = ["download", "locked", "look", "point", "publish", "read_text", "remove", "unpack"]

_CHUNK = 1024 * 1024
_UNPACK: dict[str, t.Callable[..., t.Any]] = {"gz": gzip.open, "xz": lzma.open, "bz2": bz2.open}

Opener = t.Callable[[str], t.ContextManager[t.Any]]  # location -> a readable binary stream


def look(image: Image) -> Present:
    """What is there; reads only."""
    path = os.path.join(image.directory, image.name)
    try:
        files = frozenset(os.listdir(image.directory))
    except OSError as error:
        raise Failed(f"cannot read the pool's directory {image.directory}: {error.strerror}") from error
    if os.path.islink(path):
        return Present(target=os.path.basename(os.readlink(path)), files=files)
    return Present(target=None, files=files, foreign=image.name in files)


@contextlib.contextmanager
def locked(directory: str) -> t.Iterator[None]:
    """One writer per directory: a second run waits and then finds the work done."""
    descriptor = os.open(directory, os.O_RDONLY)
    try:
        fcntl.flock(descriptor, fcntl.LOCK_EX)
        yield
    finally:
        os.close(descriptor)


def read_text(opener: Opener, location: str) -> str:
    """A small text, such as a SUMS file."""
    try:
        with opener(location) as stream:
            return t.cast(str, stream.read(4 * _CHUNK).decode(errors="replace"))
    except OSError as error:
        raise Failed(f"cannot read {location}: {error}; is the address right, and can this host reach it?") from error


def download(opener: Opener, image: Image) -> tuple[str, str]:
    """Bring the source into a hidden file of the pool; returns its path and its digest. Raises Failed when it is not what it should be."""
    source = image.source
    if source is None:
        raise Failed(f"cannot fetch image {image.name}: nothing says where it comes from")
    algorithm = image.checksum.algorithm if image.checksum else "sha256"
    path, digest = os.path.join(image.directory, f".{image.name}.part"), hashlib.new(algorithm)
    try:
        with opener(source.location) as stream, open(path, "wb") as out:
            expected = int(stream.headers.get("Content-Length") or 0) if source.remote else 0
            for chunk in iter(lambda: stream.read(_CHUNK), b""):
                digest.update(chunk)
                out.write(chunk)
            if expected and out.tell() != expected:
                raise Failed(f"cannot fetch {source.location}: it ended after {out.tell()} of {expected} bytes; run again")
            _sync(out)
    except OSError as error:
        remove(path)
        raise Failed(f"cannot fetch {source.location} to {path}: {error}") from error
    except Failed:
        remove(path)
        raise
    if image.checksum and digest.hexdigest() != image.checksum.hex:
        remove(path)
        raise Failed(
            f"refusing image {image.name}: {source.location} has {algorithm} {digest.hexdigest()}, not {image.checksum.hex}; the file "
            "was changed, damaged on the way, or the checksum belongs to another version"
        )
    return path, digest.hexdigest()


def unpack(path: str, compression: str) -> str:
    """Unpack beside the packed file, which goes; returns the new path."""
    out_path = f"{path}.unpacked"
    try:
        with _UNPACK[compression](path, "rb") as packed, open(out_path, "wb") as out:
            shutil.copyfileobj(packed, out, _CHUNK)
            _sync(out)
    except (OSError, EOFError, lzma.LZMAError) as error:
        remove(out_path)
        raise Failed(f"cannot unpack {path} as {compression}: {error}") from error
    remove(path)
    return out_path


def publish(path: str, image: Image, content: str) -> None:
    """Give the finished file its content's name, read-only: overlays will stand on it."""
    os.chmod(path, 0o444)
    with open(path, "rb") as handle:
        os.fsync(handle.fileno())
    os.rename(path, os.path.join(image.directory, content))
    _sync_directory(image.directory)


def point(image: Image, content: str) -> None:
    """Switch the stable name to a content file in one move."""
    temporary = os.path.join(image.directory, f".{image.name}.link")
    remove(temporary)
    os.symlink(content, temporary)
    os.rename(temporary, os.path.join(image.directory, image.name))
    _sync_directory(image.directory)


def remove(path: str) -> None:
    """Remove a file that may be gone already."""
    with contextlib.suppress(FileNotFoundError):
        os.unlink(path)


def _sync(handle: t.Any) -> None:
    handle.flush()
    os.fsync(handle.fileno())


def _sync_directory(path: str) -> None:
    descriptor = os.open(path, os.O_RDONLY)
    try:
        os.fsync(descriptor)
    finally:
        os.close(descriptor)
