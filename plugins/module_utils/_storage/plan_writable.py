# Copyright (c) corral.virt contributors
# SPDX-License-Identifier: GPL-3.0-or-later
"""Explain why guests cannot write in a directory."""

from __future__ import annotations

import dataclasses
import errno
import os
import shlex
import typing as t

from ansible_collections.corral.virt.plugins.module_utils._core.errors import BadInput, Refused
from ansible_collections.corral.virt.plugins.module_utils._storage.model_mount import Mounted

TIMEOUT_S = 30  # for a server that does not answer
FULL = (errno.ENOSPC, errno.EDQUOT)
NFS = ("nfs", "nfs4")
# SELinux's switches for what QEMU may use, by type of filesystem.
BOOLEANS = {
    "nfs": "virt_use_nfs",
    "nfs4": "virt_use_nfs",
    "cifs": "virt_use_samba",
    "smb3": "virt_use_samba",
    "fuse.glusterfs": "virt_use_fusefs",
    "fuse.sshfs": "virt_use_fusefs",
}


@dataclasses.dataclass(frozen=True)
class Attempt:
    """What became of a file in a directory that root made for QEMU's user.

    `stage`: what failed first: answer, create, own (give it to the user), write; empty: nothing.
    """

    path: str
    user: str
    stage: str = ""
    code: int = 0  # errno
    on: Mounted | None = None  # the filesystem that the directory is on
    closed: str = ""  # a directory on the way that the user cannot enter
    boolean_off: str = ""  # a switch of SELinux


def check_paths(paths: t.Sequence[str]) -> None:
    """Raise BadInput with all that are not absolute."""
    bad = [f"paths: {path!r} is not an absolute path" for path in paths if not path.startswith("/")]
    if bad:
        raise BadInput(bad)


def decide(attempts: t.Sequence[Attempt]) -> list[str]:
    """Notes; raises Refused with all directories that guests cannot use."""
    problems = [
        f"guests cannot use disks in {one.path}: {_reason(one)}" for one in attempts if _failed(one) or one.boolean_off
    ]
    if problems:
        raise Refused("; ".join(problems))
    return [f"{one.path} is full: disks of guests cannot grow there" for one in attempts if one.code in FULL]


def _failed(one: Attempt) -> bool:
    return bool(one.stage) and one.code not in FULL


def _reason(one: Attempt) -> str:
    kind, source = (one.on.fstype, one.on.source) if one.on else ("", "its server")
    if not _failed(one):
        return f"SELinux keeps QEMU from {kind} (`setsebool -P {one.boolean_off} on`)"
    if one.stage == "answer":
        return f"{source} did not answer within {TIMEOUT_S} s; look at the server and the network"
    if one.code == errno.EROFS:
        return _readonly(one, kind, source)
    if one.stage in ("create", "own") and kind in NFS:
        return f"root of this host is not root on {source}; export it with no_root_squash"
    if one.stage == "create":
        return f"root cannot create a file there ({os.strerror(one.code)})"
    if one.closed:
        mend = shlex.join(["chmod", "o+x", one.closed])
        return f"QEMU's user {one.user} cannot enter {one.closed} (`{mend}`)"
    if one.stage == "own":
        return (
            f"{kind} cannot give a file to QEMU's user {one.user}, which cannot write it; mount it with uid={one.user}"
        )
    return f"QEMU's user {one.user} cannot write its file ({os.strerror(one.code)})"


def _readonly(one: Attempt, kind: str, source: str) -> str:
    if one.on and one.on.readonly:
        mend = "mount it without the option ro"
    else:
        mend = (
            f"export {source} with rw"
            if kind in NFS
            else "its filesystem has been made read-only; look at the log of the kernel"
        )
    return f"it is read-only; {mend}, or omit it here if it only holds installation media (probe: false of its pool)"
