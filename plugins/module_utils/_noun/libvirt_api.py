# Copyright (c) corral.virt contributors
# SPDX-License-Identifier: GPL-3.0-or-later
"""Carry out steps on libvirt's objects that can be defined and started (pools, networks)."""

from __future__ import annotations

import dataclasses
import typing as t

from ansible_collections.corral.virt.plugins.module_utils._core.object_ref import Ref
from ansible_collections.corral.virt.plugins.module_utils._domain import libvirt_query
from ansible_collections.corral.virt.plugins.module_utils._libvirt.connection import Connection, explained
from ansible_collections.corral.virt.plugins.module_utils._noun import plan_noun
from ansible_collections.corral.virt.plugins.module_utils._noun.libvirt_type import ObjectType
from ansible_collections.corral.virt.plugins.module_utils._noun.model_noun import Spec

Doer = t.Callable[[t.Any, t.Any], object]  # libvirt's object, and the step
Definer = t.Callable[[Connection, Spec, t.Any], t.Any]  # the options and the step


@dataclasses.dataclass(frozen=True)
class ObjectApi:
    """libvirt's functions for a type of object, and the doers of this type only."""

    of: ObjectType
    define: str | Definer  # method of a connection
    own: t.Mapping[type[plan_noun.NounStep], Doer] = dataclasses.field(default_factory=dict)
    host: t.Callable[[Connection, Spec], t.Any] = lambda _connection, _spec: None  # facts
    # Doers that need the options: what no step may hold, such as the value of a secret.
    told: t.Callable[[Connection, Spec], t.Mapping[type[plan_noun.NounStep], Doer]] = lambda _connection, _spec: {}


_DO: dict[type[plan_noun.NounStep], Doer] = {
    plan_noun.Start: lambda thing, _step: thing.create(),
    plan_noun.Stop: lambda thing, _step: thing.destroy(),
    plan_noun.SetAutostart: lambda thing, step: thing.setAutostart(step.on),
}


def doer(connection: Connection, api: ObjectApi, spec: Spec) -> t.Callable[[plan_noun.NounStep], None]:
    """A function that carries out steps on one object, by its UUID, never on another that has its name by then."""
    own = {**_DO, **api.own, **api.told(connection, spec)}
    made_uuid: str | None = None

    def do(step: plan_noun.NounStep) -> None:
        nonlocal made_uuid
        with explained(_verb(step, api.of.what), _place(step.ref)):
            if isinstance(step, plan_noun.Define):  # libvirt refuses the name of another UUID
                define = api.define
                made = (
                    getattr(connection, define)(step.xml) if isinstance(define, str) else define(connection, spec, step)
                )
                made_uuid = made.UUIDString() if api.of.kind.uuid else None
            elif step.is_gone:
                own[type(step)](None, step)
            else:
                thing = api.of.identified(connection, dataclasses.replace(step.ref, uuid=step.ref.uuid or made_uuid))
                if step.__class__ is plan_noun.Undefine:  # the front has looked at it
                    thing.undefine()
                else:
                    own[type(step)](thing, step)

    return do


def guests(connection: Connection) -> list[tuple[str, tuple[str, ...]]]:
    """Guests' names, and documents, stored and running."""
    found = libvirt_query.of_all(connection, libvirt_query.found)
    return [(one.name, (one.xml, one.live_xml) if one.live_xml else (one.xml,)) for one in found]


def _place(ref: Ref) -> str:
    return ref.name + (f" in {ref.within}" if ref.within else "")


def _verb(step: plan_noun.NounStep, what: str) -> str:
    if isinstance(step, plan_noun.SetAutostart):
        return f"set autostart of {what}"
    if isinstance(step, plan_noun.Update):
        return f"{step.command} {step.what} of running {what}"
    return f"{step.verb} {what}"
