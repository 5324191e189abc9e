#!/usr/bin/python
# Copyright (c) corral.virt contributors
# GNU General Public License v3.0+ (see COPYING or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""Move all disks of guests out of a storage pool."""

from __future__ import annotations

DOCUMENTATION = r"""
module: virt_pool_drain
short_description: Move all disks of guests out of a storage pool
version_added: 0.1.0
author:
  - corral.virt contributors (@corral-virt)
description:
  - Moves every disk of a guest in a pool to other pools of the host, one after the other, as
    M(corral.virt.virt_disk_move) moves one, while its guest runs or while it is off. The seed that the collection made
    for a guest moves, too, to the first of these pools that is a directory.
  - The module first decides where each disk goes, and refuses with all problems at once before anything moves. Examples
    are a disk with snapshots, or too little room for all of them. After that, a disk whose move fails does not stop the
    others, and the module fails at its end.
  - Images that back other disks, media in drives, other disks that are only read, and files that no guest uses stay;
    RV(left) lists them.
  - If a run is interrupted, the next one goes on where it ended.
  - One line shows how far the copy is. The module goes on if the connection to the host breaks, or the controller dies.
  - This module must run on the host of the pool. The pools must be of type V(dir), V(fs), V(netfs) or V(logical). On a
    logical volume, a disk takes all its size. From one, it becomes a raw file.
options:
  pool:
    description: The pool that the disks leave.
    type: str
    required: true
  to:
    description: The pools that they move to. Each disk goes to the first one with room, the largest disk first.
    type: list
    elements: str
    required: true
  movable_only:
    description: Move the disks that can move although others cannot. The module then fails at its end.
    type: bool
    default: false
  bandwidth:
    description: The most that QEMU copies of a running guest's disk, in MiB per second. V(0) is without limit.
    type: int
    default: 0
  job_timeout:
    description: How long the copy of one running guest's disk may take, in seconds. After that it is ended, and the
      disk stays where it was.
    type: int
    default: 3600
extends_documentation_fragment:
  - corral.virt.connection
  - corral.virt.connection.attributes
seealso:
  - module: corral.virt.virt_disk_move
  - module: corral.virt.virt_pool
"""

EXAMPLES = r"""
- name: Move all disks of guests to the new pools
  corral.virt.virt_pool_drain:
    pool: old
    to: [fast, large]
  register: drained

- name: Show what stays
  ansible.builtin.debug:
    msg: "{{ item.path }}: {{ item.why }}"
  loop: "{{ drained.left }}"
  loop_control:
    label: "{{ item.path }}"
"""

RETURN = r"""
results:
  description: One entry for each guest with a disk that moved, or in check mode would move.
  returned: always
  type: list
  elements: dict
  contains:
    name: {description: Name of the guest., type: str, returned: always}
    changed: {description: Whether a disk moved., type: bool, returned: always}
    disks:
      description: Its disks, as M(corral.virt.virt_disk_move) returns them.
      type: list
      elements: dict
      returned: always
    steps: {description: Steps that were done., type: list, elements: str, returned: always}
    notes: {description: Additional notes., type: list, elements: str, returned: always}
    failed: {description: Whether a disk could not be moved., type: bool, returned: on failure}
    msg: {description: Why not., type: str, returned: on failure}
steps: {description: Steps that were done for all disks., returned: always, type: list, elements: str}
left:
  description: Files that are in the pool afterwards, or in check mode would be.
  returned: always
  type: list
  elements: dict
  contains:
    path: {description: The file., type: str, returned: always}
    size_bytes: {description: Bytes that it takes., type: int, returned: always}
    why: {description: "Who uses it, or what to do with it.", type: str, returned: always}
notes: {description: Additional notes; also shown as warnings., returned: always, type: list, elements: str}
"""

import typing as t

from ansible_collections.corral.virt.plugins.module_utils._core.run_module import URI_OPTION, Module, failures
from ansible_collections.corral.virt.plugins.module_utils._core.gate import Gate
from ansible_collections.corral.virt.plugins.module_utils._disk_move import run_pool_drain
from ansible_collections.corral.virt.plugins.module_utils._libvirt.connection import opened
from ansible_collections.corral.virt.plugins.module_utils._system.detached import detach

OPTIONS = {
    **URI_OPTION,
    "pool": {"type": "str", "required": True},
    "to": {"type": "list", "elements": "str", "required": True},
    "movable_only": {"type": "bool", "default": False},
    "bandwidth": {"type": "int", "default": 0},
    "job_timeout": {"type": "int", "default": 3600},
}


def main() -> None:
    """Entry point."""
    module = Module(argument_spec=OPTIONS, supports_check_mode=True)
    result: dict[str, t.Any] = {}
    with failures(module):
        detach("virt_pool_drain")
        with opened(module.params["uri"], events=True) as connection:
            result = run_pool_drain.converge(connection, module.params, Gate(check_mode=module.check_mode))
    for note in result["notes"]:
        module.warn(note)
    if message := result.pop("msg"):
        module.fail_json(message, **result)
    module.exit_json(**result)


if __name__ == "__main__":
    main()
