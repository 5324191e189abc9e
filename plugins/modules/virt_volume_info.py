#!/usr/bin/python
# Copyright (c) corral.virt contributors
# GNU General Public License v3.0+ (see COPYING or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""Read volumes of storage pools."""

from __future__ import annotations

DOCUMENTATION = r"""
module: virt_volume_info
short_description: Read volumes of storage pools
version_added: 0.1.0
author:
  - corral.virt contributors (@corral-virt)
description:
  - Returns the volumes of the active storage pools of a host, with their sizes, as options of
    M(corral.virt.virt_volume).
  - The pools are refreshed before, so that files that others have put there are seen.
  - A pool that cannot be read is left out with a warning, unless O(pool) asks for it. So are files whose names are not
    UTF-8.
extends_documentation_fragment:
  - corral.virt.connection
  - corral.virt.connection.info
options:
  name:
    description: Return only volumes with this name. The list is empty if the host has none.
    type: str
  pool:
    description: Return only the volumes of this pool.
    type: str
  arguments:
    description:
      - Also return the arguments of M(corral.virt.virt_volume) that describe each volume.
      - Applying these arguments changes nothing.
    type: bool
    default: false
  users_of:
    description:
      - Absolute paths of files, or UUIDs of logical volumes. Instead of volumes, return who uses these on this host
        (guests, stored, running, saved, with snapshots and backup jobs; volumes on top of them; loop devices; removed
        disks that are kept), whether or not they are in a pool.
      - This tells of other hosts whether they use a volume that they share, if the values are RV(volumes[].identity) of
        the first host.
      - Where a path is not that of a file on a shared filesystem on this host, users of a file with the same name
        elsewhere on a shared filesystem count, because this host may have mounted the filesystem there.
    type: list
    elements: str
seealso:
  - module: corral.virt.virt_volume
  - module: corral.virt.virt_pool_info
"""

EXAMPLES = r"""
- name: Read all volumes of the host
  corral.virt.virt_volume_info:
  register: found

- name: Show those that take most
  ansible.builtin.debug:
    msg: "{{ item.pool }}/{{ item.name }}: {{ item.allocation_bytes | ansible.builtin.human_readable }}"
  loop: "{{ (found.volumes | sort(attribute='allocation_bytes', reverse=true))[:5] }}"
  loop_control:
    label: "{{ item.name }}"
"""

RETURN = r"""
volumes:
  description: The volumes, by pool and name.
  returned: success
  type: list
  elements: dict
  contains:
    name: {description: Name., type: str, returned: always}
    pool: {description: Name of the pool., type: str, returned: always}
    path: {description: Path of the file or device., type: str, returned: always}
    shared: {description: 'Kind of its filesystem if other hosts may mount it, such as nfs4, or its volume group if that
      may be on disks of several hosts; null if it is local, or on another machine.', type: str, returned: always}
    identity: {description: 'What other hosts know it by, for O(users_of): the path of a file, the UUIDs of a logical
      volume.', type: str, returned: always}
    capacity: {description: Size that a guest sees., type: str, returned: always}
    format: {description: Format of the file., type: str, returned: if it has one}
    encryption: {description: How it is encrypted., type: str, returned: if it is}
    backing: {description: File on which it stands with its format., type: dict, returned: if it has one}
    capacity_bytes: {description: Size that a guest sees., type: int, returned: always}
    allocation_bytes: {description: Bytes that it takes., type: int, returned: always}
    arguments:
      description: Arguments of M(corral.virt.virt_volume) that describe the volume.
      type: dict
      returned: with O(arguments)
users:
  description: A user of each file or logical volume, by what was given; null if there is none.
  returned: with O(users_of)
  type: dict
"""

import typing as t

from ansible_collections.corral.virt.plugins.module_utils._core.run_module import URI_OPTION, Module, failures
from ansible_collections.corral.virt.plugins.module_utils._libvirt.connection import opened
from ansible_collections.corral.virt.plugins.module_utils._noun import run_noun_info
from ansible_collections.corral.virt.plugins.module_utils._volume.fields_volume import VOLUME_SCHEMA, sizes
from ansible_collections.corral.virt.plugins.module_utils._volume.libvirt_volume import VOLUME_TYPE, volumes
from ansible_collections.corral.virt.plugins.module_utils._volume.run_volume_users import sharing, users

OPTIONS = {
    **URI_OPTION,
    **run_noun_info.options(VOLUME_SCHEMA),
    "users_of": {"type": "list", "elements": "str"},
}


def main() -> None:
    """Open, read, tell."""
    module = Module(argument_spec=OPTIONS, supports_check_mode=True)
    answer, problems = dict[str, t.Any](), list[str]()
    with failures(module), opened(module.params["uri"]) as connection:  # a refresh is no question
        if module.params["users_of"] is not None:
            answer = {"volumes": [], "users": users(connection, module.params["users_of"])}
        else:
            found = volumes(connection, module.params["pool"], module.params["name"], problems)
            shared = sharing(connection)
            rows = run_noun_info.rows(
                VOLUME_SCHEMA,
                VOLUME_TYPE,
                found,
                module.params,
                lambda volume, its: {**sizes(its.xml), **shared(volume.path())},
            )
            answer = {"volumes": rows}
    for problem in problems:
        module.warn(problem)
    module.exit_json(changed=False, **answer)


if __name__ == "__main__":
    main()
