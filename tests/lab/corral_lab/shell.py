"""Run programs; when one fails, show what it said."""

from __future__ import annotations

import json
import os
import subprocess
import time
from pathlib import Path
from typing import Any

from corral_lab.patience import Patience
from corral_lab.places import Problem

MARK = "CORRAL_LAB_PROCESS"
_BUSY_S = 30


def run(*command: str | Path, text: str | None = None, ok: tuple[int, ...] = (0,)) -> str:
    """Run a program to its end and return what it printed."""
    done = subprocess.run(command, check=False, input=text, capture_output=True, text=True)
    if done.returncode not in ok:
        output = (done.stderr or done.stdout).strip()[-2000:]
        raise Problem(f"{' '.join(map(str, command))} failed ({done.returncode}): {output}")
    return done.stdout


def unmount(place: str | Path) -> None:
    """Unmount what is there.

    It stays busy for a moment after the end of the last process that used it, and while another host that is being
    started has a copy of all mounts.
    """
    patience = Patience(_BUSY_S)
    while True:
        try:
            run("umount", place)
        except Problem:
            if patience.is_over:
                raise
            time.sleep(0.1)
        else:
            return


def run_json(*command: str | Path) -> Any:
    """Run a program that prints JSON."""
    return json.loads(run(*command) or "[]")


def run_logged(*command: str | Path, mark: str, log: Path) -> None:
    """Run a long program in a session of its own (Ctrl-C is ours to handle), marked and logged."""
    with log.open("wb") as out:
        done = subprocess.run(command, check=False, stdout=out, stderr=out, **_detached(mark))
    if done.returncode:
        tail = "\n".join(log.read_text(errors="replace").splitlines()[-15:])
        raise Problem(f"{Path(command[0]).name} failed ({done.returncode}); the end of {log}:\n{tail}")


def start(*command: str | Path, mark: str, log: Path) -> subprocess.Popen[bytes]:
    """Start a program that outlives us."""
    with log.open("ab") as out:
        return subprocess.Popen(command, stdout=out, stderr=out, **_detached(mark))


def _detached(mark: str) -> dict[str, Any]:
    """A session of its own, and in the environment the mark by which `processes` finds it."""
    environment = {**os.environ, MARK: mark, "LC_ALL": "C.UTF-8"}
    return {"stdin": subprocess.DEVNULL, "start_new_session": True, "env": environment}
