# Copyright (c) corral.virt contributors
# SPDX-License-Identifier: GPL-3.0-or-later
"""Names in libvirt's XML of guests that several packages use."""

from __future__ import annotations

import hashlib

AGENT_CHANNEL = "org.qemu.guest_agent.0"
# Namespaces of what the collection records in <metadata>. Addresses change by themselves, and backups are made at any
# time: of two runs that write, each replaces its own element as a whole and none of the other's.
CORRAL = "urn:corral:virt:guest:1"
SEEN = "urn:corral:virt:seen:1"
BACKED = "urn:corral:virt:backup:1"
OURS = (CORRAL, SEEN, BACKED)
LIBOSINFO = "http://libosinfo.org/xmlns/libvirt/domain/1.0"  # also written by virt-manager
BACKUP_OF = "corral.virt backup, repository "  # begins the description of a checkpoint
PREFIXES = {"corral": CORRAL, "corral-seen": SEEN, "corral-backup": BACKED, "libosinfo": LIBOSINFO}


def sealed(uuid: str) -> str:
    """A hash of the owner's UUID for a record; replacing the UUID throughout a document does not change it."""
    return hashlib.sha256(uuid.encode()).hexdigest()[:16]
