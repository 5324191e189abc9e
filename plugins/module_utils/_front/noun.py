# Copyright (c) corral.virt contributors
# GNU General Public License v3.0+ (see COPYING or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
# This file is private to the collection and may change at any time.
"""Every noun by table in one way: options, facts, plan, gate, result."""

from __future__ import annotations

import typing as t

from ansible_collections.corral.virt.plugins.module_utils import _changes, _units
from ansible_collections.corral.virt.plugins.module_utils._front import options
from ansible_collections.corral.virt.plugins.module_utils._libvirt import stored
from ansible_collections.corral.virt.plugins.module_utils._libvirt.connection import Connection
from ansible_collections.corral.virt.plugins.module_utils._model.noun import Facts, Found, Spec
from ansible_collections.corral.virt.plugins.module_utils._noun.noun import Noun, plan
from ansible_collections.corral.virt.plugins.module_utils._plan.problems import Problems, control_characters
from ansible_collections.corral.virt.plugins.module_utils._run import Gate
from ansible_collections.corral.virt.plugins.module_utils._xml import constraints, document, overlay
from ansible_collections.corral.virt.plugins.module_utils._xml.options import as_options

__all__ = ["argument_spec", "converge", "describe", "spec"]

_EXTRAS: dict[str, dict[str, t.Any]] = {
    "uuid": {"type": "str"},
    "xml": {"type": "str", "no_log": True},
    "allow_restart": {"type": "bool", "default": False},
    "force": {"type": "bool", "default": False},
}


def argument_spec(noun: Noun) -> dict[str, t.Any]:
    """The options of a noun; those in its XML come from its rows."""
    return {
        "name": {"type": "str", "required": True},
        "state": {"type": "str", "choices": list(noun.states), "default": noun.states[0]},
        "autostart": {"type": "bool"},
        **{option: _EXTRAS[option] for option in noun.extras},
        **options.spec(noun.options),
    }


def spec(noun: Noun, params: t.Mapping[str, t.Any]) -> Spec:
    """What the user says of one object; raises BadInput with every problem."""
    name, problems = params["name"], Problems()
    what = f"{noun.kind} {name}"
    problems.tried(lambda: _units.check_name(name, what="name"))
    stated = {key: value for key, value in params.items() if key not in ("name", "xml")}
    problems.found += control_characters(stated, what)
    fields = options.fields_of(noun.options, params, what, problems.found)
    problems.found += [f"{at} of {what}: {reason}" for at, reason in constraints.misfits(noun.options, fields)]
    more = _extras(noun, params, what, problems)
    problems.refuse()
    return Spec(name, params["state"], fields, params["autostart"], **more)


def _extras(noun: Noun, params: t.Mapping[str, t.Any], what: str, problems: Problems) -> dict[str, t.Any]:
    more = {key: params[key] for key in noun.extras if params.get(key) is not None}
    if "uuid" in more:
        more["uuid"] = problems.tried(lambda: _units.uuid_of(more["uuid"], what=f"uuid of {what}"))
    if "xml" in more:
        problems.read(f"xml of {what}", lambda: overlay.checked(more["xml"], noun.shape))
    return more


def converge(
    connection: Connection,
    noun: Noun,
    library: stored.Library,
    params: t.Mapping[str, t.Any],
    gate: Gate,
) -> dict[str, t.Any]:
    """Bring one object to what the parameters say, and return the result."""
    wanted = spec(noun, params)
    found = stored.find(connection, library, wanted.name)
    host = noun.host(library.host(connection, wanted.name), wanted.name, found)
    done = plan(noun, wanted, Facts(found, host))
    gate.run(done.steps, stored.doer(connection, library, found))
    states = {change.where: change.after for change in done.changes}
    row = {
        "name": wanted.name,
        **as_options(noun.options, done.after or {}),
        "active": states.get("active", found.active if found else False),
        "autostart": states.get("autostart", found.autostart if found else False),
    }
    return {
        "changed": bool(done.steps),
        "diff": _changes.diff(done.changes),
        "steps": [str(step) for step in done.steps],
        "pending": list(done.pending),
        "notes": list(done.notes),
        noun.kind: None if done.after is None else row,
    }


def describe(noun: Noun, name: str, found: Found) -> dict[str, t.Any]:
    """One object as data, in the words of the options: what runs where it runs."""
    values = document.values(found.live_xml or found.xml, noun.table)
    return {
        "name": name,
        "uuid": found.uuid,
        "persistent": found.persistent,
        **as_options(noun.table, values),
        "active": found.active,
        "autostart": found.autostart,
    }
