# Copyright (c) corral.virt contributors
# SPDX-License-Identifier: GPL-3.0-or-later
"""The ports that QEMU listens on for migrations: check that they are reachable, and cut silent connections to them."""

from __future__ import annotations

import re
import socket
import subprocess

from ansible_collections.corral.virt.plugins.module_utils._core.defaults import (
    FIRST_MIGRATION,
    LAST_MIGRATION,
    MIGRATIONS,
)

_CONNECT_S, _COMMAND_S = 3, 10


def filtered(host: str) -> str | None:
    """Why a firewall blocks migrations to the host, with the remedy; None if it does not. A port without a listener
    refuses the connection, and one that is filtered is silent.
    """
    try:
        socket.create_connection((host, FIRST_MIGRATION), timeout=_CONNECT_S).close()
    except ConnectionRefusedError:
        return None
    except OSError as error:
        reason = "no answer" if isinstance(error, socket.timeout) else error.strerror or str(error)
        remedy = f"open {MIGRATIONS} there, or use transport: tunnelled"
        return f"port {FIRST_MIGRATION} of {host} cannot be reached from here ({reason}): {remedy}"
    return None


def cut(pid_file: str) -> None:
    """Let the kernel close a process's connections to migration ports: they fail now, not when TCP gives up.

    A QEMU that waits for a silent host while it drains a disk hears nobody, and libvirt keeps its migration job as
    long: neither `virDomainAbortJob` nor QMP `yank` gets through. A kernel without INET_DIAG_DESTROY closes nothing,
    and TCP gives up after minutes.
    """
    try:
        with open(pid_file) as file:
            mine = f"pid={int(file.read())},"
        for line in _ss(
            "-p", "state", "connected", "dport", ">=", f":{FIRST_MIGRATION}", "and", "dport", "<=", f":{LAST_MIGRATION}"
        ).splitlines():
            ends = re.findall(r"\S+:\d+(?= )", line)
            if mine in line and len(ends) == 2:
                _ss("-K", "src", ends[0], "dst", ends[1])
    except (OSError, ValueError, subprocess.SubprocessError):
        return  # it has ended, or there is no ss


def _ss(*words: str) -> str:
    return subprocess.run(
        ["ss", "-Htn", *words], capture_output=True, text=True, timeout=_COMMAND_S, check=False
    ).stdout
