# Copyright (c) corral.virt contributors
# SPDX-License-Identifier: GPL-3.0-or-later
"""Run a program of the host: arguments as a list, never a shell, output in the C locale."""

from __future__ import annotations

import os
import subprocess
import typing as t

from ansible_collections.corral.virt.plugins.module_utils._core.errors import Failed

TIMEOUT_S = 60
SYSTEM_PATH = "/usr/sbin:/usr/bin:/sbin:/bin"  # sudo and su may leave out parts of it


def run(*command: str, stdin: str = "", timeout_s: float | None = None) -> str:
    """The program's output; raises Failed with its error."""
    timeout_s = timeout_s or TIMEOUT_S
    text = " ".join(command)
    try:
        done = _done(command, stdin, timeout_s)
    except FileNotFoundError as error:
        raise Failed(f"{text} failed: program {command[0]} is not installed; install it") from error
    except subprocess.TimeoutExpired as error:
        raise Failed(f"{text} failed: it did not end within {timeout_s} s; run it by hand on this host") from error
    if done.returncode:
        reason = (done.stderr or done.stdout).strip() or f"it exited with {done.returncode}"
        raise Failed(f"{text} failed: {reason}")
    return done.stdout


def answer(*command: str) -> str:
    """The program's output, whatever its exit code; empty if it is missing or times out."""
    try:
        return _done(command, "", TIMEOUT_S).stdout
    except (FileNotFoundError, subprocess.TimeoutExpired):
        return ""


def active(unit: str) -> bool:
    """True if systemd runs a unit."""
    return answer("systemctl", "is-active", unit).strip() == "active"


def enabled(unit: str) -> bool:
    """True if systemd starts a unit at boot."""
    return answer("systemctl", "is-enabled", unit).strip() == "enabled"


def _done(command: t.Sequence[str], stdin: str, timeout_s: float) -> subprocess.CompletedProcess[str]:
    return subprocess.run(
        command,
        input=stdin,
        capture_output=True,
        encoding="utf-8",
        errors="surrogateescape",
        timeout=timeout_s,
        env={**os.environ, "LC_ALL": "C", "PATH": f"{os.environ.get('PATH', '')}:{SYSTEM_PATH}"},
        check=False,
    )
