# Copyright (c) corral.virt contributors
# SPDX-License-Identifier: GPL-3.0-or-later
"""Describe an existing object of a noun, whoever defined it, with the options of its module."""

from __future__ import annotations

import typing as t

from ansible_collections.corral.virt.plugins.module_utils._noun.fields_schema import Schema
from ansible_collections.corral.virt.plugins.module_utils._noun.model_noun import Found
from ansible_collections.corral.virt.plugins.module_utils._xml.options import as_options
from ansible_collections.corral.virt.plugins.module_utils._xml.row import values

Given = t.Mapping[str, t.Any]


def imported(
    schema: Schema, name: str, found: Found, accepts: t.Callable[[Given], bool], within: str | None = None
) -> dict[str, t.Any]:
    """The options that describe the definition: applied to it, they change nothing.

    An option that the module does not accept with this value is left out, and so left alone.
    """
    kind = schema.kind
    given: dict[str, t.Any] = {"name": name, **({kind.within: within} if kind.within else {})}
    if kind.activity:
        given["state"] = "active" if found.active else "inactive"
    if kind.autostart:
        given["autostart"] = found.autostart
    stated = as_options(schema.options, values(found.xml, schema.table))
    if accepts({**given, **stated}):
        return {**given, **stated}
    for option, value in stated.items():
        if accepts({**given, option: value}):
            given[option] = value
    return given
