# Copyright (c) corral.virt contributors
# SPDX-License-Identifier: GPL-3.0-or-later
"""Read the disks of a backup in an appliance of libguestfs: a kernel of its own sees the guest's filesystems, and the
host's kernel never does. The disks are only read.
"""

from __future__ import annotations

import contextlib
import datetime
import os
import stat
import tarfile
import tempfile
import threading
import typing as t

from ansible_collections.corral.virt.plugins.module_utils._backup.plan_backup_files import (
    Content,
    Inside,
    Mounts,
    NameInside,
)
from ansible_collections.corral.virt.plugins.module_utils._core.errors import Failed
from ansible_collections.corral.virt.plugins.module_utils._core.output import printable
from ansible_collections.corral.virt.plugins.module_utils._system import private

try:
    import guestfs
except ImportError:
    guestfs = None

_MOST = 10_000  # names of a directory
_KINDS = {stat.S_IFREG: "file", stat.S_IFDIR: "directory", stat.S_IFLNK: "link"}
_PIECE = 1024 * 1024
_TEST = "it needs a kernel in /boot; libguestfs-test-tool, of the package libguestfs-tools, shows more"


def has_reader() -> bool:
    """True if libguestfs and its binding are installed."""
    return guestfs is not None


@contextlib.contextmanager
def opened(disks: t.Iterable[str]) -> t.Iterator[t.Any]:
    """An appliance that has these qcow2 files; raises Failed."""
    handle = guestfs.GuestFS(python_return_dict=True)
    try:
        with _explained("start the appliance of libguestfs", _TEST):
            handle.set_backend("direct")  # libvirt's would run it as a user who may not read the backup
            for disk in disks:
                handle.add_drive_opts(disk, readonly=True, format="qcow2")
            handle.launch()
        yield handle
    finally:
        handle.close()


def content(handle: t.Any) -> Content:
    """Operating systems and filesystems."""
    with _explained("look for filesystems"):
        kinds = handle.list_filesystems()
        roots = {root: handle.inspect_get_mountpoints(root) for root in handle.inspect_os()}
    systems = ((root, tuple(sorted(mounts.items()))) for root, mounts in roots.items())
    return Content(tuple(systems), tuple(sorted(kinds.items())))


def mount(handle: t.Any, mounts: Mounts) -> tuple[str, ...]:
    """Mount filesystems, in their order; why some cannot be. Raises Failed for the first."""
    wrong = list[str]()
    for place, device in mounts:
        try:
            with _explained(f"mount {printable(device)} of the backup"):
                handle.mount_ro(device, place)
        except Failed as error:
            if place == mounts[0][0]:
                raise
            wrong.append(f"{printable(place)} is left out: {error}")
    return tuple(wrong)


def inside(handle: t.Any, path: str) -> Inside | None:
    """What a path is, after symbolic links; None if it is missing."""
    with _explained(f"look at {printable(path)} of the backup"):
        if not handle.exists(path):
            return None
        real = handle.realpath(path)
        if handle.is_dir(real):
            return Inside("directory", handle.du(real) * 1024)
        found = handle.statns(real)
        return Inside("file" if stat.S_ISREG(found["st_mode"]) else "other", found["st_size"])


def entries(handle: t.Any, path: str) -> tuple[tuple[NameInside, ...], int]:
    """The first names of a directory, and how many it has."""
    with _explained(f"list {printable(path)} of the backup"), tempfile.NamedTemporaryFile(dir=private.folder()) as told:
        real = handle.realpath(path)
        handle.ls0(real, told.name)
        raw = sorted(name for name in told.read().split(b"\0") if name)
        names = [os.fsdecode(name) for name in raw[:_MOST]]
        known = [name for name in names if _is_utf8(name)]
        found = dict(zip(known, handle.lstatnslist(real, known))) if known else {}
    return tuple(_entry(name, found.get(name)) for name in names), len(raw)


def _is_utf8(name: str) -> bool:
    """True if a name is UTF-8, as the binding needs it."""
    return not any("\ud800" <= letter <= "\udfff" for letter in name)


def _entry(name: str, found: t.Mapping[str, int] | None) -> NameInside:
    if found is None or found["st_mode"] < 0 or found["st_ino"] < 0:
        return NameInside(printable(name), "unknown")
    mode = found["st_mode"]
    try:
        modified = datetime.datetime.fromtimestamp(found["st_mtime_sec"], datetime.timezone.utc)
        text = f"{modified:%Y-%m-%dT%H:%M:%SZ}"
    except (ValueError, OverflowError, OSError):
        text = ""
    kind = _KINDS.get(stat.S_IFMT(mode), "other")
    return NameInside(printable(name), kind, found["st_size"], f"{stat.S_IMODE(mode):04o}", text)


def download(handle: t.Any, path: str, to: str) -> tarfile.TarInfo:
    """Write a file to a new one; what it is in the guest."""
    with _explained(f"read {printable(path)} of the backup"):
        real = handle.realpath(path)
        found = handle.statns(real)
        os.close(os.open(to, os.O_WRONLY | os.O_CREAT | os.O_EXCL | os.O_NOFOLLOW, 0o600))
        handle.download(real, to)
    known = tarfile.TarInfo()
    known.uid, known.gid, known.mode = found["st_uid"], found["st_gid"], found["st_mode"]
    known.size, known.mtime = found["st_size"], found["st_mtime_sec"]
    return known


def stream(handle: t.Any, path: str, take: t.Callable[[t.IO[bytes]], None]) -> None:
    """Pass an archive of a directory to `take`, as it is read; raises Failed."""
    end, begin = os.pipe()
    wrong, broken = list[Failed](), None

    def send() -> None:
        try:
            with _explained(f"read {printable(path)} of the backup"):
                handle.tar_out(handle.realpath(path), f"/dev/fd/{begin}", numericowner=True)
        except Failed as error:
            wrong.append(error)
        finally:
            os.close(begin)

    sender = threading.Thread(target=send)
    sender.start()
    try:
        with os.fdopen(end, "rb") as source:
            take(source)
            while source.read(_PIECE):  # what is after the end of the archive
                pass
    except tarfile.TarError as error:
        broken = Failed(f"cannot read {printable(path)} of the backup: {error}; try a part of it")
    finally:
        sender.join()
    for one in (*wrong, broken):
        if one:
            raise one


@contextlib.contextmanager
def _explained(what: str, mend: str = "use another backup, or other paths") -> t.Iterator[None]:
    """Raise what libguestfs says as Failed."""
    try:
        yield
    except (RuntimeError, UnicodeError) as error:
        raise Failed(f"cannot {what}: {printable(str(error))}; {mend}") from error
