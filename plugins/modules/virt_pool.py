#!/usr/bin/python
# Copyright (c) corral.virt contributors
# GNU General Public License v3.0+ (see COPYING or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""A storage pool that is a directory."""

from __future__ import annotations

DOCUMENTATION = r"""
module: virt_pool
short_description: Manage directory storage pools
version_added: 0.1.0
author:
  - corral.virt contributors (@corral-virt)
description:
  - Turns a directory into a libvirt storage pool, for the disks of guests and the images they are created from.
  - The module refuses to change pools of other types.
  - The module never moves a pool and never removes its files.
  - If a new pool does not start, the module removes its definition again.
  - A note warns if QEMU's user cannot enter the directory or one above it, because guests cannot use disks there.
options:
  name:
    description: Name of the pool.
    type: str
    required: true
  path:
    description:
      - The directory. It is created if it does not exist.
      - A directory has one pool. A path that leads to the directory of another pool over a symbolic link or a second
        mount is refused.
      - An existing pool keeps its path. If the path contains a symbolic link, write it as the pool's definition does,
        because libvirt knows the disks by that path.
      - Required for a new pool.
    type: path
  state:
    description:
      - V(active) - defined and running, so that its volumes can be used.
      - V(inactive) - defined, not running.
      - V(absent) - unknown to libvirt. The directory and its content stay.
    type: str
    choices: [active, inactive, absent]
    default: active
  autostart:
    description:
      - Start the pool when the host starts.
      - For a new pool, the default is V(true) with O(state=active). An existing pool keeps its setting by default.
    type: bool
extends_documentation_fragment:
  - corral.virt.connection
  - corral.virt.connection.attributes
  - corral.virt.connection.seen
seealso:
  - module: corral.virt.virt_image
  - ref: corral.virt.storage role <ansible_collections.corral.virt.storage_role>
    description: Creates directories and pools.
"""

EXAMPLES = r"""
- name: Create a pool on the fast disks
  corral.virt.virt_pool:
    name: fast
    path: /srv/nvme/guests
"""

RETURN = r"""
pool:
  description: The pool as it is, or in check mode would be. Null if it is absent.
  returned: success
  type: dict
  contains:
    name: {description: Name of the pool., type: str, returned: always}
    path: {description: Directory of the pool., type: str, returned: always}
    active: {description: Whether it runs., type: bool, returned: always}
    autostart: {description: Whether it starts when the host starts., type: bool, returned: always}
steps:
  description: Steps that were done, or in check mode would be done.
  returned: success
  type: list
  elements: str
  sample: [define pool fast in /srv/nvme/guests, set autostart of pool fast on, start pool fast]
pending: {description: Changes that wait for a restart of the pool., returned: success, type: list, elements: str}
seen:
  description: Digest of what the steps were planned from, and of the steps; for O(seen) of a later run.
  returned: success
  type: str
notes: {description: Additional notes; also shown as warnings., returned: success, type: list, elements: str}
"""

from ansible_collections.corral.virt.plugins.module_utils._core.run_module import URI_OPTION
from ansible_collections.corral.virt.plugins.module_utils._noun import run_noun_module
from ansible_collections.corral.virt.plugins.module_utils._noun.run_noun_options import argument_spec
from ansible_collections.corral.virt.plugins.module_utils._storage.plan_pool import POOL
from ansible_collections.corral.virt.plugins.module_utils._storage.run_pools import API

OPTIONS = {**URI_OPTION, **argument_spec(POOL.schema)}


def main() -> None:
    """Entry point."""
    run_noun_module.run(POOL, API, OPTIONS)


if __name__ == "__main__":
    main()
