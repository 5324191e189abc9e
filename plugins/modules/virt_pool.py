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
pending: {description: What waits for a restart of the pool., returned: success, type: list, elements: str}
notes: {description: What to know beside the steps., returned: success, type: list, elements: str}
"""

from ansible_collections.corral.virt.plugins.module_utils._front import noun
from ansible_collections.corral.virt.plugins.module_utils._front.module import URI_OPTION, Module, failures
from ansible_collections.corral.virt.plugins.module_utils._libvirt.connection import opened
from ansible_collections.corral.virt.plugins.module_utils._libvirt.pool import LIBRARY
from ansible_collections.corral.virt.plugins.module_utils._noun.pool import POOL
from ansible_collections.corral.virt.plugins.module_utils._run import Gate

OPTIONS = {**URI_OPTION, **noun.argument_spec(POOL)}


def main() -> None:
    """Entry point."""
    module = Module(argument_spec=OPTIONS, supports_check_mode=True)
    with failures(module):
        with opened(module.params["uri"]) as connection:
            gate = Gate(check_mode=module.check_mode)
            result = noun.converge(connection, POOL, LIBRARY, module.params, gate)
    module.exit_json(**result)


if __name__ == "__main__":
    main()
