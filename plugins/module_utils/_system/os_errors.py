# Copyright (c) corral.virt contributors
# SPDX-License-Identifier: GPL-3.0-or-later
"""Remedies for errors of the operating system, by error number, file, and user."""

from __future__ import annotations

import contextlib
import errno
import os
import shlex
import typing as t

from ansible_collections.corral.virt.plugins.module_utils._core.errors import Failed

BECOME = "run as root (become: true)"
OWNER = "run as its owner, or as another user who may do that"  # on the controller, where nobody becomes root
_DENIED = (errno.EACCES, errno.EPERM)
# {path}, {directory}: quoted for a shell. ENOENT and the two above depend on more than their number.
_BY_NUMBER = {
    errno.ENOSPC: "make room there (`df -h {directory}` and, for files, `df -i {directory}` show what is left)",
    errno.EDQUOT: "make room, or raise the disk quota of this user (`quota -v`)",
    errno.EROFS: "mount its filesystem for writing (`findmnt -T {directory}` shows it); after an error, the kernel "
    "makes one read-only, too (`journalctl -k`)",
    errno.EIO: "check its disk: `journalctl -k` shows the kernel's errors, and `findmnt -T {directory}` the device",
    errno.ENOTDIR: "check the path: a part of it is no directory (`namei -l {path}`)",
    errno.ELOOP: "check the path: a part of it is a symbolic link that may not be followed (`namei -l {path}`)",
    errno.EISDIR: "check the path: it is a directory",
    errno.EINVAL: "check what it is (`stat {path}`), and that its filesystem supports this (`findmnt -T {directory}`)",
    errno.EEXIST: "find out what it is (`stat {path}`), and move it away",
    errno.ENOTEMPTY: "look at what is in it (`ls -la {path}`), and move that away",
    errno.ENAMETOOLONG: "use a shorter name",
    errno.EBUSY: "find out who uses it (`fuser -vm {path}`), and end that",
    errno.ETXTBSY: "find out who runs it (`fuser -v {path}`), and end that",
    errno.ESTALE: "mount its filesystem again: the server has lost the file (`findmnt -T {directory}`)",
    errno.EFBIG: "use a filesystem, or a limit of file sizes (`ulimit -f`), that takes larger files",
    errno.EMFILE: "raise the limit of open files (`ulimit -n`)",
    errno.ENFILE: "raise the limit of open files of this host (`sysctl fs.file-max`)",
    errno.ENOMEM: "free memory on this host (`free -m`)",
}
_UNANSWERED = (errno.ETIMEDOUT, errno.ENOTCONN, errno.ECONNREFUSED, errno.EHOSTDOWN, errno.EHOSTUNREACH, errno.ENODEV)
_BY_NUMBER |= dict.fromkeys(
    _UNANSWERED, "check the server or device behind its filesystem (`findmnt -T {directory}` shows it)"
)
_BY_NUMBER |= dict.fromkeys(
    (errno.ENOSYS, errno.EOPNOTSUPP, errno.ENOLCK, errno.EXDEV, errno.ENOTTY),
    "use a filesystem that supports this (`findmnt -T {directory}` shows the one in use)",
)
_UNKNOWN = "see its filesystem (`findmnt -T {directory}`) and the kernel's log (`journalctl -k`)"
_ROOT_DENIED = (
    "root is denied, too: look for an immutable file or directory (`lsattr -d {path} {directory}`), a denial by "
    "AppArmor or SELinux (`journalctl -k`), and an NFS export with root_squash (`findmnt -T {directory}`)"
)


def remedy(error: OSError, path: str = "", *, denied: str = BECOME) -> str:
    """The remedy of an error: a clause that stands after `;`.

    `path`: if the error names none, or only a part. `denied` is the remedy of a missing permission for other users than
    root.
    """
    place = path or _named(error)
    missing = bool(place) and not os.path.isdir(os.path.dirname(place) or ".")
    return remedy_of(error.errno, place, root=os.geteuid() == 0, missing=missing, denied=denied)


def remedy_of(number: int | None, path: str, *, root: bool, missing: bool = False, denied: str = BECOME) -> str:
    """The remedy of an error number. `missing`: the directory of `path` does not exist."""
    if number in _DENIED and not root:
        return denied
    directory = os.path.dirname(path) or "."
    if number == errno.ENOENT:
        return f"create {directory}, or mount its filesystem" if missing else "check the path"
    template = _ROOT_DENIED if number in _DENIED else _BY_NUMBER.get(number or 0, _UNKNOWN)
    return template.format(path=shlex.quote(path or "."), directory=shlex.quote(directory))


@contextlib.contextmanager
def explained(what: str, path: str = "", *, denied: str = BECOME) -> t.Iterator[None]:
    """Raises OSError as Failed: what was tried, why it failed, and the remedy; a `path` is named by `what` already."""
    try:
        yield
    except OSError as error:
        named = f": {_named(error)}" if not path and _named(error) else ""
        why = f"{error.strerror or error}{named}"
        raise Failed(f"cannot {what}: {why}; {remedy(error, path, denied=denied)}") from error


def _named(error: OSError) -> str:
    """The file that the error names; empty if it names a descriptor, or nothing."""
    return os.fsdecode(error.filename) if isinstance(error.filename, (str, bytes)) else ""
