# Copyright (c) corral.virt contributors
# GNU General Public License v3.0+ (see COPYING or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
# This file is private to the collection and may change at any time.
"""Let libvirt forget what is no longer true of a guest whose disks were replaced."""

from __future__ import annotations

from ansible_collections.corral.virt.plugins.module_utils._backup.plan_backup_steps import ForgetCheckpoints
from ansible_collections.corral.virt.plugins.module_utils._domain import libvirt_query
from ansible_collections.corral.virt.plugins.module_utils._libvirt.connection import Connection, explained, libvirt

__all__ = ["forget_checkpoints"]


def forget_checkpoints(connection: Connection, step: ForgetCheckpoints) -> None:
    """Forget checkpoints, and not the bitmaps of the disks that had them."""
    domain = libvirt_query.by_uuid(connection, step.uuid)
    for name in step.names:
        with explained(f"forget checkpoint {name} of", step.guest):
            found = domain.checkpointLookupByName(name)
            found.delete(libvirt.VIR_DOMAIN_CHECKPOINT_DELETE_METADATA_ONLY)
