# Copyright (c) corral.virt contributors
# GNU General Public License v3.0+ (see COPYING or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
# This file is private to the collection and may change at any time.
"""A noun: schema, skeleton, identity, rules and live policy; and its stages in order."""

from __future__ import annotations

import dataclasses
import typing as t

from ansible_collections.corral.virt.plugins.module_utils._core.errors import BadInput, Refused, VirtError
from ansible_collections.corral.virt.plugins.module_utils._noun import plan_noun, xml_document
from ansible_collections.corral.virt.plugins.module_utils._noun.fields_schema import Schema
from ansible_collections.corral.virt.plugins.module_utils._noun.model_noun import Edited, Facts, Found, Spec
from ansible_collections.corral.virt.plugins.module_utils._noun.plan_noun import Case, NounPlan, Policy, Rule
from ansible_collections.corral.virt.plugins.module_utils._xml.overlay import Shape
from ansible_collections.corral.virt.plugins.module_utils._xml.row import values
from ansible_collections.corral.virt.plugins.module_utils._xml.tree import Element

__all__ = ["Noun", "plan"]


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
    host: t.Callable[[t.Any, str, Found | None], t.Any]
    live: Policy = dataclasses.field(default_factory=dict)
    finish: t.Callable[[Element], None] = lambda _root: None  # after an edit


def plan(noun: Noun, spec: Spec, facts: Facts) -> NounPlan:
    """The plan for one object; raises all refusals at once."""
    case = _edited_case(noun, spec, facts)
    if spec.state == "absent":
        result = plan_noun.absent(noun.schema.kind, case, noun.shown)
    else:
        result = plan_noun.present(noun.schema.kind, case, noun.live, noun.made(case.stored.after))
    findings = [one for rule in noun.rules for one in rule(case, result)]
    _refuse(
        [*_identity(noun, case), *_violations(noun, case), *(one for one in findings if isinstance(one, VirtError))]
    )
    return dataclasses.replace(result, notes=(*result.notes, *(one for one in findings if isinstance(one, str))))


def _edited_case(noun: Noun, spec: Spec, facts: Facts) -> Case:
    """The stored and running documents with the options written into them."""
    found = facts.found
    live = values(found.live_xml, noun.schema.table) if found and found.live_xml else None
    if spec.state == "absent":
        before = values(found.xml, noun.schema.table) if found else {}
        return Case(spec, facts, Edited("", before=before, after=before), live=live)
    stored = _edited(noun, spec, found.xml if found else noun.skeleton(spec))
    goes_on = spec.state != "inactive"
    running = _edited(noun, spec, found.live_xml) if found and found.live_xml and goes_on else None
    return Case(spec, facts, stored, running, live)


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
            f"cannot change uuid of {kind} {spec.name} from {found.uuid} to {spec.uuid}: another {kind} has this name; "
            "choose another name"
        )


def _violations(noun: Noun, case: Case) -> t.Iterator[VirtError]:
    for place, reason in case.stored.violations:
        yield BadInput(f"{place} of {noun.schema.kind} {case.spec.name}: {reason}")


def _refuse(problems: t.Sequence[VirtError]) -> None:
    """Raise the one problem, or an error with all of them."""
    if len(problems) == 1:
        raise problems[0]
    if any(isinstance(problem, BadInput) for problem in problems):
        raise BadInput([str(problem) for problem in problems])
    if problems:
        raise Refused("; ".join(map(str, problems)))
