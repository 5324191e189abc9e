# Copyright (c) corral.virt contributors
# SPDX-License-Identifier: GPL-3.0-or-later
"""Converge an object of any noun: facts, plan, gate, result."""

from __future__ import annotations

import dataclasses
import typing as t

from ansible_collections.corral.virt.plugins.module_utils._core import changes, units
from ansible_collections.corral.virt.plugins.module_utils._core.errors import VirtError
from ansible_collections.corral.virt.plugins.module_utils._core.gate import Gate, Looked
from ansible_collections.corral.virt.plugins.module_utils._core.object_ref import Ref
from ansible_collections.corral.virt.plugins.module_utils._core.problems import Problems
from ansible_collections.corral.virt.plugins.module_utils._libvirt.connection import Connection
from ansible_collections.corral.virt.plugins.module_utils._noun import libvirt_type, run_noun_options
from ansible_collections.corral.virt.plugins.module_utils._noun.libvirt_api import ObjectApi, doer
from ansible_collections.corral.virt.plugins.module_utils._noun.model_noun import Found, Spec
from ansible_collections.corral.virt.plugins.module_utils._noun.plan_noun import (
    Create,
    Define,
    NounPlan,
    NounStep,
    Start,
    Stop,
    Undefine,
    Update,
    check_still_planned,
    check_unchanged,
    not_started,
    noted,
    undo,
)
from ansible_collections.corral.virt.plugins.module_utils._noun.plan_noun_stages import Noun, plan
from ansible_collections.corral.virt.plugins.module_utils._noun.xml_document import digest
from ansible_collections.corral.virt.plugins.module_utils._xml import overlay
from ansible_collections.corral.virt.plugins.module_utils._xml.options import as_options


def spec(noun: Noun, params: t.Mapping[str, t.Any]) -> Spec:
    """The options of one object; raises BadInput with every problem."""
    problems = Problems()
    fields = run_noun_options.fields(noun.schema, params, problems)
    more = _extras(noun, params, problems)
    kind = noun.schema.kind
    made = Spec(
        params["name"],
        params["state"],
        fields,
        params.get("autostart"),
        seen=params.get("seen"),
        within=params[kind.within] if kind.within else None,
        own={option: params[option] for option in noun.schema.own if params.get(option) is not None},
        **more,
    )
    problems.found += noun.problems(made)
    problems.refuse()
    return made


def _extras(noun: Noun, params: t.Mapping[str, t.Any], problems: Problems) -> dict[str, t.Any]:
    what = f"{noun.schema.kind.name} {params['name']}"
    more = {key: params[key] for key in noun.schema.extras if params.get(key) is not None}
    if "uuid" in more:
        more["uuid"] = problems.tried(lambda: units.uuid_of(more["uuid"], what=f"uuid of {what}"))
    if "xml" in more:
        problems.read(f"xml of {what}", lambda: overlay.checked(more["xml"], noun.shape))
    return more


def converge(
    connection: Connection,
    noun: Noun,
    api: ObjectApi,
    params: t.Mapping[str, t.Any],
    gate: Gate,
) -> dict[str, t.Any]:
    """Bring one object to the wanted state, and return the result."""
    wanted, kind = spec(noun, params), noun.schema.kind
    found, done = _planned(connection, noun, api, wanted)
    as_found = dataclasses.replace(wanted, seen=None)
    thing = _Object(connection, api, wanted, found, lambda: _planned(connection, noun, api, as_found)[1])
    _run(gate, done.steps, thing)
    states = {change.where: change.after for change in done.changes}
    active, autostart = (found.active, found.autostart) if found else (False, False)
    row = {
        "name": wanted.name,
        **({kind.within: wanted.within} if kind.within else {}),
        **as_options(noun.schema.options, done.after or {}),
        **({"active": states.get("active", active)} if kind.activity else {}),
        **({"autostart": states.get("autostart", autostart)} if kind.autostart else {}),
        **done.row,
    }
    return {
        "changed": any(step.changes for step in done.steps),
        "diff": changes.diff(done.changes),
        "steps": [str(step) for step in done.steps if step.changes],
        "pending": list(done.pending),
        "notes": list(noted(done.notes, thing.notes)),
        "seen": done.seen,
        kind.name: None if done.after is None else row,
    }


def _planned(connection: Connection, noun: Noun, api: ObjectApi, wanted: Spec) -> tuple[Found | None, NounPlan]:
    found = _found(connection, api, noun.schema.kind.ref(wanted.name, wanted.within))
    host = noun.host(api.host(connection, wanted), wanted.name, found)
    return found, plan(noun, wanted, found, host)


def _run(gate: Gate, steps: t.Sequence[NounStep], thing: _Object) -> None:
    """Do the steps; if a start fails, restore what was there before."""
    first, start = thing.found, next((step for step in steps if isinstance(step, Start)), None)
    try:
        gate.run(steps, thing.do)
    except VirtError as error:
        back = undo(first, thing.done) if start and thing.failed is start else ()
        if not start or not back:
            raise
        failure = None
        try:
            gate.after(thing.done).run(back, thing.act)
        except VirtError as second:
            failure = second
        raise not_started(start, error.__cause__, back, failure) from error


def _found(connection: Connection, api: ObjectApi, ref: Ref) -> Found | None:
    found = libvirt_type.find(connection, api.of, ref)
    return found and dataclasses.replace(found, digest=digest(found.xml, api.of.kind))


class _Object:
    """One object during the steps: it is replaced or removed only if it is as the plan has seen it."""

    def __init__(
        self, connection: Connection, api: ObjectApi, spec: Spec, found: Found | None, again: t.Callable[[], NounPlan]
    ) -> None:
        self._connection, self._api = connection, api
        self._plan_again = again
        self.act = doer(connection, api, spec)
        self.found = found  # before the first step
        self._ours: str | None = None  # digest of the definition after the steps that changed it
        self.notes: tuple[str, ...] = ()  # of the plans that were made anew before steps
        self.done: list[NounStep] = []
        self.failed: NounStep | None = None

    def do(self, step: NounStep) -> object:
        """Do one step on the object."""
        self.failed = step
        result = self._do(step)
        self.failed = None
        self.done.append(step)
        return result

    def _do(self, step: NounStep) -> object:
        if isinstance(step, (Stop, Undefine)):
            now = self._plan_again()  # somebody may have come to need it
            check_still_planned(step, now)
            self.notes = noted(self.notes, now.notes)
        if type(step) in _DOERS:
            return _DOERS[type(step)](self, step)
        done = self.act(step)
        if isinstance(step, Update) and self.found:  # libvirt's test driver has one document for both
            self._ours = self._digest(step)
        return done

    def _digest(self, step: NounStep) -> str | None:
        now = libvirt_type.definition(self._connection, self._api.of, step.ref)
        return None if now is None else digest(now, self._api.of.kind)

    def look(self, step: t.Any) -> None:
        """Check that the definition is the one that the plan has seen, or that this run has made of it since."""
        if not step.seen:
            return
        now = self._digest(step)
        check_unchanged(step, exists=now is not None, same=now == (self._ours or step.seen))


_DOERS: dict[type[NounStep], Looked] = {
    Define: Looked(_Object.look, lambda noun, step: noun.act(step)),
    Create: Looked(_Object.look, lambda noun, step: noun.act(step)),
    Undefine: Looked(_Object.look, lambda noun, step: noun.act(step)),
}
