# Copyright (c) corral.virt contributors
# GNU General Public License v3.0+ (see COPYING or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
# This file is private to the collection and may change at any time.
"""Decide whether a guest may have another name. Pure."""

from __future__ import annotations

import typing as t

from ansible_collections.corral.virt.plugins.module_utils._core.errors import NotFound, Refused
from ansible_collections.corral.virt.plugins.module_utils._core.problems import WHERE_IT_IS
from ansible_collections.corral.virt.plugins.module_utils._domain.model_domain import FoundGuest, GuestSpec
from ansible_collections.corral.virt.plugins.module_utils._guest import plan_guest_steps

__all__ = ["rename"]

_NAMED_AFTER = {  # what libvirt keeps under a guest's name, and what removes it
    "managed_save": "virsh managedsave-remove {}",
    "snapshots": "virsh snapshot-delete {} SNAPSHOT",
    "checkpoints": "virsh checkpoint-delete {} CHECKPOINT",
}


def rename(
    wanted: GuestSpec,
    found: FoundGuest | None,
    former: FoundGuest | None,
    *,
    managed_state: t.Sequence[str],
    recorded: t.Mapping[str, t.Any],
) -> plan_guest_steps.Rename | None:
    """What gives the guest its new name; None when it has that. `found` has the new name, `former` the old one.

    `managed_state` is what libvirt keeps of `former`, `recorded` what we record with it.
    """
    what = f"cannot rename {wanted.renamed_from} to {wanted.name}"
    if former is None and found is None:
        raise NotFound(f"{what}: there is no guest {wanted.renamed_from} here; {WHERE_IT_IS}")
    if former is None:
        return None
    if found is not None:
        raise Refused(f"{what}: another guest has this name (UUID {found.uuid}); choose another name")
    if wanted.uuid and wanted.uuid != former.uuid:
        raise Refused(f"{what}: the guest with this name has UUID {former.uuid}, not {wanted.uuid}; check the UUID")
    if former.active:
        raise Refused(
            f"{what}: it is {former.state}; shut it down first: ansible-playbook corral.virt.shutdown -e "
            f"guest={former.name}"
        )
    if recorded.get("moving"):
        raise Refused(
            f"{what}: its migration is in progress or was interrupted; finish it with virt_migrate (playbook migrate)"
        )
    if recorded.get("making"):
        raise Refused(f"{what}: an interrupted run left {', '.join(recorded['making'])} incomplete; repeat it first")
    if kept := [kind for kind in _NAMED_AFTER if kind in managed_state]:
        remedy = "; ".join(_NAMED_AFTER[kind].format(former.name) for kind in kept)
        raise Refused(
            f"{what}: libvirt keeps its {' and '.join(kept).replace('_', ' ')} under its name; remove that first: "
            f"{remedy}"
        )
    return plan_guest_steps.Rename(former.name, wanted.name)
