"""Find and end what a lab started. Nothing is recorded: every process carries its lab's name in its environment,
so that one started by a run that was killed is found as well, and no foreign process ever is."""

from __future__ import annotations

import contextlib
import os
import select
import signal
from pathlib import Path

from corral_lab.patience import Patience
from corral_lab.places import Problem
from corral_lab.shell import MARK

END_TIMEOUT_S = 20


def mark_of(pid: int) -> str:
    """The mark a process was started with, or nothing."""
    try:
        environment = Path(f"/proc/{pid}/environ").read_bytes()
    except OSError:
        return ""
    head = f"{MARK}=".encode()
    return next((each[len(head) :].decode() for each in environment.split(b"\0") if each.startswith(head)), "")


def find(lab: str, part: str = "") -> list[int]:
    """Processes of a lab, or of one part of it: a host's name, `build` or `web`."""
    pids = [int(path.name) for path in Path("/proc").iterdir() if path.name.isdigit()]
    return [pid for pid in pids if _matches(mark_of(pid), lab, part)]


def init_of(lab: str, host: str) -> int | None:
    """The first process of a running host, seen from outside."""
    for pid in find(lab, host):
        status = _status(pid)
        if status.get("NSpid", "").split()[-1:] == ["1"]:
            return pid
    return None


def reload(lab: str, part: str) -> None:
    """Have one part's processes read their files again."""
    for pid in find(lab, part):
        with contextlib.suppress(ProcessLookupError):
            handle = os.pidfd_open(pid)
            try:
                if _matches(mark_of(pid), lab, part):
                    signal.pidfd_send_signal(handle, signal.SIGHUP)
            finally:
                os.close(handle)


def end(lab: str, part: str = "") -> None:
    """Kill a lab's processes, or one part's, and wait until they are gone. A host's first takes the others along."""
    patience = Patience(END_TIMEOUT_S)
    while pids := find(lab, part):
        for pid in pids:
            _kill(pid, lab, part, patience)
        if patience.is_over:
            raise Problem(f"cannot end processes {pids} of lab {lab}: look at them with `ps -fp {pids[0]}`")


def _kill(pid: int, lab: str, part: str, patience: Patience) -> None:
    """Kill through a handle checked after it was taken: a number that went to another process is not touched."""
    with contextlib.suppress(ProcessLookupError):
        handle = os.pidfd_open(pid)
        try:
            if _matches(mark_of(pid), lab, part):
                signal.pidfd_send_signal(handle, signal.SIGKILL)
                select.select([handle], [], [], max(0.0, patience.left_s))
        finally:
            os.close(handle)


def _matches(mark: str, lab: str, part: str) -> bool:
    return mark == f"{lab}/{part}" if part else mark.startswith(f"{lab}/")


def _status(pid: int) -> dict[str, str]:
    try:
        lines = Path(f"/proc/{pid}/status").read_text().splitlines()
    except OSError:
        return {}
    return dict(line.split(":\t", 1) for line in lines if ":\t" in line)
