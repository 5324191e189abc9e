# Copyright (c) corral.virt contributors
# SPDX-License-Identifier: GPL-3.0-or-later
"""Write files that come out of a guest to a new directory, none of them elsewhere.

The guest's users choose every name, link and mode. Until all files are written, the directory has no symbolic link that
a later name could lead through, and nobody else may enter it.
"""

from __future__ import annotations

import contextlib
import errno
import os
import shutil
import tarfile
import tempfile
import typing as t

from ansible_collections.corral.virt.plugins.module_utils._backup.plan_backup_files import Destination
from ansible_collections.corral.virt.plugins.module_utils._system import durable, free_space
from ansible_collections.corral.virt.plugins.module_utils._system.os_errors import explained

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
