# Copyright (c) corral.virt contributors
# SPDX-License-Identifier: GPL-3.0-or-later
"""Keep a guest that is off unchanged, from the first byte that is copied to the last that is deleted."""

from __future__ import annotations

import contextlib
import os.path
import stat
import typing as t

from ansible_collections.corral.virt.plugins.module_utils._core.uri import is_here, is_system
from ansible_collections.corral.virt.plugins.module_utils._host import files_start_block
from ansible_collections.corral.virt.plugins.module_utils._migration import plan_concurrent_changes
from ansible_collections.corral.virt.plugins.module_utils._storage import files_disk


class Hold(contextlib.AbstractContextManager["Hold"]):
    """Keeps QEMU processes from writing a guest's files, with QEMU's locks, and the guest from starting, with an entry
    for the hook. Both end with this process.

    `complete` is True if one of the two holds: a filesystem may have no locks, and a host no hook.
    """

    def __init__(self, uri: str, guest: str, uuid: str, paths: t.Iterable[str], reason: str) -> None:
        self._here, self._is_system = is_here(uri), is_system(uri)
        self._guest, self._uuid, self._paths, self._reason = guest, uuid, paths, reason
        self._stack = contextlib.ExitStack()
        self._locks: dict[str, contextlib.ExitStack] = {}
        self.complete = False

    def __enter__(self) -> Hold:
        """Take the locks; raises Failed if a process writes to one of the files."""
        with contextlib.ExitStack() as stack:
            if self._is_system:
                stack.enter_context(files_start_block.held(self._uuid, self._reason))
            files = [path for path in self._paths if self._here and _is_file(path)]
            self._locks = {path: stack.enter_context(contextlib.ExitStack()) for path in files}
            locks = {path: files_disk.locked_against_writers(path, self._locks[path]) for path in files}
            plan_concurrent_changes.check_not_written(
                self._guest, [path for path, lock in locks.items() if lock == "taken"]
            )
            hooked = self._is_system and files_start_block.hooked()
            self.complete = hooked or (bool(files) and "none" not in locks.values())
            self._stack = stack.pop_all()
        return self

    def free(self, path: str) -> None:
        """Release the lock on a file that is to be deleted: the deletion checks for locks."""
        if path in self._locks:
            self._locks[path].close()

    def __exit__(self, *_error: object) -> None:
        self._stack.close()


def _is_file(path: str) -> bool:
    try:
        return os.path.isabs(path) and stat.S_ISREG(os.stat(path).st_mode)
    except OSError:
        return False
