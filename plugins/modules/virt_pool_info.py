#!/usr/bin/python
# Copyright (c) corral.virt contributors
# GNU General Public License v3.0+ (see COPYING or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""Read storage pools."""

from __future__ import annotations

DOCUMENTATION = r"""
module: virt_pool_info
short_description: Read storage pools
version_added: 0.1.0
author:
  - corral.virt contributors (@corral-virt)
description:
  - Returns the definition, state and sizes of the storage pools of a host, of every type, as options of
    M(corral.virt.virt_pool).
  - Warns of pools, and of LVM's thin pools in them, that are more than 90 % full.
  - The sizes are those of libvirt's last look at the pool. O(corral.virt.virt_pool#module:refresh) lets it look again.
extends_documentation_fragment:
  - corral.virt.connection
  - corral.virt.connection.info
options:
  name:
    description: Return only this pool. The list is empty if the host has no such pool.
    type: str
  arguments:
    description:
      - Also return the arguments of M(corral.virt.virt_pool) that describe each pool, however it was created.
      - Applying these arguments changes nothing.
    type: bool
    default: false
seealso:
  - module: corral.virt.virt_pool
  - module: corral.virt.virt_volume_info
"""

EXAMPLES = r"""
- name: Read all pools of the host
  corral.virt.virt_pool_info:
  register: found

- name: Stop if a pool is nearly full
  ansible.builtin.assert:
    that: item.available_bytes > 50 * 1024 ** 3
    fail_msg: "{{ item.name }} has less than 50 GiB left"
  loop: "{{ found.pools | selectattr('active') }}"
  loop_control:
    label: "{{ item.name }}"
"""

RETURN = r"""
pools:
  description: The pools, by name.
  returned: success
  type: list
  elements: dict
  contains:
    name: {description: Name., type: str, returned: always}
    uuid: {description: UUID., type: str, returned: always}
    persistent: {description: Whether a definition is stored., type: bool, returned: always}
    active: {description: Whether it runs., type: bool, returned: always}
    autostart: {description: Whether it starts when the host starts., type: bool, returned: always}
    type: {description: "Type, as libvirt names it: dir, fs, netfs, logical and others.", type: str, returned: always}
    path: {description: Directory or device directory of its volumes., type: str, returned: if it has one}
    source:
      description: Where the volumes come from, as in O(corral.virt.virt_pool#module:source).
      type: dict
      returned: if it has one
    capacity_bytes: {description: Size. Null if it is not active., type: int, returned: always}
    allocation_bytes: {description: Bytes in use. Null if it is not active., type: int, returned: always}
    available_bytes:
      description: Bytes left, as libvirt counts them, with those that the file system reserves for root. Null if it is
        not active.
      type: int
      returned: always
    thin_pools:
      description: The thin pools in the volume group. Empty if the user of the module may not ask LVM.
      returned: for an active pool of type logical on the machine on which the module runs
      type: list
      elements: dict
      contains:
        name: {description: Name., type: str, returned: always}
        size_bytes: {description: Size., type: int, returned: always}
        virtual_bytes: {description: Size of all its volumes., type: int, returned: always}
        zeroes: {description: Whether it zeros what it gives out., type: bool, returned: always}
        data_percent: {description: How much of it is in use. Null if it is not active., type: float, returned: always}
        metadata_percent:
          description: How much of its metadata is in use. Null if it is not active.
          type: float
          returned: always
    arguments:
      description: Arguments of M(corral.virt.virt_pool) that describe the pool.
      type: dict
      returned: with O(arguments)
"""

import typing as t

from ansible_collections.corral.virt.plugins.module_utils._core.run_module import URI_OPTION, Module, failures
from ansible_collections.corral.virt.plugins.module_utils._libvirt.connection import opened
from ansible_collections.corral.virt.plugins.module_utils._noun import run_noun_info
from ansible_collections.corral.virt.plugins.module_utils._storage import plan_pool_space, run_thin_pools
from ansible_collections.corral.virt.plugins.module_utils._storage.fields_pool import POOL_SCHEMA
from ansible_collections.corral.virt.plugins.module_utils._storage.libvirt_pool import POOL_TYPE, pools, sizes

OPTIONS = {**URI_OPTION, **run_noun_info.options(POOL_SCHEMA)}


def main() -> None:
    """Open, read, tell."""
    module = Module(argument_spec=OPTIONS, supports_check_mode=True)
    rows = []
    with failures(module):
        with opened(module.params["uri"], readonly=True) as connection:
            found = run_noun_info.rows(
                POOL_SCHEMA, POOL_TYPE, pools(connection), module.params, lambda pool, _found: sizes(pool)
            )
            uri = connection.getURI()
            rows = [{**pool, **run_thin_pools.told(uri, pool, _group(pool))} for pool in found]
    for warning in plan_pool_space.warnings(rows):
        module.warn(warning)
    module.exit_json(changed=False, pools=rows)


def _group(pool: t.Mapping[str, t.Any]) -> str:
    return str(pool.get("source", {}).get("name") or pool["name"])


if __name__ == "__main__":
    main()
