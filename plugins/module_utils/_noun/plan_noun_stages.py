# Copyright (c) corral.virt contributors
# SPDX-License-Identifier: GPL-3.0-or-later
"""A noun: schema, skeleton, identity, rules and live policy; and its stages in order."""

from __future__ import annotations

import dataclasses
import functools
import typing as t

from ansible_collections.corral.virt.plugins.module_utils._core.digest import digest
from ansible_collections.corral.virt.plugins.module_utils._core.errors import BadInput, Refused, VirtError
from ansible_collections.corral.virt.plugins.module_utils._core.output import some_of
from ansible_collections.corral.virt.plugins.module_utils._core.problems import refuse_all
from ansible_collections.corral.virt.plugins.module_utils._noun import plan_noun, xml_document
from ansible_collections.corral.virt.plugins.module_utils._noun.fields_schema import Schema
from ansible_collections.corral.virt.plugins.module_utils._noun.model_noun import Edited, Found, ObjectKind, Spec
from ansible_collections.corral.virt.plugins.module_utils._noun.plan_noun import (
    Case,
    NounPlan,
    NounStep,
    Policy,
    Rule,
)
from ansible_collections.corral.virt.plugins.module_utils._xml.overlay import Shape
from ansible_collections.corral.virt.plugins.module_utils._xml.row import values
from ansible_collections.corral.virt.plugins.module_utils._xml.tree import Element


@dataclasses.dataclass(frozen=True)
class Noun:
    """All that distinguishes one noun from another. Identity: the name, and the UUID behind it."""

    schema: Schema
    shape: Shape
    skeleton: t.Callable[[Spec], str]  # the document of one that does not exist yet
    rules: t.Sequence[Rule]
    made: t.Callable[[t.Mapping[str, t.Any]], str]  # describes a new one
    shown: tuple[str, ...]  # fields that stand for it in the diff of its removal

    # facts, of what the host told and what libvirt has under that name
    host: t.Callable[[t.Any, str, Found | None], t.Any] = lambda raw, _name, _found: raw
    live: Policy = dataclasses.field(default_factory=dict)
    finish: t.Callable[[Element], None] = lambda _root: None  # after an edit
    own: t.Callable[[Case], t.Sequence[NounStep]] = lambda _case: ()  # steps of this noun only
    amends: frozenset[str] = frozenset()  # fields that its own steps change, where libvirt defines nothing anew
    remove: t.Callable[[Case], NounStep] | None = None  # the step that removes one; None: undefine
    left: t.Callable[[Case], t.Sequence[NounStep]] = lambda _case: ()  # what finishes an interrupted removal
    # the step that creates one, where there is more to say than in its document
    create: t.Callable[[Case, plan_noun.Define], plan_noun.Define] = lambda _case, step: step
    problems: t.Callable[[Spec], t.Iterable[str]] = lambda _spec: ()  # with its own options
    row: t.Callable[[Case, NounPlan], t.Mapping[str, t.Any]] = lambda _case, _plan: {}  # more about it, in the result


def plan(noun: Noun, spec: Spec, found: Found | None, host: t.Any = None) -> NounPlan:
    """The plan for one object; raises all refusals at once."""
    case, kind = _edited_case(noun, spec, found, host), noun.schema.kind
    if spec.state == "absent":
        remove = noun.remove or (lambda case: _undefine(kind, case))
        result = plan_noun.absent(kind, case, noun.shown, remove, noun.left)
    else:
        result = plan_noun.present(kind, case, noun.live, noun.made(case.stored.after), noun.own(case))
        made = (noun.create(case, one) if isinstance(one, plan_noun.Define) else one for one in result.steps)
        result = dataclasses.replace(result, steps=tuple(made))
    findings = [one for rule in noun.rules for one in rule(case, result)]
    refusals = [one for one in findings if isinstance(one, VirtError)]
    result = dataclasses.replace(result, seen=_seen(case, result))
    refuse_all(
        [*_identity(noun, case), *_outrun(noun, case, result), *_fixed(noun, case), *_violations(noun, case), *refusals]
    )
    notes = (*result.notes, *(one for one in findings if isinstance(one, str)))
    return dataclasses.replace(result, notes=notes, row={**noun.row(case, result)})


def _undefine(kind: ObjectKind, case: Case) -> NounStep:
    return plan_noun.Undefine(case.ref(kind), case.found.digest if case.found else "")


def _edited_case(noun: Noun, spec: Spec, found: Found | None, host: t.Any) -> Case:
    """The stored and running documents with the options written into them."""
    live = values(found.live_xml, noun.schema.table) if found and found.live_xml else None
    if spec.state == "absent":
        before = values(found.xml, noun.schema.table) if found else {}
        return Case(spec, found, host, Edited("", before=before, after=before), live=live)
    stored = _edited(noun, spec, found.xml if found else noun.skeleton(spec))
    goes_on = spec.state != "inactive"
    running = _edited(noun, spec, found.live_xml) if found and found.live_xml and goes_on else None
    return Case(spec, found, host, stored, running, live)


def _edited(noun: Noun, spec: Spec, xml: str) -> Edited:
    return xml_document.edit(
        xml,
        spec.fields,
        table=noun.schema.table,
        shape=noun.shape,
        piece=spec.xml,
        finish=noun.finish,
    )


def _identity(noun: Noun, case: Case) -> t.Iterator[VirtError]:
    """Refuse another UUID: a name is not an identity."""
    spec, found, kind = case.spec, case.found, noun.schema.kind
    if found and spec.uuid and spec.uuid != found.uuid:
        yield Refused(
            f"cannot change uuid of {case.ref(kind)} from {found.uuid} to {spec.uuid}: another {kind.name} has this "
            "name; choose another name"
        )


def _seen(case: Case, result: NounPlan) -> str:
    """The digest of what the plan was made from, and of its steps."""
    found = case.found
    state = found and (found.uuid, found.digest, found.persistent, found.active, found.autostart)
    return digest((state, [(str(step), [_known_by(step, by) for by in _looks(step)]) for step in result.steps]))


def _looks(step: NounStep) -> tuple[str, ...]:
    return step.look.by if step.look else ()


def _known_by(step: t.Any, field: str) -> t.Any:
    return functools.reduce(getattr, field.split("."), step)


def _outrun(noun: Noun, case: Case, result: NounPlan) -> t.Iterator[VirtError]:
    """Refuse to carry out what is not the plan that was reviewed."""
    if case.spec.seen is not None and case.spec.seen != result.seen:
        steps = "; ".join(map(str, result.steps)) or "nothing"
        yield Refused(
            f"cannot carry out what was planned for {case.ref(noun.schema.kind)}: it has changed since, or the options "
            f"have; the plan is now: {steps}; review it in check mode, and give the seen that this returns"
        )


def _fixed(noun: Noun, case: Case) -> t.Iterator[VirtError]:
    """Refuse changes of what libvirt creates only once."""
    fixed = [one for one in case.stored.changes if one.where not in noun.amends]
    if case.found and fixed and not noun.schema.kind.redefine:
        yield Refused(
            f"cannot change {case.ref(noun.schema.kind)} ({some_of(list(map(str, fixed)), 4)}): it keeps what it was "
            "created with; omit these options, choose another name, or remove it first"
        )


def _violations(noun: Noun, case: Case) -> t.Iterator[VirtError]:
    for place, reason in case.stored.violations:
        yield BadInput(f"{place} of {case.ref(noun.schema.kind)}: {reason}")
