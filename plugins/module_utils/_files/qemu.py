# Copyright (c) corral.virt contributors
# GNU General Public License v3.0+ (see COPYING or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
# This file is private to the collection and may change at any time.
"""The process of a guest as its host sees it, and why libvirt ended it."""

from __future__ import annotations

import os
import select
import typing as t

__all__ = ["PID_FILE", "given_away"]

PID_FILE = "/run/libvirt/qemu/{}.pid"
_LOG = "/var/log/libvirt/qemu/{}.log"
_LOOK_S = 0.2


def given_away(name: str, over: t.Callable[[], bool]) -> bool:
    """Wait until the guest's process ends, or it is `over`. Whether libvirt ended it because the guest had arrived elsewhere.

    It writes why before it ends a process (qemuProcessStop), and then looks only five times a second whether that is dead.
    """
    try:
        with open(_LOG.format(name), errors="replace") as log, open(PID_FILE.format(name)) as pid:
            log.seek(0, os.SEEK_END)
            process = os.pidfd_open(int(pid.read()))
            try:
                while not select.select([process], [], [], _LOOK_S)[0]:
                    if over():
                        return False
            finally:
                os.close(process)
            return "shutting down, reason=migrated" in log.read()
    except (OSError, ValueError):
        return False  # nobody knows
