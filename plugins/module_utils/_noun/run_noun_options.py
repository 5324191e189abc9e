# Copyright (c) corral.virt contributors
# SPDX-License-Identifier: GPL-3.0-or-later
"""The options of a noun, and the fields that they set."""

from __future__ import annotations

import typing as t

from ansible_collections.corral.virt.plugins.module_utils._core.problems import Problems, control_characters
from ansible_collections.corral.virt.plugins.module_utils._noun.fields_schema import Schema
from ansible_collections.corral.virt.plugins.module_utils._xml import constraints, run_arguments

_EXTRAS: dict[str, dict[str, t.Any]] = {
    "uuid": {"type": "str"},
    "xml": {"type": "str", "no_log": True},
    "allow_restart": {"type": "bool", "default": False},
    "force": {"type": "bool", "default": False},
}


def argument_spec(schema: Schema) -> dict[str, t.Any]:
    """The options of a noun; those in its XML come from its rows."""
    kind = schema.kind
    return {
        "name": {"type": "str", "required": True},
        **({kind.within: {"type": "str", "required": True}} if kind.within else {}),
        "state": {"type": "str", "choices": list(schema.states), "default": schema.states[0]},
        "seen": {"type": "str"},
        **({"autostart": {"type": "bool"}} if kind.autostart else {}),
        **{option: _EXTRAS[option] for option in schema.extras},
        **run_arguments.spec(schema.options),
        **{option: dict(one) for option, one in schema.own.items()},
    }


def fields(schema: Schema, params: t.Mapping[str, t.Any], problems: Problems) -> dict[str, t.Any]:
    """The user's values for one object's fields; problems with them and with the name are added to `problems`."""
    what = f"{schema.kind.name} {params['name']}"
    problems.tried(lambda: schema.check_name(params["name"], what="name"))
    hidden = {option for option, one in schema.own.items() if one.get("no_log")}
    stated = {key: value for key, value in params.items() if key not in ("name", "xml", *hidden)}
    problems.found += control_characters(stated, what)
    found = run_arguments.fields_of(schema.options, params, what, problems.found)
    problems.found += [f"{at} of {what}: {reason}" for at, reason in constraints.violations(schema.options, found)]
    return found
