# Copyright (c) corral.virt contributors
# GNU General Public License v3.0+ (see COPYING or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
# This file is private to the collection and may change at any time.
"""Every noun by table in one way: facts, plan, gate, result."""

from __future__ import annotations

import typing as t

from ansible_collections.corral.virt.plugins.module_utils import _changes, _units
from ansible_collections.corral.virt.plugins.module_utils._front import noun_options
from ansible_collections.corral.virt.plugins.module_utils._libvirt import object_type
from ansible_collections.corral.virt.plugins.module_utils._libvirt.connection import Connection
from ansible_collections.corral.virt.plugins.module_utils._libvirt.object_api import ObjectApi, doer
from ansible_collections.corral.virt.plugins.module_utils._model.noun import Facts, Spec
from ansible_collections.corral.virt.plugins.module_utils._noun.noun import Noun, plan
from ansible_collections.corral.virt.plugins.module_utils._plan.problems import Problems
from ansible_collections.corral.virt.plugins.module_utils._run import Gate
from ansible_collections.corral.virt.plugins.module_utils._xml import overlay
from ansible_collections.corral.virt.plugins.module_utils._xml.options import as_options

__all__ = ["converge", "spec"]


def spec(noun: Noun, params: t.Mapping[str, t.Any]) -> Spec:
    """What the user says of one object; raises BadInput with every problem."""
    problems = Problems()
    fields = noun_options.fields(noun.schema, params, problems)
    more = _extras(noun, params, problems)
    problems.refuse()
    return Spec(params["name"], params["state"], fields, params["autostart"], **more)


def _extras(noun: Noun, params: t.Mapping[str, t.Any], problems: Problems) -> dict[str, t.Any]:
    what = f"{noun.schema.kind} {params['name']}"
    more = {key: params[key] for key in noun.schema.extras if params.get(key) is not None}
    if "uuid" in more:
        more["uuid"] = problems.tried(lambda: _units.uuid_of(more["uuid"], what=f"uuid of {what}"))
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
    """Bring one object to what the parameters say, and return the result."""
    wanted = spec(noun, params)
    found = object_type.find(connection, api.of, wanted.name)
    host = noun.host(api.host(connection, wanted.name), wanted.name, found)
    done = plan(noun, wanted, Facts(found, host))
    gate.run(done.steps, doer(connection, api, found))
    states = {change.where: change.after for change in done.changes}
    row = {
        "name": wanted.name,
        **as_options(noun.schema.options, done.after or {}),
        "active": states.get("active", found.active if found else False),
        "autostart": states.get("autostart", found.autostart if found else False),
    }
    return {
        "changed": bool(done.steps),
        "diff": _changes.diff(done.changes),
        "steps": [str(step) for step in done.steps],
        "pending": list(done.pending),
        "notes": list(done.notes),
        noun.schema.kind: None if done.after is None else row,
    }
