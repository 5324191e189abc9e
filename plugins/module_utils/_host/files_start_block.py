# Copyright (c) corral.virt contributors
# SPDX-License-Identifier: GPL-3.0-or-later
"""Guests that libvirt must not start on this host for now, whoever starts them.

The role `hypervisor` installs a hook that libvirt runs before each start and before each incoming migration. It refuses
a guest that has an entry here, for as long as the process that made the entry holds its lock.
"""

from __future__ import annotations

import contextlib
import fcntl
import os
import time
import typing as t
import uuid as uuids

from ansible_collections.corral.virt.plugins.module_utils._core.errors import Failed, Refused
from ansible_collections.corral.virt.plugins.module_utils._host import files_systemd
from ansible_collections.corral.virt.plugins.module_utils._host.model_unit import HOOK, HOOKED
from ansible_collections.corral.virt.plugins.module_utils._system import boot, private
from ansible_collections.corral.virt.plugins.module_utils._system.durable import remove
from ansible_collections.corral.virt.plugins.module_utils._system.os_errors import remedy

_FOLDER = "held"
# The hook holds an entry for the moment in which it looks; longer than this, another run does.
_PROBE_S = 1.0
_POLL_S = 0.01


@contextlib.contextmanager
def held(uuid: str, reason: str) -> t.Iterator[None]:
    """Keep libvirt from starting that guest here, until the context or this process ends.

    `reason` is shown on such a start: "it is being migrated to hyper2". Raises Refused while another run holds it.
    """
    text = " ".join("".join(each if each.isprintable() else " " for each in reason).split())
    try:
        directory = os.path.join(private.folder(), _FOLDER)
        private.make(directory)
        path = os.path.join(directory, str(uuids.UUID(uuid)))
        with contextlib.ExitStack() as stack:
            entry = _locked(path, stack)
            stack.callback(remove, path)  # while its lock is held: nobody else's entry is removed
            os.ftruncate(entry, 0)
            os.pwrite(entry, f"boot={boot.identity()}\npid={os.getpid()}\nreason={text}\n".encode(), 0)
            ending = stack.pop_all()
    except OSError as error:
        raise Failed(f"cannot keep guest {uuid} from being started: {error.strerror}; {remedy(error)}") from error
    with ending:
        yield


def hooked() -> bool:
    """True if libvirt of this host runs the hook: it looks for hooks only when it starts."""
    installed_s = files_systemd.changed(HOOK)
    if installed_s is None or not os.access(HOOK, os.X_OK):
        return False
    daemons = [unit for unit in files_systemd.units(HOOKED).values() if unit.exists]
    return bool(daemons) and all(not unit.runs or unit.started > installed_s for unit in daemons)


def _locked(path: str, stack: contextlib.ExitStack) -> int:
    """The locked descriptor of an entry; the stack closes it. Raises Refused if another run holds the lock."""
    end = time.monotonic() + _PROBE_S
    while True:
        with contextlib.ExitStack() as mine:
            entry = private.opened(path, os.O_RDWR | os.O_CREAT)
            mine.callback(os.close, entry)
            try:
                fcntl.flock(entry, fcntl.LOCK_EX | fcntl.LOCK_NB)
                if _is_at(entry, path):
                    stack.push(mine.pop_all())
                    return entry
            except BlockingIOError:
                if time.monotonic() > end:
                    raise Refused(f"{_taken(entry, path)}; wait until it ends, and run again") from None
        time.sleep(_POLL_S)


def _is_at(entry: int, path: str) -> bool:
    """True if the file is still the one at that path: its last holder removes it."""
    try:
        return os.path.samestat(os.fstat(entry), os.lstat(path))
    except FileNotFoundError:
        return False


def _taken(entry: int, path: str) -> str:
    lines = os.pread(entry, 4096, 0).decode(errors="replace").splitlines()
    values = dict(line.split("=", 1) for line in lines if "=" in line)
    return (
        f"another run on this host holds guest {os.path.basename(path)}: {values.get('reason', 'reason unknown')} "
        f"(process {values.get('pid', 'unknown')})"
    )
