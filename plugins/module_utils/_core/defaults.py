# Copyright (c) corral.virt contributors
# SPDX-License-Identifier: GPL-3.0-or-later
"""Defaults: names of objects that the roles create, and the memory that a host reserves."""

from __future__ import annotations

import typing as t

# TCP ports of libvirt and of QEMU's migrations, as libvirt has them where nobody changes its settings.

LIBVIRT_TLS = 16514
FIRST_MIGRATION, LAST_MIGRATION = 49152, 49215  # migration_port_min and _max of qemu.conf
MIGRATIONS = f"{FIRST_MIGRATION}-{LAST_MIGRATION}"


BRIDGE = "br0"
POOL = "default"
RESERVED_MIB = 512  # of a host's memory; what placement may give away is less than what is there

_VIRT_TYPES = ("kvm", "qemu")  # the best first


def machine(offered: t.Collection[str]) -> str:
    """The machine type of a new guest; empty: libvirt chooses."""
    return "q35" if "q35" in offered else ""


def virt_type(offered: t.Sequence[str]) -> str:
    """The best virtualization type that the host offers."""
    return next((kind for kind in _VIRT_TYPES if kind in offered), offered[0] if offered else "qemu")
