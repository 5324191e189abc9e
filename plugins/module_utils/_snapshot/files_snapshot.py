# Copyright (c) corral.virt contributors
# SPDX-License-Identifier: GPL-3.0-or-later
"""Files beside the disks of a snapshot."""

from __future__ import annotations

import contextlib
import os
import shutil
import tarfile
import typing as t

from ansible_collections.corral.virt.plugins.module_utils._storage import files_qemu_img
from ansible_collections.corral.virt.plugins.module_utils._system import durable
from ansible_collections.corral.virt.plugins.module_utils._system.os_errors import explained

_NEW = ".new"


def copy_state(path: str, to: str) -> None:
    """Copy a file, or a directory as an archive, to a new file that only root reads."""
    with explained(f"copy {path} to {to}", to):
        with open(os.open(to + _NEW, os.O_WRONLY | os.O_CREAT | os.O_TRUNC | os.O_NOFOLLOW, 0o600), "wb") as out:
            if os.path.isdir(path):
                with tarfile.open(fileobj=out, mode="w") as archive:
                    archive.add(path, arcname="", filter=_no_lock)
            else:
                with open(path, "rb") as source:
                    shutil.copyfileobj(source, out)
        durable.replace(to + _NEW, to)


def _no_lock(member: tarfile.TarInfo) -> tarfile.TarInfo | None:
    return None if member.name.endswith(".lock") or not (member.isfile() or member.isdir()) else member


def put_back(copy: str, path: str) -> None:
    """Replace the content of a file, or the files of a directory, by their copy; owners stay."""
    with explained(f"restore {path} from {copy}", path):
        if not os.path.isdir(path):
            with open(copy, "rb") as source:
                _replace(path, source)
            return
        with tarfile.open(copy) as archive:
            for member in archive.getmembers():
                name, content = os.path.join(path, member.name), archive.extractfile(member)
                if content is not None and os.path.isfile(name):  # what is there, and nothing elsewhere
                    _replace(name, content)


def _replace(path: str, source: t.IO[bytes]) -> None:
    before = os.stat(path)
    with open(os.open(path + _NEW, os.O_WRONLY | os.O_CREAT | os.O_TRUNC | os.O_NOFOLLOW, 0o600), "wb") as out:
        shutil.copyfileobj(source, out)
        os.fchown(out.fileno(), before.st_uid, before.st_gid)
        os.fchmod(out.fileno(), before.st_mode & 0o777)
    durable.replace(path + _NEW, path)


def create_overlay(path: str, base: str, base_format: str) -> None:
    """Create an empty file on another one, which only root reads until a guest uses it; raises Failed."""
    with explained(f"create {path}", path):
        os.close(os.open(path, os.O_WRONLY | os.O_CREAT | os.O_EXCL, 0o600))
    files_qemu_img.create_overlay(path, base, base_format)
    durable.fsync(path)
    durable.fsync(os.path.dirname(path))


def keep(names: t.Iterable[tuple[str, str]]) -> None:
    """Give each file a second name, which stays when libvirt removes the first; raises Failed."""
    for path, name in names:
        with explained(f"keep {path} as {name}", name):
            os.link(path, name, follow_symlinks=False)
            durable.fsync(os.path.dirname(name))


def unkeep(names: t.Iterable[tuple[str, str]]) -> None:
    """Remove those second names of files that still have the first."""
    for path, name in names:
        with contextlib.suppress(OSError):
            if os.path.samefile(path, name):
                os.unlink(name)


def give_back(names: t.Collection[tuple[str, str]]) -> None:
    """Let each file have only its first name, whether or not libvirt has removed that; raises Failed."""
    for path, name in names:
        if os.path.lexists(name) and not os.path.lexists(path):
            with explained(f"bring {path} back from {name}", name):
                os.link(name, path, follow_symlinks=False)
                durable.fsync(os.path.dirname(path))
    unkeep(names)
