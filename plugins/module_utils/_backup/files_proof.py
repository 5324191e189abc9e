# Copyright (c) corral.virt contributors
# SPDX-License-Identifier: GPL-3.0-or-later
"""The directory, the bridge, the console and the probe of a guest that is restored to prove a backup."""

from __future__ import annotations

import glob
import os
import shutil
import subprocess
import typing as t

from ansible_collections.corral.virt.plugins.module_utils._system import durable
from ansible_collections.corral.virt.plugins.module_utils._system.command import SYSTEM_PATH, run
from ansible_collections.corral.virt.plugins.module_utils._system.os_errors import explained

_PASS = 0o711  # QEMU's user passes through
_CONSOLE_BYTES, _TOLD_LENGTH = 65536, 300
_PROBE_S = 60  # for one attempt


def create(directory: str) -> None:
    """Create the directory of its disks."""
    with explained(f"create {directory}", directory):
        os.mkdir(directory, _PASS)
        os.chmod(directory, _PASS)
        durable.fsync(os.path.dirname(directory))


def remove(directory: str, log: str) -> None:
    """Remove that directory with all that is in it, and the log of its console with its older parts."""
    with explained(f"remove {directory} and {log}", directory):
        if os.path.lexists(directory):
            shutil.rmtree(directory)
        for path in glob.glob(f"{glob.escape(log)}*"):
            durable.remove(path)


def take_down(bridge: str) -> None:
    """Let a bridge pass no frame, also not to this machine."""
    run("ip", "link", "set", "dev", bridge, "down")


def console(log: str) -> bytes:
    """The end of what its console has shown."""
    try:
        with open(log, "rb") as stream:
            stream.seek(max(0, os.fstat(stream.fileno()).st_size - _CONSOLE_BYTES))
            return stream.read()
    except FileNotFoundError:
        return b""


def probe(command: str, names: t.Mapping[str, str]) -> str | None:
    """Run the user's command with these variables; None if it succeeds, else what it told."""
    environment = {**os.environ, "PATH": SYSTEM_PATH, **names}
    try:
        done = subprocess.run(
            ["/bin/sh", "-c", command],
            env=environment,
            stdin=subprocess.DEVNULL,
            stdout=subprocess.PIPE,
            stderr=subprocess.STDOUT,
            timeout=_PROBE_S,
            check=False,
        )
    except subprocess.TimeoutExpired:
        return f"the probe did not end within {_PROBE_S} s"
    if not done.returncode:
        return None
    told = " ".join(done.stdout.decode(errors="replace").split())[-_TOLD_LENGTH:]
    return f"the probe exited with {done.returncode}{f': {told}' if told else ''}"
