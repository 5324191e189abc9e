# Copyright (c) corral.virt contributors
# SPDX-License-Identifier: GPL-3.0-or-later
"""Objects of a noun on a host, whoever defined them: as data, and as the options of their module."""

from __future__ import annotations

import contextlib
import functools
import typing as t

from ansible.module_utils.common.arg_spec import ArgumentSpecValidator

from ansible_collections.corral.virt.plugins.module_utils._core.errors import NotFound
from ansible_collections.corral.virt.plugins.module_utils._core.object_ref import Ref
from ansible_collections.corral.virt.plugins.module_utils._core.problems import Problems
from ansible_collections.corral.virt.plugins.module_utils._noun import plan_noun_import
from ansible_collections.corral.virt.plugins.module_utils._noun.fields_schema import Schema
from ansible_collections.corral.virt.plugins.module_utils._noun.libvirt_type import ObjectType, found
from ansible_collections.corral.virt.plugins.module_utils._noun.model_noun import Found
from ansible_collections.corral.virt.plugins.module_utils._noun.run_noun_options import argument_spec, fields
from ansible_collections.corral.virt.plugins.module_utils._xml.options import as_options
from ansible_collections.corral.virt.plugins.module_utils._xml.row import values

More = t.Callable[[t.Any, Found], t.Mapping[str, t.Any]]


def options(schema: Schema) -> dict[str, t.Any]:
    """The options of the info module of a noun, beside the connection."""
    within = {schema.kind.within: {"type": "str"}} if schema.kind.within else {}
    return {"name": {"type": "str"}, **within, "arguments": {"type": "bool", "default": False}}


def rows(
    schema: Schema,
    type_: ObjectType,
    things: t.Iterable[tuple[Ref, t.Any]],
    params: t.Mapping[str, t.Any],
    more: More = lambda _thing, _found: {},
) -> list[dict[str, t.Any]]:
    """The objects that the options ask for, sorted by name; one that goes meanwhile is left out.

    `more` tells what the table has no rows for, of one of libvirt's objects and what was found of it.
    """
    place = params.get(schema.kind.within) if schema.kind.within else None
    wanted = [
        (ref, thing)
        for ref, thing in things
        if params["name"] in (None, ref.name) and (place is None or place == _within(ref))
    ]
    told = []
    for ref, thing in sorted(wanted, key=lambda one: (_within(one[0]) or "", one[0].name)):
        with contextlib.suppress(NotFound):
            told.append(_row(schema, type_, ref, thing, more, with_arguments=params["arguments"]))
    return told


def _within(ref: Ref) -> str | None:
    return ref.within.name if ref.within else None


def _row(
    schema: Schema, type_: ObjectType, ref: Ref, thing: t.Any, more: More, *, with_arguments: bool
) -> dict[str, t.Any]:
    there, within = found(thing, type_), _within(ref)
    return {
        **describe(schema, ref.name, there, within),
        **more(thing, there),
        **({"arguments": arguments(schema, ref.name, there, within)} if with_arguments else {}),
    }


def describe(schema: Schema, name: str, found: Found, within: str | None = None) -> dict[str, t.Any]:
    """One object as data, with the names of its options: as it runs, or as defined."""
    kind = schema.kind
    return {
        "name": name,
        **({kind.within: within} if kind.within else {}),
        **({"uuid": found.uuid} if kind.uuid else {}),
        **({"persistent": found.persistent} if kind.persistence else {}),
        **as_options(schema.table, values(found.live_xml or found.xml, schema.table)),
        **({"active": found.active} if kind.activity else {}),
        **({"autostart": found.autostart} if kind.autostart else {}),
    }


def arguments(schema: Schema, name: str, found: Found, within: str | None = None) -> dict[str, t.Any]:
    """The options that describe the definition: applied to it, they change nothing."""
    return plan_noun_import.imported(schema, name, found, functools.partial(_accepts, schema), within)


def _accepts(schema: Schema, given: t.Mapping[str, t.Any]) -> bool:
    """True if the module itself would accept the options."""
    result, problems = ArgumentSpecValidator(argument_spec(schema)).validate(dict(given)), Problems()
    if not result.error_messages:
        fields(schema, result.validated_parameters, problems)
    return not result.error_messages and not problems.found
