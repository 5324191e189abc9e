# Copyright (c) corral.virt contributors
# GNU General Public License v3.0+ (see COPYING or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
# This file is private to the collection and may change at any time.
"""Files that are made for a guest: its record names each before, and tells it apart from others afterwards.

What an interrupted run left is replaced, but not what somebody has come to use under its name.
"""

from __future__ import annotations

import contextlib
import dataclasses
import os
import typing as t

from ansible_collections.corral.virt.plugins.module_utils._core.gate import Looked
from ansible_collections.corral.virt.plugins.module_utils._core.uri import is_here
from ansible_collections.corral.virt.plugins.module_utils._guest import plan_guest_steps
from ansible_collections.corral.virt.plugins.module_utils._guest.run_definition import Definition
from ansible_collections.corral.virt.plugins.module_utils._libvirt import metadata
from ansible_collections.corral.virt.plugins.module_utils._storage import plan_disposal

__all__ = ["make"]

Step = t.Union[plan_guest_steps.CreateVolume, plan_guest_steps.WriteSeed, plan_guest_steps.Customize]


def make(stored: Definition, step: Step) -> None:
    """Make the file of that step, and record which it is."""
    claim = step.claim
    with contextlib.ExitStack() as stack:
        if claim:
            texts = {"with_file": claim.with_file, "without_file": claim.without_file}
            stack.enter_context(metadata.claimed(stored.connection, stored.uuid, step.guest, **texts))
        _DOERS[type(step)](_Making(stored, step))
    stored.stamp(step.path)


@dataclasses.dataclass
class _Making:
    stored: Definition
    step: t.Any

    @property
    def connection(self) -> t.Any:
        return self.stored.connection

    @contextlib.contextmanager
    def replace(self) -> t.Iterator[None]:
        """Delete what has the name, unless somebody uses it."""
        step = self.step
        if step.replace and os.path.lexists(step.path) and is_here(self.connection.getURI()):
            from ansible_collections.corral.virt.plugins.module_utils._storage import run_disposal

            run_disposal.dispose(
                run_disposal.Disposal(self.connection, step.path, step.guest, self.stored.uuid, verb="replace")
            )
            self.step = dataclasses.replace(step, replace=False)
        yield

    def rewrite(self) -> None:
        """A guest that runs has its own seed open: others must not use it."""
        step = self.step
        if step.replace:
            from ansible_collections.corral.virt.plugins.module_utils._storage import run_file_users

            users = run_file_users.users(self.connection, but=self.stored.uuid)
            sight = plan_disposal.DiskSight(users.of(step.path))
            plan_disposal.check_sight(step.path, step.guest, sight, uri=self.connection.getURI(), verb="replace")

    def create(self) -> None:
        """By libvirt."""
        from ansible_collections.corral.virt.plugins.module_utils._guest import libvirt_domain

        libvirt_domain.create_volume(self.connection, self.step)

    def seed(self) -> None:
        """With the libraries of a seed."""
        from ansible_collections.corral.virt.plugins.module_utils._seed import run_seeds

        run_seeds.do(self.connection, self.step)


_DOERS: dict[type[plan_guest_steps.GuestStep], Looked] = {
    plan_guest_steps.CreateVolume: Looked(_Making.replace, _Making.create),
    plan_guest_steps.Customize: Looked(_Making.replace, _Making.seed),
    plan_guest_steps.WriteSeed: Looked(_Making.rewrite, _Making.seed),
}
