# Copyright (c) corral.virt contributors
# SPDX-License-Identifier: GPL-3.0-or-later
"""The QEMU process of a guest as its host sees it, why libvirt ended it, and the settings in qemu.conf."""

from __future__ import annotations

import os
import re
import select
import typing as t

from ansible_collections.corral.virt.plugins.module_utils._domain.model_domain import DisplayDefaults

PID_FILE = "/run/libvirt/qemu/{}.pid"
_LOG = "/var/log/libvirt/qemu/{}.log"
_CONF = "/etc/libvirt/qemu.conf"
_LOOK_S = 0.2


def settings() -> tuple[bool, list[str]]:
    """Whether libvirt changes the owner of disks (dynamic_ownership), and the directories of shared_filesystems."""
    text = _configuration()
    shared = re.search(r"^\s*shared_filesystems\s*=\s*\[(.*?)\]", text, re.MULTILINE | re.DOTALL)
    owns = _values(text).get("dynamic_ownership") != "0"
    return owns, re.findall(r'"([^"]+)"', shared.group(1) if shared else "")


def displays() -> DisplayDefaults:
    """The defaults of qemu.conf for the displays of all guests."""
    values = _values(_configuration())
    listen = {kind: values.get(f"{kind}_listen") for kind in ("vnc", "spice")}
    guards = {"vnc": ("vnc_tls", "vnc_password", "vnc_sasl"), "spice": ("spice_password", "spice_sasl")}
    protected = (
        kind for kind, names in guards.items() if any(values.get(name) not in (None, "", "0") for name in names)
    )
    return DisplayDefaults({kind: place for kind, place in listen.items() if place}, frozenset(protected))


def _configuration() -> str:
    try:
        with open(_CONF) as stream:
            return stream.read()
    except OSError:
        return ""  # its defaults


_VALUE = re.compile(r"""^[ \t]*(\w+)[ \t]*=[ \t]*(?:"([^"\n]*)"|'([^'\n]*)'|(\d+))""", re.MULTILINE)


def _values(text: str) -> dict[str, str]:
    """The numbers and texts in a configuration; the first of equal settings counts."""
    values: dict[str, str] = {}
    for name, *alternatives in _VALUE.findall(text):
        values.setdefault(name, "".join(alternatives))
    return values


def handed_over(name: str, over: t.Callable[[], bool]) -> bool:
    """Wait until the guest's process ends or `over` returns True. True if libvirt ended the process because the guest
    arrived elsewhere.

    libvirt logs the reason before it ends a process (qemuProcessStop), and then checks only five times a second whether
    the process is dead.
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
