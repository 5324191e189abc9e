# Copyright (c) corral.virt contributors
# SPDX-License-Identifier: GPL-3.0-or-later
"""A guest's definition from the plan to the steps: replaced and removed only if it is the one that the plan saw."""

from __future__ import annotations

import dataclasses
import typing as t

from ansible_collections.corral.virt.plugins.module_utils._core.gate import Looked
from ansible_collections.corral.virt.plugins.module_utils._core.uri import is_here
from ansible_collections.corral.virt.plugins.module_utils._domain import fields_record, libvirt_query
from ansible_collections.corral.virt.plugins.module_utils._guest import (
    plan_changes,
    plan_guest_steps,
)
from ansible_collections.corral.virt.plugins.module_utils._libvirt import definition
from ansible_collections.corral.virt.plugins.module_utils._system import identity
from ansible_collections.corral.virt.plugins.module_utils._system.model_identity import FileIdentity


@dataclasses.dataclass
class Definition:
    """The stored definition of a guest by UUID, as the plan or the last step left it; xml None: no guest."""

    connection: t.Any
    uuid: str
    xml: str | None
    made: dict[str, FileIdentity] = dataclasses.field(default_factory=dict)  # files that this run has made, by path
    own: bool = False  # a step of this run has changed it, so it is no longer the one that the plan saw

    def check(self, verb: str, guest: str) -> None:
        """Raise Refused if somebody has changed the definition."""
        seen = fields_record.fingerprint(self.xml) if self.xml else ""
        plan_changes.check_unchanged(verb, guest, self._sight(self.uuid, seen))

    def _sight(self, uuid: str, expected: str) -> plan_changes.DefinitionSight:
        """What there is of the guest, compared with the fingerprint of the definition that is expected."""
        found = libvirt_query.stored(self.connection, uuid)
        if found is None or not expected:
            return plan_changes.DefinitionSight(exists=found is not None, expected=bool(expected))
        same = fields_record.fingerprint(found.xml) == expected
        parts = () if same or self.xml is None else fields_record.differing(self.xml, found.xml)
        differs = () if same else parts or ("the order of its elements",)
        return plan_changes.DefinitionSight(True, True, found.active, found.persistent, differs)

    def look(self, step: plan_guest_steps.Define | plan_guest_steps.Undefine) -> None:
        """Check the definition before it is replaced; before it is removed, also that the guest is off."""
        expected = step.seen
        if self.own:
            expected = fields_record.fingerprint(self.xml) if self.xml else ""
        removes = isinstance(step, plan_guest_steps.Undefine)
        plan_changes.check_unchanged(step.verb, step.guest, self._sight(step.uuid, expected), must_be_off=removes)

    def define(self, step: plan_guest_steps.Define) -> None:
        """Replace the definition, and read it back as libvirt has it."""
        definition.define(self.connection, step.guest, fields_record.identified(step.xml, self.made))
        self.follow()

    def stamp(self, path: str) -> None:
        """Mark a file made for the guest, and keep its identity for the record."""
        found = identity.stamped(path) if is_here(self.connection.getURI()) else None
        if found and found.is_known:
            self.made[path] = found

    def undefine(self, step: plan_guest_steps.Undefine) -> None:
        """Remove the definition."""
        definition.undefine_by(self.connection, step.uuid, step.guest, step.managed_state)

    def follow(self) -> None:
        """Read the definition again after a step of this run has changed it."""
        seen = libvirt_query.stored(self.connection, self.uuid)
        self.xml, self.own = seen.xml if seen else None, True


_DOERS: dict[type[plan_guest_steps.GuestStep], Looked] = {
    plan_guest_steps.Define: Looked(Definition.look, Definition.define),
    plan_guest_steps.Undefine: Looked(Definition.look, Definition.undefine),
}


def do(found: Definition, step: plan_guest_steps.GuestStep) -> object:
    """Do one step on it."""
    return _DOERS[type(step)](found, step)
