# Copyright (c) corral.virt contributors
# SPDX-License-Identifier: GPL-3.0-or-later
"""Write what is in a backup to new files, and swap them with the present ones.

A new file has an attribute until a guest uses it, by which the next run knows what an interrupted one has left.
"""

from __future__ import annotations

import contextlib
import errno
import os
import shutil
import tarfile
import typing as t

from ansible_collections.corral.virt.plugins.module_utils._backup.plan_backup_steps import SwappedDisk
from ansible_collections.corral.virt.plugins.module_utils._core.errors import Failed
from ansible_collections.corral.virt.plugins.module_utils._storage import files_disk, files_qemu_img
from ansible_collections.corral.virt.plugins.module_utils._system import durable, identity
from ansible_collections.corral.virt.plugins.module_utils._system.os_errors import explained

_MARK = "user.corral.restore"
_NEW = ".restoring"
_NO_MARK = (errno.ENODATA, errno.ENOTSUP, errno.ENOENT)  # also on a filesystem without attributes


def is_unfinished(path: str) -> bool:
    """True if an interrupted restore has left this file or directory."""
    try:
        return bool(os.getxattr(path, _MARK, follow_symlinks=False))
    except OSError:
        return False


def settle(path: str) -> None:
    """Let a restored file count as the guest's."""
    with explained(f"let {path} count as restored", path):
        try:
            os.removexattr(path, _MARK, follow_symlinks=False)
        except OSError as error:
            if error.errno not in _NO_MARK:
                raise


def mark(path: str) -> None:
    """Note that a file or directory is not the guest's yet, but what an interrupted restore has left."""
    with contextlib.suppress(OSError):  # without attributes, the next run refuses what this one leaves
        os.setxattr(path, _MARK, b"1", follow_symlinks=False)


def disk(source: str, path: str, form: str, progress: files_qemu_img.Progress) -> None:
    """Write the content of a qcow2 of a point to a new file, compare both, and give the file its name."""
    with files_disk.new(path) as unfinished:
        files_qemu_img.convert(source, unfinished, from_format="qcow2", to_format=form, progress=progress)
        files_qemu_img.compare(source, unfinished, form="qcow2", to_format=form)
        identity.stamped(unfinished)
        mark(unfinished)


def overlay(source: str, path: str) -> None:
    """Create a disk that reads all from a qcow2 of a point."""
    with files_disk.new(path) as unfinished:
        files_qemu_img.create_overlay(unfinished, source, "qcow2")
        identity.stamped(unfinished)
        mark(unfinished)


def swap(disks: t.Iterable[SwappedDisk]) -> None:
    """Give each restored disk the name of the present one; at each moment there is one of that name."""
    for one in disks:
        with _failing(f"put {one.restored} in place as {one.path}", one.path):
            if one.expected and not _is_named(one.path, one.aside):  # an interrupted run may have done so
                os.link(one.path, one.aside, follow_symlinks=False)
            settle(one.restored)
            durable.replace(one.restored, one.path)


def _is_named(path: str, name: str) -> bool:
    return os.path.lexists(name) and os.path.samestat(os.lstat(path), os.lstat(name))


def state(copy: str, path: str) -> None:
    """Restore a file, or a directory from its archive, that is not there, or that an interrupted run has left."""
    with _failing(f"restore {path} from {copy}", path), _unfinished(path) as new:
        if copy.endswith(".tar"):
            os.makedirs(new, mode=0o711)
            _unpack(copy, new)
            if is_unfinished(path):
                shutil.rmtree(path)
        else:
            with open(copy, "rb") as source:
                flags = os.O_WRONLY | os.O_CREAT | os.O_TRUNC | os.O_NOFOLLOW
                with open(os.open(new, flags, 0o600), "wb") as out:
                    shutil.copyfileobj(source, out)
            identity.stamped(new)
        mark(new)
        durable.replace(new, path)


@contextlib.contextmanager
def _unfinished(path: str) -> t.Iterator[str]:
    """Yields a name for what becomes the file or directory; nothing is there, and nothing stays there on an error."""
    discard(path)
    try:
        yield path + _NEW
    except BaseException:
        with contextlib.suppress(Failed):
            discard(path)
        raise


def discard(path: str) -> None:
    """Remove what an interrupted run has left that was to become this file or directory."""
    new = path + _NEW
    with explained(f"remove {new}", new):
        if os.path.isdir(new) and not os.path.islink(new):
            shutil.rmtree(new)
        else:
            durable.remove(new)


def _unpack(archive: str, to: str) -> None:
    """The files and directories of an archive, none of them elsewhere, with owners and modes."""
    with tarfile.open(archive) as found:
        for member in found.getmembers():
            if not (member.isfile() or member.isdir()) or ".." in member.name.split("/") or member.name.startswith("/"):
                continue
            found.extract(member, to)
            if member.isfile():
                durable.fsync(os.path.join(to, member.name))


@contextlib.contextmanager
def _failing(what: str, path: str) -> t.Iterator[None]:
    try:
        with explained(what, path):
            yield
    except tarfile.TarError as error:
        raise Failed(f"cannot {what}: {error}; use another backup") from error
