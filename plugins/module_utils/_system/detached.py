# Copyright (c) corral.virt contributors
# SPDX-License-Identifier: GPL-3.0-or-later
"""Work that outlives its connection: in the background, with a result file that is locked while it runs.

Ansible's own `async` does the same with six more round trips to the host, and polls for the end.
"""

from __future__ import annotations

import atexit
import contextlib
import fcntl
import glob
import json
import os
import sys
import tempfile
import time

from ansible_collections.corral.virt.plugins.module_utils._core.errors import Failed, Refused
from ansible_collections.corral.virt.plugins.module_utils._system import private
from ansible_collections.corral.virt.plugins.module_utils._system.os_errors import remedy

_ASKED = "CORRAL_DETACHED"  # by the action: `plugin_utils/_report/progress_lines.py`
_PREFIX, _SUFFIX, _KEPT_S = "corral-", ".answer", 24 * 3600
_NAME_LIMIT = 15  # proc(5): comm


def detach(name: str) -> None:
    """Continue as a separate process called `name`, if the action asked for that.

    The action gets the path of the result file.
    """
    if not os.environ.get(_ASKED):
        return
    try:
        folder = private.folder()
        _clear_away(folder)
        answer, path = tempfile.mkstemp(prefix=_PREFIX, suffix=_SUFFIX, dir=folder)
    except OSError as error:
        raise Failed(
            f"cannot start {name}: cannot create a file for its answer: {error.strerror}; {remedy(error)}"
        ) from error
    except Failed as error:
        raise Failed(f"cannot start {name}: cannot create a file for its answer: {error}; then run again") from error
    locked = os.open(path, os.O_RDONLY | os.O_CLOEXEC)  # apart from `answer`, which programs that are run inherit
    fcntl.flock(locked, fcntl.LOCK_EX)
    ready, tell = os.pipe()
    if os.fork():
        try:
            os.close(tell)
            os.read(ready, 1)  # its end: until then, the end of a terminal would be that of the other one, too
            os.write(1, json.dumps({"changed": False, "answer": path}).encode())
        finally:
            os._exit(0)  # what is cleared away at the end, the other one clears away
    os.setsid()
    with open("/proc/self/comm", "w") as comm:  # `python3` would say nothing to whoever looks at the host
        comm.write(name[:_NAME_LIMIT])
    with open(os.devnull) as nothing:
        os.dup2(nothing.fileno(), 0)
    for stream in (1, 2):
        os.dup2(answer, stream)
    for handle in (answer, ready, tell):
        os.close(handle)
    atexit.register(_end)


def _end() -> None:
    """Exit without Python's own shutdown, which could wait forever for a thread inside libvirt."""
    for stream in (sys.stdout, sys.stderr):
        stream.flush()
    os._exit(0)


def _clear_away(folder: str) -> None:
    """Remove result files that nobody fetched within a day: their controllers died."""
    for path in glob.glob(os.path.join(folder, f"{_PREFIX}*{_SUFFIX}")):
        with contextlib.suppress(OSError, Refused):
            handle = private.opened(path, os.O_RDONLY)
            try:
                fcntl.flock(handle, fcntl.LOCK_EX | fcntl.LOCK_NB)
                status = os.fstat(handle)
                if status.st_uid == os.geteuid() and time.time() - status.st_mtime > _KEPT_S:
                    os.unlink(path)
            finally:
                os.close(handle)
