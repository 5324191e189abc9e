#!/usr/bin/python
# Copyright (c) corral.virt contributors
# GNU General Public License v3.0+ (see COPYING or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""A storage pool that is a directory."""

from __future__ import annotations

DOCUMENTATION = r"""
module: virt_pool
short_description: A storage pool that is a directory
version_added: 0.1.0
author:
  - corral.virt contributors (@corral-virt)
description:
  - Makes a directory a storage pool of libvirt, for the disks of guests and the images they are made from.
  - Pools of other types are left alone; the module refuses to change them.
  - A pool is never moved and its files are never removed.
options:
  name:
    description: Name of the pool.
    type: str
    required: true
  path:
    description:
      - The directory. Made when it does not exist.
      - Required for a new pool.
    type: path
  state:
    description:
      - V(active) - defined and running, so that its volumes can be used.
      - V(inactive) - defined only.
      - V(absent) - not known to libvirt. The directory stays, and all that is in it.
    type: str
    choices: [active, inactive, absent]
    default: active
  autostart:
    description:
      - Start the pool with the host.
      - Default for a new pool is V(true) when O(state=active); of a pool that exists, what it is.
    type: bool
extends_documentation_fragment:
  - corral.virt.connection
  - corral.virt.connection.attributes
seealso:
  - module: corral.virt.virt_image
  - ref: corral.virt.storage role <ansible_collections.corral.virt.storage_role>
    description: Makes directories and pools.
"""

EXAMPLES = r"""
- name: Keep guests on the fast disks
  corral.virt.virt_pool:
    name: fast
    path: /srv/nvme/guests
"""

RETURN = r"""
pool:
  description: The pool as it is, or in check mode would be. Null when it is absent.
  returned: success
  type: dict
  contains:
    name: {description: Its name., type: str, returned: always}
    path: {description: Its directory., type: str, returned: always}
    active: {description: Whether it runs., type: bool, returned: always}
    autostart: {description: Whether it starts with the host., type: bool, returned: always}
steps:
  description: What was done, or in check mode would be.
  returned: success
  type: list
  elements: str
  sample: [define pool fast in /srv/nvme/guests, set autostart of pool fast on, start pool fast]
"""

import typing as t

from ansible_collections.corral.virt.plugins.module_utils import _changes
from ansible_collections.corral.virt.plugins.module_utils._front.module import URI_OPTION, Module, failures
from ansible_collections.corral.virt.plugins.module_utils._libvirt import pool as pools
from ansible_collections.corral.virt.plugins.module_utils._libvirt.connection import Connection, opened
from ansible_collections.corral.virt.plugins.module_utils._model.pool import STATES, Found, Wanted
from ansible_collections.corral.virt.plugins.module_utils._plan import pool as plan
from ansible_collections.corral.virt.plugins.module_utils._run import Gate
from ansible_collections.corral.virt.plugins.module_utils._units import check_name
from ansible_collections.corral.virt.plugins.module_utils._xml import caps
from ansible_collections.corral.virt.plugins.module_utils._xml import pool as xml

SPEC = {
    **URI_OPTION,
    "name": {"type": "str", "required": True},
    "path": {"type": "path"},
    "state": {"type": "str", "choices": list(STATES), "default": "active"},
    "autostart": {"type": "bool"},
}


def run(params: t.Mapping[str, t.Any], connection: Connection, gate: Gate) -> dict[str, t.Any]:
    """Fetch, plan, pass through the gate, report."""
    name = check_name(params["name"], what="name")
    wanted = Wanted(name, params["path"], params["state"], params["autostart"])
    looked = pools.look(connection, name)
    found = None
    if looked:
        said = caps.pool(looked[0])
        found = Found(said["type"], said["path"], active=looked[1], autostart=looked[2])
    steps, changes = plan.decide(wanted, found)

    def do(step: plan.Step) -> None:
        if isinstance(step, plan.Define):
            pools.define(connection, name, xml.new(name, step.path))
        elif isinstance(step, plan.SetAutostart):
            pools.set_autostart(connection, name, step.on)
        else:
            verbs = {plan.Start: pools.start, plan.Stop: pools.stop, plan.Undefine: pools.undefine}
            verbs[type(step)](connection, name)

    gate.run(steps, do)
    row: dict[str, t.Any] = {"path": found.path, "active": found.active, "autostart": found.autostart} if found else {}
    row.update({change.where: change.after for change in changes})
    gone = params["state"] == "absent"
    return {
        "changed": bool(steps),
        "diff": _changes.diff(changes),
        "steps": [str(step) for step in steps],
        "pool": None if gone else {"name": name, **row},
    }


def main() -> None:
    """Entry point."""
    module = Module(argument_spec=SPEC, supports_check_mode=True)
    with failures(module):
        with opened(module.params["uri"]) as connection:
            result = run(module.params, connection, Gate(check_mode=module.check_mode))
    module.exit_json(**result)


if __name__ == "__main__":
    main()
