# Copyright (c) corral.virt contributors
# GNU General Public License v3.0+ (see COPYING or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
# This file is private to the collection and may change at any time.
"""What is recorded with a guest that moves, and what that means for the next run. Pure."""

from __future__ import annotations

import typing as t

from ansible_collections.corral.virt.plugins.module_utils._migration.model_migration import LeftDisk, Move
from ansible_collections.corral.virt.plugins.module_utils._system.model_identity import FileIdentity
from ansible_collections.corral.virt.plugins.module_utils._xml.names import sealed

__all__ = ["record_of_move", "starts_with_host"]


def record_of_move(move: Move, found: t.Mapping[str, FileIdentity | None]) -> dict[str, t.Any]:
    """What is recorded with the guest before anything is made: whose it is, and what goes when it has arrived.

    `found` is what the files of its disks are, by path, where they are of this host.
    """
    goes = [
        str(LeftDisk(disk.path, found.get(disk.path)))
        for disk in reversed(move.disks)
        if disk.volume and disk.delete_source
    ] + [str(left) for left in move.variables]
    return {
        "moving": move.dest,
        "moving_from": move.source_uuid,
        "moving_seal": sealed(move.uuid),
        "moving_seen": move.seen.partition(" ")[0],
        "moving_paused": "yes" if move.paused else "",
        "moving_autostart": "yes" if move.autostart else "",
        "moving_suspends": "yes" if move.tuning.timeout_action == "suspend" else "",
        "moving_goes": () if move.keep_source_storage else tuple(goes),
    }


def starts_with_host(recorded: t.Mapping[str, t.Any], *, autostart: bool) -> bool:
    """Whether the guest is to start with its host: it does, or did until an earlier run held it back."""
    return autostart or bool(recorded.get("moving") and recorded.get("moving_autostart"))
