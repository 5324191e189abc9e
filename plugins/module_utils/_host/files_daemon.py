# Copyright (c) corral.virt contributors
# SPDX-License-Identifier: GPL-3.0-or-later
"""Files around the libvirt daemon: locks of other runs on guests, and leases of disks of its lock manager."""

from __future__ import annotations

import contextlib
import fcntl
import glob
import os
import resource
import typing as t
import uuid

from ansible_collections.corral.virt.plugins.module_utils._core.errors import Failed, Refused
from ansible_collections.corral.virt.plugins.module_utils._host.model_daemon import LeaseFacts
from ansible_collections.corral.virt.plugins.module_utils._system import locks as local
from ansible_collections.corral.virt.plugins.module_utils._system import private
from ansible_collections.corral.virt.plugins.module_utils._system.os_errors import remedy

_LOCKD = ("/usr/lib*/libvirt/lock-driver/lockd.so", "/usr/lib/*/libvirt/lock-driver/lockd.so")
_FIRMWARE = ("/sys/devices/virtual/dmi/id/product_uuid", "/sys/class/dmi/id/product_uuid")
_MACHINE = "/etc/machine-id"
_LOCKD_PID = "/run/virtlockd.pid"


def has_only_machine_uuid() -> bool:
    """True if libvirt finds no UUID of the firmware, as src/util/viruuid.c reads it, but could read the machine ID."""
    return not any(map(_is_uuid, _FIRMWARE)) and _is_uuid(_MACHINE)


def _is_uuid(path: str) -> bool:
    """True if the file has a UUID; one of equal bytes is none."""
    try:
        with open(path, encoding="ascii") as stream:
            return len({*uuid.UUID(stream.read().strip()).bytes}) > 1
    except (OSError, ValueError):
        return False


def held_by_others(names: t.Collection[str], locks: contextlib.ExitStack) -> list[str]:
    """Lock these guests, and all that were ever locked, while `locks` is open.

    Returns the names that other runs hold.
    """
    _soft, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    resource.setrlimit(resource.RLIMIT_NOFILE, (hard, hard))  # a file for each guest
    known = {name[: -len(local.LOCK)] for name in os.listdir(private.folder()) if name.endswith(local.LOCK)}
    found = []
    for name in sorted({*names, *known}):
        try:
            locks.enter_context(local.flocked(name, fcntl.LOCK_EX | fcntl.LOCK_NB))
        except BlockingIOError:
            found.append(name)
        except (OSError, Refused):
            continue  # no run can lock such a name either
    return found


def leases(directory: str) -> LeaseFacts:
    """What leases in this directory need."""
    return LeaseFacts(
        plugin=any(map(glob.glob, _LOCKD)),
        directory=os.path.isdir(directory),
        filesystem=local.shared_filesystem(directory),
    )


def make_leases(directory: str) -> None:
    """Create the directory, and those above it, for root alone; raises Failed where root of this host may not."""
    before = os.umask(0o077)  # `.corral` is also where definitions are kept
    try:
        os.makedirs(directory, exist_ok=True)
    except OSError as error:
        raise Failed(f"cannot create {directory}: {error.strerror}; {remedy(error, directory)}") from error
    finally:
        os.umask(before)


def held_leases(directory: str) -> set[str]:
    """Names of the leases in the directory that the lock manager of this host holds: it keeps their files open."""
    found = set()
    with contextlib.suppress(FileNotFoundError, ValueError):  # it does not run
        with open(_LOCKD_PID, encoding="ascii") as stream:
            descriptors = f"/proc/{int(stream.read())}/fd"
        for descriptor in os.listdir(descriptors):
            with contextlib.suppress(FileNotFoundError):  # closed meanwhile
                found.add(os.readlink(os.path.join(descriptors, descriptor)))
    folder = os.path.realpath(directory)
    return {os.path.basename(path) for path in found if os.path.dirname(path) == folder}
