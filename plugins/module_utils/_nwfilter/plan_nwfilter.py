# Copyright (c) corral.virt contributors
# SPDX-License-Identifier: GPL-3.0-or-later
"""Rules of network filters."""

from __future__ import annotations

import typing as t

from ansible_collections.corral.virt.plugins.module_utils._core.errors import Refused, VirtError
from ansible_collections.corral.virt.plugins.module_utils._core.output import some_of
from ansible_collections.corral.virt.plugins.module_utils._noun.model_noun import Spec
from ansible_collections.corral.virt.plugins.module_utils._noun.plan_noun import Case, NounPlan
from ansible_collections.corral.virt.plugins.module_utils._noun.plan_noun_stages import Noun
from ansible_collections.corral.virt.plugins.module_utils._nwfilter.fields_nwfilter import (
    NWFILTER_SCHEMA,
    SHAPE,
    named_by_guest,
    references,
    skeleton,
)
from ansible_collections.corral.virt.plugins.module_utils._nwfilter.model_nwfilter import BUILT_IN

Findings = t.Iterator[t.Union[VirtError, str]]


class NwfilterHost(t.Protocol):
    """The host of a network filter."""

    def filters(self) -> t.Mapping[str, str]:
        """The documents of all filters, by name."""

    def guests(self) -> t.Iterable[tuple[str, t.Iterable[str]]]:
        """All guests, each with its documents, stored and running."""


def _problems(spec: Spec) -> t.Iterator[str]:
    if spec.xml and spec.fields.get("filterrefs") is not None and "<filterref" in spec.xml:
        yield f"xml of nwfilter {spec.name}: filterrefs are given in xml or as filterrefs, not both"


def _keeps_the_built_in(case: Case, plan: NounPlan) -> Findings:
    """Refuse to change what comes with libvirt: other filters, and people, count on what it does."""
    if plan.steps and case.spec.name in BUILT_IN and not case.spec.force:
        yield Refused(
            f"cannot {plan.steps[0].verb} {case.ref(NWFILTER_SCHEMA.kind)}: it comes with libvirt; define a filter "
            "with another name that has it in filterrefs, or set force: true"
        )


def _keeps_its_users(case: Case, plan: NounPlan) -> Findings:
    """Refuse to remove a filter that something names: it could not start."""
    name, host = case.spec.name, case.host
    if case.spec.state != "absent" or not plan.steps:
        return
    users = {f"guest {one}" for one, documents in host.guests() if name in named_by_guest(*documents)}
    users |= {f"nwfilter {one}" for one, document in host.filters().items() if name in references(document)}
    if users:
        yield Refused(
            f"cannot undefine {case.ref(NWFILTER_SCHEMA.kind)}: it is named by {some_of(sorted(users), 4)}; give the "
            "interfaces of these guests, and these filters, another one first"
        )


def _ends(case: Case, plan: NounPlan) -> Findings:
    """Refuse a filter that includes itself, as libvirt does; note filters that are not there yet."""
    if case.spec.state == "absent" or not plan.steps:
        return
    name, ref = case.spec.name, case.ref(NWFILTER_SCHEMA.kind)
    own = case.stored.after.get("filterrefs", ())
    filters = {one: references(document) for one, document in case.host.filters().items()} | {name: own}
    reached = set(own)
    while new := {two for one in reached for two in filters.get(one, ())} - reached:
        reached |= new
    if name in reached:
        yield Refused(f"cannot define {ref}: it would include itself, by way of filterrefs; remove the one that does")
    missing = sorted(reached - set(filters))
    if missing:
        yield f"{ref} includes {some_of(missing, 4)}, which this host does not have: no guest can start with it before"


def _row(case: Case, _plan: NounPlan) -> dict[str, str]:
    """The UUID, as far as it is known: libvirt gives one to a new filter."""
    uuid = case.found.uuid if case.found else case.spec.uuid
    return {"uuid": uuid} if uuid else {}


NWFILTER = Noun(
    schema=NWFILTER_SCHEMA,
    shape=SHAPE,
    skeleton=skeleton,
    rules=(_keeps_the_built_in, _keeps_its_users, _ends),
    made=lambda values: f"(chain {values['chain']})" if values.get("chain", "root") != "root" else "",
    shown=("chain", "priority", "filterrefs"),
    problems=_problems,
    row=_row,
)
