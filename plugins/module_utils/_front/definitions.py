# Copyright (c) corral.virt contributors
# GNU General Public License v3.0+ (see COPYING or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
# This file is private to the collection and may change at any time.
"""A guest's definition from the plan to the steps: replaced and removed only where it is the one that the plan saw."""

from __future__ import annotations

import dataclasses
import typing as t

from ansible_collections.corral.virt.plugins.module_utils._files import identity
from ansible_collections.corral.virt.plugins.module_utils._libvirt import definition, query
from ansible_collections.corral.virt.plugins.module_utils._model.disk_identity import FileIdentity
from ansible_collections.corral.virt.plugins.module_utils._model.uri import is_here
from ansible_collections.corral.virt.plugins.module_utils._plan import definition as plans
from ansible_collections.corral.virt.plugins.module_utils._plan import steps
from ansible_collections.corral.virt.plugins.module_utils._run import Looked
from ansible_collections.corral.virt.plugins.module_utils._xml import record

__all__ = ["Definition", "do"]


@dataclasses.dataclass
class Definition:
    """What is stored of a guest (its UUID), as the plan or the last step of this run left it; None: no such guest."""

    connection: t.Any
    uuid: str
    xml: str | None
    made: dict[str, FileIdentity] = dataclasses.field(default_factory=dict)  # files that this run has made, by path

    def check(self, verb: str, guest: str, *, must_be_off: bool = False) -> None:
        """Raises Refused where somebody has changed it."""
        plans.check(verb, guest, self._sight(), must_be_off=must_be_off)

    def _sight(self) -> plans.DefinitionSight:
        seen = query.stored(self.connection, self.uuid)
        if seen is None or self.xml is None:
            return plans.DefinitionSight(exists=seen is not None, expected=self.xml is not None)
        same = record.fingerprint(seen.xml) == record.fingerprint(self.xml)
        differs = () if same else record.differing(self.xml, seen.xml) or ("the order of its elements",)
        return plans.DefinitionSight(True, True, seen.active, seen.persistent, differs)

    def look(self, step: steps.GuestStep) -> None:
        """Before it is replaced."""
        self.check(step.verb, step.guest)

    def look_off(self, step: steps.GuestStep) -> None:
        """Before it is removed."""
        self.check(step.verb, step.guest, must_be_off=True)

    def define(self, step: steps.Define) -> None:
        """Replace it; from then on it is expected as libvirt has it."""
        definition.define(self.connection, step.guest, record.identified(step.xml, self.made))
        self.follow()

    def stamp(self, path: str) -> None:
        """After a file was made for the guest: mark it, and let the record tell which it is."""
        found = identity.stamped(path) if is_here(self.connection.getURI()) else None
        if found and found.is_known:
            self.made[path] = found

    def undefine(self, step: steps.Undefine) -> None:
        """Remove it."""
        definition.undefine_by(self.connection, self.uuid, step.guest, step.managed_state)

    def follow(self) -> None:
        """After a step of this run has changed it."""
        seen = query.stored(self.connection, self.uuid)
        self.xml = seen.xml if seen else None


_DOERS: dict[type[steps.GuestStep], Looked] = {
    steps.Define: Looked(Definition.look, Definition.define),
    steps.Undefine: Looked(Definition.look_off, Definition.undefine),
}


def do(found: Definition, step: steps.GuestStep) -> object:
    """Do one step on it."""
    return _DOERS[type(step)](found, step)
