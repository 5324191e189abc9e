# Copyright (c) corral.virt contributors
# SPDX-License-Identifier: GPL-3.0-or-later
"""Steps that make files for a guest, and those that cannot be undone: each looks again right before it acts.

The guest's record names a file before it is made. What an interrupted run left is replaced, unless somebody uses it by
now.
"""

from __future__ import annotations

import contextlib
import dataclasses
import os
import typing as t

from ansible_collections.corral.virt.plugins.module_utils._core.gate import Looked
from ansible_collections.corral.virt.plugins.module_utils._core.uri import is_here
from ansible_collections.corral.virt.plugins.module_utils._guest import (
    plan_guest_steps,
)
from ansible_collections.corral.virt.plugins.module_utils._guest.run_definition import Definition
from ansible_collections.corral.virt.plugins.module_utils._libvirt import definition
from ansible_collections.corral.virt.plugins.module_utils._storage import files_logical, libvirt_storage, plan_disposal
from ansible_collections.corral.virt.plugins.module_utils._storage.run_disposal import Disposal, Finishing

Step = t.Union[
    plan_guest_steps.CreateVolume,
    plan_guest_steps.CreateLogicalVolume,
    plan_guest_steps.WriteSeed,
    plan_guest_steps.Customize,
]


def make_file(stored: Definition, step: Step) -> None:
    """Make the file of a step, and record its identity."""
    claim = step.claim
    with contextlib.ExitStack() as stack:
        if claim:
            texts = {"with_file": claim.with_file, "without_file": claim.without_file}
            stack.enter_context(definition.claimed(stored.connection, stored.uuid, step.guest, **texts))
        _MAKERS[type(step)](_Making(stored, step))
    stored.stamp(step.path)


@dataclasses.dataclass
class _Making:
    stored: Definition
    step: t.Any

    @property
    def connection(self) -> t.Any:
        return self.stored.connection

    def replace(self) -> None:
        """Before a file is created: delete the old one at its path, unless somebody uses it."""
        step = self.step
        if step.replace and os.path.lexists(step.path) and is_here(self.connection.getURI()):
            from ansible_collections.corral.virt.plugins.module_utils._storage import run_disposal

            run_disposal.replaced(self.connection, step.path, step.guest, self.stored.uuid, step.expected)
            self.step = dataclasses.replace(step, replace=False)

    def replace_logical(self) -> None:
        """Before a logical volume is created: delete what an interrupted run left of it, unless somebody uses it."""
        step = self.step
        if step.expected:
            from ansible_collections.corral.virt.plugins.module_utils._storage import run_disposal

            run_disposal.replaced(self.connection, step.path, step.guest, self.stored.uuid, step.expected)

    def create_logical(self) -> None:
        """Create the logical volume, and let libvirt see it."""
        files_logical.create(self.step, self.stored.uuid)
        libvirt_storage.refresh(self.connection, self.step.volume.pool)

    def rewrite(self) -> None:
        """Before a seed is rewritten: refuse if others than its own guest use it."""
        step = self.step
        if step.replace:
            from ansible_collections.corral.virt.plugins.module_utils._storage import run_file_users

            users = run_file_users.users(self.connection, but=step.uuid)
            sight = plan_disposal.DiskSight(users.of(step.path))
            plan_disposal.check_sight(step.path, step.guest, sight, uri=self.connection.getURI(), verb="replace")

    def create(self) -> None:
        """Create the volume with libvirt."""
        from ansible_collections.corral.virt.plugins.module_utils._guest import libvirt_domain

        libvirt_domain.create_volume(self.connection, self.step)

    def seed(self) -> None:
        """Write or apply the seed."""
        from ansible_collections.corral.virt.plugins.module_utils._seed import run_seeds

        run_seeds.do(self.connection, self.step)


_MAKERS: dict[type[plan_guest_steps.GuestStep], Looked] = {
    plan_guest_steps.CreateVolume: Looked(_Making.replace, _Making.create),
    plan_guest_steps.CreateLogicalVolume: Looked(_Making.replace_logical, _Making.create_logical),
    plan_guest_steps.Customize: Looked(_Making.replace, _Making.seed),
    plan_guest_steps.WriteSeed: Looked(_Making.rewrite, _Making.seed),
}


def do(connection: t.Any, uuid: str, step: plan_guest_steps.GuestStep) -> object:
    """Do one step that cannot be undone on the guest with this UUID."""
    return _DOERS[type(step)](_subject(connection, uuid, step))


def grow(connection: t.Any, step: plan_guest_steps.GrowLogicalVolume) -> None:
    """Grow a logical volume, and let libvirt see it."""
    _GROWERS[type(step)](step)
    libvirt_storage.refresh(connection, step.pool)


def _subject(connection: t.Any, uuid: str, step: plan_guest_steps.GuestStep) -> Disposal | Finishing:
    if isinstance(step, plan_guest_steps.FinishRemoval):
        return Finishing(connection, step.place, step.expected)
    delete = t.cast(plan_guest_steps.DeleteVolume, step)
    return Disposal(
        connection,
        delete.path,
        delete.guest,
        uuid,
        expected=delete.expected,
        without=delete.others,
        left=delete.left,
        keep_h=delete.keep_h,
        key=delete.key,
    )


_DOERS: dict[type[plan_guest_steps.GuestStep], Looked] = {
    plan_guest_steps.DeleteVolume: Looked(Disposal.look, Disposal.act),
    plan_guest_steps.FinishRemoval: Looked(Finishing.look, Finishing.act),
}
_GROWERS: dict[type[plan_guest_steps.GuestStep], t.Callable[[t.Any], object]] = {
    plan_guest_steps.GrowLogicalVolume: files_logical.grow,
    plan_guest_steps.GrowThinVolume: files_logical.grow_thin,
}
