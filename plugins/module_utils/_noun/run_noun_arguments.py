# Copyright (c) corral.virt contributors
# SPDX-License-Identifier: GPL-3.0-or-later
"""An existing object, whoever defined it, as data and as the options of its module."""

from __future__ import annotations

import functools
import typing as t

from ansible.module_utils.common.arg_spec import ArgumentSpecValidator

from ansible_collections.corral.virt.plugins.module_utils._core.problems import Problems
from ansible_collections.corral.virt.plugins.module_utils._noun import plan_noun_import
from ansible_collections.corral.virt.plugins.module_utils._noun.fields_schema import Schema
from ansible_collections.corral.virt.plugins.module_utils._noun.model_noun import Found
from ansible_collections.corral.virt.plugins.module_utils._noun.run_noun_options import argument_spec, fields
from ansible_collections.corral.virt.plugins.module_utils._xml.options import as_options
from ansible_collections.corral.virt.plugins.module_utils._xml.row import values


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
