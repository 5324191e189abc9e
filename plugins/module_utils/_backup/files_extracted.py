# Copyright (c) corral.virt contributors
# SPDX-License-Identifier: GPL-3.0-or-later
"""Read the disks of a backup in an appliance of libguestfs, and write the files that come out to a new directory."""

from __future__ import annotations

import contextlib
import datetime
import errno
import os
import shutil
import stat
import tarfile
import tempfile
import threading
import typing as t

from ansible_collections.corral.virt.plugins.module_utils._backup.plan_backup_files import (
    Content,
    Destination,
    Inside,
    Mounts,
    NameInside,
)
from ansible_collections.corral.virt.plugins.module_utils._core.errors import Failed
from ansible_collections.corral.virt.plugins.module_utils._core.output import printable
from ansible_collections.corral.virt.plugins.module_utils._system import durable, free_space, private
from ansible_collections.corral.virt.plugins.module_utils._system.os_errors import explained

try:
    import guestfs
except ImportError:
    guestfs = None

_DEEPEST = 200
_PIECE = 1024 * 1024
_SPARE_BYTES = 64 * 1024**2
_PART = ".part"
_TWICE, _TOO_LONG = "its name is there twice", "its name is too long here"
_OPEN, _STICKY = 0o022, 0o1000


def look(path: str) -> Destination:
    """What is at a path, and beside it; raises Failed."""
    parent, name = os.path.split(path)
    with explained(f"look at {path}"):
        if not os.path.isdir(parent):
            return Destination("other" if os.path.lexists(path) else "absent", "absent")
        mode = os.stat(parent).st_mode
        kind = "absent"
        if os.path.lexists(path):
            is_directory = os.path.isdir(path) and not os.path.islink(path)
            kind = "empty" if is_directory and not os.listdir(path) else "other"
        left = [one for one in os.listdir(parent) if one.startswith(f".{name}.") and one.endswith(_PART)]
        return Destination(
            kind,
            "open" if mode & _OPEN and not mode & _STICKY else "directory",
            free_space.measure(parent, None).free_bytes,
            tuple(os.path.join(parent, one) for one in sorted(left)),
        )


@contextlib.contextmanager
def new(dest: str) -> t.Iterator[str]:
    """A directory that only root enters, and that gets its name when all of it is on the disk; it goes if that
    fails.
    """
    parent, name = os.path.split(dest)
    with explained(f"write files to {dest}"):
        part = tempfile.mkdtemp(prefix=f".{name}.", suffix=_PART, dir=parent)
        try:
            yield part
            for place, _directories, _files in os.walk(part):
                durable.fsync(place)
            os.rename(part, dest)  # over an empty directory; fails if something is in it by now
        except BaseException:
            shutil.rmtree(part)
            raise
        durable.fsync(parent)


class Extraction:
    """The files that are written to a directory; `left_out` is what is not, each with the reason."""

    def __init__(self, top: str, *, keep_owners: bool, tell: t.Callable[[int], None] = lambda _bytes: None) -> None:
        self.files, self.bytes = 0, 0
        self.left_out: list[tuple[str, str]] = []  # paths inside the guest
        self._top, self._keep_owners, self._tell = top, keep_owners, tell
        self._links: list[tuple[str, str, str]] = []  # path inside the guest, path here, target
        self._directories: list[tuple[str, tarfile.TarInfo]] = []

    def place(self, inside: str) -> str:
        """The path of a file here, in a directory that is made if it is missing."""
        path = os.path.join(self._top, *(part for part in inside.split("/") if part))
        os.makedirs(os.path.dirname(path), mode=0o700, exist_ok=True)
        return path

    def unpack(self, inside: str, stream: t.IO[bytes]) -> None:
        """Write what an archive of a directory inside the guest has; raises Failed."""
        os.makedirs(self.place(inside), mode=0o700, exist_ok=True)
        with tarfile.open(fileobj=stream, mode="r|", encoding="utf-8", errors="surrogateescape") as archive:
            while (member := archive.next()) is not None:
                archive.members = []  # type: ignore[attr-defined]  # else it keeps all of them
                name = "/".join([inside.rstrip("/"), *_parts(member.name)])
                try:
                    why = self._add(archive, member, inside, name)
                except OSError as error:
                    if error.errno not in (errno.EEXIST, errno.ENOTDIR, errno.EISDIR, errno.ENAMETOOLONG):
                        raise
                    why = _TOO_LONG if error.errno == errno.ENAMETOOLONG else _TWICE
                except ValueError:
                    why = "its name is none"
                if why:
                    self.left_out.append((name, why))

    def _add(self, archive: tarfile.TarFile, member: tarfile.TarInfo, inside: str, name: str) -> str:
        """Write one member; why not, if so."""
        if ".." in member.name.split("/") or member.name.startswith("/"):
            return "its name leads out of the directory"
        if name.count("/") > _DEEPEST:
            return "it is in more directories than programs that remove them can take"
        path = self.place(name)
        if member.isdir():
            os.makedirs(path, mode=0o700, exist_ok=True)
            self._directories.append((path, member))
        elif member.issym():
            self._links.append((name, path, member.linkname))
        elif member.islnk():
            return self._link(member, inside, path)
        elif member.isfile():
            self._check_room(member.size, name)
            source = archive.extractfile(member)
            with open(os.open(path, os.O_WRONLY | os.O_CREAT | os.O_EXCL | os.O_NOFOLLOW, 0o600), "wb") as out:
                self._copy(t.cast("t.IO[bytes]", source), out)
            self.finished(path, member)
        else:
            return "it is a device, a pipe or a socket"
        return ""

    def _link(self, member: tarfile.TarInfo, inside: str, path: str) -> str:
        """Give a file that is written a second name."""
        original = os.path.join(self._top, *_parts(inside), *_parts(member.linkname))
        if ".." in member.linkname.split("/") or not os.path.isfile(original):
            return "it is another name of what was left out"
        os.link(original, path, follow_symlinks=False)
        return ""

    def _check_room(self, size: int, name: str) -> None:
        if size + _SPARE_BYTES > free_space.measure(self._top, None).free_bytes:
            raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC), f"{self._top} for {name!r} ({size} bytes)")

    def _copy(self, source: t.IO[bytes], out: t.IO[bytes]) -> None:
        while piece := source.read(_PIECE):
            if piece.strip(b"\0"):
                out.write(piece)
            else:
                out.seek(len(piece), os.SEEK_CUR)  # stays a hole
            self._tell(len(piece))
        out.truncate()
        out.flush()
        os.fsync(out.fileno())

    def finished(self, path: str, known: tarfile.TarInfo) -> None:
        """Count a file, and give it the time, and if asked for, owner and mode that it has in the guest."""
        self.files, self.bytes = self.files + 1, self.bytes + known.size
        self._attribute(path, known)

    def _attribute(self, path: str, known: tarfile.TarInfo) -> None:
        if self._keep_owners:
            with contextlib.suppress(OverflowError):  # of an owner that is none, whose files stay with root
                os.chown(path, known.uid, known.gid)
                os.chmod(path, known.mode & 0o777)  # no setuid, setgid or sticky bit
        with contextlib.suppress(OverflowError, OSError):  # a time that this filesystem cannot hold
            os.utime(path, (known.mtime, known.mtime))

    def finish(self) -> None:
        """Make the symbolic links that stay within the directory, and the attributes of directories."""
        made = []
        for name, path, target in self._links:
            if target.startswith("/"):
                self.left_out.append((name, f"it is a link to {target}"))
            elif os.path.lexists(path):
                self.left_out.append((name, _TWICE))
            else:
                try:
                    os.symlink(target, path)
                    made.append((name, path, target))
                except (OSError, ValueError):  # empty, or too long
                    self.left_out.append((name, "it is a link to nothing"))
        top = os.path.join(os.path.realpath(self._top), "")
        for name, path, target in [one for one in made if not f"{os.path.realpath(one[1])}/".startswith(top)]:
            os.unlink(path)  # one that leads out may do so through others
            self.left_out.append((name, f"it is a link to {target}"))
        for path, known in reversed(self._directories):
            self._attribute(path, known)


def _parts(name: str) -> list[str]:
    return [part for part in name.split("/") if part not in ("", ".")]


_MOST = 10_000  # names of a directory
_KINDS = {stat.S_IFREG: "file", stat.S_IFDIR: "directory", stat.S_IFLNK: "link"}
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
    """The operating systems and filesystems that the disks contain."""
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
