# Copyright (c) corral.virt contributors
# SPDX-License-Identifier: GPL-3.0-or-later
"""All objects of a noun on a host, as data."""

from __future__ import annotations

import contextlib
import typing as t

from ansible_collections.corral.virt.plugins.module_utils._core.errors import NotFound
from ansible_collections.corral.virt.plugins.module_utils._core.object_ref import Ref
from ansible_collections.corral.virt.plugins.module_utils._noun.fields_schema import Schema
from ansible_collections.corral.virt.plugins.module_utils._noun.libvirt_type import ObjectType, found
from ansible_collections.corral.virt.plugins.module_utils._noun.model_noun import Found
from ansible_collections.corral.virt.plugins.module_utils._noun.run_noun_arguments import arguments, describe

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
