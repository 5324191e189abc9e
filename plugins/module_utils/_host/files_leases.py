# Copyright (c) corral.virt contributors
# GNU General Public License v3.0+ (see COPYING or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
# This file is private to the collection and may change at any time.
"""Leases of disks, which libvirt's lock manager holds: where they are, and which this host holds."""

from __future__ import annotations

import contextlib
import glob
import hashlib
import os

from ansible_collections.corral.virt.plugins.module_utils._core.errors import Failed
from ansible_collections.corral.virt.plugins.module_utils._host.model_daemon import LeaseFacts
from ansible_collections.corral.virt.plugins.module_utils._system.locks import shared_filesystem
from ansible_collections.corral.virt.plugins.module_utils._system.os_errors import remedy

__all__ = ["facts", "held", "make", "name"]

_PLUGINS = ("/usr/lib*/libvirt/lock-driver/lockd.so", "/usr/lib/*/libvirt/lock-driver/lockd.so")
_PID = "/run/virtlockd.pid"


def facts(directory: str) -> LeaseFacts:
    """What leases in this directory need."""
    return LeaseFacts(
        plugin=any(map(glob.glob, _PLUGINS)),
        directory=os.path.isdir(directory),
        filesystem=shared_filesystem(directory),
    )


def make(directory: str) -> None:
    """Create the directory, and those above it, for root alone; raises Failed where root of this host may not."""
    before = os.umask(0o077)  # `.corral` is also where definitions are kept
    try:
        os.makedirs(directory, exist_ok=True)
    except OSError as error:
        raise Failed(f"cannot create {directory}: {error.strerror}; {remedy(error, directory)}") from error
    finally:
        os.umask(before)


def name(path: str) -> str:
    """The name of a disk's lease, as libvirt builds it."""
    return hashlib.sha256(os.fsencode(path)).hexdigest()


def held(directory: str) -> set[str]:
    """Names of the leases in the directory that the lock manager of this host holds: it keeps their files open."""
    found = set()
    with contextlib.suppress(FileNotFoundError, ValueError):  # it does not run
        with open(_PID, encoding="ascii") as stream:
            descriptors = f"/proc/{int(stream.read())}/fd"
        for descriptor in os.listdir(descriptors):
            with contextlib.suppress(FileNotFoundError):  # closed meanwhile
                found.add(os.readlink(os.path.join(descriptors, descriptor)))
    folder = os.path.realpath(directory)
    return {os.path.basename(path) for path in found if os.path.dirname(path) == folder}
